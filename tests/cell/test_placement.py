"""Placement: distinct brokers, hosts and racks; even shares of replicas and leaders."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.cell.placement import Placer, host_of
from tests.cell.cell_images import broker, cell, partition


@st.composite
def placers(draw: st.DrawFn) -> tuple[Placer, dict[int, tuple[str | None, str]]]:
    """A placer over some brokers with racks and hosts, and where each stands."""
    count = draw(st.integers(1, 7))
    racks: list[str | None] = draw(st.sampled_from([[None], ["a"], ["a", "b"], ["a", "b", "c"]]))
    hosts_count = draw(st.integers(1, count))
    brokers = [
        broker(
            node_id,
            # A host stands in one rack.
            rack=racks[node_id % hosts_count % len(racks)],
            host_id=f"h{node_id % hosts_count}",
            fenced=draw(st.sampled_from([False, False, False, True])),
        )
        for node_id in range(1, count + 1)
    ]
    places = {one.node_id: (one.rack, host_of(one)) for one in brokers}
    return Placer(brokers, cell(brokers)), places


@given(placers(), st.integers(1, 4), st.integers(1, 40))
def test_replicas_are_distinct_and_stand_as_far_apart_as_the_live_ones_allow(
    given_placer: tuple[Placer, dict[int, tuple[str | None, str]]], factor: int, count: int
) -> None:
    placer, places = given_placer
    factor = min(factor, len(placer))
    for _ in range(count):
        replicas = placer.place(factor)
        assert len(set(replicas)) == factor
        fenced = [node_id for node_id in replicas if placer.is_fenced(node_id)]
        # Fenced ones only where there are not enough others, and behind them.
        assert len(fenced) == max(0, factor - placer.unfenced_count)
        assert list(replicas[factor - len(fenced) :]) == fenced
        live = [node_id for node_id in replicas if node_id not in fenced]
        live_places = [place for node_id, place in places.items() if not placer.is_fenced(node_id)]
        assert len({places[one][0] for one in live}) == min(
            len(live), len({rack for rack, _ in live_places})
        )
        if len({rack for rack, _ in live_places}) == 1:
            assert len({places[one][1] for one in live}) == min(
                len(live), len({host for _, host in live_places})
            )


@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 60))
def test_brokers_that_are_alike_have_equal_shares(brokers: int, factor: int, count: int) -> None:
    image = cell(range(1, brokers + 1))
    placer = Placer(image.brokers.values(), image)
    factor = min(factor, brokers)
    assignments = [placer.place(factor) for _ in range(count)]
    leaders = Counter(replicas[0] for replicas in assignments)
    held = Counter(node_id for replicas in assignments for node_id in replicas)
    # Who follows whom is mixed as well, at the cost of one replica more or less.
    for counts, difference_max in ((leaders, 1), (held, 2)):
        shares = [counts[node_id] for node_id in image.brokers]
        assert max(shares) - min(shares) <= difference_max, assignments


@pytest.mark.parametrize("brokers", [3, 4, 5])
def test_the_leaders_of_a_broker_that_dies_go_to_all_others(brokers: int) -> None:
    image = cell(range(1, brokers + 1))
    placer = Placer(image.brokers.values(), image)
    assignments = [placer.place(3) for _ in range(brokers * (brokers - 1) * 2)]
    for dead in image.brokers:
        heirs = Counter(replicas[1] for replicas in assignments if replicas[0] == dead)
        assert max(heirs.values()) - min(heirs.values()) <= 2
        assert len(heirs) == brokers - 1


def test_what_is_there_counts_and_what_is_being_removed_does_not() -> None:
    existing = [
        partition((1, 2)),
        partition((1, 2)),
        partition((3, 1, 2), (1, 2), adding=(3,), removing=(1, 2)),
    ]
    image = cell([1, 2, 3], existing)
    placer = Placer(image.brokers.values(), image)
    assert (placer.replicas_count[1], placer.replicas_count[3]) == (2, 1)
    # Nobody leads on 2 yet.
    assert placer.place(1) == (2,)
    assert placer.place(1) == (3,)


def test_brokers_that_drain_or_stop_get_nothing() -> None:
    image = cell([1, broker(2, draining=True), broker(3, stopping=True), 4])
    placer = Placer(image.brokers.values(), image)
    assert len(placer) == 2
    assert {node_id for _ in range(4) for node_id in placer.place(2)} == {1, 4}


def test_a_replacement_is_alive_elsewhere_and_not_excluded() -> None:
    image = cell([1, 2, 3, broker(4, fenced=True), 5, 6])
    placer = Placer(image.brokers.values(), image)
    assert placer.replacement([1, 2], 3, is_leader=False) == 5
    assert placer.replacement([1, 2], 3, is_leader=True, excluded=[5]) == 6
    assert placer.replacement([1, 2], 3, is_leader=True, excluded=[5, 6]) is None
