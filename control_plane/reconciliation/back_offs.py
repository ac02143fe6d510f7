"""Which cells are left alone just now, since they did not answer.

A broker shows what it has in its image while the cell's Postgres is away, and takes no declaration
meanwhile. So telling a cell and reading from it are left off each by itself, ever longer up to ten
seconds, and only an answer of the same kind ends it.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

from django.db.models import Q
from django.utils import timezone

from control_plane.cells.connections import CellError, CellRefused
from control_plane.cells.models import Cell, CellProgress
from control_plane.reconciliation.logic import cell_retry_after

log = logging.getLogger(__name__)

ERROR_CHARACTERS_MAX: Final = 1000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Calls:
    """A kind of calls, by the columns of CellProgress that are about it."""

    failures: str
    retry_at: str


TELLING: Final = Calls("failures", "retry_at")
READING: Final = Calls("read_failures", "read_retry_at")


def cells_that_answer(calls: Calls) -> Iterator[Cell]:
    """Those that are not left alone just now."""
    for cell in Cell.objects.order_by("id"):
        CellProgress.objects.get_or_create(cell=cell)
        if CellProgress.objects.filter(is_due(calls), cell=cell).exists():
            yield cell


def is_due(calls: Calls) -> Q:
    """Of a cell's progress: whether it is not left alone."""
    never: dict[str, Any] = {calls.retry_at: None}
    over: dict[str, Any] = {f"{calls.retry_at}__lte": timezone.now()}
    return Q(**never) | Q(**over)


def ask(cell: Cell, call: Callable[[], T | None]) -> T | None:
    """What a call that reads returns, None if it has asked nobody; None, too, when the cell refuses
    or does not answer, which is written down, or when what it says cannot be taken in."""
    try:
        answer = call()
    except CellError as error:
        note_failure(cell, READING, error)
        return None
    except Exception as error:
        log.exception("cell %s: what it says is not taken in", cell.name)
        note_failure(cell, READING, error)
        return None
    if answer is not None:
        note_answer(cell, READING)
    return answer


def note_failure(cell: Cell, calls: Calls, error: Exception) -> None:
    """For operators; and leave a cell alone for a while that does not answer."""
    words = words_of(error)
    log.warning("cell %s: %s", cell.name, words)
    progress = CellProgress.objects.filter(cell=cell)
    failures = 1 + (progress.values_list(calls.failures, flat=True).first() or 0)
    is_away = not isinstance(error, CellRefused)
    retry_at = timezone.now() + wait_after(failures) if is_away else None
    progress.update(**{calls.failures: failures, calls.retry_at: retry_at})
    Cell.objects.filter(id=cell.id).update(last_error=words)


def note_answer(cell: Cell, calls: Calls) -> None:
    progress = CellProgress.objects.filter(cell=cell)
    failed = progress.filter(**{f"{calls.failures}__gt": 0})
    if not failed.update(**{calls.failures: 0, calls.retry_at: None}):
        return
    if progress.filter(failures=0, read_failures=0).exists():
        Cell.objects.filter(id=cell.id).update(last_error="")


def wait_after(failures: int) -> timedelta:
    return cell_retry_after(failures, secrets.randbelow(1001) / 1000)


def words_of(error: Exception) -> str:
    """Of a bug its kind alone: what it is about may be a tenant's, and is in the log."""
    words = error.detail if isinstance(error, CellError) else type(error).__name__
    return words[:ERROR_CHARACTERS_MAX]
