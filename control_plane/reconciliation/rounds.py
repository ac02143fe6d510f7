"""Rounds over all cells: whatever is due, in all tenants of the cells that answer.

Any number of rounds may go on at once, in any processes: each takes tenants that no other is at. A
cell of which no broker answers is left alone for a while, ever longer up to ten seconds. The tenant
whose round it was waits as long, so that none keeps others from theirs by what it has declared.

What nobody has thought of (a bug, a row that cannot be sent) is logged with its traceback, and is
the matter of that tenant or that cell alone: it waits ever longer, and the others go on.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final, TypeVar

from django.db.models import F, Max, Min, Q
from django.utils import timezone

from control_plane.cells.connections import CellError, CellRefused, CellUnavailable
from control_plane.cells.models import Cell, CellProgress, Placement
from control_plane.operations.models import OutboxEntry
from control_plane.reconciliation.logic import cell_retry_after, retry_after
from control_plane.reconciliation.tenant_round import reconcile_tenant

log = logging.getLogger(__name__)

TENANTS_PER_ROUND_MAX: Final = 1_000
ERROR_CHARACTERS_MAX: Final = 1000
POSTPONED_AS_AFTER: Final = 3
"""A tenant waits as a cell does after so many failures."""

T = TypeVar("T")


def reconcile_due() -> int:
    """One round: how many tenants had something due, and were told."""
    told = 0
    for cell in cells_that_answer():
        for organization_id in _due_tenants(cell):
            try:
                told += reconcile_tenant(cell, organization_id)
            except CellError as error:
                note_failure(cell, error)
                postpone(organization_id, error)
                if isinstance(error, CellUnavailable):
                    break
            except Exception as error:
                log.exception("cell %s: the round of tenant %s", cell.name, organization_id)
                postpone(organization_id, error)
            else:
                note_answer(cell)
    return told


def cells_that_answer() -> Iterator[Cell]:
    """Those that are not left alone just now."""
    for cell in Cell.objects.order_by("id"):
        CellProgress.objects.get_or_create(cell=cell)
        waits = Q(retry_at=None) | Q(retry_at__lte=timezone.now())
        if CellProgress.objects.filter(waits, cell=cell).exists():
            yield cell


def ask(cell: Cell, call: Callable[[], T]) -> T | None:
    """What the call returns; None when the cell refuses, or does not answer, which is written
    down, or when what it says cannot be taken in."""
    try:
        answer = call()
    except CellError as error:
        note_failure(cell, error)
        return None
    except Exception as error:
        log.exception("cell %s: what it says is not taken in", cell.name)
        note_failure(cell, error)
        return None
    note_answer(cell)
    return answer


def note_failure(cell: Cell, error: Exception) -> None:
    """For operators; and leave a cell alone for a while that does not answer."""
    log.warning("cell %s: %s", cell.name, _words(error))
    progress = CellProgress.objects.filter(cell=cell)
    failures = 1 + (progress.values_list("failures", flat=True).first() or 0)
    is_away = not isinstance(error, CellRefused)
    retry_at = timezone.now() + _wait(failures) if is_away else None
    progress.update(failures=failures, retry_at=retry_at)
    Cell.objects.filter(id=cell.id).update(last_error=_words(error))


def note_answer(cell: Cell) -> None:
    progress = CellProgress.objects.filter(cell=cell, failures__gt=0)
    if progress.update(failures=0, retry_at=None):
        Cell.objects.filter(id=cell.id).update(last_error="")


def postpone(organization_id: str, error: Exception) -> None:
    """What is due of a tenant waits, and others come first. It waits ever longer where it is not
    its cell's fault."""
    now = timezone.now()
    due = OutboxEntry.objects.of(organization_id).filter(done_at=None, not_before__lte=now)
    if isinstance(error, CellError):
        due.update(not_before=now + _wait(POSTPONED_AS_AFTER), last_error=_words(error))
        return
    attempts = 1 + (due.aggregate(most=Max("attempts"))["most"] or 0)
    due.update(
        attempts=F("attempts") + 1,
        not_before=now + retry_after(attempts, secrets.randbelow(1001) / 1000),
        last_error=_words(error),
    )


def _words(error: Exception) -> str:
    """Of a bug its kind alone: what it is about may be a tenant's, and is in the log."""
    words = error.detail if isinstance(error, CellError) else type(error).__name__
    return words[:ERROR_CHARACTERS_MAX]


def _wait(failures: int) -> timedelta:
    return cell_retry_after(failures, secrets.randbelow(1001) / 1000)


def _due_tenants(cell: Cell) -> list[str]:
    """Who has waited longest comes first."""
    placed = Placement.objects.across_tenants().filter(cell=cell).values("organization_id")
    due = OutboxEntry.objects.across_tenants().filter(
        done_at=None, not_before__lte=timezone.now(), organization_id__in=placed
    )
    tenants = due.values("organization_id").annotate(first=Min("not_before")).order_by("first")
    return [row["organization_id"] for row in tenants[:TENANTS_PER_ROUND_MAX]]
