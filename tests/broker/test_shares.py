"""Shares of caps among brokers: what each gets, and that they never get too much together."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.broker.quotas import shares
from data_plane.broker.quotas.shares import (
    LEAST,
    NO_DEMAND,
    UNHEARD_MS,
    Demand,
    ShareTable,
    allocate,
    water_fill,
)

CAP = 1000.0
HUNGRY = Demand(500.0, is_hungry=True)
KEY = "acme"


def test_water_goes_to_who_wants_least_first() -> None:
    assert water_fill(10, {1: 2, 2: 100, 3: 100}) == {1: 2, 2: 4, 3: 4}
    assert water_fill(10, {1: 1, 2: 2}) == {1: 1, 2: 2}
    assert water_fill(10, {}) == {}


@pytest.mark.parametrize(
    ("demands", "expected"),
    [
        # Whoever is alone in wanting something has nearly all.
        ({1: HUNGRY, 2: NO_DEMAND}, {1: 975, 2: 25}),
        ({1: HUNGRY, 2: HUNGRY}, {1: 500, 2: 500}),
        ({1: NO_DEMAND, 2: NO_DEMAND}, {1: 500, 2: 500}),
        # Who is content keeps what he uses and a quarter.
        ({1: HUNGRY, 2: Demand(200, is_hungry=False)}, {1: 750, 2: 250}),
    ],
)
def test_who_gets_what(demands: dict[int, Demand], expected: dict[int, float]) -> None:
    given_shares = allocate(CAP, demands)
    assert {node_id: round(share, 6) for node_id, share in given_shares.items()} == expected


@given(
    st.dictionaries(
        st.integers(1, 9),
        st.builds(Demand, st.floats(0, 3000), st.booleans()),
        min_size=1,
    ),
)
def test_shares_add_up_to_the_cap(demands: dict[int, Demand]) -> None:
    given_shares = allocate(CAP, demands)
    assert given_shares.keys() == demands.keys()
    assert abs(sum(given_shares.values()) - CAP) < 1e-6
    least = CAP * LEAST / len(demands)
    assert all(share >= least - 1e-9 for share in given_shares.values())


class Cell:
    """Brokers that tell each other what they give, over links that may be slow or cut."""

    def __init__(self, brokers: int, cap: float = CAP) -> None:
        self.now_ms = 1_000_000
        self.nodes = tuple(range(1, brokers + 1))
        self.tables: dict[int, ShareTable[str]] = {
            node_id: ShareTable(node_id) for node_id in self.nodes
        }
        self.demands = dict.fromkeys(self.nodes, NO_DEMAND)
        self.cuts: set[frozenset[int]] = set()
        # Messages under way, in order for each pair: (who, demands, sequence).
        self.links: dict[tuple[int, int], deque[tuple[Demand, int]]] = {
            (one, other): deque() for one in self.nodes for other in self.nodes if one != other
        }
        self.sequences = dict.fromkeys(self.nodes, 0)
        self.confirmed: dict[int, set[int]] = {node_id: set() for node_id in self.nodes}
        for node_id, table in self.tables.items():
            table.set_brokers([one for one in self.nodes if one != node_id], self.now_ms)
            table.set_caps({KEY: cap}, self.now_ms)

    def share(self, node_id: int) -> float:
        return self.tables[node_id].shares[KEY]

    def total(self) -> float:
        return sum(map(self.share, self.nodes))

    def tell(self, node_id: int) -> None:
        """A round begins; one that is not confirmed by all is over."""
        self.sequences[node_id] += 1
        self.confirmed[node_id] = set()
        demand = self.demands[node_id]
        self.tables[node_id].demand({KEY: demand}, self.now_ms)
        for other in self.nodes:
            if other != node_id:
                self.links[node_id, other].append((demand, self.sequences[node_id]))

    def deliver(self, sender: int, receiver: int) -> None:
        """The oldest message of a link, and its answer."""
        link = self.links[sender, receiver]
        if not link:
            return
        demand, sequence = link.popleft()
        if frozenset((sender, receiver)) in self.cuts:
            return
        self.tables[receiver].heard(sender, (0, sequence), {KEY: demand}, self.now_ms)
        if sequence == self.sequences[sender]:
            self.confirmed[sender].add(receiver)
            if len(self.confirmed[sender]) == len(self.nodes) - 1:
                self.tables[sender].confirmed(self.now_ms)

    def settle(self, rounds: int = 2) -> None:
        for _ in range(rounds):
            self.now_ms += 500
            for node_id in self.nodes:
                self.tell(node_id)
            for sender, receiver in self.links:
                self.deliver(sender, receiver)


def test_a_broker_that_is_alone_has_the_cap_at_once() -> None:
    table: ShareTable[str] = ShareTable(1)
    table.set_brokers([], 0)
    table.set_caps({KEY: CAP}, 0)
    assert table.shares == {KEY: CAP}
    table.set_caps({KEY: 10.0}, 0)
    assert table.shares == {KEY: 10.0}
    table.set_caps({}, 0)
    assert table.shares == {}


def test_shares_follow_demand_within_two_seconds() -> None:
    cell = Cell(3)
    cell.demands[1] = HUNGRY
    cell.settle(2)
    assert cell.share(1) > 0.9 * CAP
    # Its partitions move to another broker.
    cell.demands[1], cell.demands[2] = NO_DEMAND, HUNGRY
    cell.settle(2)
    assert cell.share(2) > 0.9 * CAP
    cell.demands = dict.fromkeys(cell.nodes, HUNGRY)
    cell.settle(2)
    assert [round(cell.share(node_id)) for node_id in cell.nodes] == [333, 333, 333]


def test_who_is_not_heard_has_the_lesser_of_his_share_and_an_equal_part() -> None:
    cell = Cell(3)
    cell.demands[1] = HUNGRY
    cell.settle()
    large, small = cell.share(1), cell.share(3)
    cell.cuts = {frozenset((1, 2)), frozenset((1, 3))}
    cell.settle(UNHEARD_MS // 500 + 1)
    assert cell.share(1) == pytest.approx(CAP / 3)
    assert cell.share(3) <= max(small, CAP / 3)
    cell.demands = dict.fromkeys(cell.nodes, HUNGRY)
    cell.settle(4)
    assert cell.total() <= CAP + 1e-6
    cell.cuts = set()
    cell.settle(3)
    assert cell.total() == pytest.approx(CAP)
    assert large > 0.9 * CAP


def test_a_broker_that_is_no_more_leaves_its_share_to_the_others() -> None:
    cell = Cell(2)
    cell.demands = {1: HUNGRY, 2: HUNGRY}
    cell.settle()
    cell.tables[1].set_brokers([], cell.now_ms)
    cell.tables[1].confirmed(cell.now_ms)
    assert cell.share(1) == CAP
    # When it is back it is none the richer before the other has heard it.
    cell.tables[1].set_brokers([2], cell.now_ms)
    fresh: ShareTable[str] = ShareTable(2)
    fresh.set_brokers([1], cell.now_ms)
    fresh.set_caps({KEY: CAP}, cell.now_ms)
    assert fresh.shares[KEY] <= CAP * LEAST


def test_old_words_are_passed_over() -> None:
    cell = Cell(2)
    table = cell.tables[1]
    table.heard(2, (5, 9), {KEY: HUNGRY}, cell.now_ms)
    table.heard(2, (5, 8), {KEY: NO_DEMAND}, cell.now_ms)
    table.heard(2, (4, 99), {KEY: NO_DEMAND}, cell.now_ms)
    table.heard(3, (9, 9), {KEY: NO_DEMAND}, cell.now_ms)
    table.demand({KEY: HUNGRY}, cell.now_ms)
    table.confirmed(cell.now_ms)
    assert table.shares[KEY] == pytest.approx(CAP / 2)
    # A new life of the broker begins anew.
    table.heard(2, (6, 0), {KEY: NO_DEMAND}, cell.now_ms)
    table.confirmed(cell.now_ms)
    assert table.shares[KEY] > 0.9 * CAP


class Counted:
    """Counts how often shares are computed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._count = 0
        monkeypatch.setattr(shares, "allocate", self._allocate)

    def _allocate(self, cap: float, demands: Mapping[int, Demand]) -> dict[int, float]:
        self._count += 1
        return allocate(cap, demands)

    def since_then(self) -> int:
        count, self._count = self._count, 0
        return count


def test_what_is_heard_costs_what_it_says_and_not_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = Counted(monkeypatch)
    table: ShareTable[str] = ShareTable(1)
    caps = {f"tenant {number}": CAP for number in range(2_000)}
    table.set_brokers({2, 3}, 0)
    table.set_caps(caps, 0)
    table.confirmed(0)
    # Nobody has asked for anything: nothing is to be computed.
    assert counted.since_then() == 0
    assert set(table.shares.values()) == {CAP / 3}
    said = {f"tenant {number}": HUNGRY for number in range(5)}

    def follow() -> None:
        table.set_brokers({3, 2}, 0)
        table.set_caps(caps, 0)

    follow()
    table.heard(2, (0, 1), said, 0)
    table.look(0)
    assert counted.since_then() == 5
    follow()
    table.heard(2, (0, 2), {**said, "tenant 1": Demand(600.0, is_hungry=True)}, 0)
    table.look(0)
    assert counted.since_then() == 1
    table.demand({"tenant 0": HUNGRY, "tenant 7": HUNGRY}, 0)
    assert counted.since_then() == 2
    table.confirmed(0)
    assert counted.since_then() == 6
    assert table.shares["tenant 0"] == pytest.approx(allocate(CAP, ONE_IDLE)[1])
    table.confirmed(0)
    table.look(0)
    assert counted.since_then() == 0
    # What is said no more counts as well.
    table.heard(2, (0, 3), {}, 0)
    assert counted.since_then() == 1
    table.confirmed(0)
    assert table.shares["tenant 3"] == CAP / 3


ONE_IDLE = {1: HUNGRY, 2: HUNGRY, 3: NO_DEMAND}


class PlainTable:
    """What a ShareTable comes to, computed anew for each cap with each event."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._caps: dict[str, float] = {}
        self._others: dict[int, tuple[int, Mapping[str, Demand]]] = {}
        self._own: Mapping[str, Demand] = {}
        self.shares: dict[str, float] = {}

    def set_caps(self, caps: Mapping[str, float], now_ms: int) -> None:
        self._caps = dict(caps)
        brokers = len(self._others) + 1
        first = 1.0 if brokers == 1 else LEAST / brokers
        self.shares = {key: self.shares.get(key, cap * first) for key, cap in caps.items()}
        self.look(now_ms)

    def set_brokers(self, others: Collection[int], now_ms: int) -> None:
        self._others = {one: self._others.get(one, (now_ms, {})) for one in others}
        self.look(now_ms)

    def heard(
        self, node_id: int, sequence: tuple[int, int], demands: Mapping[str, Demand], now_ms: int
    ) -> None:
        if node_id in self._others:
            self._others[node_id] = now_ms, demands
            self.look(now_ms)

    def demand(self, demands: Mapping[str, Demand], now_ms: int) -> None:
        self._own = demands
        self.look(now_ms)

    def confirmed(self, now_ms: int) -> None:
        if not self._is_apart(now_ms):
            self.shares = {key: self._computed(key) for key in self._caps}
        self.look(now_ms)

    def look(self, now_ms: int) -> None:
        for key, cap in self._caps.items():
            most = cap / (len(self._others) + 1) if self._is_apart(now_ms) else cap
            self.shares[key] = min(self.shares[key], self._computed(key), most)

    def _is_apart(self, now_ms: int) -> bool:
        return any(now_ms - at_ms >= UNHEARD_MS for at_ms, _ in self._others.values())

    def _computed(self, key: str) -> float:
        demands = {one: said.get(key, NO_DEMAND) for one, (_, said) in self._others.items()}
        demands[self._node_id] = self._own.get(key, NO_DEMAND)
        return allocate(self._caps[key], demands)[self._node_id]


KEYS = st.sampled_from(["a", "b", "c", "d"])
DEMANDS = st.dictionaries(KEYS, st.sampled_from([HUNGRY, NO_DEMAND, Demand(100, is_hungry=False)]))
EVENTS = st.one_of(
    st.tuples(st.just("caps"), st.dictionaries(KEYS, st.sampled_from([10.0, 70.0, CAP]))),
    st.tuples(st.just("brokers"), st.sets(st.integers(2, 4))),
    st.tuples(st.just("heard"), st.tuples(st.integers(2, 4), DEMANDS)),
    st.tuples(st.just("demand"), DEMANDS),
    st.tuples(st.just("confirmed"), st.none()),
    st.tuples(st.just("look"), st.none()),
    st.tuples(st.just("time"), st.sampled_from([100, UNHEARD_MS - 1, UNHEARD_MS])),
)


@settings(max_examples=300)
@given(st.lists(EVENTS, max_size=40))
def test_what_is_not_computed_anew_has_not_changed(events: list[tuple[str, Any]]) -> None:
    table: ShareTable[str] = ShareTable(1)
    plain = PlainTable(1)
    now_ms = 0
    for number, (kind, what) in enumerate(events):
        if kind == "time":
            now_ms += what
            continue
        for one in (table, plain):
            if kind == "caps":
                one.set_caps(what, now_ms)
            elif kind == "brokers":
                one.set_brokers(what, now_ms)
            elif kind == "heard":
                one.heard(what[0], (0, number), what[1], now_ms)
            elif kind == "demand":
                one.demand(what, now_ms)
            elif kind == "confirmed":
                one.confirmed(now_ms)
            else:
                one.look(now_ms)
        assert table.shares == pytest.approx(plain.shares), (kind, what)


STEPS = st.one_of(
    st.tuples(st.just("demand"), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("tell"), st.integers(1, 3), st.just(0)),
    st.tuples(st.just("deliver"), st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.just("time"), st.sampled_from([1, 100, 400]), st.just(0)),
)


@settings(max_examples=200)
@given(st.lists(STEPS, max_size=80))
def test_brokers_that_hear_each_other_never_have_more_than_the_cap(
    steps: list[tuple[str, int, int]],
) -> None:
    """Whenever they tell what, and however late it arrives."""
    cell = Cell(3)
    for kind, one, other in steps:
        if kind == "demand":
            cell.demands[one] = HUNGRY if other else Demand(100.0, is_hungry=False)
        elif kind == "tell":
            cell.tell(one)
        elif kind == "deliver" and one != other:
            cell.deliver(one, other)
        elif kind == "time":
            cell.now_ms += one
        if any(table._is_apart for table in cell.tables.values()):
            break
        assert cell.total() <= CAP + 1e-6, [cell.share(node_id) for node_id in cell.nodes]
