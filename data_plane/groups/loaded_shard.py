"""A shard with the parts that work on it, the shards of a partition, and how groups come and go
with their partition.

Restoring groups takes longer the more there are, as does giving them up, so both are done in pieces
(see `chores`). Which partitions are led, and which of them can be asked, the coordinator knows.

Invariants
- Nobody is heard before all groups are restored: `Shard.opened_ms` is set then, and sessions begin
  with it.
- Whoever waits in a shard that is given up is answered once, with NOT_COORDINATOR.
- What is folded or freed is let go of piece by piece, not at the end at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

from data_plane.groups.chores import Pieces
from data_plane.groups.group_deletion import GroupDeletion
from data_plane.groups.loading import Folded, FoldedTenants
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

    def __init__(self, tenant: str, partition: int, epoch: int, parts: CoordinatorParts) -> None:
        self.shard = Shard(tenant, partition, epoch, parts)
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
        return now_ms

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost with it, and nobody waits."""
        shard = self.shard
        return not (shard.groups or shard.offsets.count or len(shard.appends))

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


class LoadedPartition:
    """A partition that is led here: a shard for each tenant who has something in it, or has asked.
    They are made when they are first asked for, and those of tenants with nothing in them go when
    they are looked at for what has expired (`forget`)."""

    __slots__ = ("_on_new", "_parts", "epoch", "opened_ms", "partition", "shards")

    def __init__(
        self,
        partition: int,
        epoch: int,
        parts: CoordinatorParts,
        on_new: Callable[[LoadedShard], None],
    ) -> None:
        """`on_new` is called with each shard that is made when all are open."""
        self.partition = partition
        self.epoch = epoch
        # Since when requests are answered; None while groups are being restored.
        self.opened_ms: int | None = None
        self.shards: dict[str, LoadedShard] = {}
        self._parts = parts
        self._on_new = on_new

    def of(self, tenant: str) -> LoadedShard:
        """The tenant's shard."""
        loaded = self.shards.get(tenant)
        if loaded is None:
            loaded = LoadedShard(tenant, self.partition, self.epoch, self._parts)
            self.shards[tenant] = loaded
            if self.opened_ms is not None:
                loaded.shard.opened_ms = self.opened_ms
                self._on_new(loaded)
        return loaded

    def restore(self, folded: FoldedTenants, now_ms: int) -> Generator[int, int, int]:
        """Make the groups that are in `folded`, which is used up. Requests are answered then."""
        while folded:
            tenant, of_tenant = folded.popitem()
            now_ms = yield from self.of(tenant).restore(of_tenant, now_ms)
        self.opened_ms = now_ms
        for loaded in self.shards.values():
            loaded.shard.opened_ms = now_ms
        return now_ms

    def shrink_groups(self, now_ms: int) -> Pieces:
        for loaded in list(self.shards.values()):
            yield from loaded.shrink_groups(now_ms)

    def close(self) -> None:
        """This partition is led here no more."""
        self._parts.chores.drop(self, is_urgent=True)
        for loaded in self.shards.values():
            loaded.shard.close()

    def free(self, now_ms: int) -> Pieces:
        """After `close`: answer whoever waits, and let go of everything."""
        while self.shards:
            _, loaded = self.shards.popitem()
            yield from loaded.free(now_ms)

    def forget(self, loaded: LoadedShard) -> None:
        """Let go of a shard that is idle."""
        assert loaded.is_idle
        loaded.shard.close()
        del self.shards[loaded.shard.tenant]
