"""What was delivered from a pair of partitions, read from this broker's own copies; in a thread.

    position   6:100                               7:40
    read from  the source's partition 3, at 100    the retry log, at 40
    attempt    1                                   what the fired record says itself

Both logs are read as their readers see them: from the log start up to the high watermark of the
moment at which the judgement began, without what is hidden and without control records.

Invariants
- "There is none" (NoOriginal) is said only of what never will be: what this copy may merely lack
  is not there yet (NotThere).
- What is below a floor of the fold is over, though a log may still have it: whether it was nacked
  nobody knows any more.
- Records are kept of the last batches only, and originals of one judgement have ORIGINALS_BYTES_MAX
  in all, but for a single one.

Deliberately absent: where the logs and their bounds come from, and repair of what is damaged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from data_plane.log.errors import (
    AppendError,
    CorruptSegment,
    LogError,
    OffsetOutOfRange,
)
from data_plane.log.file_system import FileSystem
from data_plane.log.log import Log
from data_plane.wire.errors import ErrorCode, InvalidRecords
from data_plane.wire.kernel_types import FACTS_FLAG, HIDDEN_FLAG
from data_plane.wire.records import (
    BatchHeader,
    Record,
    decode_batch,
    read_batch_header,
    unpacked_records,
)
from features.delayed.fold import DEAD_HEADER, PRODUCED_AT_HEADER, SOURCE_HEADER
from features.delayed.hidden import shown
from features.delayed.originals import HEADER_BYTES
from features.retry_dlq.commands import Position
from features.retry_dlq.judgement import NoOriginal, NotThere, Original
from features.retry_dlq.snapshot import FoldState
from features.retry_dlq.stored_form import (
    ATTEMPT_HEADER,
    FIRST_FAILED_HEADER,
    REDRIVEN_HEADER,
)

# Keys, values and headers; the batch that is stored has all of them.
ORIGINALS_BYTES_MAX: Final = 32 << 20
BATCHES_KEPT_MAX: Final = 16

_OVER: Final = "it is no longer in the log"
_NOTHING: Final = "no record was delivered from there"


class ReadableLog(NamedTuple):
    """A log, and what its readers see of it: [start_offset, high_watermark). `end_offset` is where
    it ends if this broker leads it; None for a follower's, whose leader may have more."""

    log: Log
    start_offset: int
    high_watermark: int
    end_offset: int | None


class _Batch(NamedTuple):
    header: BatchHeader
    records: dict[int, Record]


class StoredDeliveries:
    """The `Deliveries` of one judgement."""

    def __init__(
        self,
        fs: FileSystem,
        source: ReadableLog | None,
        own: ReadableLog,
        nacked: FoldState,
        source_name: str,
    ) -> None:
        """`source` is None where this broker has no copy; `source_name` is topic/partition."""
        self._fs = fs
        self._source = source
        self._own = own
        self._nacked = nacked
        self._source_name = source_name
        self._bytes_left = min(ORIGINALS_BYTES_MAX, own.log.config.segment_bytes // 2)
        self._is_first = True
        self._kept: dict[tuple[bool, int], _Batch] = {}
        # Something was beyond the end, as its leader knows it: of the source, of this log (True).
        self.beyond: set[bool] = set()

    def nacked(self, positions: Iterable[Position]) -> set[Position]:
        """See Deliveries. Raises OSError."""
        by_kind: dict[bool, dict[int, Position]] = {False: {}, True: {}}
        for position in positions:
            by_kind[position.is_own][position.offset] = position
        found: set[Position] = set()
        for is_own, asked in by_kind.items():
            known = self._nacked.own if is_own else self._nacked.of_source
            offsets = known.find(self._fs, self._own.log.folder, asked)
            found.update(asked[offset] for offset in offsets)
        return found

    def original(self, position: Position) -> Original:
        """See Deliveries. Raises AppendError when all together are too large."""
        batch, record = self._read(position)
        headers = dict(record.headers)
        is_fact = bool(batch.header.attributes & FACTS_FLAG)
        self._charge(record)
        if position.is_own:
            return _fired(record, headers)
        produced_at_ms = record.timestamp
        if is_fact and headers.get(PRODUCED_AT_HEADER):
            produced_at_ms = _number(headers, PRODUCED_AT_HEADER)
        if REDRIVEN_HEADER in headers and not (is_fact and DEAD_HEADER in headers):
            # A client has set it, who forwards what was redriven elsewhere.
            kept = tuple(one for one in record.headers if one[0] != REDRIVEN_HEADER)
            record = record._replace(headers=kept)
        name = f"{self._source_name}/{record.offset}".encode()
        return Original(record, 1, name, produced_at_ms, None)

    def _read(self, position: Position) -> tuple[_Batch, Record]:
        is_own, offset = position.is_own, position.offset
        part = self._own if is_own else self._source
        floor = (self._nacked.own if is_own else self._nacked.of_source).floor
        if offset < floor:
            raise NoOriginal(_OVER)
        if part is None:
            message = "this broker has no copy of the source now"
            raise NotThere(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
        if offset < part.start_offset:
            raise NoOriginal(_OVER)
        if offset >= part.high_watermark:
            if part.end_offset is not None and offset >= part.end_offset:
                self.beyond.add(is_own)
                raise NoOriginal(_NOTHING)
            raise NotThere(ErrorCode.NOT_ENOUGH_REPLICAS, "this copy does not have it safely yet")
        batch = self._batch(part, is_own, offset)
        record = None if batch is None else batch.records.get(offset)
        if batch is None or record is None:
            raise NoOriginal(_NOTHING)
        return batch, record

    def _batch(self, part: ReadableLog, is_own: bool, offset: int) -> _Batch | None:
        """The batch at the offset with the records that readers see; None where there is none."""
        for (of_own, base_offset), kept in self._kept.items():
            if of_own is is_own and base_offset <= offset < kept.header.next_offset:
                return kept
        try:
            read = part.log.read_cold(
                offset, 1, max_offset=part.high_watermark, at_least_one_batch=True
            )
            data = b"".join(bytes(buffer) for buffer in read.buffers)
            batch = _shown_batch(data, is_own) if data else None
        except OffsetOutOfRange as error:
            # Retention came in between.
            raise NoOriginal(_OVER) from error
        except (CorruptSegment, InvalidRecords) as error:
            raise NotThere(ErrorCode.CORRUPT_MESSAGE, f"it cannot be read: {error}") from error
        except LogError as error:
            # The log has gone, or its disk has; whoever leads then has it.
            raise NotThere(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error)) from error
        if batch is None or offset < batch.header.base_offset:
            return None
        if len(self._kept) >= BATCHES_KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[is_own, batch.header.base_offset] = batch
        return batch

    def _charge(self, record: Record) -> None:
        headers = sum(HEADER_BYTES + len(key) + len(value or b"") for key, value in record.headers)
        self._bytes_left -= len(record.key or b"") + len(record.value or b"") + headers
        if self._bytes_left < 0 and not self._is_first:
            raise AppendError(
                ErrorCode.MESSAGE_TOO_LARGE,
                "the messages that are nacked are too large for one batch: send fewer at a time",
            )
        self._is_first = False


def _shown_batch(data: bytes, is_own: bool) -> _Batch:
    """The first batch of `data`. Raises InvalidRecords."""
    header = read_batch_header(data, 0)
    if header.is_control or (is_own and header.attributes & HIDDEN_FLAG):
        return _Batch(header, {})
    records = decode_batch(data, 0)
    if header.attributes & HIDDEN_FLAG:
        selection = shown(*unpacked_records(data, header), header.record_count)
        if isinstance(selection, bool):
            selection = bytes([selection]) * len(records)
        records = [one for one, is_shown in zip(records, selection, strict=True) if is_shown]
    return _Batch(header, {record.offset: record for record in records})


def _fired(record: Record, headers: dict[bytes, bytes | None]) -> Original:
    """What was delivered from the retry log says all of it itself: only the broker writes there."""
    source = headers[SOURCE_HEADER]
    assert source is not None
    return Original(
        record,
        _number(headers, ATTEMPT_HEADER),
        source,
        _number(headers, PRODUCED_AT_HEADER),
        _number(headers, FIRST_FAILED_HEADER),
    )


def _number(headers: dict[bytes, bytes | None], name: bytes) -> int:
    value = headers[name]
    assert value is not None
    return int(value)
