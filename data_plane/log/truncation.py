"""Dropping a log's tail: what a follower does with records that its leader does not have.

Unlike an append, a truncation is durable before it returns. Otherwise power loss could bring parts
of the old tail back between records that were written after it, and nothing would tell them apart.
The mark `truncation.checkpoint` lowers the recovery point that the directory's last checkpoint may
still give for this log; it names that checkpoint's number, and a later one makes it void. A log
that is made in the place of a deleted one begins with such a mark: all that the checkpoint may say
is of the other one.

A segment that has been mapped is replaced by a copy: cutting a mapped file kills the process when
somebody still sends from the lost pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from data_plane.log import loading, partition_files
from data_plane.log.checkpoints import encode_value, write_checkpoint
from data_plane.log.config import INT64_MAX
from data_plane.log.errors import CorruptSegment
from data_plane.log.file_system import File, SyncSite
from data_plane.log.flush import Dirty
from data_plane.log.fold_snapshots import cancel_pending, write_pending
from data_plane.log.leader_epochs import LeaderEpochs
from data_plane.log.partition_files import (
    forget_unsynced_log_start,
    remove_derived,
    write_gaps,
    write_log_start,
)
from data_plane.log.reads import segments_from
from data_plane.log.removal import files_to_remove
from data_plane.log.segment import Segment
from data_plane.log.segment_checks import verify

if TYPE_CHECKING:
    from data_plane.log.log import Log

COPY_SUFFIX = ".log.copy"
COPY_CHUNK_BYTES = 1 << 20


def check_before(log: Log, offset: int) -> None:
    """Check what this process has not checked yet of the segment to be cut at `offset`, since
    a batch that lies about its last offset lies about where to cut. Raises OSError."""
    segments = log.segments
    segment = segments[segments_from(segments, offset)]
    if segment.unverified_end and segment.base_offset < offset:
        file = segment.open_file()
        log.report_bad_ranges(segment, verify(segment, file))


def truncate_to(log: Log, offset: int) -> None:
    """See Log.truncate_to. Raises OSError while nothing is changed, LogDirFailure."""
    segments = log.segments
    if offset >= log.log_end_offset:
        if log.epochs.entries and log.epochs.entries[-1].start_offset >= offset:
            # An empty log remembers the epoch of what it had.
            log.epochs.truncate_from_end(offset)
            log.dirty |= Dirty.EPOCHS
        return
    if offset <= log.log_start_offset:
        truncate_fully_and_start_at(log, offset)
        return
    _mark(log, offset)
    with log.log_directory.changing():
        # It may begin with one of them.
        write_pending(log, offset)
        _truncate(log, segments, offset)


def _truncate(log: Log, segments: list[Segment], offset: int) -> None:
    kept = [segment for segment in segments if segment.base_offset < offset]
    _remove(log, [segment for segment in segments if segment.base_offset >= offset])
    if kept[-1].next_offset == offset and _end_at_snapshots(log, kept, offset):
        return
    active = _cut(log, kept[-1], offset)
    _remove_snapshots_above(log, offset)
    log.epochs.truncate_from_end(offset)
    names = log.log_directory.fs.list_directory(log.folder)
    folds = log.new_folds()
    starts = loading.restore_folds(
        log.log_directory.fs, log.folder, names, folds, active.base_offset
    )
    loading.replay(kept[:-1], folds, starts, active.base_offset)
    active.start_indexes()
    active.next_offset = active.base_offset
    active.max_timestamp = -1
    active.bytes_since_index = 0
    loading.walk_active(log, active, active.open_file(), folds, starts, offset)
    log.set_folds(folds)
    _finish(log, [*kept[:-1], active], active.next_offset)
    if log.log_end_offset < log.log_start_offset:
        # The log began within the batch that had to go.
        truncate_fully_and_start_at(log, log.log_start_offset)


def _end_at_snapshots(log: Log, kept: list[Segment], offset: int) -> bool:
    """End between two segments, with the folds that stood there. False when these are not whole.

    What lies before may have been compacted, and not say all any more that they were made of: of a
    producer whose next records are those that go now, the last ones that stay may be missing."""
    fs = log.log_directory.fs
    folds = log.new_folds()
    names = fs.list_directory(log.folder)
    if min(loading.restore_folds(fs, log.folder, names, folds, offset)) != offset:
        return False
    _remove_snapshots_above(log, offset)
    log.epochs.truncate_from_end(offset)
    log.set_folds(folds)
    _finish(log, [*kept, loading.create_segment(log, offset)], offset)
    return True


def truncate_fully_and_start_at(log: Log, offset: int) -> None:
    """See Log.truncate_fully_and_start_at. Raises OSError while nothing is changed,
    LogDirFailure."""
    segments = log.segments
    _mark(log, min(offset, log.log_start_offset))
    with log.log_directory.changing():
        _begin_anew(log, segments, offset)


def _begin_anew(log: Log, segments: list[Segment], offset: int) -> None:
    # The new segments may have the names of old ones, also of those that retention has dropped and
    # not removed yet, so all of these go first.
    doomed, log.doomed = log.doomed or [], None
    with log.log_directory.moving_log_start():
        log.beginnings += 1
        # Recovery takes the first segment for connected to the log when it begins at the log start.
        log.log_start_offset = log.durable_log_start = offset
        write_log_start(log, offset)
        # It may lie below what retention has noted.
        forget_unsynced_log_start(log.log_directory.fs, log.folder)
        _remove(log, [*(segment for segment, _ in doomed), *segments])
    cancel_pending(log, -1)
    remove_derived(log.log_directory.fs, log.folder, log.folds, SyncSite.TRUNCATED_FOLDER)
    segment = loading.create_segment(log, offset)
    log.set_folds(log.new_folds())
    log.epochs = LeaderEpochs()
    log.gaps = []
    log.dirty |= Dirty.EPOCHS
    log.high_watermark = offset
    _finish(log, [segment], offset)


def _finish(log: Log, segments: list[Segment], offset: int) -> None:
    log.replace_segments(segments)
    log.log_end_offset = offset
    log.recovery_point = min(log.recovery_point, offset)
    for job in log.flushes:
        # What is appended behind the cut is not what a sync that runs now began with.
        job.target_offset = min(job.target_offset, offset)
    log.checkpointed_recovery_point = min(log.checkpointed_recovery_point, offset)
    log.high_watermark = min(log.high_watermark, offset)
    log.cleaner_offset = min(log.cleaner_offset, offset)
    log.dirty |= Dirty.FOLDER


def mark_successor(log: Log) -> None:
    """The checkpoint on disk, and those under way, may name the log that was deleted before this
    new one was made. From here on a start does not take its word. Raises OSError."""
    log.is_successor = True
    _mark(log, 0)


def _mark(log: Log, offset: int) -> None:
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


def _remove(log: Log, segments: list[Segment]) -> None:
    if not segments:
        return
    for segment in segments:
        segment.release()
    fs = log.log_directory.fs
    for path in files_to_remove(log, segments, keep_snapshots=True):
        fs.unlink(path)
    fs.sync_directory(log.folder, SyncSite.TRUNCATED_FOLDER)


def _cut(log: Log, segment: Segment, offset: int) -> Segment:
    """The segment without its batches at or above `offset`, as the active one."""
    fs = log.log_directory.fs
    file = segment.open_file()
    segment.load_indexes(file)
    position = _position_of(segment, file, offset)
    if position < segment.size and segment.ever_mapped:
        copy = fs.open(segment.path(COPY_SUFFIX), create=True)
        copy.truncate(0)
        for start in range(0, position, COPY_CHUNK_BYTES):
            size = min(COPY_CHUNK_BYTES, position - start)
            copy.write_at(start, file.read_at(start, size))
        fs.sync_data(copy, SyncSite.TRUNCATED_DATA)
        copy.close()
        segment.retired = True
        segment.release()
        fs.rename(segment.path(COPY_SUFFIX), segment.path())
        fs.sync_directory(log.folder, SyncSite.TRUNCATED_FOLDER)
    else:
        file.truncate(position)
        fs.sync_data(file, SyncSite.TRUNCATED_DATA)
        segment.retired = True
        segment.release()
    cut = Segment(log.log_directory, log.folder, segment.base_offset, segment.base_offset, position)
    cut.unverified_end = min(segment.unverified_end, position)
    cut.first_append_ms = segment.first_append_ms
    cut.last_append_ms = segment.last_append_ms
    cut.bad_ranges = [bad for bad in segment.bad_ranges or () if bad.start < position] or None
    return cut


def _position_of(segment: Segment, file: File, offset: int) -> int:
    """Where the batches at or above `offset` begin."""
    try:
        return segment.position_of(file.read_at, offset)
    except CorruptSegment as error:
        # The first of them is damaged, and so may others be that lie right before it.
        position = error.position
        for bad in reversed(segment.bad_ranges or ()):
            if bad.start < position <= bad.end:
                position = bad.start
        return position


def _remove_snapshots_above(log: Log, offset: int) -> None:
    cancel_pending(log, offset)
    fs = log.log_directory.fs
    names = fs.list_directory(log.folder)
    for name in loading.snapshot_names(names, log.folds, offset + 1, INT64_MAX):
        fs.unlink(f"{log.folder}/{name}")
