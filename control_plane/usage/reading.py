"""Reads brokers' samples, as far as they have them: the shell around logic.py.

A broker that does not answer is asked again in the next round, from where it was. Each broker is
asked at its own address, since it alone has its samples. One at a time reads a cell; the one that
has waited longest comes first, and one that does not answer others just now is left alone. A
cluster that is registered under two names is read by the first one alone: its use counts once.

Bounds: SAMPLES_MAX of a broker in a round, BATCH_MAX in a transaction; READ_TIMEOUT_S for a broker,
after which what it has sent is counted; REST_S between two rounds of a cell.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from typing import Final

from django.db import InterfaceError, OperationalError
from django.db.models import F, Q
from django.utils import timezone

from control_plane.cells.connections import CellError, cell_operations, endpoints_of
from control_plane.cells.models import Cell, CellProgress
from control_plane.usage.logic import do_store_samples
from control_plane.usage.models import UsageCursor
from control_plane.usage.partitions import do_make_partitions_if_missing
from data_plane.contract.cell_operations_pb2 import ReadUsageRequest, UsageSample

log = logging.getLogger(__name__)

SAMPLES_MAX: Final = 2_000
BATCH_MAX: Final = 50
READ_TIMEOUT_S: Final = 5.0
REST_S: Final = 5.0
# Who reads a cell, and dies, keeps others from it for so long, and READ_TIMEOUT_S for each broker.
LEASE_S: Final = 60.0


def read_cells() -> int:
    """Those that are due; how many samples were counted."""
    counted = 0
    by_wait = F("progress__usage_due_at").asc(nulls_first=True)
    for cell in Cell.objects.order_by(by_wait, "id"):
        if not _is_itself(cell) or not _take_lease(cell):
            continue
        try:
            counted += read_cell(cell)
        except (InterfaceError, OperationalError):
            raise
        except Exception:
            # What is wrong with one cell's samples is not for others to wait for.
            log.exception("the use of cell %s is not read", cell.name)
        due_at = timezone.now() + timedelta(seconds=REST_S)
        CellProgress.objects.filter(cell=cell).update(usage_due_at=due_at)
    return counted


def _is_itself(cell: Cell) -> bool:
    """Whether it has said which cluster it is, and no other cell is the same one."""
    if not cell.cluster_id:
        return False
    first = Cell.objects.filter(cluster_id=cell.cluster_id).order_by("id").first()
    if first is not None and first.id != cell.id:
        log.warning("cell %s is cell %s: its use is read there", cell.name, first.name)
        return False
    return True


def _take_lease(cell: Cell) -> bool:
    """Whether it is due, and nobody else reads it."""
    now = timezone.now()
    CellProgress.objects.get_or_create(cell=cell)
    is_due = Q(usage_due_at=None) | Q(usage_due_at__lte=now)
    answers = Q(read_retry_at=None) | Q(read_retry_at__lte=now)
    lease_s = LEASE_S + READ_TIMEOUT_S * len(endpoints_of(cell))
    due = CellProgress.objects.filter(is_due, answers, cell=cell)
    return due.update(usage_due_at=now + timedelta(seconds=lease_s)) > 0


def read_cell(cell: Cell) -> int:
    """Count what its brokers have had since the last time; how many samples those were."""
    do_make_partitions_if_missing()
    return sum(_read_broker(cell, endpoint) for endpoint in endpoints_of(cell))


def _read_broker(cell: Cell, endpoint: str) -> int:
    counted = 0
    try:
        with cell_operations(cell, endpoint) as operations:
            stream = operations.ReadUsage(_request(cell, endpoint), timeout=READ_TIMEOUT_S)
            for batch in _batches(stream):
                counted += do_store_samples(cell.id, endpoint, batch)
            stream.cancel()
    except CellError as error:
        log.warning("use at %s of cell %s is not read: %s", endpoint, cell.name, error)
    return counted


def _request(cell: Cell, endpoint: str) -> ReadUsageRequest:
    """From the last sample that was read there. Where another broker has that address now, it does
    not know the sample, and begins with its oldest: what is counted already is passed over."""
    cursors = UsageCursor.objects.filter(cell_id=cell.id, endpoint=endpoint)
    cursor = cursors.order_by("-read_at").first()
    if cursor is None:
        return ReadUsageRequest()
    return ReadUsageRequest(incarnation=cursor.incarnation, sequence=cursor.sequence)


def _batches(stream: Iterator[UsageSample]) -> Iterator[list[UsageSample]]:
    samples = islice(stream, SAMPLES_MAX)
    while batch := list(islice(samples, BATCH_MAX)):
        yield batch
