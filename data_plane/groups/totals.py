"""What groups come to, counted as it changes: adding it up would take long.

    ShardTotals ─┬─► TenantTotals   of a tenant, in all partitions that are led here: what its
                 │                  limits are held against
                 └─► GroupTotals    of the broker: its memory

A tenant's limits hold for the whole cell. What other brokers have of it comes with the limit
(`LimitOf`), and is asked for only when something is to be added.

Invariants
- A shard that is closed counts for its tenant no more, though it is still to be freed: whoever
  leads the partition now counts it. Of the broker its groups and members are until they are freed,
  its offsets no longer.
- Where there are several tenants none has more of the broker's memory than it leaves unused. So
  there is always some for another one, and all who want as much as they can get have equal parts.
- A tenant's limits are for what is new: groups, members, offsets. Who is a member goes on, with
  longer metadata and assignments, and an offset that is there is committed anew, whatever they are.

Deliberately absent: who is told what, and what other brokers have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from data_plane.groups.group_state import GroupState

# How often at most it is told of a tenant that it is at one of its limits.
TELL_AGAIN_MS: Final = 60_000


# Names of a tenant's limits: how many groups and offsets it may have, and how much its members and
# offsets may take in memory.
GROUPS: Final = "groups"
COMMITTED_OFFSETS: Final = "committed_offsets"
GROUP_METADATA_BYTES: Final = "group_metadata_bytes"
GROUP_QUOTAS: Final = (GROUPS, COMMITTED_OFFSETS, GROUP_METADATA_BYTES)
# Beside them: what there was no room for on the broker.
BROKER: Final = "broker"


class TenantLimit(NamedTuple):
    """How much of something a tenant may have, and how much of that other brokers have."""

    most: int
    elsewhere: int = 0

    def why_not(self, here: int, more: int, quota: str) -> str:
        """Why there may not be so much more of it; "" when there may."""
        use = here + self.elsewhere
        if more <= 0 or use + more <= self.most:
            return ""
        what = quota.replace("_", " ")
        return f"The tenant has {use} {what}, and may have {self.most}: {more} more is too much."


# A tenant's of that name as of now; None: it has none.
LimitOf = Callable[[str, str], TenantLimit | None]


def no_limit_of(tenant: str, quota: str) -> TenantLimit | None:
    """Nobody has any."""
    return None


class Counts:
    """The numbers."""

    __slots__ = (
        "group_count",
        "member_bytes",
        "offset_bytes",
        "offset_count",
        "pending_offset_bytes",
        "pending_offset_count",
    )

    def __init__(self) -> None:
        self.group_count = 0
        # Members and ids handed out, with their metadata and assignments.
        self.member_bytes = 0
        self.offset_count = 0
        self.offset_bytes = 0
        # By how much the commits in flight will enlarge these at most.
        self.pending_offset_count = 0
        self.pending_offset_bytes = 0

    def use_of(self, quota: str) -> int:
        """What is held against that limit. What is in flight counts."""
        if quota == GROUPS:
            return self.group_count
        if quota == COMMITTED_OFFSETS:
            return self.offset_count + self.pending_offset_count
        return self.member_bytes + self.offset_bytes + self.pending_offset_bytes

    def subtract(self, other: Counts) -> None:
        self.group_count -= other.group_count
        self.member_bytes -= other.member_bytes
        self.offset_count -= other.offset_count
        self.offset_bytes -= other.offset_bytes
        self.pending_offset_count -= other.pending_offset_count
        self.pending_offset_bytes -= other.pending_offset_bytes


class TenantTotals(Counts):
    """Those of one tenant."""

    __slots__ = ("shards_count", "told_ms")

    def __init__(self) -> None:
        super().__init__()
        # Shards that are open.
        self.shards_count = 0
        # When it was told last of each of its limits.
        self.told_ms: dict[str, int] = {}


class GroupTotals(Counts):
    """Those of a broker."""

    __slots__ = ("leaves_room", "state_counts", "tenants")

    def __init__(self) -> None:
        super().__init__()
        self.state_counts = dict.fromkeys(GroupState, 0)
        # Of tenants that have a shard.
        self.tenants: dict[str, TenantTotals] = {}
        # Whether nobody may have more than is left unused.
        self.leaves_room = False

    def of_shard(self, tenant: str) -> ShardTotals:
        """For a new shard of the tenant."""
        of_tenant = self.tenants.get(tenant)
        if of_tenant is None:
            of_tenant = self.tenants[tenant] = TenantTotals()
        return ShardTotals(self, tenant, of_tenant)

    def has_room(self, most: int, used: int, own: int, more: int) -> bool:
        """Whether a tenant that has `own` of what is `used` of `most` may have so much more."""
        if self.leaves_room:
            return own + more <= most - used - more
        return used + more <= most


class ShardTotals(Counts):
    """Those of one shard. What changes here changes in its tenant's and in the broker's."""

    __slots__ = ("_all", "_tenant_name", "tenant", "whole")

    def __init__(self, whole: GroupTotals, tenant_name: str, tenant: TenantTotals) -> None:
        super().__init__()
        self.whole = whole
        self.tenant = tenant
        self._tenant_name = tenant_name
        self._all: tuple[Counts, ...] = (self, tenant, whole)
        tenant.shards_count += 1

    def close(self) -> None:
        """The tenant has nothing here any more. The broker has, until it is freed."""
        if self.tenant not in self._all:
            return
        self.tenant.subtract(self)
        self._all = (self, self.whole)
        self.tenant.shards_count -= 1
        if not self.tenant.shards_count:
            del self.whole.tenants[self._tenant_name]

    def add_group(self, state: GroupState) -> None:
        self.whole.state_counts[state] += 1
        for counts in self._all:
            counts.group_count += 1

    def forget_group(self, state: GroupState) -> None:
        self.whole.state_counts[state] -= 1
        for counts in self._all:
            counts.group_count -= 1

    def change_state(self, before: GroupState, now: GroupState) -> None:
        states = self.whole.state_counts
        states[before] -= 1
        states[now] += 1

    def add_member_bytes(self, more: int) -> None:
        for counts in self._all:
            counts.member_bytes += more

    def add_offsets(self, more: int, more_bytes: int) -> None:
        for counts in self._all:
            counts.offset_count += more
            counts.offset_bytes += more_bytes

    def add_pending_offsets(self, more: int, more_bytes: int) -> None:
        for counts in self._all:
            counts.pending_offset_count += more
            counts.pending_offset_bytes += more_bytes
