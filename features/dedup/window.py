"""`dedup.window.ms`, a property of topics, and what it goes together with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from data_plane.broker.config.definition import ConfigDefinition, Value, between, define
from data_plane.cell.virtual_topics import HEADERS_PROPERTY, SOURCE_PROPERTY

WINDOW_PROPERTY: Final = "dedup.window.ms"
WINDOW_MS_MAX: Final = 7 * 86_400_000

WINDOW_DEFINITION: Final[ConfigDefinition] = define(
    WINDOW_PROPERTY,
    "LONG",
    0,
    "For how long a message id (`tw-id`) that a partition has taken is not taken again: the second "
    "message is acknowledged, and not stored. By the time of the append, which is the timestamp of "
    "the topic's records then. 0: ids are of no consequence. Needs `tidewheel.headers=true`.",
    between(0, WINDOW_MS_MAX),
)


def go_together(values: Mapping[str, Value]) -> str | None:
    """Why a topic cannot have a window with what else it sets."""
    if not values.get(WINDOW_PROPERTY):
        return None
    if values.get(SOURCE_PROPERTY):
        return f"{WINDOW_PROPERTY} is for topics that take records: set it for the source"
    if values.get(HEADERS_PROPERTY) is not True:
        return f"{WINDOW_PROPERTY} needs {HEADERS_PROPERTY}=true: ids are headers"
    policies = values.get("cleanup.policy")
    if isinstance(policies, list) and "compact" in policies:
        return f"{WINDOW_PROPERTY} does not go with cleanup.policy=compact"
    if values.get("message.timestamp.type") == "CreateTime":
        return (
            f"{WINDOW_PROPERTY} counts from when records are appended, so that they have that "
            "time: message.timestamp.type cannot be CreateTime"
        )
    return None
