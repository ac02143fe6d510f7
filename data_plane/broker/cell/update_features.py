"""UpdateFeatures, versions 0 to 2: the finalized level of features goes up or down (KIP-584).

Any broker answers: what is asked follows from the image, and the store takes the commit only if no
broker has registered in between. All updates of a request are made, or none. Outcomes and words are
Apache Kafka's (4.3, KRaft), whose controllers are this broker here.

A downgrade happens when the lower level has room for all that is in the metadata. One that is
unsafe also forgets what is only remembered of what was deleted; nothing else is ever deleted for
it. What the levels are is answered by ApiVersions.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from data_plane.broker.request.api import Deferred, HandlerTable, RequestContext
from data_plane.broker.request.refusal import Refusal, commit_refusal
from data_plane.broker.services import Services
from data_plane.cell.changes import Change, UpdateFeature, apply_change
from data_plane.cell.features import (
    DEDUPLICATION,
    DELAYED_MESSAGES,
    METADATA_VERSION,
    OPEN_LEVEL,
    REDRIVES,
    RETRIES,
    VIRTUAL_TOPICS,
    FeatureRange,
    SupportedFeatures,
    level_of,
    range_of,
)
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.virtual_topics import virtual_topics_by_source
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.update_features_request import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from data_plane.wire.messages.update_features_response import (
    UpdatableFeatureResult,
    UpdateFeaturesResponse,
)
from data_plane.wire.registry import ApiKey

MIN_VERSION, MAX_VERSION = 0, 2
# The last version whose answer names each feature.
RESULTS_VERSION_MAX = 1

# What logs may have that an older version would take for something else.
_NEVER_LOWERED = {
    DELAYED_MESSAGES: "delayed messages",
    DEDUPLICATION: "message ids that count",
    RETRIES: "nacked messages",
    REDRIVES: "dead letters that were put back",
}
_FAILED = "The update failed for all features since the following feature had an error: "


class UpgradeType(IntEnum):
    """What an update may do, by the numbers of the Kafka protocol."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """One feature as it is asked for; `upgrade_type` may be a number that there is not."""

    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


class _Brokers(NamedTuple):
    """Who answers, and what he supports."""

    node_id: int
    supported: SupportedFeatures


def handle_update_features(
    services: Services, context: RequestContext, request: UpdateFeaturesRequest, now_ms: int
) -> Deferred[UpdateFeaturesResponse]:
    deferred: Deferred[UpdateFeaturesResponse] = Deferred()
    updates = [_asked(item, context.api_version) for item in request.feature_updates]

    def decide(image: MetadataImage) -> Sequence[Change]:
        changes = decide_updates(image, updates, services.node_id, services.features)
        return () if request.validate_only else changes

    def done(error: BaseException | None) -> None:
        response = UpdateFeaturesResponse(error_message=None)
        if error is not None:
            refusal = error if isinstance(error, Refusal) else commit_refusal(error)
            response.error_code = int(refusal.code)
            response.error_message = refusal.message
        elif context.api_version <= RESULTS_VERSION_MAX:
            response.results = [
                UpdatableFeatureResult(feature=name, error_message="NONE")
                for name in dict.fromkeys(update.name for update in updates)
            ]
        deferred.complete(response)

    services.metadata.write(decide, done)
    return deferred


def _asked(item: FeatureUpdateKey, api_version: int) -> FeatureUpdate:
    upgrade_type = item.upgrade_type
    if api_version == 0 and item.allow_downgrade:
        upgrade_type = UpgradeType.SAFE_DOWNGRADE
    return FeatureUpdate(item.feature, item.max_version_level, upgrade_type)


def decide_updates(
    image: MetadataImage,
    updates: Sequence[FeatureUpdate],
    node_id: int,
    supported: SupportedFeatures,
) -> list[Change]:
    """The changes that make all updates, of which the last one of a name counts. `supported` is
    what this broker, `node_id`, knows. Raises Refusal for the first that cannot be made."""
    by_name = {update.name: update for update in updates}

    def turn(update: FeatureUpdate) -> int:
        # Other features need a metadata.version: it is raised before them and lowered after them.
        if update.name != METADATA_VERSION:
            return 0
        return 1 if update.level < image.metadata_level else -1

    changes: list[Change] = []
    for update in sorted(by_name.values(), key=turn):
        _check(image, update, _Brokers(node_id, supported))
        if update.level != level_of(image.features, update.name):
            change = UpdateFeature(update.name, update.level)
            image = apply_change(image, change)
            changes.append(change)
    return changes


def _check(image: MetadataImage, update: FeatureUpdate, brokers: _Brokers) -> None:
    """Raises Refusal."""
    name, level, upgrade_type = update
    current = level_of(image.features, name)
    if upgrade_type not in UpgradeType.__members__.values():
        raise _invalid(update, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _invalid(update, "A feature version cannot be less than 0.")
    _check_supported(image, update, brokers)
    if level < current and upgrade_type == UpgradeType.UPGRADE:
        raise _invalid(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade.",
        )
    if level > current and upgrade_type != UpgradeType.UPGRADE:
        raise _invalid(update, "Can't downgrade to a newer version.")
    if name == METADATA_VERSION:
        reason = _why_not_lowered(image, update) if level < current else ""
        if reason:
            raise _refused(f"Unsupported {name} downgrade from {current} to {level}. {reason}")
    elif not any(item.name == name for item in brokers.supported):
        raise _invalid(update, f"Feature {name} not found.")
    elif (
        name == VIRTUAL_TOPICS
        and not level
        and virtual_topics_by_source(image.topics_by_id.values())
    ):
        raise _refused(f"There are topics with a source, which need {name} at level {current}.")
    elif name in _NEVER_LOWERED and level < current:
        raise _refused(f"{name} is never lowered: logs may have {_NEVER_LOWERED[name]}.")
    elif level and image.metadata_level < OPEN_LEVEL:
        raise _invalid(
            update,
            f"{name} could not be set to {level} because it depends on {METADATA_VERSION} level "
            f"{OPEN_LEVEL}",
        )


def _why_not_lowered(image: MetadataImage, update: FeatureUpdate) -> str:
    """Of the metadata.version; "" when it can be."""
    if update.level >= image.metadata_level_needed():
        return ""
    is_only_memory = update.level >= image.metadata_level_needed(with_memory=False)
    if update.upgrade_type == UpgradeType.UNSAFE_DOWNGRADE:
        if is_only_memory:
            return ""
        return "Unsafe metadata downgrade is not supported in this version."
    reason = (
        "Refusing to perform the requested downgrade because it might delete metadata information."
    )
    if is_only_memory:
        reason += " An unsafe downgrade forgets which users and resources were deleted."
    return reason


def _check_supported(image: MetadataImage, update: FeatureUpdate, brokers: _Brokers) -> None:
    known = [(f"Local controller {brokers.node_id}", range_of(brokers.supported, update.name))]
    known += [
        (f"Broker {node_id}", range_of(broker.features, update.name))
        for node_id, broker in sorted(image.brokers.items())
    ]
    for who, levels in known:
        if not _allows(levels, update.level):
            does = (
                f"only supports versions {levels}"
                if levels.max_level
                else ("does not support this feature.")
            )
            raise _invalid(update, f"{who} {does}")


def _allows(levels: FeatureRange, level: int) -> bool:
    """A feature that is not in use needs nobody who knows it, metadata.version apart."""
    return levels.has(level) or (level == 0 and levels.name != METADATA_VERSION)


def _invalid(update: FeatureUpdate, reason: str) -> Refusal:
    return _refused(f"Invalid update version {update.level} for feature {update.name}. {reason}")


def _refused(reason: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_UPDATE_VERSION, _FAILED + reason)


def register(table: HandlerTable) -> None:
    table.register(ApiKey.UPDATE_FEATURES, MIN_VERSION, MAX_VERSION, handle_update_features)
