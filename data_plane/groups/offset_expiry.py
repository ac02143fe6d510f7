"""Which offsets of one shard have expired, and groups with them.

Offsets expire `offsets.retention.minutes` after (KIP-211)
- the group became Empty, for groups with a protocol type, or their commit if that came later (an
  administrator has set them; Kafka expires these with the others);
- their commit, for simple groups, and for topics that no member of a Stable consumer group reads;
- later by as long as their topic was deleted and could come back, and never meanwhile;
- never while the group is in any other state; at their own time, if a client of old gave one.
An Empty group whose last offset goes is deleted with it; one with more offsets than one append has
room for at the next check.

A check is a chore: groups are looked at one by one, as they are when their turn has come.
"""

from __future__ import annotations

from collections.abc import Callable

from data_plane.groups.chores import WAITING, Pieces
from data_plane.groups.group import ClassicGroup
from data_plane.groups.group_deletion import GroupDeletion
from data_plane.groups.group_state import GroupState
from data_plane.groups.offset_sweeps import TOMBSTONE_WORK, TOPIC_WORK, OffsetSweeps
from data_plane.groups.record_formats import OffsetKey, decode_committed_offset
from data_plane.groups.shard import Shard


class OffsetExpiry:
    """The checks of one shard."""

    def __init__(self, shard: Shard, sweeps: OffsetSweeps, deletion: GroupDeletion) -> None:
        self._shard = shard
        self._sweeps = sweeps
        self._deletion = deletion
        self._is_checking = False

    def check(self, now_ms: int) -> None:
        """Write tombstones for everything that has expired; empty groups go with their offsets.
        Does nothing while the check before goes on."""
        if not self._is_checking:
            self._is_checking = True
            self._shard.begin(self._check(now_ms), now_ms)

    def _check(self, now_ms: int) -> Pieces:
        for group_id in list(self._shard.groups):
            while not self._sweeps.has_room:
                now_ms = yield WAITING
            if not self._shard.may_expire():
                break
            group = self._shard.groups.get(group_id)
            if group is None or group.state is GroupState.DEAD:
                continue
            count = self._shard.offsets.count_of_group(group_id)
            if count > self._shard.tombstones_per_append(group_id):
                for topic in self._shard.offsets.topics_of(group_id):
                    now_ms = yield from self._sweeps.sweep(
                        group_id, topic, self._when_due(group, topic, now_ms), now_ms, self._count
                    )
            else:
                work = self._check_group(group, now_ms)
                now_ms = yield work + TOPIC_WORK + count
        self._is_checking = False

    def _check_group(self, group: ClassicGroup, now_ms: int) -> int:
        """Returns what that was worth."""
        group_id, offsets = group.group_id, self._shard.offsets
        expired: list[OffsetKey] = []
        is_all = True
        for topic in offsets.topics_of(group_id):
            is_due = self._when_due(group, topic, now_ms)
            for partition, value in offsets.values_of(group_id, topic).items():
                key = OffsetKey(group_id, topic, partition)
                if is_due(value) and not offsets.is_pending(key):
                    expired.append(key)
                else:
                    is_all = False
        self._count(len(expired))
        is_idle = group.is_empty and not group.pending_join_timers
        if is_all and is_idle and not offsets.has_pending(group_id):
            self._deletion.delete_expired(group_id, now_ms)
            return TOMBSTONE_WORK * (1 + len(expired))
        if expired:
            self._sweeps.delete_keys(expired, now_ms)
        return TOMBSTONE_WORK * len(expired)

    def _count(self, expired_count: int) -> None:
        self._shard.counters.offset_expirations += expired_count

    def _when_due(self, group: ClassicGroup, topic: str, now_ms: int) -> Callable[[bytes], bool]:
        """Whether an offset has expired at `now_ms`, by what the group is when that is asked."""
        retention_ms = self._shard.config.offsets_retention_ms
        wall_ms = self._shard.wall_ms(now_ms)

        def is_due(value: bytes) -> bool:
            since_ms = _unused_since_ms(group, topic)
            pause = self._shard.expiry_pause(topic)
            if since_ms is None or pause is None or not self._shard.may_expire():
                return False
            committed = decode_committed_offset(value)
            if committed.expire_timestamp_ms is not None:
                used_ms = committed.commit_timestamp_ms
                due_ms = committed.expire_timestamp_ms
            else:
                used_ms = max(committed.commit_timestamp_ms, since_ms)
                due_ms = used_ms + retention_ms
            return wall_ms >= due_ms + pause.longer_ms(used_ms)

        return is_due


def _unused_since_ms(group: ClassicGroup, topic: str) -> int | None:
    """Since when nobody has read a topic for this group; 0 when only commits tell, None while
    somebody does or may."""
    if group.is_subscribed_to_topic(topic):
        return None
    if group.protocol_type is None:
        return 0
    if group.is_empty:
        return group.current_state_timestamp_ms or 0
    is_known = group.uses_consumer_protocol and group.subscribed_topics is not None
    return 0 if group.state is GroupState.STABLE and is_known else None
