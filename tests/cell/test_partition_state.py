"""The rules of ISR and ELR, one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.cell.metadata import LogEnd, PartitionImage
from data_plane.cell.partition_state import (
    effective_min_isr,
    is_recovering,
    may_join_isr,
    next_epochs,
    with_isr,
    with_leader,
    with_log_end,
    with_settled_elr,
    without_log_end,
)
from data_plane.cell.reassignment import start
from tests.cell.cell_images import broker, cell, partition


@pytest.mark.parametrize(
    ("replicas", "wanted", "effective"),
    [((1,), 2, 1), ((1, 2), 2, 2), ((1, 2, 3), 2, 2), ((1, 2, 3), 9, 3), ((1, 2), 0, 1)],
)
def test_min_isr_is_at_most_the_replicas(
    replicas: tuple[int, ...], wanted: int, effective: int
) -> None:
    assert effective_min_isr(partition(replicas), wanted) == effective


def test_a_copy_that_is_being_made_does_not_stop_producers() -> None:
    moving = start(partition((1,)), (2,))
    assert moving.replicas == (2, 1)
    assert effective_min_isr(moving, 2) == 1
    growing = start(partition((1, 2), (1,)), (1, 2, 3, 4))
    assert effective_min_isr(growing, 3) == 2


@given(
    isr=st.sets(st.integers(1, 4)),
    new_isr=st.sets(st.integers(1, 4)),
    elr=st.sets(st.integers(1, 4)),
    minimum=st.integers(1, 4),
    lost=st.sets(st.integers(1, 4)),
)
def test_who_leaves_the_isr_is_eligible_while_it_is_too_small(
    isr: set[int], new_isr: set[int], elr: set[int], minimum: int, lost: set[int]
) -> None:
    elr = elr - isr if len(isr) < minimum else set()
    old = partition((1, 2, 3, 4), sorted(isr), elr=sorted(elr))
    new = with_isr(old, sorted(new_isr), minimum, lost)
    assert set(new.isr) == new_isr
    expected = (isr | elr) - new_isr - lost if len(new_isr) < minimum else set()
    assert set(new.elr) == expected
    doubted = (isr | elr) & lost - new_isr if len(new_isr) < minimum else set()
    assert set(new.last_known_elr) == doubted
    assert with_settled_elr(new, minimum) is new


@given(
    isr=st.sets(st.integers(1, 4)),
    elr=st.sets(st.integers(1, 4)),
    known=st.sets(st.integers(1, 4)),
    steps=st.lists(st.tuples(st.sets(st.integers(1, 4)), st.sets(st.integers(1, 4)))),
    minimum=st.integers(1, 4),
)
def test_nobody_who_had_everything_is_forgotten_while_the_isr_is_too_small(
    isr: set[int],
    elr: set[int],
    known: set[int],
    steps: list[tuple[set[int], set[int]]],
    minimum: int,
) -> None:
    elr = elr - isr if len(isr) < minimum else set()
    known = known - isr - elr if len(isr) < minimum else set()
    state = partition((1, 2, 3, 4), sorted(isr), elr=sorted(elr), last_known_elr=sorted(known))
    holders = isr | elr | known
    for members, lost in steps:
        state = with_isr(state, sorted(members), minimum, lost)
        holders = members | holders if len(members) < minimum else members
        assert {*state.isr, *state.elr, *state.last_known_elr} == holders
        assert len(holders) == len(state.isr) + len(state.elr) + len(state.last_known_elr)


def test_lowering_min_isr_settles_the_elr() -> None:
    state = partition((1, 2, 3), (1,), elr=(2,))
    assert with_settled_elr(state, 2) is state
    assert with_settled_elr(state, 1).elr == ()
    state = partition((1, 2, 3), (1,), last_known_elr=(2,))
    assert with_settled_elr(state, 2) is state
    assert with_settled_elr(state, 1).last_known_elr == ()


def test_a_report_replaces_the_one_before_and_ends_with_the_election() -> None:
    state = partition((1, 2, 3), (), last_known_elr=(1, 2), last_known_leader=1)
    assert is_recovering(state)
    state = with_log_end(with_log_end(state, LogEnd(1, 4, 90)), LogEnd(2, 4, 95))
    assert with_log_end(state, LogEnd(1, 4, 90)) is state
    again = with_log_end(state, LogEnd(1, -1, -1))
    assert again.log_ends == (LogEnd(2, 4, 95), LogEnd(1, -1, -1))
    assert without_log_end(again, 3) is again
    assert without_log_end(again, 1).log_ends == (LogEnd(2, 4, 95),)
    led = with_leader(with_isr(again, (2,), 2), 2)
    assert (led.log_ends, led.last_known_elr) == ((), (1,))
    assert not is_recovering(led)


@pytest.mark.parametrize(
    "state",
    [
        partition((1, 2), (), elr=(1,), last_known_elr=(2,)),
        partition((1, 2), (2,), -1, last_known_elr=(1,)),
        partition((1, 2), ()),
        partition((1, 2), (2,), last_known_elr=(1,)),
    ],
)
def test_logs_are_not_compared_while_somebody_has_everything(state: PartitionImage) -> None:
    assert not is_recovering(state)


def test_the_last_leader_is_known_until_there_is_another() -> None:
    state = with_leader(partition((1, 2), leader=2), -1)
    assert (state.leader, state.last_known_leader) == (-1, 2)
    assert with_leader(state, -1) is state
    assert with_leader(state, 1).last_known_leader == -1


def test_epochs_grow_with_leaders_and_with_replicas_that_go() -> None:
    old = partition((1, 2, 3), leader_epoch=5, partition_epoch=8)
    for new, leader_epoch in (
        (partition((1, 2, 3), (1, 2)), 5),
        (partition((1, 2, 3), leader=2), 6),
        (partition((1, 2)), 6),
        (partition((1, 2, 3, 4), (1, 2, 3)), 5),
        (partition((3, 2, 1), (1, 2, 3)), 5),
    ):
        changed = next_epochs(old, new)
        assert (changed.leader_epoch, changed.partition_epoch) == (leader_epoch, 9)


def test_only_the_registered_incarnation_of_a_broker_in_service_joins_an_isr() -> None:
    image = cell([1, broker(2, fenced=True), broker(3, stopping=True)])
    assert may_join_isr(image, 1, 101)
    assert not may_join_isr(image, 1, 100)
    assert not may_join_isr(image, 2, 102)
    assert not may_join_isr(image, 3, 103)
    assert not may_join_isr(image, 4, 104)
