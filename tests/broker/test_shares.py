"""Shares of caps among brokers: what each gets, and that they never get too much together."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    ("demands", "shares"),
    [
        # Whoever is alone in wanting something has nearly all.
        ({1: HUNGRY, 2: NO_DEMAND}, {1: 975, 2: 25}),
        ({1: HUNGRY, 2: HUNGRY}, {1: 500, 2: 500}),
        ({1: NO_DEMAND, 2: NO_DEMAND}, {1: 500, 2: 500}),
        # Who is content keeps what he uses and a quarter.
        ({1: HUNGRY, 2: Demand(200, is_hungry=False)}, {1: 750, 2: 250}),
    ],
)
def test_who_gets_what(demands: dict[int, Demand], shares: dict[int, float]) -> None:
    given_shares = allocate(CAP, demands)
    assert {node_id: round(share, 6) for node_id, share in given_shares.items()} == shares


@given(
    st.dictionaries(
        st.integers(1, 9),
        st.builds(Demand, st.floats(0, 3000), st.booleans()),
        min_size=1,
    ),
)
def test_shares_add_up_to_the_cap(demands: dict[int, Demand]) -> None:
    shares = allocate(CAP, demands)
    assert shares.keys() == demands.keys()
    assert abs(sum(shares.values()) - CAP) < 1e-6
    least = CAP * LEAST / len(demands)
    assert all(share >= least - 1e-9 for share in shares.values())


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
        if any(table._has_unheard(cell.now_ms) for table in cell.tables.values()):
            break
        assert cell.total() <= CAP + 1e-6, [cell.share(node_id) for node_id in cell.nodes]
