"""What tenants hold: counted here and on the other brokers, against limits of the whole cell.

    storage_bytes             by looking at some partitions after others (stored.py)
    connections               as they come and go (request/budget.py)
    groups, committed_offsets, group_metadata_bytes
                              as they change, by whoever leads their partitions (groups/totals.py)

What is here is exact. What other brokers have is as they said last, twice a second
(share_exchange.py): what comes to several of them within that time may be too much together.

A partition of `__consumer_offsets` goes from one broker to another. As long as the last word of
another broker counts it, it counts there, and not here; what is added meanwhile counts with his
next word. A word that counts what a later word of another broker counts, too, is out of date, since
its broker has not been heard meanwhile: of groups it counts nothing. So nobody is refused what he
may have since his coordinator has moved, and once the move is known everything counts.

Connections of a broker that is not heard for CONNECTIONS_UNHEARD_MS count no more: it may be dead,
and they are about to come to the others.

Invariants
- Nothing is counted twice.
- What is asked costs the same however much there is, and nothing where a tenant has no limits. What
  the others are told costs what there is to tell, however many tenants have limits.

Deliberately absent: what is refused, and how it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from data_plane.broker.quotas.stored import StoredBytes
from data_plane.groups.totals import GROUP_QUOTAS, TenantLimit

if TYPE_CHECKING:
    from data_plane.broker.services import Services
    from data_plane.cell.tenants import Tenants
    from data_plane.groups.coordinator import GroupCoordinator
    from data_plane.groups.loaded_shard import LoadedPartition

STORED: Final = "storage_bytes"
CONNECTIONS: Final = "connections"
HELD_QUOTAS: Final = (STORED, CONNECTIONS, *GROUP_QUOTAS)


CONNECTIONS_UNHEARD_MS: Final = 2_000


class Held(NamedTuple):
    """What tenants hold on a broker, by tenant and quota; the partitions of `__consumer_offsets`
    that are counted in it; and when it was heard."""

    counts: Mapping[str, Mapping[str, int]]
    partitions: frozenset[int] = frozenset()
    at_ms: int = 0


NOTHING_HELD: Final = Held({})


class TenantHoldings:
    """Those of one broker, with what it has heard of the others."""

    def __init__(self, services: Services, now_ms: Callable[[], int]) -> None:
        self._services = services
        self._now_ms = now_ms
        # Limits by tenant, of those that have any.
        self._limits: dict[str, dict[str, int]] = {}
        # Of those whose groups are limited, by what coordinators know them by, and the other way.
        self._names_by_id: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        # Those whose storage is limited.
        self._storing: frozenset[str] = frozenset()
        self._stored = StoredBytes(services.partitions)
        self._elsewhere: dict[int, Held] = {}
        # How often a connection was refused.
        self.refused_connections_count = 0

    @property
    def is_active(self) -> bool:
        """Whether anything is limited."""
        return bool(self._limits)

    def set_tenants(self, tenants: Tenants) -> None:
        """Those of the image, with their limits."""
        self._limits = {}
        self._names_by_id = {}
        for name, tenant in tenants.items():
            limits = {
                quota: most
                for quota in HELD_QUOTAS
                if (most := getattr(tenant.quotas, quota)) is not None
            }
            if limits:
                self._limits[name] = limits
                if not limits.keys().isdisjoint(GROUP_QUOTAS):
                    self._names_by_id[tenant.tenant_id] = name
        self._ids = {name: tenant_id for tenant_id, name in self._names_by_id.items()}
        self._storing = frozenset(name for name, limits in self._limits.items() if STORED in limits)
        for name, names in self._services.namespaces.names.items():
            if STORED not in self._limits.get(name, {}):
                names.storage_refusal = ""

    def look(self) -> Held:
        """What the other brokers are to know. Some of what is stored is looked at."""
        before = self._stored.sizes
        self._stored.look_on(self._storing)
        self._judge_storage(_changed(before, self._stored.sizes))
        ids = self._ids
        twice = self._counted_twice() if ids else []
        counts = {}
        for name in self._holders():
            here = {}
            for quota in self._limits[name]:
                use = (
                    self._groups_here(ids[name], quota, twice)
                    if quota in GROUP_QUOTAS
                    else self._here(name, quota)
                )
                if use:
                    here[quota] = use
            if here:
                counts[name] = here
        return Held(counts, self._own_partitions() if ids else frozenset())

    def set_elsewhere(
        self, elsewhere: dict[int, Held], tenants: Collection[str] | None = None
    ) -> None:
        """What the other brokers have, as they have said last, whoever was heard last at the end;
        the mapping may change. None: something may be new of each tenant."""
        self._elsewhere = elsewhere
        self._judge_storage(self._storing if tenants is None else tenants)

    def _judge_storage(self, tenants: Iterable[str]) -> None:
        """Whether these may store more. What they have may have changed."""
        names = self._services.namespaces.names
        for tenant in tenants:
            limit = self._limits.get(tenant, {}).get(STORED)
            if limit is None or tenant not in names:
                continue
            size = self._here(tenant, STORED) + self._held_elsewhere(tenant, STORED)
            names[tenant].storage_refusal = (
                f"The tenant stores {size} bytes, and may store {limit}" if size >= limit else ""
            )

    # What is asked

    def limit_of_groups(self, tenant_id: str, quota: str) -> TenantLimit | None:
        """See the port (request/quotas.py)."""
        name = self._names_by_id.get(tenant_id)
        most = None if name is None else self._limits[name].get(quota)
        if name is None or most is None:
            return None
        twice = _use_in(self._counted_twice(), tenant_id, quota)
        return TenantLimit(most, self._held_elsewhere(name, quota) - twice)

    def why_no_connection(self, tenant: str) -> str:
        """See the port."""
        most = self._limits.get(tenant, {}).get(CONNECTIONS)
        if most is None:
            return ""
        limit = TenantLimit(most, self._held_elsewhere(tenant, CONNECTIONS))
        why = limit.why_not(self._here(tenant, CONNECTIONS), 1, CONNECTIONS)
        self.refused_connections_count += bool(why)
        return why

    # What there is

    def _holders(self) -> Sequence[str]:
        """Tenants with limits that may hold something."""
        holders = {*self._stored.sizes, *self._services.connections.used_by()}
        if self._ids:
            names_by_id = self._names_by_id
            tenant_ids = self._coordinator.totals.tenants
            holders.update(names_by_id[each] for each in tenant_ids if each in names_by_id)
        return sorted(holders & self._limits.keys())

    def _here(self, tenant: str, quota: str) -> int:
        if quota == STORED:
            return self._stored.sizes.get(tenant, 0)
        return self._services.connections.use_of(tenant)

    def _groups_here(self, tenant_id: str, quota: str, twice: Sequence[LoadedPartition]) -> int:
        """What the others are told."""
        totals = self._coordinator.totals.tenants.get(tenant_id)
        return 0 if totals is None else totals.use_of(quota) - _use_in(twice, tenant_id, quota)

    def _held_elsewhere(self, tenant: str, quota: str) -> int:
        words: Iterable[Held] = self._elsewhere.values()
        if quota in GROUP_QUOTAS:
            words = self._of_groups()
        elif quota == CONNECTIONS:
            oldest_ms = self._now_ms() - CONNECTIONS_UNHEARD_MS
            words = (held for held in words if held.at_ms > oldest_ms)
        return sum(held.counts.get(tenant, {}).get(quota, 0) for held in words)

    def _of_groups(self) -> Iterable[Held]:
        """Words that are not out of date."""
        counted: frozenset[int] = frozenset()
        for held in reversed(self._elsewhere.values()):
            if counted.isdisjoint(held.partitions):
                counted |= held.partitions
                yield held

    def _counted_twice(self) -> Sequence[LoadedPartition]:
        """Partitions that are led here, and that other brokers count as well."""
        counted_elsewhere = self._counted_elsewhere()
        return self._coordinator.partitions.led_among(counted_elsewhere)

    def _counted_elsewhere(self) -> frozenset[int]:
        """Partitions that other brokers count. As of now: they are gone with their brokers."""
        counted: frozenset[int] = frozenset()
        return counted.union(*(held.partitions for held in self._of_groups()))

    def _own_partitions(self) -> frozenset[int]:
        """Those that are counted here. One whose groups are being restored is not whole yet."""
        return frozenset(self._coordinator.partitions.loaded) - self._counted_elsewhere()

    @property
    def _coordinator(self) -> GroupCoordinator:
        return self._services.groups.coordinator


def _use_in(partitions: Sequence[LoadedPartition], tenant_id: str, quota: str) -> int:
    shards = (partition.shards.get(tenant_id) for partition in partitions)
    return sum(one.shard.totals.use_of(quota) for one in shards if one is not None)


def _changed(before: Mapping[str, int], now: Mapping[str, int]) -> Iterable[str]:
    if before is now:
        return ()
    return [name for name in before.keys() | now.keys() if before.get(name) != now.get(name)]
