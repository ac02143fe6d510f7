"""Questions to a projected partition that a fetch would answer too slowly: what is shown first, and
how many records are.

    find_first     the first record shown in [start, end) that is not older than a time
    count_shown    how many are, without those of aborted transactions

What the projection knows is not read. Of the rest so much is read for all questions that are asked
at once (`ReadBudget`), and then they fail: whoever asks comes again, when more is known.

For worker threads. Deliberately absent: who asks (list_offsets.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from data_plane.broker.fetch.projected_reads import DamagedBatch, UnreadableBatch
from data_plane.broker.fetch.projection import Projection, SourceBatch, find_candidates
from data_plane.log.errors import LogError
from data_plane.log.indexes import AbortedTransaction
from data_plane.log.log import Log
from data_plane.wire.errors import ErrorCode, InvalidRecords
from data_plane.wire.kernel import list_keys
from data_plane.wire.records import BatchHeader, decode_batch, is_crc_valid, iter_batch_headers

# For what nothing is known of: some tenths of a second of a thread.
SEARCH_BYTES_MAX: Final = 64 << 20
# And for the ends of each question, which are read however much is known.
END_BYTES_MAX: Final = 256 << 10
READ_BYTES: Final = 1 << 20


class TooMuchToRead(LogError):
    """The question cannot be answered by reading so little."""

    error_code = ErrorCode.REQUEST_TIMED_OUT


class ReadBudget:
    """What may still be read for questions that are asked at once."""

    __slots__ = ("bytes_left",)

    def __init__(self, questions_count: int = 1) -> None:
        self.bytes_left = SEARCH_BYTES_MAX + questions_count * END_BYTES_MAX


def aborted_between(log: Log, start: int, end: int) -> Sequence[AbortedTransaction]:
    """The aborted transactions with records in [start, end). Raises LogError."""
    # Loading is the loop's.
    log.loaded_segments  # noqa: B018
    return log.aborted_transactions(start, end)


class _Reading:
    """The batches of a log that hold records one may see, read within bounds."""

    def __init__(self, log: Log, aborted: Sequence[AbortedTransaction], budget: ReadBudget) -> None:
        self._log = log
        self._budget = budget
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        for one in aborted:
            self._aborted.setdefault(one.producer_id, []).append(one)
        self.next_offset = 0

    def batches(self, start: int, stop: int) -> Iterator[SourceBatch]:
        """Those with offsets in [start, stop) that one read gets; it goes on at `next_offset`.
        Raises LogError."""
        if self._budget.bytes_left <= 0:
            raise TooMuchToRead(f"{self._log.folder}: too much would have to be read")
        start = max(start, self._log.log_start_offset)
        if start >= stop:
            self.next_offset = start
            return
        cold = self._log.read_cold(start, READ_BYTES, max_offset=stop, at_least_one_batch=True)
        self._budget.bytes_left -= cold.size
        self.next_offset = max(cold.next_offset, start + 1)
        for buffer in cold.buffers:
            for header in iter_batch_headers(buffer, 0, len(buffer)):
                if not is_crc_valid(buffer, header):
                    self._log.find_damage(header.base_offset)
                    raise DamagedBatch(header.base_offset)
                if header.next_offset > start and self._is_seen(header):
                    yield SourceBatch(buffer, header)

    def _is_seen(self, header: BatchHeader) -> bool:
        """Whether it holds records, and none of an aborted transaction."""
        if header.is_control or not header.is_transactional:
            return not header.is_control
        return not any(
            one.first_offset <= header.base_offset <= one.last_offset
            for one in self._aborted.get(header.producer_id, ())
        )


def find_first(
    projection: Projection,
    log: Log,
    start: int,
    end: int,
    timestamp_ms: int,
    aborted: Sequence[AbortedTransaction],
    budget: ReadBudget,
) -> tuple[int, int, int] | None:
    """(offset, timestamp, leader epoch) of the first record shown in [start, end) that is not older
    than `timestamp_ms`. Raises LogError."""
    reading = _Reading(log, aborted, budget)
    position = max(start, log.log_start_offset)
    while position < end:
        position, stop = find_candidates(projection, log, position, end, has_shown=False)
        if position >= end:
            break
        for batch in reading.batches(position, stop):
            if batch.header.max_timestamp >= timestamp_ms:
                found = _first_in(projection, batch, position, timestamp_ms)
                if found is not None:
                    return found if found[0] < end else None
        position = reading.next_offset
    return None


def _first_in(
    projection: Projection, batch: SourceBatch, offset_min: int, timestamp_ms: int
) -> tuple[int, int, int] | None:
    header = batch.header
    try:
        selection = projection.select(batch)
        if selection is False:
            return None
        records = decode_batch(batch.buffer, header.position)
    except InvalidRecords as error:
        raise UnreadableBatch(str(error)) from error
    for number, record in enumerate(records):
        is_shown = selection is True or selection[number]
        if is_shown and record.offset >= offset_min and record.timestamp >= timestamp_ms:
            return record.offset, record.timestamp, header.partition_leader_epoch
    return None


def count_shown(
    projection: Projection,
    log: Log,
    start: int,
    end: int,
    aborted: Sequence[AbortedTransaction],
    budget: ReadBudget,
) -> int:
    """How many records are shown in [start, end). Raises LogError."""
    reading = _Reading(log, aborted, budget)
    position = max(start, log.log_start_offset)
    total = 0
    while position < end:
        projection.prepare(log, position)
        count, position, stop = projection.counted(log, position, end, aborted)
        total += count
        if position < stop:
            for batch in reading.batches(position, stop):
                total += _count_in(projection, batch, position, stop)
            position = reading.next_offset
    return total


def _count_in(projection: Projection, batch: SourceBatch, start: int, stop: int) -> int:
    header = batch.header
    try:
        selection = projection.select(batch)
        if selection is False:
            return 0
        if start <= header.base_offset and header.next_offset <= stop:
            return header.record_count if selection is True else sum(map(bool, selection))
        records, begin, end = batch.records()
        keys = list_keys(records, begin, end, header.record_count)
    except InvalidRecords as error:
        raise UnreadableBatch(str(error)) from error
    return sum(
        1
        for number, (delta, _, _) in enumerate(keys)
        if start <= header.base_offset + delta < stop and (selection is True or selection[number])
    )
