"""Retention: which segments leave the log, and when their files go.

A segment leaves the log at once (readers get OFFSET_OUT_OF_RANGE) and its files are unlinked by a
job after `file.delete.delay.ms`, when the log start that says so is durable: otherwise power loss
could leave a log with a hole.

Segments that a fold holds on to stay on the disk while readers' log start moves on (disk_start.py).
"""

from __future__ import annotations

from data_plane.log import disk_start
from data_plane.log.lanes import JobStopped, Lane
from data_plane.log.log_appends import roll
from data_plane.log.log_state import LogState
from data_plane.log.partition_files import write_log_start
from data_plane.log.segment import Segment, segment_name
from data_plane.log.segment_age import newest_ms


def apply_retention(log: LogState, now_ms: int, wall_ms: int, *, by_date: bool) -> int:
    """Drop the oldest segments that are too old, too much, or below the log start: too old by the
    date `wall_ms`, and not without `by_date`. Returns how many readers, or the disk, have lost.

    Never passes the high watermark; the active segment is rolled first when it is due to go.
    """
    if log.log_directory.failure is not None:
        return 0
    try:
        count = count_due_segments(log, wall_ms, by_date=by_date)
        if not count:
            return 0
        if count == len(log.segments):
            roll(log)
        return take_segments_out(log, count, now_ms)
    except OSError as error:
        raise log.log_directory.fail(error) from error


def count_due_segments(log: LogState, wall_ms: int, *, by_date: bool) -> int:
    """How many of the oldest segments readers are to see no more, held or not. What lies below the
    log start already does not count for retention.bytes."""
    config = log.config
    segments = log.segments
    excess_bytes = log.size_bytes - config.retention_bytes
    by_size = config.delete and config.retention_bytes >= 0
    by_time = by_date and config.delete and config.retention_ms >= 0
    count = 0
    for index, segment in enumerate(segments):
        end = segment.next_offset
        is_last = index == len(segments) - 1
        if (is_last and not segment.size) or end > log.high_watermark:
            break
        too_low = end <= log.log_start_offset and not is_last
        too_much = by_size and excess_bytes - segment.size >= 0
        if not (too_low or too_much or (by_time and _is_too_old(log, segment, wall_ms))):
            break
        excess_bytes -= segment.size
        count += 1
    return count


def _is_too_old(log: LogState, segment: Segment, wall_ms: int) -> bool:
    youngest_ms = newest_ms(segment)
    if youngest_ms is None:
        log.wants_ages = True
        return False
    return log.config.is_expired(youngest_ms, wall_ms)


def take_segments_out(log: LogState, count: int, now_ms: int) -> int:
    """Have readers lose the first `count` segments, and take those out of the log that no fold
    holds on to: their files go later. Returns for how many either has come now."""
    segments = log.segments
    start_offset = max(log.log_start_offset, segments[count].base_offset)
    lost_count = sum(one.next_offset > log.log_start_offset for one in segments[:count])
    disk_start_offset = disk_start.start_for(log, start_offset)
    gone_count = sum(one.next_offset <= disk_start_offset for one in segments[:count])
    if not lost_count and not gone_count:
        return 0
    gone, kept = segments[:gone_count], segments[gone_count:]
    disk_start.note_log_start(log, start_offset)
    log.move_log_start(start_offset, disk_start_offset)
    if not gone:
        return lost_count
    due_ms = now_ms + log.config.file_delete_delay_ms
    pending = log.pending_deletion if log.pending_deletion is not None else []
    for segment in gone:
        segment.release()
        pending.append((segment, due_ms))
    log.pending_deletion = pending
    log.replace_segments(kept)
    return max(lost_count, gone_count)


class SegmentDeletionJob:
    """Unlinks the files of segments that left the log. `run` in a thread, then `finish`."""

    lane = Lane.DELETION

    def __init__(self, log: LogState, segments: list[Segment]) -> None:
        self.log = log
        self._segments = segments
        self._begun_anew_count = log.begun_anew_count
        self._is_done = False

    def run(self) -> None:
        """Raises LogDirFailure."""
        directory = self.log.log_directory
        try:
            self._remove()
            self._is_done = True
        except JobStopped:
            # They stay pending.
            return
        except OSError as error:
            if not self.log.is_deleted_meanwhile(error):
                raise directory.fail(error) from error

    def _remove(self) -> None:
        directory = self.log.log_directory
        with directory.syncing(), directory.moving_log_start():
            if self._is_void():
                return
            end_offset = self._segments[-1].next_offset
            # The disk begins right behind them, wherever readers begin by now: what lies between
            # may be held since this job was made, and has to be found by the next start.
            write_log_start(self.log, end_offset, end_offset)
        for path in files_to_delete(self.log, self._segments):
            # A log that begins anew may give a new file this name. It waits for one unlink, not
            # for all of them, and syncs wait for none.
            directory.stop_sign.look()
            with directory.moving_log_start():
                if self._is_void():
                    return
                directory.fs.unlink(path)

    def _is_void(self) -> bool:
        return self.log.begun_anew_count != self._begun_anew_count

    def finish(self) -> None:
        """Forget the segments; on the loop, also after a failed `run`, which is tried again."""
        if not self._is_done and self.log.log_directory.failure is None and not self._is_void():
            return
        gone = set(map(id, self._segments))
        left = [entry for entry in self.log.pending_deletion or () if id(entry[0]) not in gone]
        self.log.pending_deletion = left or None


def segment_deletion_job(log: LogState, now_ms: int) -> SegmentDeletionJob | None:
    """A job for what is due; None when nothing is."""
    # The snapshot at their end holds what these segments gave to the folds, and must be durable
    # before they go. It is when a flush has passed it. One that has ended right there may have come
    # before the segment was sealed, and the snapshot may still wait for the next one.
    durable_end = log.recovery_point - (not log.has_durable_names)
    due = [
        segment
        for segment, due_ms in log.pending_deletion or ()
        if due_ms <= now_ms and segment.next_offset <= durable_end
    ]
    if not due or log.log_directory.failure is not None:
        return None
    return SegmentDeletionJob(log, due)


def files_to_delete(
    log: LogState, segments: list[Segment], *, keep_snapshots: bool = False
) -> list[str]:
    """The paths of `segments`' files, which nobody syncs from here on, and of the snapshots before
    their end unless told not to: also those whose own segment was merged into another one."""
    if not segments:
        return []
    for segment in segments:
        segment.retired = True
    bases = {segment_name(segment.base_offset) for segment in segments}
    end_offset = segments[-1].next_offset
    extensions = [fold.extension for fold in log.new_folds()]
    paths = []
    for name in log.log_directory.fs.list_directory(log.folder):
        number, _, suffix = name.partition(".")
        if f".{suffix}" in extensions:
            is_theirs = not keep_snapshots and number.isdigit() and int(number) < end_offset
        else:
            is_theirs = number in bases
        if is_theirs:
            paths.append(f"{log.folder}/{name}")
    return paths
