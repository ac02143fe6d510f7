"""Which cell a new tenant gets: of those that take somebody, the one with most of its room left.

Room is counted in tenants and in partitions that are declared. A tenant that is deleted takes its
room until its grace is over, and none from then on. Cells' rows are locked while a tenant is
placed, so that none is overfilled; one that is drained or full is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Count, QuerySet, Sum
from django.utils import timezone

from control_plane.accounts.models import Organization, OrganizationState
from control_plane.cells.models import Cell, Placement
from control_plane.messaging.models import Topic
from control_plane.operations.facade import Actor, record_audit
from control_plane.tenancy.errors import Conflict, Invalid, NotFound


@dataclass(frozen=True, slots=True)
class Room:
    """What a cell holds, and what it may hold."""

    tenants: int
    tenants_max: int
    partitions: int
    partitions_max: int
    is_accepting: bool = True

    @property
    def left(self) -> float:
        """The scarcer of both, as a part of the whole; 0 when nobody else fits."""
        if not self.is_accepting or self.tenants >= self.tenants_max:
            return 0.0
        if self.partitions >= self.partitions_max:
            return 0.0
        return min(1 - self.tenants / self.tenants_max, 1 - self.partitions / self.partitions_max)


def decide_cell(rooms: Mapping[str, Room]) -> str | None:
    """The id of the cell with most room, the oldest of equals; None when all are full."""
    best = max(sorted(rooms), key=lambda cell_id: rooms[cell_id].left, default=None)
    return best if best is not None and rooms[best].left > 0 else None


def place(organization: Organization) -> Placement | None:
    """Give the tenant a cell, in the caller's transaction; None when there is no room anywhere."""
    present = Placement.objects.of(organization.id).first()
    if present is not None:
        return present
    cells = list(Cell.objects.select_for_update().order_by("id"))
    tenants = dict(_taken().values_list("cell_id").annotate(Count("organization_id")))
    partitions = _declared_partitions()
    chosen = decide_cell(
        {
            cell.id: Room(
                tenants=tenants.get(cell.id, 0),
                tenants_max=cell.tenants_max,
                partitions=partitions.get(cell.id, 0),
                partitions_max=cell.partitions_max,
                is_accepting=cell.is_accepting,
            )
            for cell in cells
        }
    )
    if chosen is None:
        return None
    placement = Placement(organization=organization, cell_id=chosen)
    placement.save(force_insert=True)
    return placement


def with_cells(organizations: Sequence[Organization]) -> Sequence[Organization]:
    """The same, each with its cell as `cell`, None for who waits for one; in one query."""
    ids = [organization.id for organization in organizations]
    placements = Placement.objects.across_tenants().filter(organization_id__in=ids)
    cells = {row.organization_id: row.cell for row in placements.select_related("cell")}
    for organization in organizations:
        shown: Any = organization
        shown.cell = cells.get(organization.id)
    return organizations


def do_register_cell(
    actor: Actor,
    name: str,
    *,
    admin_endpoints: Sequence[str],
    bootstrap_servers: str,
    region: str | None = None,
) -> Cell:
    """A cell is known by its name; registered again, it has these addresses. Raises Invalid."""
    addresses: dict[str, Any] = {
        "admin_endpoints": list(admin_endpoints),
        "bootstrap_servers": bootstrap_servers,
    }
    if region is not None:
        addresses["region"] = region
    with transaction.atomic():
        cell, is_new = Cell.objects.select_for_update().get_or_create(name=name, defaults=addresses)
        changes = {
            field: [None if is_new else getattr(cell, field), value]
            for field, value in addresses.items()
            if is_new or getattr(cell, field) != value
        }
        if not changes:
            return cell
        for field, value in addresses.items():
            setattr(cell, field, value)
        try:
            cell.full_clean()
        except ValidationError as error:
            raise Invalid("; ".join(error.messages)) from error
        cell.save()
        action = "cell.create" if is_new else "cell.update"
        record_audit(actor, "", action, cell.id, cell.name, changes)
    return cell


def do_create_cell(actor: Actor, fields: Mapping[str, Any]) -> Cell:
    """An operator adds a cell. Raises Conflict."""
    cell = Cell(**fields)
    with transaction.atomic():
        if Cell.objects.filter(name=cell.name).exists():
            raise Conflict(f"There is a cell {cell.name}.", field="/name")
        cell.save(force_insert=True)
        record_audit(actor, "", "cell.create", cell.id, cell.name, dict(fields))
    return cell


def do_update_cell(actor: Actor, cell_id: str, changes: Mapping[str, Any]) -> Cell:
    """An operator drains a cell of newcomers, or says how many it takes and where it is."""
    with transaction.atomic():
        cell = Cell.objects.select_for_update().filter(id=cell_id).first()
        if cell is None:
            raise NotFound("There is no such cell.")
        written = {}
        for name, value in changes.items():
            written[name] = [getattr(cell, name), value]
            setattr(cell, name, value)
        cell.save()
        record_audit(actor, "", "cell.update", cell.id, cell.name, written)
    return cell


def _taken() -> QuerySet[Placement]:
    """The placements that take room."""
    return Placement.objects.across_tenants().exclude(
        organization__state=OrganizationState.DELETED,
        organization__purge_after__lte=timezone.now(),
    )


def _declared_partitions() -> dict[str, int]:
    cell_of = dict(_taken().values_list("organization_id", "cell_id"))
    partitions: dict[str, int] = {}
    declared = Topic.objects.across_tenants().values_list("organization_id")
    for organization_id, count in declared.annotate(Sum("partitions")):
        cell_id = cell_of.get(organization_id)
        if cell_id is not None:
            partitions[cell_id] = partitions.get(cell_id, 0) + count
    return partitions
