"""Reads brokers' samples, as far as they have them: the shell around logic.py.

A broker that does not answer is asked again in the next round, from where it was. Each broker is
asked at its own address, since it alone has its samples.

Bounds: SAMPLES_MAX of a broker in a round, BATCH_MAX in a transaction, READ_TIMEOUT_S for a broker.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from typing import Final

from control_plane.cells.connections import CellError, cell_operations, endpoints_of
from control_plane.cells.models import Cell
from control_plane.usage.logic import do_store_samples
from control_plane.usage.models import UsageCursor
from control_plane.usage.partitions import do_make_partitions_if_missing
from data_plane.contract.cell_operations_pb2 import ReadUsageRequest, UsageSample

log = logging.getLogger(__name__)

SAMPLES_MAX: Final = 2_000
BATCH_MAX: Final = 50
READ_TIMEOUT_S: Final = 20.0


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
