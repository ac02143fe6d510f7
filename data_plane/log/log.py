"""One partition's log: appends, reads, retention, truncation; everything else is derived from it.

    Log                 what others use: one name for each act, and what an error of the disk means
      └ acts            log_appends, log_reads, timestamps, retention, truncation, loading, recovery
      └ jobs            FlushJob, CompactionJob, CutJob, LoadJob, FoldsJob, SegmentDeletionJob
          └ LogState    what all of these work on (log_state.py)

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
- Everything here runs on the loop except `read_cold`, `read_held`, `find_damage`,
  `offset_for_timestamp`, `max_timestamp_offset` and the `run` of jobs.

A log is opened without touching its files when the directory's checkpoint says where it ends
(log_summary.py), and loads itself at the first use. Deliberately absent: who leads, what is
committed (`advance_high_watermark` tells), sockets, threads, clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from data_plane.log import (
    directory_checkpoint,
    disk_start,
    fold_snapshots,
    loading,
    log_appends,
    log_reads,
    recovery,
    retention,
    timestamps,
    truncation,
)
from data_plane.log.compaction import CompactionJob, plan_compaction
from data_plane.log.config import LogConfig
from data_plane.log.cut_job import CutJob
from data_plane.log.errors import OffsetOutOfRange
from data_plane.log.flush import FlushJob
from data_plane.log.fold import FoldFactory
from data_plane.log.key_map import BUFFER_BYTES
from data_plane.log.load_job import LoadJob
from data_plane.log.loading import LoadedLog
from data_plane.log.log_appends import CLIENT, COORDINATOR, FEATURE, TAKEN, AppendResult
from data_plane.log.log_directory import LogDirectory
from data_plane.log.log_state import LogState, SegmentListener
from data_plane.log.log_summary import LogSummary
from data_plane.log.remainder import last_segment_below
from data_plane.log.thinning import ThinningJob, plan_thinning

__all__ = ["CLIENT", "COORDINATOR", "FEATURE", "TAKEN", "AppendResult", "Log"]


class Log(LogState):
    """See the module."""

    __slots__ = ("_load_job",)

    # Acts that need nothing around them: a call of one of these is a call of the function.
    append_as_leader = log_appends.append_as_leader
    append_as_follower = log_appends.append_as_follower
    find_duplicate = log_appends.find_duplicate
    roll = log_appends.roll
    maybe_roll = log_appends.maybe_roll
    read = log_reads.read
    read_cold = log_reads.read_cold
    read_held = log_reads.read_held
    is_sealed_at = log_reads.is_sealed_at
    doubt = log_reads.doubt
    find_damage = log_reads.find_damage
    epoch_for_offset = log_reads.epoch_for_offset
    end_offset_for_epoch = log_reads.end_offset_for_epoch
    aborted_transactions = log_reads.aborted_transactions
    producer_states = log_reads.producer_states
    summary = directory_checkpoint.summary_of

    def __init__(
        self,
        directory: LogDirectory,
        folder: str,
        topic_id: UUID,
        topic: str,
        partition: int,
        config: LogConfig,
        fold_factories: Sequence[FoldFactory] = (),
        segment_listeners: Sequence[SegmentListener] = (),
    ) -> None:
        super().__init__(
            directory,
            folder,
            topic_id,
            topic,
            partition,
            config,
            fold_factories,
            segment_listeners,
        )
        self._load_job: LoadJob | None = None

    # Opening and closing

    def load(self) -> None:
        """Bring segments and folds into memory. Raises LogDirFailure, CorruptSegment."""
        assert not self.is_closed, "a closed log was used"
        self.log_directory.check_online()
        job, self._load_job = self._load_job, None
        loaded = None if job is None else job.take_over()
        if loaded is None:
            with self.log_directory.guarding():
                loaded = loading.load(self, self.opened_from)
        self.take_loaded(loaded)

    @property
    def needs_long_load(self) -> bool:
        """Whether loading takes long enough to be left to a thread (load_job.py); touches no
        file."""
        summary = self.opened_from
        if self.segments_if_loaded is not None or summary is None or self.is_closed:
            return False
        if summary.fold_entries_count > self.log_directory.entries_loaded_at_once_max:
            return True
        walked_bytes = 0 if summary.has_tail_files else summary.active_size
        if walked_bytes > self.log_directory.bytes_loaded_at_once_max:
            return True
        try:
            return fold_snapshots.lacks_snapshots(self, summary)
        except OSError:
            # The thread meets it again, and says what it means.
            return True

    def load_job(self) -> LoadJob:
        """The job that loads this log, the same one until that is done or has failed."""
        if self._load_job is None or self._load_job.is_taken_over:
            self._load_job = LoadJob(self, self.take_loaded)
        return self._load_job

    def take_loaded(self, loaded: LoadedLog) -> None:
        """Be loaded. On the loop; does nothing when it is already, or closed meanwhile."""
        self._load_job = None
        if self.is_loaded or self.is_closed:
            loaded.close()
            return
        for segment in loaded.segments:
            if segment.file is not None:
                self.log_directory.open_files.opened(segment)
        loading.adopt(self, loaded)
        self._follow_factories()

    def update_config(self, config: LogConfig) -> None:
        """Takes effect from the next call on."""
        super().update_config(config)
        if self.is_loaded:
            self._follow_factories()

    def _follow_factories(self) -> None:
        """Have the folds that the topic's configuration calls for; it may not have been known when
        they were made. What takes long to make is left to a thread (folds_job.py)."""
        wanted = list(map(type, self.new_folds()))
        known = {type(fold): fold for fold in self.folds}
        self.wants_folds = False
        if wanted == list(known):
            return
        if known.keys() >= set(wanted):
            self.set_folds([known[kind] for kind in wanted])
        elif self.size_bytes > self.log_directory.bytes_loaded_at_once_max:
            self.wants_folds = True
        else:
            with self.log_directory.guarding():
                self.set_folds(loading.folds_of(self))

    def recover(self, recovery_point: int, summary: LogSummary | None, may_lose: bool) -> None:
        """Open after an unclean shutdown: walk from `recovery_point` on. `may_lose` tells whether
        unsynced writes may be gone (see recovery.py). Raises LogDirFailure."""
        with self.log_directory.guarding():
            loaded = recovery.recover(self, recovery_point, summary, may_lose)
        loading.adopt(self, loaded)
        # The checkpoint may speak of what was cut off since, or of a log that stood here before.
        self.cleaner_offset = min(self.cleaner_offset, self.recovery_point)
        if summary is not None and self.log_start_offset < summary.log_start_offset:
            # What was dropped is back, and what was cleaned since was cleaned without it.
            self.cleaner_offset = -1

    def unload(self) -> None:
        """Give back memory and descriptors of a log at rest; the next use loads it again."""
        if (
            self.segments_if_loaded is None
            or self.needs_flush
            or self.pending_deletion
            or self.compacting
            or self.due_ms is not None
        ):
            return
        summary = self.summary()
        for segment in self.segments_if_loaded:
            segment.release()
        self.mapped_bases = frozenset(
            one.base_offset for one in self.segments_if_loaded if one.ever_mapped
        )
        self.drop_frozen_holds()
        self.opened_from = summary
        self.segments_if_loaded = None
        self.folds_if_loaded = None
        self.needs.folds, self.due_folds = [], []
        self.producers_if_loaded = None

    def prepare_close(self) -> None:
        """Sync everything, so that the log needs no recovery. Raises LogDirFailure."""
        self.write_tail_files()
        if self.segments_if_loaded is not None and not self.is_closed:
            self.flush()
            self.delete_pending_segments()

    def write_tail_files(self) -> None:
        """Spare the next start some walking. Raises LogDirFailure."""
        if self.segments_if_loaded is None or self.is_closed or not self.needs_flush:
            return
        self.log_directory.check_online()
        with self.log_directory.guarding():
            loading.write_tail(self)

    def delete_pending_segments(self) -> None:
        """Unlink what retention dropped without waiting any longer. Raises LogDirFailure."""
        if self.pending_deletion:
            job = retention.SegmentDeletionJob(
                self, [segment for segment, _ in self.pending_deletion]
            )
            job.run()
            job.finish()

    def close(self, clean: bool = True) -> None:
        """Close the files; with `clean` after syncing everything. Raises LogDirFailure."""
        if self.is_closed:
            return
        try:
            if clean:
                self.prepare_close()
        finally:
            for segment in self.segments_if_loaded or ():
                segment.release()
            self.is_closed = True

    def close_for_deletion(self) -> None:
        """Close without syncing, before the folder is renamed to be deleted."""
        for segment in self.segments_if_loaded or ():
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

    @property
    def copy_start_offset(self) -> int:
        """Where a replica begins that has nothing: at the log start or, where folds hold on to
        segments below it, with these. Loads the log."""
        return disk_start.start_for(self, self.log_start_offset)

    @property
    def anew_start_offset(self) -> int:
        """Where this log may begin anew when nobody says where. Loads the log."""
        return disk_start.anew_start(self)

    def delete_records(self, before_offset: int) -> int:
        """Move the log start up to `before_offset` (-1: the high watermark); returns it.

        It lasts through kill -9 from here on, through power loss after the next flush job. Raises
        OffsetOutOfRange above the high watermark, LogDirFailure.
        """
        target = self.high_watermark if before_offset == -1 else before_offset
        if target < 0 or target > self.high_watermark:
            raise OffsetOutOfRange(target, self.log_start_offset, self.high_watermark)
        self.log_directory.check_online()
        if target > self.log_start_offset:
            self.segments  # noqa: B018 -- loads the epochs
            with self.log_directory.guarding():
                disk_start_offset = disk_start.note_log_start(self, target)
            self.move_log_start(target, disk_start_offset)
        return self.log_start_offset

    def apply_retention(
        self, now_ms: int, wall_ms: int | None = None, *, by_date: bool = True
    ) -> int:
        """Drop whole segments by age, size and log start; returns how many. The date is `wall_ms`,
        or else `now_ms`; without `by_date` none is too old."""
        return retention.apply_retention(
            self, now_ms, now_ms if wall_ms is None else wall_ms, by_date=by_date
        )

    def truncate_to(self, offset: int) -> None:
        """Drop every batch that reaches `offset` or beyond; folds, indexes and epochs follow.

        The log end is then that of the last batch kept, which may lie below `offset`.
        Durable on return: nothing of the tail comes back. Raises LogDirFailure.
        """
        with self.log_directory.guarding():
            truncation.truncate_to(self, offset)

    def check_before_truncation(self, offset: int) -> None:
        """Know what is damaged in the segment that `truncate_to(offset)` would cut. Reads all of it
        if this process has not checked it yet. Raises LogDirFailure."""
        with self.log_directory.guarding():
            truncation.check_before(self, offset)

    def needs_long_cut(self, offset: int) -> bool:
        """Whether `truncate_to(offset)` takes long enough to be left to a thread, with a
        `cut_job`."""
        if not self.log_start_offset < offset < self.log_end_offset:
            return False
        directory = self.log_directory
        if last_segment_below(self.segments, offset).size > directory.bytes_loaded_at_once_max:
            return True
        return max(map(len, self.folds)) > directory.entries_loaded_at_once_max

    def cut_job(self, offset: int) -> CutJob:
        """A job that does what `truncate_to(offset)` does, where `needs_long_cut`."""
        return CutJob(self, offset)

    def truncate_fully_and_start_at(self, offset: int, epoch_before: int | None = None) -> None:
        """Drop everything and begin anew at `offset`. `epoch_before` is the leader epoch of what
        comes before that, as a leader says, -1 where it does not know it; None: as this log does.
        Raises LogDirFailure."""
        with self.log_directory.guarding():
            truncation.truncate_fully_and_start_at(self, offset, epoch_before)

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

    def thinning_job(self) -> ThinningJob | None:
        """A job that leaves of what readers do not see what folds hold; None when none is due."""
        return plan_thinning(self)
