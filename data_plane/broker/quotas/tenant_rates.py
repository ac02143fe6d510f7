"""What tenants use per second of one broker, and the rates that it gives them.

Each rate of a tenant has a bucket at the broker's share of the tenant's cap (shares.py): what is
taken beyond is waited for by whoever has taken it. A bucket and no windows, since shares change.

Floors come in where an operator has declared what the broker can take. Once it gives nearly that
much, tenants get what is reserved for them first; the rest is shared equally among those who want
more. So a floor is reached while others saturate the broker, and nobody is held back while there
is room for all.

    capacity 100   floor of a: 30, of b: none          a gives 50, b 80, both want more
                   a: 30 + 35, b: 35

Invariants
- What is taken beyond is owed, up to DEBT_S seconds of the rate.
- A tenant's rate is never above its share of its cap.
- Where nothing is limited for a tenant, nothing of it is measured.

Deliberately absent: what the other brokers give (share_exchange.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from data_plane.broker.quotas.rates import Bucket
from data_plane.broker.quotas.shares import HEADROOM, NO_DEMAND, Demand, water_fill
from data_plane.cell.tenant_quotas import TenantQuotas
from data_plane.cell.tenants import DEFAULT_TENANT, Tenants

# What a tenant may take at once, in seconds of its rate.
BURST_S: Final = 1.0
# What it may owe. Two of the longest waits (request/throttling.py): who goes on taking too much
# waits no less for it, and who has stopped does not wait for hours.
DEBT_S: Final = 60.0
# Of the capacity: from where on it is given by floors.
CONTENDED: Final = 0.9
# For how many periods it is, after the last one in which it was near its capacity: whoever is held
# back is silent while he waits, and would have all at once again.
CONTENDED_PERIODS: Final = 4
# Who has had to wait wants more for so many periods.
HUNGRY_PERIODS: Final = 2
# How much of the newest period is in a measured rate.
SMOOTHING: Final = 0.5

PRODUCE: Final = "produce_bytes_per_s"
CONSUME: Final = "consume_bytes_per_s"
REQUESTS: Final = "requests_per_s"
HANDLER: Final = "handler_ms_per_s"
CONNECTIONS: Final = "connections_per_s"
RATES: Final = (PRODUCE, CONSUME, REQUESTS, HANDLER, CONNECTIONS)
FLOORS: Final[Mapping[str, str]] = {
    PRODUCE: "produce_floor_bytes_per_s",
    CONSUME: "consume_floor_bytes_per_s",
}


class RateKey(NamedTuple):
    """A tenant, and one of RATES."""

    tenant: str
    rate: str


class Use:
    """What a tenant takes of one of its rates."""

    __slots__ = ("_hungry_periods", "_taken", "bucket", "per_s")

    def __init__(self) -> None:
        # None: nothing limits it.
        self.bucket: Bucket | None = None
        # Of the last periods.
        self.per_s = 0.0
        self._taken = 0.0
        self._hungry_periods = 0

    def take(self, amount: float, now_ms: int) -> int:
        """For how long whoever has taken it has to wait."""
        self._taken += amount
        bucket = self.bucket
        if bucket is None:
            return 0
        bucket.take(amount, now_ms)
        return self._waits(bucket, now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """Until something may be taken."""
        return 0 if self.bucket is None else self._waits(self.bucket, now_ms)

    def _waits(self, bucket: Bucket, now_ms: int) -> int:
        wait_ms = bucket.wait_ms(now_ms)
        if wait_ms:
            self._hungry_periods = HUNGRY_PERIODS
        return wait_ms

    def set_rate(self, per_s: float | None, expected_per_s: float, now_ms: int) -> None:
        if per_s is None:
            self.bucket = None
            return
        if self.bucket is None:
            self.bucket = Bucket(per_s, BURST_S, now_ms, DEBT_S)
        else:
            self.bucket.set_rate(per_s, now_ms)
        self.bucket.expected_per_s = expected_per_s

    def end_period(self, duration_ms: int, now_ms: int) -> Demand:
        """What was given since the last one ended, and whether somebody wanted more: whoever has
        debts does, though he is silent while he waits."""
        taken, self._taken = self._taken, 0.0
        is_hungry = self._hungry_periods > 0
        newest = taken * 1000 / max(1, duration_ms)
        self.per_s += SMOOTHING * (newest - self.per_s)
        if self.per_s < 1e-3:
            self.per_s = 0.0
        if self.bucket is not None and self.bucket.level(now_ms) < 0:
            self._hungry_periods = HUNGRY_PERIODS
        elif is_hungry:
            self._hungry_periods -= 1
        return Demand(max(newest, self.per_s), is_hungry or self._hungry_periods > 0)


class TenantRates:
    """Of one tenant."""

    __slots__ = ("connections", "consume", "handler", "is_awake", "produce", "requests")

    def __init__(self) -> None:
        # Whether something may have been taken since it was last found idle.
        self.is_awake = False
        self.produce = Use()
        self.consume = Use()
        self.requests = Use()
        self.handler = Use()
        self.connections = Use()

    def of(self, rate: str) -> Use:
        uses = (self.produce, self.consume, self.requests, self.handler, self.connections)
        return uses[RATES.index(rate)]


class TenantRateTable:
    """Of all tenants of one broker."""

    def __init__(self) -> None:
        self._quotas: Mapping[str, TenantQuotas] = {}
        self._caps: Mapping[RateKey, float] = {}
        self._uses: dict[str, TenantRates] = {}
        # Those of them that are awake. The others have nothing to tell.
        self._awake: dict[str, TenantRates] = {}
        # Those of them that no `set_shares` has limited yet.
        self._unlimited: set[str] = set()
        self._has_floors = False
        self._is_by_floors = False
        # By rate: for how many periods the broker is taken to be at its capacity.
        self._contended: dict[str, int] = {}
        self.demands: Mapping[RateKey, Demand] = {}

    @property
    def is_active(self) -> bool:
        return self._has_floors or bool(self._quotas)

    def set_tenants(self, tenants: Tenants) -> None:
        """Those of the image, with their quotas. Limits follow with the next `set_shares`."""
        self._quotas = {
            name: tenant.quotas for name, tenant in tenants.items() if _has_rates(tenant.quotas)
        }
        self._caps = {
            RateKey(name, rate): cap
            for name, quotas in self._quotas.items()
            for rate in RATES
            if (cap := getattr(quotas, rate)) is not None
        }
        self._has_floors = any(
            getattr(quotas, floor) for quotas in self._quotas.values() for floor in FLOORS.values()
        )
        kept = tenants.keys() | {DEFAULT_TENANT} if self._has_floors else self._quotas.keys()
        for name in self._uses.keys() - kept:
            del self._uses[name]
            self._awake.pop(name, None)
        for name in self._quotas:
            self.of(name)

    def caps(self) -> Mapping[RateKey, float]:
        """Of all tenants that have any; the same mapping until these are others."""
        return self._caps

    def cap_of(self, key: RateKey) -> float:
        """Of the cell; 0 where there is none."""
        return self._caps.get(key, 0.0)

    def of(self, tenant: str) -> TenantRates | None:
        """None: nothing is measured."""
        use = self._uses.get(tenant)
        if use is None:
            if not self._has_floors and tenant not in self._quotas:
                return None
            use = self._uses[tenant] = TenantRates()
            self._unlimited.add(tenant)
        if not use.is_awake:
            use.is_awake = True
            self._awake[tenant] = use
        return use

    def end_period(self, duration_ms: int, now_ms: int) -> Mapping[RateKey, Demand]:
        """What was given since the last one ended; nothing of who has taken nothing."""
        demands = {}
        awake, self._awake = self._awake, {}
        for name, use in awake.items():
            use.is_awake = False
            for rate in RATES:
                demand = use.of(rate).end_period(duration_ms, now_ms)
                if demand != NO_DEMAND:
                    demands[RateKey(name, rate)] = demand
                    use.is_awake = True
            if use.is_awake:
                self._awake[name] = use
        for rate, periods in self._contended.items():
            self._contended[rate] = max(0, periods - 1)
        self.demands = demands
        return demands

    def set_shares(
        self,
        shares: Mapping[RateKey, float],
        changed: Collection[RateKey],
        capacities: Mapping[str, float],
        brokers: int,
        now_ms: int,
    ) -> None:
        """This broker's shares of caps and which of them are others than before, what it can take
        of each rate (none: not declared), and how many brokers there are: when that changes, so
        have all shares."""
        contended = {rate: one for rate, one in capacities.items() if one > 0 and self._has_floors}
        limits = shares
        if contended or self._is_by_floors:
            # What one may have depends on what all want.
            limits = limits_by_floors = dict(shares)
            for rate, capacity in contended.items():
                self._contend(limits_by_floors, rate, capacity, brokers)
            changed = [RateKey(name, rate) for name in self._uses for rate in RATES]
        elif self._unlimited:
            changed = {
                *changed,
                *(RateKey(name, rate) for name in self._unlimited for rate in RATES),
            }
        self._is_by_floors = bool(contended)
        self._unlimited.clear()
        for key in changed:
            use = self._uses.get(key.tenant)
            if use is None:
                continue
            limit, cap = limits.get(key), self._caps.get(key)
            # Who begins here has an equal part of the cap as soon as the others know.
            is_share = limit == shares.get(key)
            expected_per_s = cap / brokers if cap is not None and is_share else 0.0
            use.of(key.rate).set_rate(limit, expected_per_s, now_ms)

    def _contend(
        self, limits: dict[RateKey, float], rate: str, capacity: float, brokers: int
    ) -> None:
        """Where the broker is at its capacity: lower limits to what each may have of it."""
        demands = {key.tenant: one for key, one in self.demands.items() if key.rate == rate}
        wants: dict[str, float] = {}
        for name, demand in demands.items():
            most = min(capacity, limits.get(RateKey(name, rate), capacity))
            wants[name] = most if demand.is_hungry else min(most, demand.rate)
        if sum(wants.values()) >= capacity * CONTENDED:
            self._contended[rate] = CONTENDED_PERIODS
        elif not self._contended.get(rate):
            return
        names = sorted(wants)
        reserved, wanted = {}, {}
        for number, name in enumerate(names):
            most = limits.get(RateKey(name, rate), capacity)
            want = min(most, wants[name] * (1 if demands[name].is_hungry else HEADROOM))
            reserved[number] = min(want, self._floor_here(name, rate, limits, brokers))
            wanted[number] = want - reserved[number]
        left = max(0.0, capacity - sum(reserved.values()))
        given = water_fill(left, wanted)
        spare = max(0.0, left - sum(given.values())) / max(1, len(names))
        for number, name in enumerate(names):
            key = RateKey(name, rate)
            allowed = max(1.0, reserved[number] + given[number] + spare)
            limits[key] = min(allowed, limits.get(key, allowed))

    def _floor_here(
        self, name: str, rate: str, limits: Mapping[RateKey, float], brokers: int
    ) -> float:
        """What this broker owes of a tenant's floor: as much of it as it has of the cap."""
        quotas = self._quotas.get(name)
        floor = 0 if quotas is None else getattr(quotas, FLOORS[rate]) or 0
        if quotas is None or not floor:
            return 0.0
        cap = getattr(quotas, rate)
        share = limits.get(RateKey(name, rate))
        if cap is None or share is None:
            return floor / brokers
        return float(floor * share / cap)


def _has_rates(quotas: TenantQuotas) -> bool:
    return any(getattr(quotas, name) is not None for name in (*RATES, *FLOORS.values()))
