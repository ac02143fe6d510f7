"""What the coordinator knows of one partition of `__consumer_offsets` that it leads.

A shard is the data that `rebalance`, `membership` and `offset_commits` work on: the groups whose id
hashes to the partition, their offsets, and the writes in flight. Shards share nothing but the
outbox, the timers and the counters, so that one can be loaded or given up on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from data_plane.groups.appends import Appends
from data_plane.groups.config import GroupCoordinatorConfig
from data_plane.groups.deadlines import Deadlines, Timer
from data_plane.groups.effects import Effect, GroupEvent, ReplyToken, Respond
from data_plane.groups.group import ClassicGroup, GroupState
from data_plane.groups.offsets import OffsetStore
from data_plane.groups.record_formats import (
    CommittedOffset,
    GroupKey,
    GroupRecord,
    OffsetKey,
    encode_committed_offset,
    encode_group,
    encode_key,
)
from data_plane.wire.records import NewRecord


@dataclass(slots=True)
class GroupCounters:
    """What has happened since the broker started, for metrics."""

    rebalances_started: int = 0
    rebalances_completed: int = 0
    members_expired: int = 0
    offset_commits: int = 0
    offset_deletions: int = 0
    offset_expirations: int = 0
    groups_deleted: int = 0
    append_failures: int = 0


@dataclass(slots=True)
class CoordinatorParts:
    """What all shards of one coordinator have in common."""

    config: GroupCoordinatorConfig
    outbox: list[Effect]
    deadlines: Deadlines
    append_ids: Iterator[int]
    new_uuid: Callable[[], str]
    counters: GroupCounters
    # The date at a steady time: for what is written down, and what is held against that.
    wall_ms: Callable[[int], int]


class Shard:
    """One partition's groups and offsets."""

    def __init__(self, partition: int, epoch: int, parts: CoordinatorParts) -> None:
        self.partition = partition
        self.epoch = epoch
        self.config = parts.config
        self.counters = parts.counters
        self.deadlines = parts.deadlines
        self.new_uuid = parts.new_uuid
        self.wall_ms = parts.wall_ms
        self._outbox = parts.outbox
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = OffsetStore()
        self.expiry_timer = Timer()
        self.appends = Appends(
            partition,
            epoch,
            outbox=parts.outbox,
            deadlines=parts.deadlines,
            ids=parts.append_ids,
            timeout_ms=parts.config.offset_commit_timeout_ms,
        )

    def respond(self, token: ReplyToken | None, response: object) -> None:
        if token is not None:
            self._outbox.append(Respond(token, response))

    def tell(self, group_id: str, kind: str, detail: str) -> None:
        self._outbox.append(GroupEvent(group_id, kind, detail))

    def new_group(self, group_id: str, now_ms: int | None) -> ClassicGroup:
        group = ClassicGroup(
            group_id, now_ms, join_timer=Timer(), sync_timer=Timer(), wall_ms=self.wall_ms
        )
        self.groups[group_id] = group
        return group

    def drop_group(self, group: ClassicGroup, now_ms: int) -> None:
        """Forget a group whose members have all been answered. Its offsets stay as they are."""
        group.transition_to(GroupState.DEAD, now_ms)
        group.join_timer.cancel()
        group.sync_timer.cancel()
        for timer in group.pending_join_timers.values():
            timer.cancel()
        for member in group.members.values():
            assert member.join_token is None
            assert member.sync_token is None
            member.session_timer.cancel()
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]


def group_records(group_id: str, record: GroupRecord | None, wall_ms: int) -> list[NewRecord]:
    """One record that says what a group is, or that it is no more (None)."""
    value = None if record is None else encode_group(record)
    return [NewRecord(timestamp=wall_ms, key=encode_key(GroupKey(group_id)), value=value)]


def offset_record(key: OffsetKey, committed: CommittedOffset | None, wall_ms: int) -> NewRecord:
    """A record that sets an offset, or deletes it (None)."""
    value = None if committed is None else encode_committed_offset(committed)
    return NewRecord(timestamp=wall_ms, key=encode_key(key), value=value)
