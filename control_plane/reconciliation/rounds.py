"""Rounds over all cells: whatever is due, in all tenants of the cells that answer.

Any number of rounds may go on at once, in any processes: each takes tenants that no other is at. A
cell of which no broker answers is left alone for a while (back_offs.py); then one tenant probes it,
and the others follow once it has answered. The tenant whose round it was waits as long, so that
none keeps others from theirs by what it has declared.

    cell                 at a time
    has answered         ROUNDS_PER_CELL_MAX in a process: one that hangs leaves threads to others
    has not              one probe in all processes; PROBES_MAX in a process, of all such cells

What nobody has thought of (a bug, a row that cannot be sent) is logged with its traceback, and is
the matter of that tenant alone: it waits ever longer, and the others go on.
"""

from __future__ import annotations

import logging
import secrets
from datetime import timedelta
from typing import Final

from django.db.models import F, Max, Min
from django.utils import timezone

from control_plane.cells.connections import CALL_TIMEOUT_S, CellError, CellUnavailable
from control_plane.cells.models import Cell, CellProgress, Placement
from control_plane.operations.models import OutboxEntry
from control_plane.places import places
from control_plane.reconciliation.back_offs import (
    TELLING,
    cells_that_answer,
    note_answer,
    note_failure,
    wait_after,
    words_of,
)
from control_plane.reconciliation.logic import retry_after
from control_plane.reconciliation.tenant_round import reconcile_tenant

log = logging.getLogger(__name__)

TENANTS_PER_ROUND_MAX: Final = 1_000
POSTPONED_AS_AFTER: Final = 3
"""A tenant waits as a cell does after so many failures."""
ROUNDS_PER_CELL_MAX: Final = 2
PROBES_MAX: Final = 2
PROBE_S: Final = CALL_TIMEOUT_S + 10.0
"""Who probes a cell, and dies, keeps others from it for so long."""
PROBES: Final = "probes of cells"


def reconcile_due() -> int:
    """One round: how many tenants had something due, and were told."""
    told = 0
    for cell in cells_that_answer(TELLING):
        tenants = _due_tenants(cell)
        if not tenants:
            continue
        if CellProgress.objects.filter(cell=cell).exclude(retry_at=None).exists():
            with places.take(PROBES, PROBES_MAX) as has_place:
                told += has_place and _probe(cell, tenants)
        else:
            with places.take(rounds_of(cell), ROUNDS_PER_CELL_MAX) as has_place:
                told += _tell(cell, tenants) if has_place else 0
    return told


def rounds_of(cell: Cell) -> str:
    """The kind of places that its rounds take."""
    return f"rounds of {cell.id}"


def _tell(cell: Cell, tenants: list[str]) -> int:
    told = 0
    for organization_id in tenants:
        try:
            is_told = _tell_one(cell, organization_id)
        except CellUnavailable:
            break
        told += is_told
    return told


def _probe(cell: Cell, tenants: list[str]) -> bool:
    """Tell the first tenant that nobody else is at, if nobody else probes the cell; whether it was
    told."""
    progress = CellProgress.objects.filter(cell=cell)
    until = timezone.now() + timedelta(seconds=PROBE_S)
    if not progress.filter(retry_at__lte=timezone.now()).update(retry_at=until):
        return False
    try:
        return any(_tell_one(cell, organization_id) for organization_id in tenants)
    except CellUnavailable:
        return False
    finally:
        # Where nobody was asked, the next one may probe it at once.
        progress.filter(retry_at=until).update(retry_at=timezone.now())


def _tell_one(cell: Cell, organization_id: str) -> bool:
    """Whether it was told. Raises CellUnavailable, and has written it down."""
    try:
        is_told = reconcile_tenant(cell, organization_id)
    except CellError as error:
        note_failure(cell, TELLING, error)
        postpone(organization_id, error)
        if isinstance(error, CellUnavailable):
            raise
        return False
    except Exception as error:
        log.exception("cell %s: the round of tenant %s", cell.name, organization_id)
        postpone(organization_id, error)
        return False
    if is_told:
        note_answer(cell, TELLING)
    return is_told


def postpone(organization_id: str, error: Exception) -> None:
    """What is due of a tenant waits, and others come first. It waits ever longer where it is not
    its cell's fault."""
    now = timezone.now()
    due = OutboxEntry.objects.of(organization_id).filter(done_at=None, not_before__lte=now)
    if isinstance(error, CellError):
        due.update(not_before=now + wait_after(POSTPONED_AS_AFTER), last_error=words_of(error))
        return
    attempts = 1 + (due.aggregate(most=Max("attempts"))["most"] or 0)
    due.update(
        attempts=F("attempts") + 1,
        not_before=now + retry_after(attempts, secrets.randbelow(1001) / 1000),
        last_error=words_of(error),
    )


def _due_tenants(cell: Cell) -> list[str]:
    """Who has waited longest comes first."""
    placed = Placement.objects.across_tenants().filter(cell=cell).values("organization_id")
    due = OutboxEntry.objects.across_tenants().filter(
        done_at=None, not_before__lte=timezone.now(), organization_id__in=placed
    )
    tenants = due.values("organization_id").annotate(first=Min("not_before")).order_by("first")
    return [row["organization_id"] for row in tenants[:TENANTS_PER_ROUND_MAX]]
