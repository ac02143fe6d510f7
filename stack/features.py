"""`features`: which levels of features a cell has finalized, and its brokers support; move them.

After an upgrade of all brokers a cell goes on at the level of before, so that one can go back. Then
`features upgrade` finalizes what the new version brings. The cell refuses it while a registered
broker does not know it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.api_versions_request import ApiVersionsRequest
from data_plane.wire.messages.update_features_request import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from data_plane.wire.registry import ApiKey
from stack.admin_connection import CLIENT_ID, AdminConnection
from stack.errors import EXIT_USAGE, StackError

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""Kafka's upgrade types. The last one forgets what is only remembered of what was deleted."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature: its finalized level, 0 when it is not in use, and what the broker supports."""

    name: str
    level: int
    min_level: int
    max_level: int

    def __str__(self) -> str:
        return f"{self.name}: level {self.level}, supported {self.min_level} to {self.max_level}"


def describe(connection: AdminConnection) -> list[Feature]:
    """What the broker of this connection says. Raises StackError."""
    # From version 3 on a client has to say who it is.
    request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1")
    answer = connection.request(ApiKey.API_VERSIONS, request)
    levels = {item.name: item.max_version_level for item in answer.finalized_features}
    return [
        Feature(item.name, levels.get(item.name, 0), item.min_version, item.max_version)
        for item in sorted(answer.supported_features, key=lambda item: str(item.name))
    ]


def update(
    connection: AdminConnection, levels: Mapping[str, int], upgrade_type: int, *, dry_run: bool
) -> None:
    """Raises StackError, with the words of the cell, when it refuses."""
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
            for name, level in levels.items()
        ],
        validate_only=dry_run,
    )
    answer = connection.request(ApiKey.UPDATE_FEATURES, request)
    if answer.error_code:
        raise StackError(answer.error_message or ErrorCode(answer.error_code).message)


def parse_levels(texts: Sequence[str]) -> dict[str, int]:
    """`NAME=LEVEL` each. Raises StackError.

    >>> parse_levels(["metadata.version=2"])
    {'metadata.version': 2}
    """
    levels = {}
    for text in texts:
        name, _, level = text.partition("=")
        if not name or not level.isdecimal():
            raise StackError(f"{text}: write NAME=LEVEL, such as metadata.version=2.", EXIT_USAGE)
        levels[name] = int(level)
    return levels


def run_describe(bootstrap: str | None, *, as_json: bool) -> int:
    """Print all features."""
    with AdminConnection(bootstrap) as connection:
        found = describe(connection)
    if as_json:
        print(json.dumps([_as_json(item) for item in found]))
    else:
        print("\n".join(map(str, found)) or "These brokers have no features.")
    return 0


def run_update(
    bootstrap: str | None,
    action: str,
    texts: Sequence[str],
    *,
    dry_run: bool,
    is_unsafe: bool,
    as_json: bool,
) -> int:
    """Finalize other levels: those that are given, or for an upgrade the newest of all features."""
    levels = parse_levels(texts)
    is_upgrade = action == "upgrade"
    if is_upgrade and is_unsafe:
        raise StackError("--unsafe goes with downgrade.", EXIT_USAGE)
    if not levels and not is_upgrade:
        raise StackError(
            "Say which level: features downgrade NAME=LEVEL, such as metadata.version=1.",
            EXIT_USAGE,
        )
    with AdminConnection(bootstrap) as connection:
        before = {item.name: item for item in describe(connection)}
        if not levels:
            levels = {
                name: item.max_level for name, item in before.items() if item.level < item.max_level
            }
        if levels:
            kind = UNSAFE_DOWNGRADE if is_unsafe else SAFE_DOWNGRADE
            if is_upgrade:
                kind = UPGRADE
            update(connection, levels, kind, dry_run=dry_run)
    if as_json:
        print(json.dumps({"dry_run": dry_run, "levels": levels}))
        return 0
    for name, level in levels.items():
        old = f", was {before[name].level}" if name in before else ""
        print(f"{name}: {'would be' if dry_run else 'is'} at level {level}{old}.")
    if not levels:
        print("All features are at the newest level that this broker supports.")
    return 0


def _as_json(item: Feature) -> dict[str, object]:
    return {
        "feature": item.name,
        "level": item.level,
        "min_level": item.min_level,
        "max_level": item.max_level,
    }
