"""How the caps of tenants are shared among the brokers of a cell, by demand.

Every broker tells every other one what it has given of each cap and whether somebody wanted more,
and all of them come to the same shares by the same rule (`allocate`). Nobody decides for others:
there is no leader whose failover would have to be lived through.

    broker 1   5 MB/s, wants more ┐                       1:  6.2 MB/s
    broker 2   2 MB/s             ┼─► cap of 10 MB/s  ─►  2:  2.5 MB/s, and some room to grow
    broker 3   nothing            ┘                       3:  what a beginner gets, and room

What a broker takes must have been given up by others before. So a share shrinks as soon as
something is heard that makes it smaller, and grows only when every other broker has confirmed that
it has heard this one's demand, and so has shrunk.

Invariants
- The shares of brokers that hear each other never add up to more than the cap.
- Who has not heard another broker for UNHEARD_MS takes min(his last share, cap / brokers) until he
  does, and so does that broker: neither knows what the other one takes.
- Shares add up to the cap: what nobody wants is there for whoever begins to.

Deliberately absent: how messages travel (share_exchange.py), and what a share limits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

UNHEARD_MS: Final = 5_000
# Of a cap: what all brokers together have without wanting anything.
LEAST: Final = 0.05
# What a broker that is content may grow by until it is heard again.
HEADROOM: Final = 1.25


class Demand(NamedTuple):
    """What was given per second, and whether somebody had to wait for more."""

    rate: float
    is_hungry: bool


_K = TypeVar("_K")
NO_DEMAND: Final = Demand(0.0, is_hungry=False)


def water_fill(total: float, wanted: Mapping[int, float]) -> dict[int, float]:
    """`total` among those who want something: who wants less than an equal part gets it whole. What
    is left when all have what they want is not given."""
    given: dict[int, float] = {}
    left = total
    for count, (who, want) in enumerate(
        sorted(wanted.items(), key=lambda item: (item[1], item[0]))
    ):
        part = min(want, left / (len(wanted) - count))
        given[who] = part
        left -= part
    return given


def allocate(cap: float, demands: Mapping[int, Demand]) -> dict[int, float]:
    """The share of each broker."""
    least = cap * LEAST / len(demands)
    wanted = {
        node_id: cap if one.is_hungry else max(0.0, one.rate * HEADROOM - least)
        for node_id, one in demands.items()
    }
    given = water_fill(cap * (1 - LEAST), wanted)
    spare = max(0.0, cap * (1 - LEAST) - sum(given.values())) / len(demands)
    return {node_id: least + part + spare for node_id, part in given.items()}


class _Heard(Generic[_K]):
    """What is known of another broker."""

    __slots__ = ("at_ms", "demands", "sequence")

    def __init__(self, now_ms: int) -> None:
        self.at_ms = now_ms
        self.sequence = (-1, -1)
        self.demands: Mapping[_K, Demand] = {}


class ShareTable(Generic[_K]):
    """This broker's shares of all caps, by key (a tenant, and what the cap is of).

    A share is computed when something that it depends on has changed, so that a message costs what
    it says and not what there is: `_may_grow` are the keys whose shares may differ from what they
    come to, since not all have confirmed."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._caps: Mapping[_K, float] = {}
        self._others: dict[int, _Heard[_K]] = {}
        self._own: Mapping[_K, Demand] = {}
        # In force.
        self.shares: dict[_K, float] = {}
        self._may_grow: set[_K] = set()
        # Whose shares may be others than when `take_changed` was called last.
        self._touched: set[_K] = set()
        # Whether shares are held down since somebody is unheard.
        self._is_apart = False

    def set_caps(self, caps: Mapping[_K, float], now_ms: int) -> None:
        """From now on; the mapping is not changed any more. Who is new begins with what a beginner
        has."""
        before, self._caps = self._caps, caps
        if caps is before:
            self.look(now_ms)
            return
        for key in before.keys() - caps.keys():
            del self.shares[key]
            self._may_grow.discard(key)
            self._touched.add(key)
        brokers = len(self._others) + 1
        changed = [key for key, cap in caps.items() if before.get(key) != cap]
        for key in changed:
            if key not in self.shares:
                self.shares[key] = caps[key] if brokers == 1 else caps[key] * LEAST / brokers
        self._changed(changed, now_ms)

    def set_brokers(self, others: Collection[int], now_ms: int) -> None:
        """Those that serve, beside this one."""
        if self._others.keys() == set(others):
            self.look(now_ms)
            return
        for node_id in self._others.keys() - set(others):
            del self._others[node_id]
        for node_id in others:
            self._others.setdefault(node_id, _Heard(now_ms))
        self._changed(self._caps, now_ms)

    def heard(
        self,
        node_id: int,
        sequence: tuple[int, int],
        demands: Mapping[_K, Demand],
        now_ms: int,
    ) -> bool:
        """Another broker says what it gives. Passed over, and False: older words than the last
        ones, and those of a broker that does not serve."""
        other = self._others.get(node_id)
        if other is None or sequence <= other.sequence:
            return False
        before = other.demands
        other.at_ms, other.sequence, other.demands = now_ms, sequence, demands
        self._demands_changed(before, demands, now_ms)
        return True

    def demand(self, demands: Mapping[_K, Demand], now_ms: int) -> None:
        """What this broker gives, which the others are being told."""
        before, self._own = self._own, demands
        self._demands_changed(before, demands, now_ms)

    def confirmed(self, now_ms: int) -> None:
        """All others know the last `demand`: shares may grow."""
        self.look(now_ms)
        if self._is_apart:
            return
        for key in self._may_grow:
            self.shares[key] = self._computed(key)
        self._touched |= self._may_grow
        self._may_grow.clear()

    def look(self, now_ms: int) -> None:
        """Time has passed: somebody may be unheard."""
        self._changed((), now_ms)

    def take_changed(self) -> Collection[_K]:
        """Whose shares may be others than last time, or are gone."""
        touched, self._touched = self._touched, set()
        return touched

    def _demands_changed(
        self, before: Mapping[_K, Demand], now: Mapping[_K, Demand], now_ms: int
    ) -> None:
        changed = [
            key
            for key in before.keys() | now.keys()
            if before.get(key, NO_DEMAND) != now.get(key, NO_DEMAND) and key in self._caps
        ]
        self._changed(changed, now_ms)

    def _changed(self, keys: Collection[_K], now_ms: int) -> None:
        """Something that these shares depend on: they shrink at once if they have to."""
        was_apart = self._is_apart
        self._is_apart = any(now_ms - other.at_ms >= UNHEARD_MS for other in self._others.values())
        if self._is_apart and not was_apart:
            keys = self._caps.keys()
        brokers = len(self._others) + 1
        for key in keys:
            share = min(self.shares[key], self._computed(key))
            if self._is_apart:
                share = min(share, self._caps[key] / brokers)
            self.shares[key] = share
        self._may_grow.update(keys)
        self._touched.update(keys)

    def _computed(self, key: _K) -> float:
        demands = {
            node_id: other.demands.get(key, NO_DEMAND) for node_id, other in self._others.items()
        }
        demands[self._node_id] = self._own.get(key, NO_DEMAND)
        if all(demand == NO_DEMAND for demand in demands.values()):
            return self._caps[key] / len(demands)
        return allocate(self._caps[key], demands)[self._node_id]
