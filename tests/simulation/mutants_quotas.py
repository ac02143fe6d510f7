"""Planted bugs of quotas: who gets more than his tenant has, or waits for what nobody uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from data_plane.broker.produce import produce_waits
from data_plane.broker.quotas import shares
from data_plane.broker.quotas.held import TenantHoldings
from data_plane.broker.quotas.rates import Bucket
from data_plane.broker.quotas.share_exchange import ShareExchange
from data_plane.broker.quotas.shares import Demand, ShareTable
from data_plane.broker.quotas.tenant_rates import RateKey, Use
from data_plane.broker.request.api import RequestContext
from data_plane.broker.services import Services
from data_plane.groups.loaded_shard import LoadedPartition
from data_plane.groups.offset_commits import _Growth
from data_plane.groups.offsets import OffsetStore
from data_plane.groups.record_formats import OffsetKey
from tests.simulation.mutant import CROWDED, CROWDED_AND_MOVED, METERED, Mutant, Patch
from tests.simulation.serving import ServerConnection


def _forgotten_behind_deferred(patch: Patch) -> None:
    """What waits for replicas is not counted."""

    def count(services: Services, context: RequestContext, request_bytes: int) -> int:
        return 0

    patch.set(produce_waits, "count_appended", count)


def _told_and_not_muted(patch: Patch) -> None:
    """Clients are told to wait, and served all the same."""

    def mute(self: ServerConnection, duration_ms: int) -> None:
        self._node.cell.rates.held_back(self.info.namespace, duration_ms)

    patch.set(ServerConnection, "_mute", mute)


def _cap_for_each(patch: Patch) -> None:
    """Every broker has the whole cap."""

    def allocate(cap: float, demands: Mapping[int, Demand]) -> dict[int, float]:
        return dict.fromkeys(demands, cap)

    patch.set(shares, "allocate", allocate)


def _burst_with_each_share(patch: Patch) -> None:
    """A share that changes comes with a burst of its own."""

    def set_rate(self: Bucket, rate_per_s: float, now_ms: int) -> None:
        self.level(now_ms)
        self.rate_per_s = rate_per_s
        self._tokens = rate_per_s * self.burst_s

    patch.set(Bucket, "set_rate", set_rate)


def _shares_do_not_grow(patch: Patch) -> None:
    """What the others have given up nobody takes."""

    def confirmed(self: ShareTable[RateKey], now_ms: int) -> None:
        self.look(now_ms)

    patch.set(ShareTable, "confirmed", confirmed)


def _nothing_heard(patch: Patch) -> None:
    """What other brokers say is passed over."""

    def heard(self: ShareExchange, message: bytes, now_ms: int) -> None:
        return None

    patch.set(ShareExchange, "heard", heard)


def _debts_forgiven(patch: Patch) -> None:
    """Who has taken too much has nothing, and not less than that."""

    def take(self: Use, amount: float, now_ms: int) -> int:
        self._taken += amount
        bucket = self.bucket
        if bucket is None:
            return 0
        bucket.take(amount, now_ms)
        wait_ms = self._waits(bucket, now_ms)
        bucket._tokens = max(0.0, bucket._tokens)
        return min(wait_ms, 1)

    patch.set(Use, "take", take)


def _groups_of_others_unknown(patch: Patch) -> None:
    """What other coordinators have of a tenant's groups does not count."""

    def held_elsewhere(self: TenantHoldings, tenant: str, quota: str) -> int:
        return 0

    patch.set(TenantHoldings, "_held_elsewhere", held_elsewhere)


def _moved_groups_twice(patch: Patch) -> None:
    """What another coordinator said of a partition counts beside the partition."""

    def counted_twice(self: TenantHoldings) -> Sequence[LoadedPartition]:
        return ()

    patch.set(TenantHoldings, "_counted_twice", counted_twice)


def _known_offsets_refused(patch: Patch) -> None:
    """An offset that is there counts as a new one."""

    def add(self: _Growth, offsets: OffsetStore, key: OffsetKey, value: bytes) -> None:
        self.new[key] = offsets.growth_bytes(key, value)

    patch.set(_Growth, "add", add)


QUICK = frozenset({"cap for each", "throttle behind deferred"})

_GROUP_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "groups of others unknown",
        "each coordinator gives a tenant all the groups that it may have",
        _groups_of_others_unknown,
        options=CROWDED,
        budget=12,
        is_quick=True,
    ),
    Mutant(
        "known offsets refused",
        "at a limit an offset that is there is not committed anew",
        _known_offsets_refused,
        options=CROWDED,
        budget=12,
    ),
    Mutant(
        "moved groups count twice",
        "a coordinator counts its groups, and what the one before it said of them",
        _moved_groups_twice,
        options=CROWDED_AND_MOVED,
    ),
)

_RATE_MUTANTS: Iterable[Mutant] = tuple(
    Mutant(name, wrong, plant, options=METERED, budget=12, is_quick=name in QUICK)
    for name, wrong, plant in (
        (
            "throttle behind deferred",
            "a Produce that waits for replicas is not counted for its quota",
            _forgotten_behind_deferred,
        ),
        (
            "told and not muted",
            "who has to wait for a quota is served all the same",
            _told_and_not_muted,
        ),
        ("cap for each", "every broker gives a tenant its whole cap", _cap_for_each),
        (
            "burst with each share",
            "a tenant has a burst whenever its share changes",
            _burst_with_each_share,
        ),
        ("shares do not grow", "a share only ever shrinks", _shares_do_not_grow),
        ("nothing heard", "brokers do not hear what others give of a cap", _nothing_heard),
        ("debts forgiven", "what was taken beyond a rate is not waited for", _debts_forgiven),
    )
)

QUOTA_MUTANTS: Iterable[Mutant] = (*_RATE_MUTANTS, *_GROUP_MUTANTS)
