"""The group coordinator's settings, under Kafka's names, and the maxima of its own.

Durations are milliseconds, sizes bytes. A configuration is immutable; the composition root builds
one from the validated broker properties. What is not here is not configurable in Kafka either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from data_plane.groups.chores import WORK_PER_TURN_MAX

GROUP_METADATA_TOPIC_NAME: Final = "__consumer_offsets"

# Kafka parks a member's first JoinGroup for five minutes at most: such a member cannot heartbeat
# yet, and a client that gave up and retried would otherwise leave a ghost in every rebalance.
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000

# Tombstones of one append, in number and by what names are in them: a batch stays far below
# message.max.bytes however many offsets a group has.
TOMBSTONES_PER_APPEND_MAX: Final = 1_000
TOMBSTONE_BYTES_PER_APPEND_MAX: Final = 500_000
# Appends of chores that may be in flight in a shard: the log sets the pace.
CHORE_APPENDS_MAX: Final = 16

# No string in a message or a record of __consumer_offsets has more than 32,767 bytes; a member id
# is "<client id or instance id>-<36 characters of a UUID>".
MEMBER_ID_PREFIX_BYTES_MAX: Final = 32_767 - 64


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCoordinatorConfig:
    """Kafka's broker properties that concern classic groups, then this broker's own bounds."""

    offsets_topic_num_partitions: int = 50
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4_096
    offset_commit_timeout_ms: int = 5_000

    # Kafka has no such bounds; these stop clients from filling the broker's memory.
    groups_max: int = 1_000_000
    members_max_bytes: int = 256 * 1024 * 1024
    offsets_max_bytes: int = 1024 * 1024 * 1024
    pending_members_max: int = 10_000
    appends_in_flight_max: int = 10_000
    work_per_turn_max: int = WORK_PER_TURN_MAX
    tombstones_per_append_max: int = TOMBSTONES_PER_APPEND_MAX
    chore_appends_max: int = CHORE_APPENDS_MAX

    def __post_init__(self) -> None:
        if self.offsets_topic_num_partitions < 1:
            raise ValueError("offsets.topic.num.partitions must be at least 1")
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ValueError(
                "group.min.session.timeout.ms must not exceed group.max.session.timeout.ms"
            )
        if self.group_max_size < 1:
            raise ValueError("group.max.size must be at least 1")
