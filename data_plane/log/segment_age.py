"""How old the records of a segment are, for retention and compaction.

By their timestamps; records without one are as old as their append, which the broker keeps beside
the segment (vouched_date.py). What the loop asks touches the disk the first time, with a read of a
few bytes. Where that does not tell, it answers "not known", and the log has AgeJob look:

    retention, compaction: newest_ms() is None ──► log.wants_ages ──► AgeJob.run: walk, in a thread
    the next look: it is known                ◄──────────────────── AgeJob.finish

An append whose date nobody knows counts from such a look: it was there by then. The file's own time
would be the word of a clock that nobody has vouched for.
"""

from __future__ import annotations

from collections.abc import Sequence

from data_plane.log.checkpoints import encode_value, read_value, write_file
from data_plane.log.cold_files import Retired, cold_file
from data_plane.log.file_system import SyncSite
from data_plane.log.lanes import JobStopped, Lane
from data_plane.log.log_state import LogState
from data_plane.log.segment import APPEND_TIME_SUFFIX, NOT_LOOKED_UP, Segment
from data_plane.log.segment_checks import find_largest_timestamp, read_largest_timestamp
from data_plane.log.vouched_date import UNKNOWN_MS
from data_plane.wire.kernel_types import BATCH_HEADER_BYTES
from data_plane.wire.records import read_batch_header

# Dates that one job writes down. Those of the others are written when a later start asks again.
WRITTEN_AT_ONCE_MAX = 200


def newest_ms(segment: Segment) -> int | None:
    """How young the youngest record is: by its timestamp, and without one by when it was
    appended. None where an AgeJob has to find out."""
    is_unread = segment.sealed and segment.size and not segment.knows_timestamps
    if is_unread and not read_largest_timestamp(segment):
        return None
    largest = segment.max_timestamp
    if not _has_undated(segment):
        return largest
    appended_ms = append_ms(segment)
    return None if appended_ms is None else max(largest, appended_ms)


def oldest_ms(segment: Segment) -> int | None:
    """How old its records are: when the first one was appended, or by the timestamp of the first
    batch where only the disk knows, as in Kafka. None where an AgeJob has to find out."""
    if segment.first_append_ms < 0 and segment.size:
        with cold_file(segment) as file:
            data = file.read_at(0, BATCH_HEADER_BYTES)
        is_whole = len(data) == BATCH_HEADER_BYTES
        timestamp = read_batch_header(data, 0).max_timestamp if is_whole else -1
        found_ms = timestamp if timestamp >= 0 else append_ms(segment)
        if found_ms is None:
            return None
        segment.first_append_ms = found_ms
    return segment.first_append_ms


def append_ms(segment: Segment) -> int | None:
    """When the last record was appended, None when nobody knows."""
    if segment.last_append_ms == NOT_LOOKED_UP:
        segment.last_append_ms = _kept_append_ms(segment)
    return None if segment.last_append_ms == UNKNOWN_MS else segment.last_append_ms


def newest_append_ms(segments: Sequence[Segment]) -> int:
    """When the last record of all these was appended, or UNKNOWN_MS."""
    found = [append_ms(segment) for segment in segments if segment.size]
    known = [one for one in found if one is not None]
    return max(known) if len(known) == len(found) else UNKNOWN_MS


def encode_append_ms(segment: Segment, *, goes_on: bool = False) -> bytes:
    """The content of a segment's `.appendtime`: without a date where it `goes_on`, since the file
    may outlast later appends."""
    append_ms(segment)
    return encode_value(UNKNOWN_MS if goes_on else segment.last_append_ms)


def _kept_append_ms(segment: Segment) -> int:
    if not segment.sealed:
        return UNKNOWN_MS
    with cold_file(segment):
        found = read_value(segment.directory.fs, segment.path(APPEND_TIME_SUFFIX))
    return found if isinstance(found, int) and found >= 0 else UNKNOWN_MS


def _has_undated(segment: Segment) -> bool:
    """Whether it has records without timestamps, or may have: damaged ones say nothing."""
    return bool(segment.size) and (segment.has_untimed or segment.max_timestamp < 0)


class AgeJob:
    """Finds out what `newest_ms` could not tell of a log's segments. `run` in a thread, then
    `finish`.

    `wall_ms` is a date that somebody vouches for: all that the log has now was appended by then."""

    lane = Lane.CLEANER

    def __init__(self, log: LogState, wall_ms: int) -> None:
        self.log = log
        self._wall_ms = wall_ms
        self._segments = [(segment, segment.size) for segment in log.segments]

    def run(self) -> None:
        """Raises LogDirFailure."""
        log = self.log
        look = log.log_directory.stop_sign.look
        try:
            for segment, _ in self._segments:
                look()
                if segment.sealed and segment.size and not segment.knows_timestamps:
                    find_largest_timestamp(segment, look)
                if _has_undated(segment):
                    append_ms(segment)
        except (Retired, JobStopped):
            # The next look begins with the segments of then.
            return
        except OSError as error:
            if not log.is_deleted_meanwhile(error):
                raise log.log_directory.fail(error) from error

    def finish(self) -> None:
        """Date what nobody could; on the loop, also after a failed `run`. Raises OSError."""
        log = self.log
        log.wants_ages = False
        if log.is_closed or log.log_directory.failure is not None:
            return
        written_count = 0
        for segment, size in self._segments:
            if segment.retired:
                continue
            is_unknown = segment.last_append_ms == UNKNOWN_MS and _has_undated(segment)
            if is_unknown and segment.size == size:
                segment.last_append_ms = self._wall_ms
                if segment.sealed and written_count < WRITTEN_AT_ONCE_MAX:
                    written_count += 1
                    self._write(segment)
            if segment.sealed and segment.file is None:
                # Nobody reads it, and the indexes of all segments would fill the memory in time.
                segment.close_file()

    def _write(self, segment: Segment) -> None:
        """The next start need not count from a look of its own."""
        path = segment.path(APPEND_TIME_SUFFIX)
        write_file(self.log.log_directory.fs, path, encode_append_ms(segment), None)
        self.log.sync_later(path, SyncSite.APPEND_TIME)
