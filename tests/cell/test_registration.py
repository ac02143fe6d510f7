"""What a broker's registration does to the partitions that it has replicas of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.cell.changes import RegisterBroker, apply_changes
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.registration import decide_registration
from data_plane.cell.settings import ControllerSettings
from tests.cell.cell_images import applied, broker, cell, orders, partition, restarted


def register(image: MetadataImage, node_id: int, clean_broker_epoch: int | None) -> MetadataImage:
    starting = restarted(image, node_id, f"{node_id}-b")
    changes = decide_registration(image, starting, clean_broker_epoch, ControllerSettings())
    return applied(image, changes)


def test_a_new_broker_is_registered_fenced_with_the_version_as_its_epoch() -> None:
    image = MetadataImage("cluster", version=6)
    new = broker(1, epoch=0)
    changes = decide_registration(image, new, None, ControllerSettings())
    assert changes == (RegisterBroker(replace(new, is_fenced=True)),)
    image = apply_changes(image, changes)
    assert image.brokers == {1: replace(new, is_fenced=True, broker_epoch=7)}


def test_the_same_incarnation_registers_once() -> None:
    image = register(cell([1, 2], [partition((1, 2))]), 1, None)
    again = restarted(image, 1, "1-b")
    assert decide_registration(image, again, None, ControllerSettings()) == ()


def test_a_clean_restart_keeps_isr_and_elr_but_not_the_lead() -> None:
    image = cell(
        [1, 2, 3],
        [partition((1, 2, 3)), partition((2, 1, 3)), partition((2, 1, 3), (2,), elr=(1,))],
    )
    image = register(image, 1, clean_broker_epoch=101)
    led = orders(image, 0)
    assert (led.isr, led.leader, led.leader_epoch, led.partition_epoch) == ((1, 2, 3), -1, 6, 9)
    assert led.last_known_leader == 1
    assert orders(image, 1) == partition((2, 1, 3))
    assert orders(image, 2) == partition((2, 1, 3), (2,), elr=(1,))


@pytest.mark.parametrize("mark", [None, 100, 102])
def test_an_unclean_restart_leaves_isr_elr_and_lead(mark: int | None) -> None:
    image = cell(
        [1, 2, 3],
        [partition((1, 2, 3)), partition((2, 1, 3)), partition((2, 1, 3), (2,), elr=(1,))],
    )
    image = register(image, 1, clean_broker_epoch=mark)
    led, followed, eligible = orders(image, 0), orders(image, 1), orders(image, 2)
    assert (led.isr, led.elr, led.leader, led.leader_epoch) == ((2, 3), (), -1, 6)
    assert (followed.isr, followed.elr, followed.leader) == ((2, 3), (), 2)
    assert followed.leader_epoch == 5
    assert (eligible.isr, eligible.elr) == ((2,), ())
    # The ISR of the first two is large enough without it.
    assert led.last_known_elr == followed.last_known_elr == ()
    assert eligible.last_known_elr == (1,)


def test_of_the_only_replica_it_is_remembered_who_led() -> None:
    image = register(cell([1, 2], [partition((1,))]), 1, None)
    alone = orders(image)
    assert (alone.isr, alone.elr, alone.leader, alone.last_known_leader) == ((), (), -1, 1)
    assert alone.last_known_elr == (1,)


def test_when_all_lose_power_the_former_leader_is_remembered() -> None:
    image = cell([1, 2, 3], [partition((1, 2, 3), leader=2)])
    for node_id in (2, 3, 1):
        image = register(image, node_id, None)
    assert orders(image).isr == orders(image).elr == ()
    assert orders(image).last_known_leader == 2
    # When 2 lost power 1 and 3 were enough, and might have committed more without it.
    image = cell([1, 2, 3], [partition((1, 2, 3), leader=2)])
    for node_id in (2, 3, 1):
        image = register(image, node_id, None)
    assert orders(image).last_known_elr == (3, 1)


@pytest.mark.parametrize("mark", [None, 102])
def test_what_a_former_process_reported_is_withdrawn(mark: int | None) -> None:
    old = partition((1, 2, 3), (), last_known_elr=(1, 2), ends=[(1, 4, 90), (2, 4, 100)])
    image = register(cell([1, 2, 3], [old]), 2, mark)
    assert orders(image).log_ends == old.log_ends[:1]
    assert orders(image).last_known_elr == (1, 2)
    assert orders(image).partition_epoch == old.partition_epoch + 1


def test_a_broker_that_drains_goes_on_draining_and_one_that_stopped_starts() -> None:
    image = cell([broker(1, draining=True, stopping=True, fenced=True)])
    image = register(image, 1, 101)
    assert image.brokers[1].is_draining
    assert not image.brokers[1].in_controlled_shutdown


@given(
    isr=st.sets(st.integers(1, 4)),
    others=st.sets(st.integers(1, 4)),
    node_id=st.integers(1, 4),
    is_clean=st.booleans(),
)
def test_membership_survives_exactly_a_clean_restart(
    isr: set[int], others: set[int], node_id: int, is_clean: bool
) -> None:
    elr = others - isr if len(isr) < 2 else set()
    old = partition((1, 2, 3, 4), sorted(isr), elr=sorted(elr))
    image = cell([1, 2, 3, 4], [old])
    image = register(image, node_id, 100 + node_id if is_clean else 99)
    new = orders(image)
    gone = set() if is_clean else {node_id}
    assert set(new.isr) == isr - gone
    assert set(new.elr) == elr - gone
    is_enough = len(isr - gone) >= 2
    assert set(new.last_known_elr) == (set() if is_enough else gone & (isr | elr))
    assert new.leader != node_id
    assert new.leader == old.leader or old.leader == node_id
