"""Reads: batches hot or cold, and what a log knows about its offsets, epochs and transactions."""

from __future__ import annotations

from collections.abc import Sequence

from data_plane.log import reads
from data_plane.log.batch_walk import BadRange
from data_plane.log.cold_files import read_as_it_is
from data_plane.log.errors import CorruptSegment, OffsetOutOfRange
from data_plane.log.indexes import AbortedTransaction
from data_plane.log.log_appends import LogAppends
from data_plane.log.producer_state import ProducerStates
from data_plane.log.reads import ReadResult
from data_plane.log.segment import Segment, WouldBlock

NOTHING: list[AbortedTransaction] = []


class LogReads(LogAppends):
    """See the module."""

    __slots__ = ()

    def read(
        self, offset: int, max_bytes: int, *, max_offset: int, at_least_one_batch: bool
    ) -> ReadResult:
        """Whole batches from the one that holds `offset` on, all below `max_offset`.

        At most `max_bytes`, except that with `at_least_one_batch` a larger first batch is
        returned. Raises OffsetOutOfRange, CorruptSegment, LogDirFailure.
        """
        segments = self._segments
        if segments is None:
            segments = self.segments
        if self._directory.failure is not None:
            self._directory.check_online()
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        if offset >= max_offset:
            return ReadResult([], 0, False, offset)
        tail = self._tail
        if (
            tail is not None
            and tail[0] == offset
            # A truncation since would have moved the log end.
            and tail[1] == self.log_end_offset <= max_offset
            and len(tail[2]) <= max_bytes
            # Compaction may have rewritten it once its segment is sealed.
            and segments[-1].base_offset <= offset
            and not segments[-1].bad_ranges
        ):
            return ReadResult([tail[2]], len(tail[2]), False, tail[1])
        try:
            index = reads.segments_from(segments, offset)
            while index < len(segments):
                segment = segments[index]
                if segment.base_offset >= max_offset:
                    break
                result = reads.read_segment(
                    segment,
                    segment.fetch_hot,
                    offset,
                    max_bytes,
                    max_offset,
                    at_least_one_batch,
                    is_hot=True,
                )
                if result is not None:
                    return result
                index += 1
        except WouldBlock:
            return ReadResult([], 0, True, offset)
        except OSError as error:
            raise self._directory.fail(error) from error
        return ReadResult([], 0, False, min(max_offset, self.log_end_offset))

    def is_sealed_at(self, offset: int) -> bool:
        """Whether `offset` lies before the segment that is appended to."""
        return offset < self.segments[-1].base_offset

    def read_cold(
        self, offset: int, max_bytes: int, *, max_offset: int, at_least_one_batch: bool
    ) -> ReadResult:
        """As `read`, from the disk, checking what this process has not checked yet. For a worker
        thread; never cold. Raises LogNotLoaded (loading is the loop's) and LogDeleted as well."""
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        return read_as_it_is(
            self,
            lambda segments: self._read_cold(
                segments, offset, max_bytes, max_offset, at_least_one_batch
            ),
        )

    def _read_cold(
        self,
        segments: list[Segment],
        offset: int,
        max_bytes: int,
        max_offset: int,
        at_least_one_batch: bool,
    ) -> ReadResult:
        if offset < segments[0].base_offset:
            # Retention came in between: what is left is not what was asked for.
            raise OffsetOutOfRange(offset, segments[0].base_offset, self.log_end_offset)
        for segment in segments[reads.segments_from(segments, offset) :]:
            if segment.base_offset >= max_offset:
                break
            try:
                result, found = reads.read_segment_cold(
                    segment, offset, max_bytes, max_offset, at_least_one_batch
                )
            except CorruptSegment as error:
                self.report_bad_ranges(segment, error.found)
                raise
            self.report_bad_ranges(segment, found)
            if result is not None:
                return result
        return ReadResult([], 0, False, min(max_offset, self.log_end_offset))

    def report_bad_ranges(self, segment: Segment, found: Sequence[BadRange]) -> None:
        """Tell the directory about corrupt bytes, once each."""
        for bad in found:
            self._directory.report_corruption(CorruptSegment(segment.path(), bad.start, bad.reason))

    def doubt(self, offset: int) -> None:
        """Somebody got a batch at `offset` that fails its checksum: the segment is checked at the
        next read, although this process may have written it itself."""
        segments = self.loaded_segments
        segment = segments[reads.segments_from(segments, offset)]
        segment.unverified_end = segment.size

    def epoch_for_offset(self, offset: int) -> int:
        """The leader epoch of the batch at `offset`, -1 when unknown."""
        self.segments  # noqa: B018 -- loads the epochs
        return self.epochs.epoch_at(offset)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) when none can be told."""
        self.segments  # noqa: B018 -- loads the epochs
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)

    # Transactions

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest undecided transaction, at most the high watermark."""
        producers = self._producers
        if producers is None:
            producers = self.producers
        if not producers.ongoing and not producers.undecided:
            return self.high_watermark
        first = producers.first_unstable_offset(self.high_watermark)
        return self.high_watermark if first is None else min(first, self.high_watermark)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [start, end), by first offset."""
        found = []
        segments = self.segments
        for segment in segments[reads.segments_from(segments, start) :]:
            for entry in segment.aborted_transactions() or NOTHING:
                if entry.last_offset >= start and entry.first_offset < end:
                    found.append(entry)
                if entry.last_stable_offset >= end:
                    return sorted(found, key=lambda one: one.first_offset)
        return sorted(found, key=lambda one: one.first_offset)

    def producer_states(self) -> ProducerStates:
        """The producers, for DescribeProducers."""
        return self.producers
