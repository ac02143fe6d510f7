"""Looking up offsets by time, over the sparse time indexes.

Both functions may read the disk: for a worker thread when the log is large, harmless on the loop
when it is small. They open descriptors of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from data_plane.log.batch_walk import BatchWalk
from data_plane.log.reads import Retired, cold_file
from data_plane.log.segment import Segment
from data_plane.wire.records import find_first_at, find_max_timestamp

if TYPE_CHECKING:
    from data_plane.log.log import Log

Found = tuple[int, int, int]


def offset_for_timestamp(log: Log, timestamp_ms: int, max_offset: int) -> Found | None:
    """(offset, timestamp, leader epoch) of the first record at or after `timestamp_ms`, below
    `max_offset` and not below the log start; None without one."""
    while True:
        try:
            for segment in log.segments:
                if segment.next_offset <= log.log_start_offset:
                    continue
                if segment.base_offset >= max_offset:
                    return None
                if segment.largest_timestamp() < timestamp_ms:
                    continue
                found = _find_in(segment, timestamp_ms, log.log_start_offset)
                if found is not None:
                    return found if found[0] < max_offset else None
            return None
        except Retired:
            continue
        except OSError as error:
            raise log.log_directory.fail(error) from error


def _find_in(segment: Segment, timestamp_ms: int, log_start_offset: int) -> Found | None:
    if not segment.size:
        return None
    with cold_file(segment) as file:
        segment.load_indexes(file)
        assert segment.time_index is not None
        assert segment.offset_index is not None
        relative = segment.time_index.offset_for(timestamp_ms)
        position = segment.offset_index.position_for(relative)
        while position < segment.size:
            walk = BatchWalk(file, position, segment.size, check_crc=False)
            for chunk in walk:
                for header in chunk.headers:
                    if header.max_timestamp < timestamp_ms or header.last_offset < log_start_offset:
                        continue
                    found = find_first_at(chunk.data, header, timestamp_ms)
                    if found is not None and found[0] >= log_start_offset:
                        return found[0], found[1], header.partition_leader_epoch
            bad = segment.bad_range_at(walk.end_position) if walk.problem else None
            if bad is None:
                return None
            position = bad.end
    return None


def max_timestamp_offset(log: Log, max_offset: int) -> Found | None:
    """(offset, timestamp, leader epoch) of the first record with the highest timestamp of all in
    [log start, `max_offset`); None for an empty log."""
    while True:
        try:
            best: Segment | None = None
            for segment in log.segments:
                if not segment.size or segment.base_offset >= max_offset:
                    continue
                if best is None or segment.largest_timestamp() > best.largest_timestamp():
                    best = segment
            if best is None or best.largest_timestamp() < 0:
                return None
            return _find_in(best, best.largest_timestamp(), log.log_start_offset) or _last_resort(
                best, max_offset
            )
        except Retired:
            continue
        except OSError as error:
            raise log.log_directory.fail(error) from error


def _last_resort(segment: Segment, max_offset: int) -> Found | None:
    """The highest timestamp by walking: the one the index names lies outside the visible log."""
    best: Found | None = None
    with cold_file(segment) as file:
        for chunk in BatchWalk(file, 0, segment.size, check_crc=False):
            for header in chunk.headers:
                if header.last_offset >= max_offset:
                    return best
                if best is None or header.max_timestamp > best[1]:
                    offset, timestamp = find_max_timestamp(chunk.data, header)
                    best = (offset, timestamp, header.partition_leader_epoch)
    return best
