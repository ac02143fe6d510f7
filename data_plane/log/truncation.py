"""Dropping a log's tail: what a follower does with records that its leader does not have.

Unlike an append, a truncation is durable before it returns. Otherwise power loss could bring parts
of the old tail back between records that were written after it, and nothing would tell them apart.
The mark `truncation.checkpoint` lowers the recovery point that the directory's last checkpoint may
still give for this log; it names that checkpoint's number, and a later one makes it void. A log
that is made in the place of a deleted one begins with such a mark: all that the checkpoint may say
is of the other one.

What is left is made before anything goes (remainder.py), in a thread where that takes long
(cut_job.py).
"""

from __future__ import annotations

import contextlib

from data_plane.log import disk_start, loading, partition_files
from data_plane.log.checkpoints import encode_value, write_checkpoint
from data_plane.log.cleaned_end import note_nothing_cleaned
from data_plane.log.config import INT64_MAX
from data_plane.log.file_system import SyncSite
from data_plane.log.fold_snapshots import cancel_pending, write_pending
from data_plane.log.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs
from data_plane.log.log_state import LogState
from data_plane.log.partition_files import (
    delete_derived,
    forget_unsynced_log_start,
    write_gaps,
    write_log_start,
)
from data_plane.log.reads import segments_from
from data_plane.log.remainder import Remainder, last_segment_below, prepare, sync_copy
from data_plane.log.retention import files_to_delete
from data_plane.log.segment import APPEND_TIME_SUFFIX, Segment
from data_plane.log.segment_checks import verify
from data_plane.log.unflushed import Dirty


def check_before(log: LogState, offset: int) -> None:
    """Check what this process has not checked yet of the segment to be cut at `offset`, since
    a batch that lies about its last offset lies about where to cut. Raises OSError."""
    segments = log.segments
    segment = segments[segments_from(segments, offset)]
    if segment.unverified_end and segment.base_offset < offset:
        file = segment.open_file()
        log.report_bad_ranges(segment, verify(segment, file))


def truncate_to(log: LogState, offset: int) -> None:
    """See Log.truncate_to. Raises OSError while nothing is changed, LogDirFailure."""
    if offset >= log.log_end_offset:
        # An empty log remembers the epoch of what it had.
        _forget_epochs_from(log, offset)
        return
    start = log.log_start_offset
    if offset < start:
        truncate_fully_and_start_at(log, min(offset, disk_start.anew_start(log)))
        return
    if offset == start and disk_start.start_for(log, start) == start:
        truncate_fully_and_start_at(log, offset)
        return
    # It may begin with one of them.
    write_pending(log, offset)
    segments = log.segments
    file = last_segment_below(segments, offset).open_file()
    number = log.log_directory.next_copy_number()
    remainder = prepare(log, segments, offset, file, number)
    sync_copy(log, remainder)
    become(log, remainder)


def _forget_epochs_from(log: LogState, offset: int) -> None:
    """Also in their file, once the recovery point is above: records of an older epoch may come in
    the place of those that began one."""
    if log.epochs.entries and log.epochs.entries[-1].start_offset >= offset:
        log.epochs.truncate_from_end(offset)
        log.dirty |= Dirty.EPOCHS


def become(log: LogState, remainder: Remainder) -> None:
    """Be what was made of the log's present segments; on the loop. Raises OSError while nothing is
    changed, LogDirFailure."""
    _mark(log, remainder.offset)
    with log.log_directory.changing():
        _become(log, remainder)


def _become(log: LogState, remainder: Remainder) -> None:
    offset, active = remainder.offset, remainder.active
    segments = log.segments
    kept = [segment for segment in segments if segment.base_offset < offset]
    _delete_segments(log, [segment for segment in segments if segment.base_offset >= offset])
    if active is not None:
        _replace(log, remainder, active)
        kept[-1] = active
        # It is not that of what comes in the place of what goes.
        with contextlib.suppress(FileNotFoundError):
            log.log_directory.fs.unlink(active.path(APPEND_TIME_SUFFIX))
    _remove_snapshots_above(log, offset)
    _forget_epochs_from(log, offset)
    if active is None:
        active = loading.create_segment(log, offset)
        kept.append(active)
    log.set_folds(remainder.folds)
    _finish(log, kept, active.next_offset)
    if log.log_end_offset < log.log_start_offset:
        # The log began within the batch that had to go.
        truncate_fully_and_start_at(log, disk_start.anew_start(log))


def truncate_fully_and_start_at(
    log: LogState, offset: int, epoch_before: int | None = None
) -> None:
    """See Log.truncate_fully_and_start_at. Raises OSError while nothing is changed,
    LogDirFailure."""
    segments = log.segments
    if epoch_before is None:
        # Of what was there above nobody knows whether it counted.
        is_below = offset <= log.log_start_offset
        epoch_before = log.epochs.epoch_at(offset - 1) if is_below else UNDEFINED_EPOCH
    _mark(log, min(offset, log.log_start_offset))
    with log.log_directory.changing():
        _begin_anew(log, segments, offset, epoch_before)


def _begin_anew(log: LogState, segments: list[Segment], offset: int, epoch_before: int) -> None:
    # The new segments may have the names of old ones, also of those that retention has dropped and
    # not removed yet, so all of these go first.
    pending, log.pending_deletion = log.pending_deletion or [], None
    with log.log_directory.moving_log_start():
        log.begun_anew_count += 1
        # Recovery takes the first segment for connected to the log when it begins at the log start.
        log.log_start_offset = log.durable_log_start = log.durable_disk_start = offset
        write_log_start(log, offset)
        # It may lie below what retention has noted.
        forget_unsynced_log_start(log.log_directory.fs, log.folder)
        _delete_segments(log, [*(segment for segment, _ in pending), *segments])
    cancel_pending(log, -1)
    delete_derived(log.log_directory.fs, log.folder, log.folds, SyncSite.TRUNCATED_FOLDER)
    note_nothing_cleaned(log)
    segment = loading.create_segment(log, offset)
    log.set_folds(log.new_folds())
    log.needs.thinned = None
    log.epochs = LeaderEpochs()
    log.epochs.assign(epoch_before, offset - 1)
    if log.epochs.entries:
        # Without a batch to tell it again, a start has it from the file alone.
        path = f"{log.folder}/{partition_files.LEADER_EPOCHS_FILE}"
        write_checkpoint(log.log_directory.fs, path, log.epochs.encode(), SyncSite.LEADER_EPOCHS)
    log.gaps = []
    log.dirty |= Dirty.EPOCHS
    log.high_watermark = offset
    _finish(log, [segment], offset)


def _finish(log: LogState, segments: list[Segment], offset: int) -> None:
    log.log_end_offset = offset
    log.needs.truncate(offset)
    log.recovery_point = min(log.recovery_point, offset)
    for job in log.flushes:
        # What is appended behind the cut is not what a sync that runs now began with.
        job.target_offset = min(job.target_offset, offset)
    log.checkpointed_recovery_point = min(log.checkpointed_recovery_point, offset)
    log.high_watermark = min(log.high_watermark, offset)
    log.cleaner_offset = min(log.cleaner_offset, offset)
    log.dirty |= Dirty.FOLDER
    log.replace_segments(segments)


def mark_successor(log: LogState) -> None:
    """The checkpoint on disk, and those under way, may name the log that was deleted before this
    new one was made. From here on a start does not take its word. Raises OSError."""
    log.is_successor = True
    _mark(log, 0)


def _mark(log: LogState, offset: int) -> None:
    if any(start > offset for _, start in log.gaps):
        # The records that come in their place may have none there.
        log.gaps = [gap for gap in log.gaps if gap[1] <= offset]
        write_gaps(log.log_directory.fs, log.folder, log.gaps)
    path = f"{log.folder}/{partition_files.TRUNCATION_FILE}"
    # An earlier mark must not be raised before a flush has made good for it.
    value = [min(offset, log.recovery_point), log.log_directory.checkpoint_sequence]
    write_checkpoint(
        log.log_directory.fs,
        path,
        encode_value([*value, partition_files.SUCCESSOR] if log.is_successor else value),
        SyncSite.TRUNCATION,
        SyncSite.TRUNCATION_FOLDER,
    )
    log.truncation_marks += 1


def _delete_segments(log: LogState, segments: list[Segment]) -> None:
    if not segments:
        return
    for segment in segments:
        segment.release()
    fs = log.log_directory.fs
    for path in files_to_delete(log, segments, keep_snapshots=True):
        fs.unlink(path)
    fs.sync_directory(log.folder, SyncSite.TRUNCATED_FOLDER)


def _replace(log: LogState, remainder: Remainder, active: Segment) -> None:
    """Have the file of the original hold what `active` does, durably."""
    fs = log.log_directory.fs
    original = remainder.original
    if remainder.copy_path is not None:
        original.retired = True
        original.release()
        fs.rename(remainder.copy_path, active.path())
        fs.sync_directory(log.folder, SyncSite.TRUNCATED_FOLDER)
    else:
        file = original.open_file()
        file.truncate(active.size)
        fs.sync_data(file, SyncSite.TRUNCATED_DATA)
        original.retired = True
        original.release()
    active.open_file()


def _remove_snapshots_above(log: LogState, offset: int) -> None:
    cancel_pending(log, offset)
    fs = log.log_directory.fs
    names = fs.list_directory(log.folder)
    for name in loading.snapshot_names(names, log.folds, offset + 1, INT64_MAX):
        fs.unlink(f"{log.folder}/{name}")
