"""The rules of ISR and ELR, one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.cell.partition_state import (
    effective_min_isr,
    may_join_isr,
    next_epochs,
    with_isr,
    with_leader,
    with_settled_elr,
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
    assert with_settled_elr(new, minimum) is new


def test_lowering_min_isr_settles_the_elr() -> None:
    state = partition((1, 2, 3), (1,), elr=(2,))
    assert with_settled_elr(state, 2) is state
    assert with_settled_elr(state, 1).elr == ()


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
