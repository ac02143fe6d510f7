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
    """This broker's shares of all caps, by key (a tenant, and what the cap is of)."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._caps: dict[_K, float] = {}
        self._others: dict[int, _Heard[_K]] = {}
        self._own: Mapping[_K, Demand] = {}
        # In force.
        self.shares: dict[_K, float] = {}

    def set_caps(self, caps: Mapping[_K, float], now_ms: int) -> None:
        """From now on. Who is new begins with what a beginner has."""
        self._caps = dict(caps)
        for key in self.shares.keys() - caps.keys():
            del self.shares[key]
        brokers = len(self._others) + 1
        for key, cap in caps.items():
            if key not in self.shares:
                self.shares[key] = cap if brokers == 1 else cap * LEAST / brokers
        self._shrink(now_ms)

    def set_brokers(self, others: Collection[int], now_ms: int) -> None:
        """Those that serve, beside this one."""
        for node_id in self._others.keys() - set(others):
            del self._others[node_id]
        for node_id in others:
            self._others.setdefault(node_id, _Heard(now_ms))
        self._shrink(now_ms)

    def heard(
        self,
        node_id: int,
        sequence: tuple[int, int],
        demands: Mapping[_K, Demand],
        now_ms: int,
    ) -> None:
        """Another broker says what it gives. Older words than the last ones are passed over."""
        other = self._others.get(node_id)
        if other is None or sequence <= other.sequence:
            return
        other.at_ms, other.sequence, other.demands = now_ms, sequence, demands
        self._shrink(now_ms)

    def demand(self, demands: Mapping[_K, Demand], now_ms: int) -> None:
        """What this broker gives, which the others are being told."""
        self._own = demands
        self._shrink(now_ms)

    def confirmed(self, now_ms: int) -> None:
        """All others know the last `demand`: shares may grow."""
        if self._has_unheard(now_ms):
            self._shrink(now_ms)
            return
        for key in self._caps:
            self.shares[key] = self._computed(key)

    def look(self, now_ms: int) -> None:
        """Time has passed: somebody may be unheard."""
        self._shrink(now_ms)

    def _has_unheard(self, now_ms: int) -> bool:
        return any(now_ms - other.at_ms >= UNHEARD_MS for other in self._others.values())

    def _shrink(self, now_ms: int) -> None:
        brokers = len(self._others) + 1
        has_unheard = self._has_unheard(now_ms)
        for key, cap in self._caps.items():
            share = min(self.shares[key], self._computed(key))
            self.shares[key] = min(share, cap / brokers) if has_unheard else share

    def _computed(self, key: _K) -> float:
        demands = {
            node_id: other.demands.get(key, NO_DEMAND) for node_id, other in self._others.items()
        }
        demands[self._node_id] = self._own.get(key, NO_DEMAND)
        return allocate(self._caps[key], demands)[self._node_id]
