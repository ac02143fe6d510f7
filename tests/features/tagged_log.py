"""One log of tagged records, its tag indexes, and what a subscription shows of it: as it is read
with them, and the plain way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from data_plane.broker.fetch.projected_reads import Scan, SliceScan, scan_batches
from data_plane.broker.fetch.projected_searches import ReadBudget, count_shown, find_first
from data_plane.broker.fetch.projection import (
    ProjectedPartition,
    SourceBatch,
    UnindexedProjection,
)
from data_plane.log.file_system import Buffer
from data_plane.log.indexes import AbortedTransaction
from data_plane.log.log import COORDINATOR
from data_plane.wire.control_batches import EndTransactionMarker, build_end_transaction_marker
from data_plane.wire.records import (
    NewRecord,
    Record,
    build_batch,
    decode_batch,
    iter_batch_headers,
    read_batch_header,
)
from features.filtering.indexed_records import FilteredRecords
from features.filtering.language import Expression
from features.filtering.matching import Matcher
from features.filtering.tag_indexes import TagIndexes
from tests.broker.doubles import QueueExecutor, RememberingLog
from tests.features.filters import says
from tests.log.one_log import OneLog

TAG = b"tw-tag"


def tags_of(record: Record) -> list[str]:
    return [(value or b"").decode() for key, value in record.headers if key == TAG]


class PlainFilter(UnindexedProjection):
    """Decodes every record."""

    def __init__(self, expression: Expression) -> None:
        self._expression = expression

    def select(self, batch: SourceBatch) -> bytes | bool:
        records = decode_batch(batch.buffer, batch.header.position)
        selected = bytes(says(self._expression, tags_of(record)) for record in records)
        if any(selected):
            return True if all(selected) else selected
        return False


class TaggedLog(OneLog):
    """`sequence` makes all values different."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.sequence = 0
        self.forget()

    def forget(self) -> None:
        """The memory is cold."""
        self.executor = QueueExecutor()
        self.remembering = RememberingLog()
        self.indexes = TagIndexes(self.executor, self.remembering)

    def put(
        self,
        *tag_lists: Sequence[str],
        codec: int = 0,
        producer_id: int = -1,
        keys: Sequence[bytes] | None = None,
        commit: bool = True,
    ) -> None:
        """One batch: a record with each of these lists of tags."""
        records = []
        for number, tags in enumerate(tag_lists):
            self.sequence += 1
            key = b"%d" % self.sequence if keys is None else keys[number]
            headers = tuple((TAG, tag.encode()) for tag in tags)
            timestamp = self.now_ms + self.sequence
            records.append(NewRecord(timestamp, key, b"v%d" % self.sequence, headers))
        transactional = producer_id >= 0
        batch = build_batch(
            records,
            compression=codec,
            producer_id=producer_id,
            producer_epoch=0 if transactional else -1,
            base_sequence=0 if transactional else -1,
            is_transactional=transactional,
        )
        self.store(batch, commit=commit)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        marker = build_end_transaction_marker(
            EndTransactionMarker(is_commit, 1),
            timestamp=self.now_ms,
            producer_id=producer_id,
            producer_epoch=0,
        )
        self.store(bytearray(marker), commit=True)

    def store(self, batch: bytearray, *, commit: bool) -> None:
        self.log.append_as_leader(
            batch,
            0,
            len(batch),
            leader_epoch=self.epoch,
            now_ms=self.now_ms,
            origin=COORDINATOR,
        )
        if commit:
            self.commit()

    def commit(self) -> None:
        self.log.advance_high_watermark(self.log.log_end_offset)

    def truncate(self, offset: int) -> None:
        """As after an election: what comes is of a later leader epoch."""
        self.log.truncate_to(max(offset, self.log.log_start_offset))
        self.epoch += 1

    def index(self) -> None:
        """Have all that is worth it indexed."""
        for segment in self.log.segments:
            self.indexes.want(self.log, segment)
        self.run_jobs()

    def run_jobs(self) -> None:
        for _ in range(1000):
            self.indexes.tick(self.now_ms)
            while self.executor.queue:
                self.executor.run_one()
            if self.indexes.next_deadline_ms() is None:
                return
        raise AssertionError("indexing does not end")

    def projection(self, expression: Expression) -> FilteredRecords:
        return FilteredRecords(Matcher(expression), self.indexes)

    # What is shown

    def shown(
        self,
        projection: FilteredRecords,
        start: int,
        end: int,
        between: Callable[[], None] = lambda: None,
    ) -> bytes:
        """What a fetch is given of [start, end), in as many slices as it takes."""
        scan = Scan(ProjectedPartition(b"", 0, projection), start)
        while scan.position < end:
            position = scan.position
            part = SliceScan(scan, self.log, end, 1 << 20, None, position)
            found = part.run()
            between()
            part.take(found)
            if scan.error is not None:
                raise scan.error
            assert scan.position > position
        return b"".join(bytes(shown.buffer) for shown in scan.shown)

    def plainly_shown(self, expression: Expression, start: int, end: int) -> bytes:
        """The same, of every batch."""
        buffers = self._read(start, end)
        found = scan_batches(PlainFilter(expression), buffers, start, end, 1 << 30)
        assert found.error is None
        return b"".join(bytes(shown.buffer) for shown in found.shown)

    def _read(self, start: int, end: int) -> list[Buffer]:
        buffers: list[Buffer] = []
        while start < end:
            read = self.log.read_cold(start, 1 << 20, max_offset=end, at_least_one_batch=True)
            buffers += read.buffers
            assert read.next_offset > start
            start = read.next_offset
        return buffers

    def aborted(self, start: int, end: int) -> list[AbortedTransaction]:
        return self.log.aborted_transactions(start, end)

    def visible(self, expression: Expression, start: int, end: int) -> list[Record]:
        """The records that match, of [start, end), without those of aborted transactions."""
        aborted = self.aborted(start, end)
        found = []
        for buffer in self._read(start, end):
            for header in iter_batch_headers(buffer, 0, len(buffer)):
                is_void = header.is_transactional and any(
                    one.producer_id == header.producer_id
                    and one.first_offset <= header.base_offset <= one.last_offset
                    for one in aborted
                )
                if header.is_control or is_void:
                    continue
                found += [
                    record
                    for record in decode_batch(buffer, header.position)
                    if start <= record.offset < end and says(expression, tags_of(record))
                ]
        return found

    def count(self, projection: FilteredRecords, start: int, end: int) -> int:
        aborted = self.aborted(start, end)
        return count_shown(projection, self.log, start, end, aborted, ReadBudget())

    def first(
        self, projection: FilteredRecords, start: int, end: int, timestamp_ms: int
    ) -> tuple[int, int] | None:
        aborted = self.aborted(start, end)
        found = find_first(projection, self.log, start, end, timestamp_ms, aborted, ReadBudget())
        return None if found is None else found[:2]


def offsets_in(data: bytes) -> list[int]:
    """Of the records in these batches."""
    found: list[int] = []
    position = 0
    while position < len(data):
        header = read_batch_header(data, position)
        if not header.is_control:
            found += [record.offset for record in decode_batch(data, position)]
        position = header.end_position
    return found
