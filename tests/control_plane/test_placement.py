"""Placement: most room first; drained and full cells take nobody."""

from __future__ import annotations

import pytest
from django.utils import timezone

from control_plane.accounts.logic import do_delete_organization
from control_plane.accounts.models import Organization
from control_plane.cells.facade import place
from control_plane.cells.logic import Room, decide_cell
from control_plane.cells.models import Placement
from control_plane.messaging.logic import TopicSpec, do_create_topic
from tests.control_plane.tenants import Tenant, make_cell, make_tenant


def room(tenants: int = 0, partitions: int = 0, *, is_accepting: bool = True) -> Room:
    return Room(tenants, 10, partitions, 100, is_accepting)


def test_most_room_in_what_is_scarcer_wins() -> None:
    assert decide_cell({"a": room(5), "b": room(1, 80), "c": room(4, 40)}) == "c"
    assert decide_cell({"b": room(), "a": room()}) == "a"
    assert decide_cell({"a": room(10), "b": room(0, 100), "c": room(is_accepting=False)}) is None
    assert decide_cell({}) is None


def cell_of(tenant: Tenant) -> str:
    return Placement.objects.of(tenant.id).get().cell.name


@pytest.mark.django_db
def test_tenants_spread_over_cells_and_who_finds_no_room_waits() -> None:
    make_cell("one", tenants_max=2)
    two = make_cell("two", tenants_max=2)
    make_cell("drained", is_accepting=False)
    first = make_tenant("first")
    second = make_tenant("second")
    # Which comes first is a matter of their ids, which are random within a millisecond.
    assert {cell_of(first), cell_of(second)} == {"one", "two"}
    third, fourth = make_tenant("third"), make_tenant("fourth")
    assert {cell_of(third), cell_of(fourth)} == {"one", "two"}
    fifth = make_tenant("fifth")
    assert "No cell has room" in fifth.organization.status_reason
    two.tenants_max = 3
    two.save()
    placement = place(fifth.organization)
    assert placement is not None
    assert placement.cell_id == two.id
    assert place(fifth.organization) == placement


@pytest.mark.django_db
def test_who_is_deleted_takes_room_until_the_grace_is_over() -> None:
    make_cell("one", tenants_max=1)
    first = make_tenant("first")
    do_delete_organization(first.actor, first.id)
    waiting = make_tenant("second")
    assert not Placement.objects.of(waiting.id).exists()
    Organization.objects.filter(id=first.id).update(purge_after=timezone.now())
    assert place(waiting.organization) is not None


@pytest.mark.django_db
def test_declared_partitions_fill_a_cell() -> None:
    make_cell("one", partitions_max=10)
    first = make_tenant("first")
    do_create_topic(first.actor, first.id, "orders", TopicSpec(10))
    assert not Placement.objects.of(make_tenant("second").id).exists()
