"""Deleting whole groups of one shard, with their offsets: for DeleteGroups, and for expiry.

A group is Dead as soon as its deletion begins, so that nobody commits for it or joins it; the
tombstone of the group goes to the log behind those of its offsets, all in one append where they are
few. If the log refuses any of them the group is Empty again, without the offsets whose tombstones
the log has taken.

Invariants
- Only Empty groups are deleted.
- What is deleted is forgotten when its tombstone has settled, and not before.
- The log has the group's tombstone only behind those of all its offsets: what was left would belong
  to the next group of that name.
- Offsets of a group with more than `tombstones_per_append_max` are deleted by a chore (see
  `offset_sweeps`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from data_plane.groups.appends import Outcome, response_error_of_append
from data_plane.groups.chores import WAITING, Pieces
from data_plane.groups.group import ClassicGroup
from data_plane.groups.group_state import GroupState
from data_plane.groups.offset_sweeps import TOMBSTONE_WORK, OffsetSweeps
from data_plane.groups.shard import Shard
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.delete_groups_response import DeletableGroupResult


class GroupDeletion:
    """The deletions of one shard."""

    def __init__(self, shard: Shard, sweeps: OffsetSweeps) -> None:
        self._shard = shard
        self._sweeps = sweeps

    def error_of(self, group_id: str) -> ErrorCode:
        """Whether DeleteGroups may delete this group."""
        group = self._shard.groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if group.is_empty else ErrorCode.NON_EMPTY_GROUP

    def delete(self, group_id: str, now_ms: int, on_outcome: Outcome | None) -> None:
        """Delete an Empty group and all its offsets. `on_outcome` is told once."""
        group = self._shard.groups[group_id]
        assert group.is_empty
        while group.pending_join_timers:
            group.take_pending_member(next(iter(group.pending_join_timers)))
        # From now on nobody commits for it: these are all.
        group.transition_to(GroupState.DEAD, now_ms)
        on_settled = partial(self._settled, group)
        offsets = self._shard.offsets
        pending = offsets.pending_of_group(group_id)
        chunk_max = self._shard.tombstones_per_append(group_id)
        if offsets.count_of_group(group_id) + len(pending) > chunk_max:
            append_id = self._shard.appends.announce(
                now_ms, on_outcome=on_outcome, on_settled=on_settled
            )
            self._shard.begin(self._delete_large(group_id, append_id, now_ms), now_ms)
            return
        keys = dict.fromkeys(key for key, _ in offsets.of_group(group_id))
        keys.update(dict.fromkeys(pending))
        self._shard.append_offsets(
            dict.fromkeys(keys),
            now_ms,
            behind=self._shard.group_records(group_id, None, now_ms),
            on_outcome=on_outcome,
            on_settled=on_settled,
        )

    def delete_expired(self, group_id: str, now_ms: int) -> None:
        """Delete an Empty group, for a chore."""
        self.delete(group_id, now_ms, self._sweeps.take_room())

    def _delete_large(self, group_id: str, append_id: int, now_ms: int) -> Pieces:
        tombstones = _Tombstones()
        pending = self._shard.offsets.pending_of_group(group_id)
        for topic in self._shard.offsets.topics_of(group_id):
            now_ms = yield from self._sweeps.sweep(
                group_id, topic, lambda value: True, now_ms, tombstones.begin
            )
        chunk_max = self._shard.tombstones_per_append(group_id)
        for start in range(0, len(pending), chunk_max):
            while not self._sweeps.has_room:
                now_ms = yield WAITING
            keys = pending[start : start + chunk_max]
            self._sweeps.delete_keys(keys, now_ms, tombstones.begin(len(keys)))
            now_ms = yield len(keys) * TOMBSTONE_WORK
        while tombstones.unsettled_count:
            now_ms = yield WAITING
        if tombstones.error is not ErrorCode.NONE:
            self._shard.appends.refuse_announced(append_id, tombstones.error, now_ms)
            return
        records = self._shard.group_records(group_id, None, now_ms)
        self._shard.appends.append_announced(append_id, records)

    def _settled(self, group: ClassicGroup, error: ErrorCode, now_ms: int) -> None:
        if error is ErrorCode.NONE:
            self._shard.counters.groups_deleted += 1
            self._shard.tell(group.group_id, "deleted", f"generation {group.generation_id}")
            self._shard.drop_group(group, now_ms)
        else:
            # Back to what the log says: the group is there, and nobody is in it.
            self._shard.tell(group.group_id, "append_failed", error.name)
            group.state = GroupState.EMPTY


class _Tombstones:
    """The appends of one large deletion."""

    def __init__(self) -> None:
        self.unsettled_count = 0
        # Why the log has refused one of them.
        self.error = ErrorCode.NONE

    def begin(self, count: int) -> Outcome:
        self.unsettled_count += 1
        return self._settled

    def _settled(self, error: ErrorCode, now_ms: int) -> None:
        self.unsettled_count -= 1
        if error is not ErrorCode.NONE:
            self.error = error


class DeletionCountdown:
    """Calls `on_zero` when `expected_count` outcomes have been noted; at once when there are none.
    The groups that one request names may live in several shards."""

    def __init__(self, expected_count: int, on_zero: Callable[[], None]) -> None:
        self._left = expected_count
        self._on_zero = on_zero
        if expected_count == 0:
            on_zero()

    def note(self, result: DeletableGroupResult, error: ErrorCode, now_ms: int) -> None:
        result.error_code = error if error is ErrorCode.NONE else response_error_of_append(error)
        self._left -= 1
        if self._left == 0:
            self._on_zero()
