"""One partition's log: appends, reads, retention, truncation; everything else is derived from it.

    log_start_offset ≤ high_watermark ≤ log_end_offset      recovery_point ≤ log_end_offset
    segments: [sealed, sealed, …, active]; only the last one takes appends

Invariants
- Offsets of a leader's log are contiguous from segment to segment: a segment's base offset is the
  log end when it was made. Compaction, which makes gaps, only touches what lies below both the
  high watermark and the recovery point. A follower may get such a gap from its leader, also one
  that is too wide for a segment: that one lies between two segments.
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

from data_plane.log import loading, removal, timestamps, truncation
from data_plane.log.compaction import CompactionJob, plan_compaction
from data_plane.log.cut_job import CutJob
from data_plane.log.errors import OffsetOutOfRange
from data_plane.log.flush import Dirty, FlushJob
from data_plane.log.key_map import BUFFER_BYTES
from data_plane.log.log_appends import CLIENT, COORDINATOR, AppendResult
from data_plane.log.log_reads import LogReads
from data_plane.log.remainder import last_segment_below

__all__ = ["CLIENT", "COORDINATOR", "AppendResult", "Log"]


class Log(LogReads):
    """See the module."""

    __slots__ = ()

    # Closing

    def unload(self) -> None:
        """Give back memory and descriptors of a log at rest; the next use loads it again."""
        if self._segments is None or self.needs_flush or self.doomed or self.compacting:
            return
        summary = self.summary()
        for segment in self._segments:
            segment.release()
        self.mapped_bases = frozenset(one.base_offset for one in self._segments if one.ever_mapped)
        self._summary = summary
        self._segments = None
        self._folds = None
        self._producers = None

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

    def offset_for_timestamp(
        self, timestamp_ms: int, *, max_offset: int
    ) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record at or after `timestamp_ms`."""
        return timestamps.offset_for_timestamp(self, timestamp_ms, max_offset)

    def max_timestamp_offset(self, *, max_offset: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record with the highest timestamp."""
        return timestamps.max_timestamp_offset(self, max_offset)

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
            try:
                loading.note_log_start(self, target)
            except OSError as error:
                raise self._directory.fail(error) from error
            self.move_log_start(target)
        return self.log_start_offset

    def move_log_start(self, offset: int) -> None:
        """The log begins at `offset` from now on."""
        self.log_start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        self.epochs.truncate_from_start(offset)
        self.dirty |= Dirty.LOG_START | Dirty.EPOCHS

    def apply_retention(
        self, now_ms: int, wall_ms: int | None = None, *, by_date: bool = True
    ) -> int:
        """Drop whole segments by age, size and log start; returns how many. The date is `wall_ms`,
        or else `now_ms`; without `by_date` none is too old."""
        return removal.apply_retention(
            self, now_ms, now_ms if wall_ms is None else wall_ms, by_date=by_date
        )

    def truncate_to(self, offset: int) -> None:
        """Drop every batch that reaches `offset` or beyond; folds, indexes and epochs follow.

        The log end is then that of the last batch kept, which may lie below `offset`.
        Durable on return: nothing of the tail comes back. Raises LogDirFailure.
        """
        try:
            truncation.truncate_to(self, offset)
        except OSError as error:
            raise self._directory.fail(error) from error

    def check_before_truncation(self, offset: int) -> None:
        """Know what is damaged in the segment that `truncate_to(offset)` would cut. Reads all of it
        if this process has not checked it yet. Raises LogDirFailure."""
        try:
            truncation.check_before(self, offset)
        except OSError as error:
            raise self._directory.fail(error) from error

    def needs_long_cut(self, offset: int) -> bool:
        """Whether `truncate_to(offset)` takes long enough to be left to a thread, with a
        `cut_job`."""
        if not self.log_start_offset < offset < self.log_end_offset:
            return False
        directory = self._directory
        if last_segment_below(self.segments, offset).size > directory.bytes_loaded_at_once_max:
            return True
        return max(map(len, self.folds)) > directory.producers_loaded_at_once_max

    def cut_job(self, offset: int) -> CutJob:
        """A job that does what `truncate_to(offset)` does, where `needs_long_cut`."""
        return CutJob(self, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and begin anew at `offset`. Raises LogDirFailure."""
        try:
            truncation.truncate_fully_and_start_at(self, offset)
        except OSError as error:
            raise self._directory.fail(error) from error

    # Jobs

    def flush_job(self) -> FlushJob | None:
        """A job that makes durable what the log holds now; None when nothing is to be done."""
        return FlushJob(self) if self.needs_flush else None

    def flush(self) -> None:
        """Make everything durable here and now; blocks. Raises LogDirFailure."""
        job = self.flush_job()
        if job is not None:
            job.run()
            job.finish()

    def compaction_job(
        self, wall_ms: int, buffer_bytes: int = BUFFER_BYTES
    ) -> CompactionJob | None:
        """A job that compacts what is due; None when nothing is."""
        return plan_compaction(self, wall_ms, buffer_bytes)
