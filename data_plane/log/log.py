"""One partition's log: appends, reads, retention, truncation; everything else is derived from it.

    log_start_offset ≤ high_watermark ≤ log_end_offset      recovery_point ≤ log_end_offset
    segments: [sealed, sealed, …, active]; only the last one takes appends

Invariants
- Offsets of a leader's log are contiguous from segment to segment: a segment's base offset is the
  log end when it was made. Compaction, which makes gaps, only touches what lies below both the
  high watermark and the recovery point.
- A failed write changes nothing in memory: folds, indexes and the log end follow the write. What
  it left in the file is cut off, and the data directory goes offline.
- What lies below the recovery point is durable, with everything that is needed to read it: data,
  names of files, time and transaction indexes, leader epochs, fold snapshots.
- A mapped file is never truncated; truncation replaces it.
- Everything here runs on the loop except `read_cold`, `offset_for_timestamp`,
  `max_timestamp_offset` and the `run` of jobs.

A log is opened without touching its files when the directory's checkpoint says where it ends
(log_summary.py), and loads itself at the first use. Deliberately absent: who leads, what is
committed (`advance_high_watermark` tells), sockets, threads, clocks.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from data_plane.log import loading, reads, recovery, removal, timestamps, truncation, validation
from data_plane.log.batch_walk import BadRange
from data_plane.log.compaction import CompactionJob, plan_compaction
from data_plane.log.config import INT32_MAX, LOG_APPEND_TIME, LogConfig
from data_plane.log.errors import AppendError, CorruptSegment, OffsetOutOfRange
from data_plane.log.file_system import SyncSite
from data_plane.log.flush import Dirty, FlushJob
from data_plane.log.fold import Fold, FoldFactory
from data_plane.log.indexes import AbortedTransaction
from data_plane.log.leader_epochs import LeaderEpochs
from data_plane.log.log_directory import LogDirectory
from data_plane.log.log_summary import LogSummary
from data_plane.log.producer_state import PendingSequence, ProducerStates
from data_plane.log.reads import ReadResult
from data_plane.log.segment import Segment, WouldBlock
from data_plane.wire.errors import ErrorCode, InvalidRecords
from data_plane.wire.kernel import check_batches, scan_batches
from data_plane.wire.records import BatchHeader, iter_batch_headers

CLIENT = "client"
COORDINATOR = "coordinator"

_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
NOTHING: list[AbortedTransaction] = []


class AppendResult(NamedTuple):
    """What an append did. `log_append_time_ms` is -1 with CreateTime; a duplicate stored nothing
    and has the offsets of the stored original."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool
    log_start_offset: int


class Log:
    """See the module."""

    __slots__ = (
        "_closed",
        "_config",
        "_directory",
        "_fold_factories",
        "_folds",
        "_needs_preparation",
        "_producers",
        "_segments",
        "_summary",
        "_timestamp_after_max_ms",
        "checkpointed_recovery_point",
        "cleaner_offset",
        "compacting",
        "dirty",
        "doomed",
        "durable_log_start",
        "epochs",
        "flushes",
        "folder",
        "high_watermark",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "recovery_point",
        "size_bytes",
        "tail_files_offset",
        "topic",
        "topic_id",
        "truncation_marks",
        "unflushed_since_ms",
        "unsynced",
    )

    def __init__(
        self,
        directory: LogDirectory,
        folder: str,
        topic_id: UUID,
        topic: str,
        partition: int,
        config: LogConfig,
        fold_factories: Sequence[FoldFactory] = (),
    ) -> None:
        self._directory = directory
        self.folder = folder
        self.topic_id = topic_id
        self.topic = topic
        self.partition = partition
        self._fold_factories = fold_factories
        self._folds: list[Fold] | None = None
        self._producers: ProducerStates | None = None
        self._segments: list[Segment] | None = None
        self._summary: LogSummary | None = None
        self._closed = False
        self.epochs = LeaderEpochs()
        self.log_start_offset = 0
        # The log start that survives power loss. Behind `log_start_offset` until the next flush.
        self.durable_log_start = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.recovery_point = 0
        # The recovery point as the directory's checkpoint on disk has it.
        self.checkpointed_recovery_point = 0
        self.size_bytes = 0
        # When the oldest record that no flush covers yet was appended, -1 for none.
        self.unflushed_since_ms = -1
        # What the next flush has to make durable beside the data.
        self.unsynced: list[tuple[str, SyncSite]] | None = None
        self.dirty = Dirty.NOTHING
        self.flushes: list[FlushJob] = []
        # Truncations since the directory's last checkpoint. See truncation.py.
        self.truncation_marks = 0
        # Segments out of the log whose files go later: (segment, when). See removal.py.
        self.doomed: list[tuple[Segment, int]] | None = None
        # The log end for which `write_tail` has left files, -1 for none.
        self.tail_files_offset = -1
        # Up to where compaction has been, and whether a job is under way. See compaction.py.
        self.cleaner_offset = -1
        self.compacting = False
        self.update_config(config)

    # What a log is

    @property
    def directory(self) -> Path:
        """The partition's folder."""
        return Path(self.folder)

    @property
    def log_directory(self) -> LogDirectory:
        """What this log shares with the others on its disk."""
        return self._directory

    @property
    def config(self) -> LogConfig:
        return self._config

    def update_config(self, config: LogConfig) -> None:
        """Takes effect from the next call on."""
        self._config = config
        self._needs_preparation = validation.needs_preparation(config)
        self._timestamp_after_max_ms = config.message_timestamp_after_max_ms
        if config.message_timestamp_type == LOG_APPEND_TIME:
            self._timestamp_after_max_ms = 1 << 62

    @property
    def is_loaded(self) -> bool:
        """Whether segments and folds are in memory."""
        return self._segments is not None

    @property
    def segments(self) -> list[Segment]:
        """All segments in order; the list is replaced, never changed. Loads the log."""
        if self._segments is None:
            self.load()
        assert self._segments is not None
        return self._segments

    def replace_segments(self, segments: list[Segment]) -> None:
        """Swap in other segments of the same range (compaction, truncation, retention)."""
        self._segments = segments
        self.size_bytes = sum(segment.size for segment in segments)

    @property
    def active(self) -> Segment:
        """The segment that takes appends."""
        return self.segments[-1]

    @property
    def folds(self) -> list[Fold]:
        """The folds; the first one is the producer state."""
        if self._segments is None:
            self.load()
        assert self._folds is not None
        return self._folds

    @property
    def producers(self) -> ProducerStates:
        """The producer state."""
        if self._segments is None:
            self.load()
        assert self._producers is not None
        return self._producers

    def new_folds(self) -> list[Fold]:
        """Folds in the state before the first batch."""
        return [ProducerStates(), *(factory() for factory in self._fold_factories)]

    # Opening and closing

    def open_from_summary(self, summary: LogSummary) -> None:
        """Take the checkpoint's word for where the log stands; no file is touched."""
        self._summary = summary
        self.log_start_offset = summary.log_start_offset
        self.log_end_offset = summary.log_end_offset
        self.high_watermark = summary.high_watermark
        self.recovery_point = self.checkpointed_recovery_point = summary.recovery_point
        self.size_bytes = summary.size_bytes
        self.cleaner_offset = summary.cleaner_offset

    def load(self) -> None:
        """Bring segments and folds into memory. Raises LogDirFailure, CorruptSegment."""
        assert not self._closed, "a closed log was used"
        self._directory.check_online()
        try:
            loaded = loading.load(self, self._summary)
        except OSError as error:
            raise self._directory.fail(error) from error
        self._adopt(loaded)

    def recover(self, recovery_point: int, summary: LogSummary | None, may_lose: bool) -> None:
        """Open after an unclean shutdown: walk from `recovery_point` on. `may_lose` tells whether
        unsynced writes may be gone (see recovery.py). Raises LogDirFailure."""
        try:
            loaded = recovery.recover(self, recovery_point, summary, may_lose)
        except OSError as error:
            raise self._directory.fail(error) from error
        self._adopt(loaded)

    def _adopt(self, loaded: loading.LoadedLog) -> None:
        self._folds = loaded.folds
        producers = loaded.folds[0]
        assert isinstance(producers, ProducerStates)
        self._producers = producers
        self.replace_segments(loaded.segments)
        self.epochs = loaded.epochs
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.segments[-1].next_offset
        self.recovery_point = min(loaded.recovery_point, self.log_end_offset)
        self.high_watermark = min(
            max(self.high_watermark, self.log_start_offset), self.log_end_offset
        )
        if self.recovery_point < self.log_end_offset and self.unflushed_since_ms < 0:
            self.unflushed_since_ms = 0

    def unload(self) -> None:
        """Give back memory and descriptors of a log at rest; the next use loads it again."""
        if self._segments is None or self.needs_flush or self.doomed or self.compacting:
            return
        summary = self.summary()
        for segment in self._segments:
            segment.release()
        self._summary = summary
        self._segments = None
        self._folds = None
        self._producers = None

    @property
    def is_closed(self) -> bool:
        return self._closed

    def prepare_close(self) -> None:
        """Sync everything, so that the log needs no recovery. Raises LogDirFailure."""
        self.write_tail_files()
        if self._segments is not None and not self._closed:
            self.flush()
            self.remove_doomed()

    def write_tail_files(self) -> None:
        """Spare the next start some walking. Raises LogDirFailure."""
        if self._segments is None or self._closed or not self.needs_flush:
            return
        self._directory.check_online()
        try:
            loading.write_tail(self)
        except OSError as error:
            raise self._directory.fail(error) from error

    def remove_doomed(self) -> None:
        """Unlink what retention dropped without waiting any longer. Raises LogDirFailure."""
        if self.doomed:
            job = removal.RemovalJob(self, [segment for segment, _ in self.doomed])
            job.run()
            job.finish()

    def close(self, clean: bool = True) -> None:
        """Close the files; with `clean` after syncing everything. Raises LogDirFailure."""
        if self._closed:
            return
        try:
            if clean:
                self.prepare_close()
        finally:
            for segment in self._segments or ():
                segment.release()
            self._closed = True

    def retire(self) -> None:
        """Close without syncing, before the folder is renamed to be deleted."""
        for segment in self._segments or ():
            segment.retired = True
        self.close(clean=False)

    @property
    def has_sealed_segments(self) -> bool:
        """Whether there is more than the active segment; touches no file."""
        if self._segments is None and self._summary is not None:
            return self.size_bytes > self._summary.active_size
        return len(self.segments) > 1

    @property
    def is_compactable(self) -> bool:
        """Whether compaction could find anything; touches no file."""
        return self._config.compact and not self._closed and self.has_sealed_segments

    def may_expire(self, now_ms: int) -> bool:
        """Whether retention could find anything; spares idle logs from being loaded."""
        if self._segments is not None:
            return True
        config = self._config
        if self._summary is None or not config.delete or not self.size_bytes:
            return False
        if 0 <= config.retention_bytes < self.size_bytes:
            return True
        oldest_ms = self._summary.first_segment_timestamp
        return 0 <= config.retention_ms < now_ms - oldest_ms

    def summary(self) -> LogSummary:
        """What the directory's checkpoint keeps of this log."""
        if self._segments is None and self._summary is not None:
            return self._summary._replace(high_watermark=self.high_watermark)
        active = self.active
        return LogSummary(
            self.log_start_offset,
            self.log_end_offset,
            self.recovery_point,
            self.high_watermark,
            self.size_bytes,
            active.base_offset,
            active.size,
            active.first_append_ms,
            self.epochs.latest_epoch,
            self.cleaner_offset,
            not self.needs_flush,
            self.tail_files_offset == self.log_end_offset,
            -1 if self._directory.failure is not None else self.segments[0].largest_timestamp(),
        )

    def sync_later(self, path: str, site: SyncSite) -> None:
        """Have the next flush sync the file at `path`."""
        if self.unsynced is None:
            self.unsynced = []
        self.unsynced.append((path, site))

    # Appends

    def append_as_leader(
        self,
        buf: bytearray | memoryview,
        start: int,
        end: int,
        *,
        leader_epoch: int,
        now_ms: int,
        batches: list[BatchHeader] | None = None,
        origin: str = CLIENT,
    ) -> AppendResult:
        """Store `buf[start:end]`, whole v2 batches; offsets and epoch are written into `buf`.

        `batches` are the kernel's headers when the caller has had them checked. `origin` is
        "client", or "coordinator" for the broker's own batches, whose sequences and clocks are not
        checked. One write a call. Raises AppendError (nothing is stored), LogDirFailure.
        """
        if self._segments is None:
            self.load()
        directory = self._directory
        if directory.failure is not None:
            directory.check_online()
        config = self._config
        is_client = origin == CLIENT
        if batches is None:
            batches = self._headers_of(buf, start, end, is_client=is_client)
        if is_client and self._needs_preparation:
            original, (buf, batches) = buf, validation.prepare(buf, batches, config, now_ms)
            if buf is not original:
                start, end = 0, len(buf)
        first_offset = next_offset = self.log_end_offset
        timestamp_max = now_ms + self._timestamp_after_max_ms
        producers = self._producers
        assert producers is not None
        is_single = len(batches) == 1
        pending: dict[int, PendingSequence] | None = None
        stored: list[BatchHeader] = []
        for header in batches:
            if header.batch_length + 12 > config.max_message_bytes:
                validation.check_size(header, config)
            if header.max_timestamp > timestamp_max and is_client:
                raise validation.refuse_timestamp(header.max_timestamp, now_ms, config)
            if header.producer_id >= 0 and not (is_single and producers.is_next(header)):
                if pending is None:
                    pending = {}
                duplicate = producers.check(header, pending, is_client=is_client)
                if duplicate is not None:
                    return AppendResult(
                        duplicate.first_offset,
                        duplicate.last_offset,
                        duplicate.timestamp,
                        True,
                        self.log_start_offset,
                    )
            position = header.position
            _INT64.pack_into(buf, position, next_offset)
            _INT32.pack_into(buf, position + 12, leader_epoch)
            stored.append(
                BatchHeader(position, next_offset, header.batch_length, leader_epoch, *header[4:])
            )
            next_offset += header.last_offset_delta + 1
        self._store(buf, start, end, stored, next_offset, now_ms)
        if leader_epoch > self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, first_offset)
            self.dirty |= Dirty.EPOCHS
        append_time = now_ms if config.message_timestamp_type == LOG_APPEND_TIME else -1
        return AppendResult(
            first_offset, next_offset - 1, append_time, False, self.log_start_offset
        )

    def _headers_of(
        self, buf: bytearray | memoryview, start: int, end: int, *, is_client: bool
    ) -> list[BatchHeader]:
        """The headers of what nobody has checked yet; the broker's own batches are taken as they
        are, control batches included."""
        try:
            if not is_client:
                return list(iter_batch_headers(buf, start, end))
            size_max = self._config.max_message_bytes
            return check_batches(buf, start, end, batch_bytes_max=size_max, one_batch=False)
        except InvalidRecords as error:
            raise AppendError(error.error_code, str(error)) from error

    def append_as_follower(
        self, buf: bytes | bytearray | memoryview, start: int, end: int, *, now_ms: int
    ) -> AppendResult:
        """Store batches of the leader as they are, gaps included.

        A batch that is cut off at the end is left out. Raises AppendError: CORRUPT_MESSAGE, and
        OFFSET_OUT_OF_RANGE for a batch below the log end. Raises LogDirFailure.
        """
        if self._segments is None:
            self.load()
        self._directory.check_online()
        headers, stop, problem = scan_batches(buf, start, end)
        if problem and problem != "incomplete":
            raise AppendError(ErrorCode.CORRUPT_MESSAGE, f"batch at byte {stop - start}: {problem}")
        if not headers:
            end_offset = self.log_end_offset
            return AppendResult(end_offset, end_offset - 1, -1, False, self.log_start_offset)
        if headers[0].base_offset < self.log_end_offset:
            raise AppendError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {headers[0].base_offset} lies below the log end {self.log_end_offset}",
            )
        last = headers[-1]
        self._store(
            buf, start, stop, headers, last.base_offset + last.last_offset_delta + 1, now_ms
        )
        if last.partition_leader_epoch > self.epochs.latest_epoch:
            for header in headers:
                self.epochs.assign(header.partition_leader_epoch, header.base_offset)
            self.dirty |= Dirty.EPOCHS
        return AppendResult(
            headers[0].base_offset, last.last_offset, -1, False, self.log_start_offset
        )

    def _store(
        self,
        buf: bytes | bytearray | memoryview,
        start: int,
        end: int,
        headers: list[BatchHeader],
        next_offset: int,
        now_ms: int,
    ) -> None:
        """Write once, then let indexes, folds and ends follow."""
        config = self._config
        size = end - start
        assert self._segments is not None
        segment = self._segments[-1]
        if (
            segment.size + size > config.segment_bytes
            or next_offset - 1 - segment.base_offset > INT32_MAX
            or (segment.size and self._is_roll_due(segment, now_ms))
        ):
            segment = self._make_room(segment, size, next_offset, now_ms)
        position = segment.size
        data = memoryview(buf)[start:end]
        try:
            (segment.file or segment.open_file()).write_at(position, data)
        except OSError as error:
            self._cut_failed_append(segment)
            raise self._directory.fail(error) from error
        finally:
            data.release()
        segment.recently_used = True
        if not segment.size:
            segment.first_append_ms = now_ms
        segment.size = position + size
        self.size_bytes += size
        interval_bytes = config.index_interval_bytes
        assert self._folds is not None
        producers = self._producers
        assert producers is not None
        for header in headers:
            segment.add_batch(header, position + header.position - start, interval_bytes)
            if header.producer_id >= 0:
                producers.apply(header, buf, header.position)
        if len(self._folds) > 1:
            for fold in self._folds[1:]:
                for header in headers:
                    fold.apply(header, buf, header.position)
        if producers.aborted:
            segment.aborted_transactions().extend(producers.take_aborted())
        segment.hint(self.log_end_offset, position)
        self.log_end_offset = next_offset
        if self.unflushed_since_ms < 0:
            self.unflushed_since_ms = now_ms

    def _cut_failed_append(self, segment: Segment) -> None:
        """Take off what a failed write left behind; best effort on a disk that fails."""
        try:
            file = segment.open_file()
            if file.size() > segment.size:
                file.truncate(segment.size)
                self._directory.fs.sync_data(file, SyncSite.FAILED_APPEND_CUT)
        except OSError:
            # The directory goes offline; recovery cuts the tail at the next start.
            return

    # Rolling

    def _is_roll_due(self, segment: Segment, now_ms: int) -> bool:
        config = self._config
        waited_ms = now_ms - segment.first_append_ms
        if waited_ms >= config.segment_ms - config.segment_jitter_ms:
            return True
        limit_bytes = config.segment_index_bytes
        assert segment.offset_index is not None
        assert segment.time_index is not None
        return (
            segment.offset_index.size_bytes + 8 > limit_bytes
            or segment.time_index.size_bytes + 12 > limit_bytes
        )

    def _make_room(self, segment: Segment, size: int, next_offset: int, now_ms: int) -> Segment:
        if size > self._config.segment_bytes:
            raise AppendError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size} bytes in append to partition "
                f"{self.topic}-{self.partition} which exceeds the maximum configured segment size "
                f"of {self._config.segment_bytes}.",
            )
        if segment.size or segment.base_offset != self.log_end_offset:
            segment = self.roll()
        if next_offset - 1 - segment.base_offset > INT32_MAX:
            raise AppendError(
                ErrorCode.CORRUPT_MESSAGE,
                f"offset {next_offset - 1} is too far from the log end {self.log_end_offset}",
            )
        return segment

    def roll(self) -> Segment:
        """Seal the active segment and begin a new one at the log end. Raises LogDirFailure."""
        segments = self.segments
        try:
            loading.seal(self, segments[-1])
            segment = loading.create_segment(self, self.log_end_offset)
        except OSError as error:
            raise self._directory.fail(error) from error
        self._segments = [*segments, segment]
        return segment

    def maybe_roll(self, now_ms: int) -> bool:
        """Roll when the active segment is old enough, so that retention and compaction see it."""
        if self._segments is None or self._directory.failure is not None:
            return False
        segment = self._segments[-1]
        if not segment.size or not self._is_roll_due(segment, now_ms):
            return False
        self.roll()
        return True

    # Reads

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
        try:
            index = reads.segments_from(segments, offset)
            while index < len(segments):
                segment = segments[index]
                if segment.base_offset >= max_offset:
                    break
                result = reads.read_segment(
                    segment, segment.fetch_hot, offset, max_bytes, max_offset, at_least_one_batch
                )
                if result is not None:
                    return result
                index += 1
        except WouldBlock:
            return ReadResult([], 0, True, offset)
        except OSError as error:
            raise self._directory.fail(error) from error
        return ReadResult([], 0, False, min(max_offset, self.log_end_offset))

    def read_cold(
        self, offset: int, max_bytes: int, *, max_offset: int, at_least_one_batch: bool
    ) -> ReadResult:
        """As `read`, from the disk, checking what this process has not checked yet. For a worker
        thread; never cold."""
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        while True:
            try:
                return self._read_cold(offset, max_bytes, max_offset, at_least_one_batch)
            except reads.Retired:
                # Retention or compaction took the segment away between look-up and open.
                continue
            except OSError as error:
                raise self._directory.fail(error) from error

    def _read_cold(
        self, offset: int, max_bytes: int, max_offset: int, at_least_one_batch: bool
    ) -> ReadResult:
        segments = self._segments or []
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

    def offset_for_timestamp(
        self, timestamp_ms: int, *, max_offset: int
    ) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record at or after `timestamp_ms`."""
        return timestamps.offset_for_timestamp(self, timestamp_ms, max_offset)

    def max_timestamp_offset(self, *, max_offset: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record with the highest timestamp."""
        return timestamps.max_timestamp_offset(self, max_offset)

    def epoch_for_offset(self, offset: int) -> int:
        """The leader epoch of the batch at `offset`, -1 when unknown."""
        self.segments  # noqa: B018 -- loads the epochs
        return self.epochs.epoch_at(offset)

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last batch, -1 for an empty log."""
        if self._segments is None and self._summary is not None:
            return self._summary.latest_epoch
        return self.epochs.latest_epoch

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

    # Ends

    def advance_high_watermark(self, offset: int) -> None:
        """What lies below `offset` is committed. Never moves back, never passes the log end."""
        assert offset <= self.log_end_offset
        if offset > self.high_watermark:
            self.high_watermark = offset

    def delete_records(self, before_offset: int) -> int:
        """Move the log start up to `before_offset` (-1: the high watermark); returns it.

        It lasts through kill -9 from here on, through power loss after the next flush job. Raises
        OffsetOutOfRange above the high watermark, LogDirFailure.
        """
        target = self.high_watermark if before_offset == -1 else before_offset
        if target < 0 or target > self.high_watermark:
            raise OffsetOutOfRange(target, self.log_start_offset, self.high_watermark)
        self._directory.check_online()
        if target > self.log_start_offset:
            self.segments  # noqa: B018 -- loads the epochs
            self.move_log_start(target)
            try:
                loading.note_log_start(self)
            except OSError as error:
                raise self._directory.fail(error) from error
        return self.log_start_offset

    def move_log_start(self, offset: int) -> None:
        """The log begins at `offset` from now on."""
        self.log_start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        self.epochs.truncate_from_start(offset)
        self.dirty |= Dirty.LOG_START | Dirty.EPOCHS

    def apply_retention(self, now_ms: int) -> int:
        """Drop whole segments by age, size and log start; returns how many."""
        return removal.apply_retention(self, now_ms)

    def truncate_to(self, offset: int) -> None:
        """Drop every batch that reaches `offset` or beyond; folds, indexes and epochs follow.

        The log end is then that of the last batch kept, which may lie below `offset`.
        Durable on return: nothing of the tail comes back. Raises LogDirFailure.
        """
        try:
            truncation.truncate_to(self, offset)
        except OSError as error:
            raise self._directory.fail(error) from error

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and begin anew at `offset`. Raises LogDirFailure."""
        try:
            truncation.truncate_fully_and_start_at(self, offset)
        except OSError as error:
            raise self._directory.fail(error) from error

    def set_folds(self, folds: list[Fold]) -> None:
        """Replace the folds' state after a truncation."""
        producers = folds[0]
        assert isinstance(producers, ProducerStates)
        self._folds = folds
        self._producers = producers

    # Jobs

    @property
    def needs_flush(self) -> bool:
        """Whether a flush would make anything durable that is not."""
        return (
            self.recovery_point < self.log_end_offset
            or bool(self.dirty)
            or self.unsynced is not None
        )

    def flush_job(self) -> FlushJob | None:
        """A job that makes durable what the log holds now; None when nothing is to be done."""
        if not self.needs_flush:
            return None
        return FlushJob(self)

    def flush(self) -> None:
        """Make everything durable here and now; blocks. Raises LogDirFailure."""
        job = self.flush_job()
        if job is not None:
            job.run()
            job.finish()

    def compaction_job(self, now_ms: int) -> CompactionJob | None:
        """A job that compacts what is due; None when nothing is."""
        return plan_compaction(self, now_ms)
