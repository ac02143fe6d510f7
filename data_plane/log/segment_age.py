"""How old the records of a segment are, for retention and compaction.

By their timestamps; records without one are as old as their append, which the broker keeps beside
the segment. Each of these touches the disk the first time, and raises Retired in a worker thread.
"""

from __future__ import annotations

from data_plane.log.checkpoints import read_value
from data_plane.log.cold_files import cold_file
from data_plane.log.segment import APPEND_TIME_SUFFIX, Segment
from data_plane.wire.kernel_types import BATCH_HEADER_BYTES
from data_plane.wire.records import read_batch_header


def newest_ms(segment: Segment) -> int:
    """How young the youngest record is: by its timestamp, and without one by when it was
    appended."""
    largest = segment.largest_timestamp()
    if segment.has_untimed or (largest < 0 and segment.size):
        return max(largest, append_ms(segment))
    return largest


def oldest_ms(segment: Segment) -> int:
    """How old its records are: when the first one was appended, or by the timestamp of the first
    batch where only the disk knows, as in Kafka."""
    if segment.first_append_ms < 0 and segment.size:
        with cold_file(segment) as file:
            data = file.read_at(0, BATCH_HEADER_BYTES)
        is_whole = len(data) == BATCH_HEADER_BYTES
        timestamp = read_batch_header(data, 0).max_timestamp if is_whole else -1
        segment.first_append_ms = timestamp if timestamp >= 0 else append_ms(segment)
    return segment.first_append_ms


def append_ms(segment: Segment) -> int:
    """When the last record was appended; if no process has kept that, when the file was last
    written to."""
    if segment.last_append_ms < 0:
        fs = segment.directory.fs
        with cold_file(segment):
            found = read_value(fs, segment.path(APPEND_TIME_SUFFIX))
            kept_ms = found if isinstance(found, int) else -1
            if kept_ms < 0 or not segment.sealed:
                # What a clean stop has left may be older than the last append.
                kept_ms = max(kept_ms, fs.modified_ms(segment.path()))
            segment.last_append_ms = kept_ms
    return segment.last_append_ms
