"""From hidden originals to the batch that delivers them; for a worker thread.

    original    key, value, tw-tag: eu, tw-deliver-at: …     at offset 100, hidden
    delivered   key, value, tw-tag: eu, tw-source: orders/3/100, tw-produced-at: …   in a new batch

Invariants
- The batch has FACTS_FLAG: what its records name in `tw-source` (in retry logs: in `tw-fired`) is
  delivered by being in it.
- It has one record for each of `entries`, and no producer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
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
    originals = Originals(log, end_offset, sorted(offset for _, offset in entries))
    bytes_max = min(RECORDS_BYTES_MAX, log.config.segment_bytes // 2)
    found, unreadable = read_first(originals.find, entries, bytes_max)
    read = [entry for entry, _ in found]
    records = [delivered(original, wall_ms) for _, original in found]
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


def read_first(
    find: Callable[[int], Record | None], entries: Sequence[Entry], bytes_max: int
) -> tuple[list[tuple[Entry, Record]], dict[int, str]]:
    """The originals of the first entries, up to `bytes_max` and the rest of a record, and which of
    these entries cannot be read, with why.

    They are read in the order in which they stand in the log, which may be any other than that in
    which they are due, so that each of its batches is unpacked once. Never is more kept than goes
    into a batch, and a record."""
    found: dict[int, Record] = {}
    wrong: dict[int, str] = {}
    # Of those found, the last one first.
    places: list[int] = []
    size, end = 0, len(entries)
    for place in sorted(range(end), key=lambda place: entries[place][1]):
        if place >= end:
            continue
        try:
            original = find(entries[place][1])
        except (LogError, InvalidRecords) as error:
            wrong[place] = str(error)
            continue
        if original is None:
            wrong[place] = "there is no record at its offset"
            continue
        found[place] = original
        heappush(places, -place)
        size += size_of(original)
        while size - size_of(found[-places[0]]) >= bytes_max:
            # Those before it fill the batch.
            end = -heappop(places)
            size -= size_of(found.pop(end))
    return (
        [(entries[place], found[place]) for place in sorted(found)],
        {entries[place][1]: why for place, why in sorted(wrong.items()) if place < end},
    )
