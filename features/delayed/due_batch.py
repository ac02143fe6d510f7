"""From hidden originals to the batch that delivers them; for a worker thread.

    original    key, value, tw-tag: eu, tw-deliver-at: …     at offset 100, hidden
    delivered   key, value, tw-tag: eu, tw-source: orders/3/100, tw-produced-at: …   in a new batch

Invariants
- The batch has FACTS_FLAG: what its records name in `tw-source` (in retry logs: in `tw-fired`) is
  delivered by being in it.
- It has one record for each of `entries`, and no producer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from data_plane.log.config import LOG_APPEND_TIME
from data_plane.log.errors import LogError
from data_plane.log.log import Log
from data_plane.wire.errors import InvalidRecords
from data_plane.wire.kernel_types import FACTS_FLAG
from data_plane.wire.records import (
    NewRecord,
    Record,
    build_batch,
)
from features.delayed.originals import Originals, size_of
from features.delayed.runs import Entry

# Of an original at a date: DelayedMessages.delivered.
Delivered = Callable[[Record, int], NewRecord]
# Of keys, values and headers, with one record more.
RECORDS_BYTES_MAX: Final = 1 << 20


class DueBatch(NamedTuple):
    """`batch` delivers the originals of `entries`; those at `unreadable`, with why, are still to
    be. Without any that could be read `batch` is empty."""

    batch: bytearray
    entries: list[Entry]
    unreadable: dict[int, str]


def make_due_batch(
    log: Log, entries: list[Entry], end_offset: int, delivered: Delivered, wall_ms: int
) -> DueBatch:
    """The batch for the first of these, as many as go into one. `delivered` makes the records.
    Raises LogDirFailure, LogDeleted and what else says that the log is gone."""
    originals = Originals(log, end_offset)
    records: list[NewRecord] = []
    read: list[Entry] = []
    unreadable: dict[int, str] = {}
    size = 0
    bytes_max = min(RECORDS_BYTES_MAX, log.config.segment_bytes // 2)
    for due_ms, offset in entries:
        try:
            original = originals.find(offset)
        except (LogError, InvalidRecords) as error:
            unreadable[offset] = str(error)
            continue
        if original is None:
            unreadable[offset] = "there is no record at its offset"
            continue
        read.append((due_ms, offset))
        records.append(delivered(original, wall_ms))
        size += size_of(original)
        if size >= bytes_max:
            break
    if not records:
        return DueBatch(bytearray(), [], unreadable)
    is_stamped = log.config.message_timestamp_type == LOG_APPEND_TIME
    batch = build_batch(
        records,
        compression=originals.compression,
        log_append_time=wall_ms if is_stamped else None,
        attributes=FACTS_FLAG,
    )
    return DueBatch(batch, read, unreadable)
