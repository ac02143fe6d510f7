"""What a log is: its offsets, its segments and folds, its settings, and what is still to be done.

The state that everything in this room works on: what appends, reads, retention, truncation, flushes
and compaction do are functions and jobs over a LogState, and `Log` (log.py) puts them together. A
log that was opened from its directory's checkpoint has figures and no segments; `segments`, `folds`
and `producers` load them at the first use.

Deliberately absent: files, and anything that changes more than one of these fields for a reason of
its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Protocol, TypeVar
from uuid import UUID

from data_plane.log import validation
from data_plane.log.batch_walk import BadRange
from data_plane.log.committed_needs import CommittedNeeds
from data_plane.log.config import LOG_APPEND_TIME, LogConfig
from data_plane.log.errors import CorruptSegment, LogNotLoaded
from data_plane.log.file_system import SyncSite
from data_plane.log.fold import (
    DueFold,
    Fold,
    FoldContext,
    FoldFactory,
    FrozenHolds,
    HoldingFold,
    flags_of,
)
from data_plane.log.leader_epochs import LeaderEpochs
from data_plane.log.log_directory import LogDirectory
from data_plane.log.log_summary import LogSummary
from data_plane.log.pending_snapshot import PendingSnapshot
from data_plane.log.producer_state import ProducerStates
from data_plane.log.segment import Segment
from data_plane.log.unflushed import Dirty, RunningFlush

F = TypeVar("F")


class SegmentListener(Protocol):
    """Who wants to know of the segments of all logs: what archives them, say."""

    def segments_changed(
        self, log: LogState, sealed: Sequence[Segment], gone: Sequence[Segment]
    ) -> None:
        """`sealed` are in the log and take no more appends; `gone` have left it. On the loop, when
        the change is complete: to be quick, to raise nothing and to change nothing.

        Sealed are those of a roll, of a compaction, and all that a load finds; they may not be
        durable, nor committed yet. Gone are those that retention has dropped, whose files stay for
        file.delete.delay.ms (`pending_deletion`), that a compaction has replaced, and that a cut
        has taken, sealed before or not."""


class LogState(ABC):
    """See the module."""

    __slots__ = (
        "_fold_factories",
        "begun_anew_count",
        "checkpointed_recovery_point",
        "cleaned_end",
        "cleaner_offset",
        "compacting",
        "config",
        "damaged_from",
        "dirty",
        "due_folds",
        "durable_disk_start",
        "durable_log_start",
        "epochs",
        "flushes",
        "fold_flags",
        "folder",
        "folds_if_loaded",
        "frozen_holds",
        "gaps",
        "high_watermark",
        "is_closed",
        "is_successor",
        "is_uncleanable",
        "last_append",
        "log_directory",
        "log_end_offset",
        "log_start_offset",
        "mapped_bases",
        "needs",
        "needs_preparation",
        "opened_from",
        "partition",
        "pending_deletion",
        "pending_snapshots",
        "producers_if_loaded",
        "recovery_point",
        "roll_ms",
        "round_kept_offset",
        "segment_listeners",
        "segments_if_loaded",
        "size_bytes",
        "superseded_from",
        "tail_files_offset",
        "timestamp_after_max_ms",
        "topic",
        "topic_id",
        "truncation_marks",
        "unflushed_since_ms",
        "unsynced",
        "wants_ages",
        "wants_folds",
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
        segment_listeners: Sequence[SegmentListener] = (),
    ) -> None:
        # What this log shares with the others on its disk.
        self.log_directory = directory
        self.folder = folder
        self.topic_id = topic_id
        self.topic = topic
        self.partition = partition
        self._fold_factories = fold_factories
        self.segment_listeners = segment_listeners
        self.folds_if_loaded: list[Fold] | None = None
        self.needs, self.fold_flags = CommittedNeeds(), 0
        self.due_folds: list[DueFold] = []
        self.producers_if_loaded: ProducerStates | None = None
        self.segments_if_loaded: list[Segment] | None = None
        # What the checkpoint has said of a log that is not loaded yet.
        self.opened_from: LogSummary | None = None
        # The last append, when small: (offset, next offset, bytes), for those who wait for it.
        self.last_append: tuple[int, int, bytes] | None = None
        self.is_closed = False
        self.epochs = LeaderEpochs()
        # Between two segments: see log_appends.py.
        self.gaps: list[tuple[int, int]] = []
        self.log_start_offset = 0
        # The log start that survives power loss. Behind `log_start_offset` until the next flush.
        self.durable_log_start = 0
        # The same of what the disk still has; see disk_start.py.
        self.durable_disk_start = 0
        self.log_end_offset = self.high_watermark = 0
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
        self.flushes: list[RunningFlush] = []
        # Base offsets of segments that were mapped before the log was unloaded: others may still
        # send from their pages.
        self.mapped_bases: frozenset[int] = frozenset()
        # How often everything was dropped: what jobs know of the log start is void then.
        self.begun_anew_count = 0
        # Truncations since the directory's last checkpoint. See truncation.py.
        self.truncation_marks = 0
        # Whether that checkpoint may name a deleted log in the place of this one.
        self.is_successor = False
        # Segments that have left the log, whose files go later: (segment, when). See retention.py.
        self.pending_deletion: list[tuple[Segment, int]] | None = None
        # The log end for which `write_tail` has left files, -1 for none.
        self.tail_files_offset = -1
        self._begin_uncleaned()
        # Whether a thread is to tell ages, or to make folds that the log has not got yet. See
        # segment_age.py and folds_job.py.
        self.wants_ages = self.wants_folds = False
        # The first damaged batch that is on record, -1 for none. See damage.py.
        self.damaged_from = -1
        self.update_config(config)

    def _begin_uncleaned(self) -> None:
        # Up to where compaction has been, and whether a job is under way. See compaction.py.
        self.cleaner_offset = -1
        self.compacting = False
        # Where records are missing below it, newer ones below it have replaced them. See
        # cleaned_end.py.
        self.cleaned_end = 0
        # The first superseded record that was left for a fold, -1 for none; the first one of a
        # round of passes that has not come to its end, INT64_MAX for none, None without such a
        # round; and what the folds have held, one for the next pass and one for later. See
        # held_records.py.
        self.superseded_from = -1
        self.round_kept_offset: int | None = None
        self.frozen_holds: tuple[FrozenHolds, ...] = ()
        self.is_uncleanable = False

    # What a log is

    @property
    def directory(self) -> Path:
        """The partition's folder."""
        return Path(self.folder)

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last batch, -1 without one; touches no file."""
        if self.segments_if_loaded is None and self.opened_from is not None:
            return self.opened_from.latest_epoch
        return self.epochs.latest_epoch

    def update_config(self, config: LogConfig) -> None:
        """Takes effect from the next call on."""
        self.config = config
        self.needs_preparation = validation.needs_preparation(config)
        self.timestamp_after_max_ms = config.message_timestamp_after_max_ms
        self.roll_ms = config.roll_ms
        if config.message_timestamp_type == LOG_APPEND_TIME:
            self.timestamp_after_max_ms = 1 << 62

    @property
    def is_loaded(self) -> bool:
        """Whether segments and folds are in memory."""
        return self.segments_if_loaded is not None

    @property
    def segments(self) -> list[Segment]:
        """All segments in order; the list is replaced, never changed. Loads the log."""
        if self.segments_if_loaded is None:
            self.load()
        assert self.segments_if_loaded is not None
        return self.segments_if_loaded

    @property
    def loaded_segments(self) -> list[Segment]:
        """As `segments`, for worker threads: raises LogNotLoaded, since loading is the loop's."""
        segments = self.segments_if_loaded
        if segments is None:
            raise LogNotLoaded(self.folder)
        return segments

    def replace_segments(self, segments: list[Segment]) -> None:
        """Swap in other segments of the same range (compaction, truncation, retention), at the end
        of a change."""
        self.size_bytes = sum(segment.size for segment in segments)
        self.set_segments(segments)

    def set_segments(self, segments: list[Segment]) -> None:
        """These are the segments now, of the same size in all; the last step of a change."""
        before = self.segments_if_loaded or ()
        self.segments_if_loaded = segments
        if self.segment_listeners:
            kept, known = set(segments), set(before[:-1])
            sealed = [segment for segment in segments[:-1] if segment not in known]
            gone = [segment for segment in before if segment not in kept]
            for listener in self.segment_listeners:
                listener.segments_changed(self, sealed, gone)

    @property
    def active(self) -> Segment:
        """The segment that takes appends."""
        return self.segments[-1]

    @property
    def folds(self) -> list[Fold]:
        """The folds; the first one is the producer state."""
        if self.segments_if_loaded is None:
            self.load()
        assert self.folds_if_loaded is not None
        return self.folds_if_loaded

    @property
    def producers(self) -> ProducerStates:
        """The producer state."""
        if self.segments_if_loaded is None:
            self.load()
        assert self.producers_if_loaded is not None
        return self.producers_if_loaded

    def new_folds(self) -> list[Fold]:
        """Folds in the state before the first batch."""
        factories = self._fold_factories
        if not factories:
            return [ProducerStates()]
        fs, folder = self.log_directory.fs, self.folder
        context = FoldContext(self.topic_id, self.topic, self.partition, folder, self.config, fs)
        made = (factory(context) for factory in factories)
        return [ProducerStates(), *(fold for fold in made if fold is not None)]

    def fold(self, kind: type[F]) -> F:
        """The fold of that type; a log has at most one of each. Raises LookupError."""
        for fold in self.folds:
            if isinstance(fold, kind):
                return fold
        raise LookupError(f"{self.folder} has no fold {kind.__name__}")

    @property
    def needed_from(self) -> int | None:
        """From which offset on folds hold on to the records, by what is committed and durable;
        None where no fold ever does."""
        if self.segments_if_loaded is None:
            self.load()
        if self.wants_folds:
            # What those that are being made need nobody knows yet.
            return self.disk_start_offset
        if not self.needs.folds:
            return None
        start_offset = self.disk_start_offset
        found = [fold.needed_from(start_offset) for fold in self.needs.folds]
        end_offset = self.log_end_offset
        now_needed = min((one for one in found if one is not None), default=end_offset)
        return self.needs.needed_from(now_needed, end_offset, self.settled_end)

    @property
    def settled_end(self) -> int:
        """Below it no crash and no cut takes anything back."""
        return min(self.high_watermark, self.recovery_point)

    @property
    def disk_start_offset(self) -> int:
        """Where the log begins on the disk: at the log start or, where a segment is held or reaches
        across it, below. Loads the log."""
        return min(self.segments[0].base_offset, self.log_start_offset)

    @property
    def due_ms(self) -> int | None:
        """When a fold has something to do next, by the date; None for never. Touches no file."""
        if self.segments_if_loaded is None:
            summary = self.opened_from
            return None if summary is None or summary.due_ms < 0 else summary.due_ms
        if not self.due_folds:
            return None
        found = [fold.due_ms for fold in self.due_folds]
        return min((due_ms for due_ms in found if due_ms is not None), default=None)

    @property
    def held_from(self) -> int | None:
        """From which offset on a fold holds records against compaction; None where none does."""
        start_offset = self.disk_start_offset
        found = [fold.held_from(start_offset) for fold in self.folds]
        return min((offset for offset in found if offset is not None), default=None)

    # Opening and closing

    def open_from_summary(self, summary: LogSummary) -> None:
        """Take the checkpoint's word for where the log stands; no file is touched."""
        self.opened_from = summary
        self.log_start_offset = summary.log_start_offset
        self.log_end_offset = summary.log_end_offset
        self.high_watermark = summary.high_watermark
        self.recovery_point = self.checkpointed_recovery_point = summary.recovery_point
        self.size_bytes = summary.size_bytes
        self.cleaner_offset = summary.cleaner_offset
        self.superseded_from = summary.superseded_from

    def forget_summary(self) -> None:
        """What the checkpoint says is of another log, deleted before this one was made."""
        self.opened_from = None
        self.log_start_offset = self.log_end_offset = self.high_watermark = 0
        self.recovery_point = self.checkpointed_recovery_point = 0
        self.size_bytes = 0
        self.cleaner_offset = self.superseded_from = -1

    @abstractmethod
    def load(self) -> None:
        """Bring segments and folds into memory. Raises LogDirFailure, CorruptSegment."""

    def is_deleted_meanwhile(self, error: OSError) -> bool:
        """Whether `error` only says that a deletion took the folder away from a running job."""
        # A log is closed before its folder gets another name, so no job sees it the other way.
        return self.is_closed and isinstance(error, FileNotFoundError)

    @property
    def has_sealed_segments(self) -> bool:
        """Whether there is more than the active segment; touches no file."""
        if self.segments_if_loaded is None and self.opened_from is not None:
            return self.size_bytes > self.opened_from.active_size
        return len(self.segments) > 1

    @property
    def is_compactable(self) -> bool:
        """Whether compaction could find anything; touches no file."""
        if self.is_closed or self.is_uncleanable or not self.config.compact:
            return False
        return self.has_sealed_segments

    def may_expire(self, wall_ms: int, *, by_date: bool = True) -> bool:
        """Whether retention could find anything; spares idle logs from being loaded."""
        if self.segments_if_loaded is not None:
            return True
        config = self.config
        if self.opened_from is None or not config.delete or not self.size_bytes:
            return False
        if 0 <= config.retention_bytes < self.size_bytes:
            return True
        oldest_ms = self.opened_from.first_segment_timestamp
        return by_date and config.is_expired(oldest_ms, wall_ms)

    def awaits_roll(self, wall_ms: int) -> bool:
        """Whether a log that is not loaded has records that max.compaction.lag.ms wants sealed;
        touches no file."""
        summary = self.opened_from
        if self.segments_if_loaded is not None or summary is None or not self.config.compact:
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

    def sync_later(self, path: str, site: SyncSite) -> None:
        """Have the next flush sync the file at `path`."""
        if self.unsynced is None:
            self.unsynced = []
        self.unsynced.append((path, site))

    def set_folds(self, folds: list[Fold]) -> None:
        """Replace the folds' state after a truncation. `fold_flags` are those of the batches that
        others than the producer state see, -1 for all batches."""
        self.drop_frozen_holds()
        self.wants_folds = False
        producers = folds[0]
        assert isinstance(producers, ProducerStates)
        self.folds_if_loaded = folds
        self.needs.folds = [fold for fold in folds if isinstance(fold, HoldingFold)]
        self.due_folds = [fold for fold in folds if isinstance(fold, DueFold)]
        flags = [flags_of(fold) for fold in folds[1:]]
        self.fold_flags = -1 if 0 in flags else reduce(or_, flags, 0)
        self.producers_if_loaded = producers

    def drop_frozen_holds(self) -> None:
        """Forget what the folds have held, as they go or are taken back."""
        dropped, self.frozen_holds = self.frozen_holds, ()
        for frozen in dropped:
            frozen.close()

    def report_bad_ranges(self, segment: Segment, found: Sequence[BadRange]) -> None:
        """Tell the directory about corrupt bytes, once each."""
        for bad in found:
            corrupt = CorruptSegment(segment.path(), bad.start, bad.reason)
            self.log_directory.report_corruption(corrupt)

    # Ends

    def advance_high_watermark(self, offset: int) -> None:
        """What lies below `offset` is committed. Never moves back, never passes the log end."""
        assert offset <= self.log_end_offset
        if offset > self.high_watermark:
            self.high_watermark = offset

    def move_log_start(self, offset: int, disk_start_offset: int) -> None:
        """The log begins at `offset` from now on, on the disk perhaps below: replicas that begin
        there are compared with it by epochs."""
        self.log_start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        self.epochs.truncate_from_start(disk_start_offset)
        self.dirty |= Dirty.LOG_START | Dirty.EPOCHS

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest undecided transaction, at most the high watermark."""
        producers = self.producers_if_loaded
        if producers is None:
            producers = self.producers
        if not producers.ongoing and not producers.undecided:
            return self.high_watermark
        first = producers.first_unstable_offset(self.high_watermark)
        return self.high_watermark if first is None else min(first, self.high_watermark)
