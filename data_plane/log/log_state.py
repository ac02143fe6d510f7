"""What a log is: its offsets, its segments and folds, and how they come into memory.

The base of `Log`, which adds appends (log_appends.py), reads (log_reads.py) and the rest (log.py).
A log that was opened from its directory's checkpoint has figures and no segments; `segments`,
`folds` and `producers` load them at the first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from data_plane.log import loading, recovery, validation
from data_plane.log.config import LOG_APPEND_TIME, LogConfig
from data_plane.log.errors import LogNotLoaded
from data_plane.log.file_system import SyncSite
from data_plane.log.flush import Dirty, FlushJob
from data_plane.log.fold import Fold, FoldFactory
from data_plane.log.fold_snapshots import PendingSnapshot, forget_written
from data_plane.log.leader_epochs import LeaderEpochs
from data_plane.log.load_job import LoadJob
from data_plane.log.log_directory import LogDirectory
from data_plane.log.log_summary import LogSummary
from data_plane.log.producer_state import ProducerStates
from data_plane.log.segment import Segment
from data_plane.log.segment_age import newest_ms


class LogState:
    """See the module."""

    __slots__ = (
        "_closed",
        "_directory",
        "_fold_factories",
        "_folds",
        "_load_job",
        "_needs_preparation",
        "_producers",
        "_roll_ms",
        "_segments",
        "_summary",
        "_tail",
        "_timestamp_after_max_ms",
        "beginnings",
        "checkpointed_recovery_point",
        "cleaner_offset",
        "compacting",
        "config",
        "damaged_from",
        "dirty",
        "doomed",
        "durable_log_start",
        "epochs",
        "flushes",
        "folder",
        "gaps",
        "high_watermark",
        "is_successor",
        "is_uncleanable",
        "log_end_offset",
        "log_start_offset",
        "mapped_bases",
        "partition",
        "pending_snapshots",
        "recovery_point",
        "size_bytes",
        "tail_files_offset",
        "topic",
        "topic_id",
        "truncation_marks",
        "unflushed_since_ms",
        "unsynced",
        "wants_ages",
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
        self._load_job: LoadJob | None = None
        # The last append, when it was small: (offset, next offset, its bytes). Those who wait at
        # the log end want exactly this, and need not ask the file system for it.
        self._tail: tuple[int, int, bytes] | None = None
        self._closed = False
        self.epochs = LeaderEpochs()
        # Between two segments: see `LogAppends._roll_behind_gap`.
        self.gaps: list[tuple[int, int]] = []
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
        # States that the next flush has to write; replaced, never changed. See fold_snapshots.py.
        self.pending_snapshots: Sequence[PendingSnapshot] = ()
        self.flushes: list[FlushJob] = []
        # Base offsets of segments that were mapped before the log was unloaded: others may still
        # send from their pages.
        self.mapped_bases: frozenset[int] = frozenset()
        # How often everything was dropped: what jobs know of the log start is void then.
        self.beginnings = 0
        # Truncations since the directory's last checkpoint. See truncation.py.
        self.truncation_marks = 0
        # Whether that checkpoint may name a deleted log in the place of this one.
        self.is_successor = False
        # Segments out of the log whose files go later: (segment, when). See removal.py.
        self.doomed: list[tuple[Segment, int]] | None = None
        # The log end for which `write_tail` has left files, -1 for none.
        self.tail_files_offset = -1
        # Up to where compaction has been, and whether a job is under way. See compaction.py.
        self.cleaner_offset = -1
        self.compacting = False
        self.is_uncleanable = False
        # Whether somebody has asked for what only an AgeJob can tell. See segment_age.py.
        self.wants_ages = False
        # The first damaged batch that is on record, -1 for none. See damage.py.
        self.damaged_from = -1
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
    def latest_epoch(self) -> int:
        """The leader epoch of the last batch, -1 without one; touches no file."""
        if self._segments is None and self._summary is not None:
            return self._summary.latest_epoch
        return self.epochs.latest_epoch

    def update_config(self, config: LogConfig) -> None:
        """Takes effect from the next call on."""
        self.config = config
        self._needs_preparation = validation.needs_preparation(config)
        self._timestamp_after_max_ms = config.message_timestamp_after_max_ms
        self._roll_ms = config.roll_ms
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

    @property
    def loaded_segments(self) -> list[Segment]:
        """As `segments`, for worker threads: raises LogNotLoaded, since loading is the loop's."""
        segments = self._segments
        if segments is None:
            raise LogNotLoaded(self.folder)
        return segments

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

    def forget_summary(self) -> None:
        """What the checkpoint says is of another log, deleted before this one was made."""
        self._summary = None
        self.log_start_offset = self.log_end_offset = self.high_watermark = 0
        self.recovery_point = self.checkpointed_recovery_point = 0
        self.size_bytes = 0
        self.cleaner_offset = -1

    def load(self) -> None:
        """Bring segments and folds into memory. Raises LogDirFailure, CorruptSegment."""
        assert not self._closed, "a closed log was used"
        self._directory.check_online()
        job, self._load_job = self._load_job, None
        loaded = None if job is None else job.take_over()
        if loaded is None:
            try:
                loaded = loading.load(self, self._summary)
            except OSError as error:
                raise self._directory.fail(error) from error
        self.take_loaded(loaded)

    @property
    def opened_from(self) -> LogSummary | None:
        """What the checkpoint has said of a log that is not loaded yet."""
        return self._summary

    @property
    def needs_long_load(self) -> bool:
        """Whether loading takes long enough to be left to a thread (load_job.py); touches no
        file."""
        summary = self._summary
        if self._segments is not None or summary is None or self._closed:
            return False
        if summary.producers_count > self._directory.producers_loaded_at_once_max:
            return True
        walked_bytes = 0 if summary.has_tail_files else summary.active_size
        return walked_bytes > self._directory.bytes_loaded_at_once_max

    def load_job(self) -> LoadJob:
        """The job that loads this log, the same one until that is done."""
        if self._load_job is None:
            self._load_job = LoadJob(self)
        return self._load_job

    def take_loaded(self, loaded: loading.LoadedLog) -> None:
        """Be loaded. On the loop; does nothing when it is already, or closed meanwhile."""
        self._load_job = None
        if self._segments is not None or self._closed:
            loaded.close()
            return
        for segment in loaded.segments:
            if segment.file is not None:
                self._directory.open_files.opened(segment)
        self._adopt(loaded)

    def recover(self, recovery_point: int, summary: LogSummary | None, may_lose: bool) -> None:
        """Open after an unclean shutdown: walk from `recovery_point` on. `may_lose` tells whether
        unsynced writes may be gone (see recovery.py). Raises LogDirFailure."""
        try:
            loaded = recovery.recover(self, recovery_point, summary, may_lose)
        except OSError as error:
            raise self._directory.fail(error) from error
        self._adopt(loaded)
        # The checkpoint may speak of what was cut off since, or of a log that stood here before.
        self.cleaner_offset = min(self.cleaner_offset, self.recovery_point)
        if summary is not None and self.log_start_offset < summary.log_start_offset:
            # What was dropped is back, and what was cleaned since was cleaned without it.
            self.cleaner_offset = -1

    def _adopt(self, loaded: loading.LoadedLog) -> None:
        self._folds = loaded.folds
        producers = loaded.folds[0]
        assert isinstance(producers, ProducerStates)
        self._producers = producers
        for segment in loaded.segments:
            segment.ever_mapped |= segment.base_offset in self.mapped_bases
        self.mapped_bases = frozenset()
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

    @property
    def is_closed(self) -> bool:
        return self._closed

    def is_deleted_meanwhile(self, error: OSError) -> bool:
        """Whether `error` only says that a deletion took the folder away from a running job."""
        # A log is closed before its folder gets another name, so no job sees it the other way.
        return self._closed and isinstance(error, FileNotFoundError)

    @property
    def has_sealed_segments(self) -> bool:
        """Whether there is more than the active segment; touches no file."""
        if self._segments is None and self._summary is not None:
            return self.size_bytes > self._summary.active_size
        return len(self.segments) > 1

    @property
    def is_compactable(self) -> bool:
        """Whether compaction could find anything; touches no file."""
        if self._closed or self.is_uncleanable or not self.config.compact:
            return False
        return self.has_sealed_segments

    def may_expire(self, wall_ms: int, *, by_date: bool = True) -> bool:
        """Whether retention could find anything; spares idle logs from being loaded."""
        if self._segments is not None:
            return True
        config = self.config
        if self._summary is None or not config.delete or not self.size_bytes:
            return False
        if 0 <= config.retention_bytes < self.size_bytes:
            return True
        oldest_ms = self._summary.first_segment_timestamp
        return by_date and 0 <= config.retention_ms < wall_ms - oldest_ms

    def awaits_roll(self, wall_ms: int) -> bool:
        """Whether a log that is not loaded has records that max.compaction.lag.ms wants sealed;
        touches no file."""
        summary = self._summary
        if self._segments is not None or summary is None or not self.config.compact:
            return False
        waited_ms = wall_ms - summary.first_append_ms
        return summary.active_size > 0 and waited_ms >= self.config.max_compaction_lag_ms

    @property
    def needs_flush(self) -> bool:
        """Whether a flush would make anything durable that is not."""
        return (
            self.recovery_point < self.log_end_offset
            or bool(self.dirty)
            or self.unsynced is not None
        )

    @property
    def has_durable_names(self) -> bool:
        """Whether all that sealing has left is durable, up to the last name."""
        return self.unsynced is None and Dirty.FOLDER not in self.dirty and not self.flushes

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
            not self.needs_flush and not self.doomed,
            self.tail_files_offset == self.log_end_offset,
            self._first_segment_newest_ms(),
            len(self.producers),
        )

    def _first_segment_newest_ms(self) -> int:
        """-1 where that takes a longer look, so that retention has one."""
        if self._directory.failure is not None:
            return -1
        found_ms = newest_ms(self.segments[0])
        return -1 if found_ms is None else found_ms

    def sync_later(self, path: str, site: SyncSite) -> None:
        """Have the next flush sync the file at `path`."""
        if self.unsynced is None:
            self.unsynced = []
        self.unsynced.append((path, site))

    def forget_written_snapshots(self) -> None:
        """Let go of the states that a flush has written."""
        if self.pending_snapshots:
            forget_written(self)

    def set_folds(self, folds: list[Fold]) -> None:
        """Replace the folds' state after a truncation."""
        producers = folds[0]
        assert isinstance(producers, ProducerStates)
        self._folds = folds
        self._producers = producers
