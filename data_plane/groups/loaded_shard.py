"""A shard with the parts that work on it, and how its groups come and go with their partition.

Restoring groups takes longer the more there are, as does giving them up, so both are done in pieces
(see `chores`). Which partitions are led, and which of them can be asked, the coordinator knows.

Invariants
- Nobody is heard before all groups are restored: `Shard.opened_ms` is set then, and sessions begin
  with it.
- Whoever waits in a shard that is given up is answered once, with NOT_COORDINATOR.
- What is folded or freed is let go of piece by piece, not at the end at once.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from data_plane.groups.chores import Pieces
from data_plane.groups.group_deletion import GroupDeletion
from data_plane.groups.loading import Folded
from data_plane.groups.membership import Membership
from data_plane.groups.offset_commits import OffsetCommits
from data_plane.groups.offset_expiry import OffsetExpiry
from data_plane.groups.offset_sweeps import OffsetSweeps
from data_plane.groups.rebalance import Rebalance
from data_plane.groups.shard import CoordinatorParts, Shard
from data_plane.wire.errors import ErrorCode

# What pieces of chores are worth (see chores).
RESTORE_GROUP_WORK: Final = 10
RESTORE_MEMBER_WORK: Final = 10
DROP_WORK: Final = 4
FREED_OFFSETS_PER_WORK: Final = 10


class LoadedShard:
    """A shard and the parts that work on it."""

    __slots__ = (
        "_large_group_ids",
        "commits",
        "deletion",
        "expiry",
        "membership",
        "rebalance",
        "shard",
        "sweeps",
    )

    def __init__(self, partition: int, epoch: int, parts: CoordinatorParts) -> None:
        self.shard = Shard(partition, epoch, parts)
        self.rebalance = Rebalance(self.shard)
        self.membership = Membership(self.shard, self.rebalance)
        self.commits = OffsetCommits(self.shard, self.rebalance)
        self.sweeps = OffsetSweeps(self.shard)
        self.deletion = GroupDeletion(self.shard, self.sweeps)
        self.expiry = OffsetExpiry(self.shard, self.sweeps, self.deletion)
        # Of groups that have more members than they may have by now.
        self._large_group_ids: list[str] = []

    def restore(self, folded: Folded, now_ms: int) -> Generator[int, int, int]:
        """Make the groups that are in `folded`, which is used up."""
        shard = self.shard
        while folded.groups:
            group_id, record = folded.groups.pop()
            self.membership.restore(group_id, record, now_ms)
            if len(record.members) > shard.config.group_max_size:
                self._large_group_ids.append(group_id)
            now_ms = yield RESTORE_GROUP_WORK + RESTORE_MEMBER_WORK * len(record.members)
        while folded.simple_groups:
            shard.new_group(folded.simple_groups.pop(), now_ms)
            now_ms = yield RESTORE_GROUP_WORK
        shard.opened_ms = now_ms
        return now_ms

    def shrink_groups(self, now_ms: int) -> Pieces:
        """See to it that no group keeps more members than it may have."""
        large_group_ids, self._large_group_ids = self._large_group_ids, []
        for group_id in large_group_ids:
            self.membership.shrink(group_id, now_ms)
            now_ms = yield RESTORE_GROUP_WORK

    def free(self, now_ms: int) -> Pieces:
        """After `Shard.close`: answer whoever waits, and let go of everything."""
        shard = self.shard
        groups = [*reversed(shard.groups.values())]
        while groups:
            group = groups.pop()
            for member in group.members.values():
                self.rebalance.answer_parked(group, member, ErrorCode.NOT_COORDINATOR)
            work = DROP_WORK * (1 + len(group.members) + len(group.pending_join_timers))
            shard.drop_group(group, now_ms)
            now_ms = yield work
        while shard.appends.abandon_oldest(now_ms):
            now_ms = yield DROP_WORK
        while freed_count := shard.offsets.free_group():
            now_ms = yield 1 + freed_count // FREED_OFFSETS_PER_WORK
