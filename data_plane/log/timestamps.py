"""Looking up offsets by time, over the sparse time indexes.

Both functions may read the disk: for a worker thread when the log is large, harmless on the loop
when it is small. They open descriptors of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from data_plane.log.batch_walk import BatchWalk, Chunk, pieces_around
from data_plane.log.cold_files import cold_file, read_as_it_is
from data_plane.log.errors import CorruptSegment
from data_plane.log.file_system import File
from data_plane.log.segment import Segment
from data_plane.wire.errors import InvalidRecords
from data_plane.wire.records import BatchHeader, find_first_at, find_max_timestamp

if TYPE_CHECKING:
    from data_plane.log.log import Log

Found = tuple[int, int, int]


def offset_for_timestamp(log: Log, timestamp_ms: int, max_offset: int) -> Found | None:
    """(offset, timestamp, leader epoch) of the first record at or after `timestamp_ms`, below
    `max_offset` and not below the log start; None without one."""
    return read_as_it_is(log, lambda segments: _find(log, segments, timestamp_ms, max_offset))


def _find(log: Log, segments: list[Segment], timestamp_ms: int, max_offset: int) -> Found | None:
    for segment in segments:
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


def _find_in(segment: Segment, timestamp_ms: int, log_start_offset: int) -> Found | None:
    if not segment.size:
        return None
    with cold_file(segment) as file:
        segment.load_indexes(file)
        assert segment.time_index is not None
        assert segment.offset_index is not None
        relative = segment.time_index.offset_for(timestamp_ms)
        position = segment.offset_index.position_for(relative)
        for chunk, header in _batches(segment, file, position):
            if header.max_timestamp < timestamp_ms or header.last_offset < log_start_offset:
                continue
            with _told_as_damage(segment, chunk, header):
                found = find_first_at(chunk.data, header, timestamp_ms, log_start_offset)
            if found is not None:
                return found[0], found[1], header.partition_leader_epoch
    return None


@contextmanager
def _told_as_damage(segment: Segment, chunk: Chunk, header: BatchHeader) -> Iterator[None]:
    """A stored batch that is none concerns this log alone, and says where it is."""
    try:
        yield
    except InvalidRecords as error:
        position = chunk.position + header.position
        raise CorruptSegment(segment.path(), position, str(error)) from error


def _batches(segment: Segment, file: File, position: int) -> Iterator[tuple[Chunk, BatchHeader]]:
    """The batches from byte `position` on with the chunk that they lie in, around bad ranges."""
    for start, end in pieces_around(segment.bad_ranges, position, segment.size):
        walk = BatchWalk(file, start, end, check_crc=False)
        for chunk in walk:
            for header in chunk.headers:
                yield chunk, header
        if walk.problem:
            return


def max_timestamp_offset(log: Log, max_offset: int) -> Found | None:
    """(offset, timestamp, leader epoch) of the first record with the highest timestamp of all in
    [log start, `max_offset`); None without one."""
    return read_as_it_is(log, lambda segments: _find_max(log, segments, max_offset))


def _find_max(log: Log, segments: list[Segment], max_offset: int) -> Found | None:
    start = log.log_start_offset
    candidates = [
        segment
        for segment in segments
        if segment.size and segment.next_offset > start and segment.base_offset < max_offset
    ]
    # Only the segments at the two ends can have less to show than their largest timestamp.
    candidates.sort(key=lambda segment: (-segment.largest_timestamp(), segment.base_offset))
    best: Found | None = None
    for segment in candidates:
        if best is not None and segment.largest_timestamp() < best[1]:
            break
        found = _max_in(segment, start, max_offset)
        if found is not None and (best is None or (-found[1], found[0]) < (-best[1], best[0])):
            best = found
    return best


def _max_in(segment: Segment, start: int, end: int) -> Found | None:
    """The first record with the highest timestamp of a segment's in [start, end)."""
    best: Found | None = None
    with cold_file(segment) as file:
        segment.load_indexes(file)
        assert segment.time_index is not None
        assert segment.offset_index is not None
        position = 0
        if segment.base_offset >= start and segment.next_offset <= end:
            relative = segment.time_index.offset_for(segment.max_timestamp)
            position = segment.offset_index.position_for(relative)
        for chunk, header in _batches(segment, file, position):
            if header.base_offset >= end:
                break
            if header.last_offset < start or (best is not None and header.max_timestamp <= best[1]):
                continue
            with _told_as_damage(segment, chunk, header):
                found = find_max_timestamp(chunk.data, header, start, end)
            if found is not None and (best is None or found[1] > best[1]):
                best = (*found, header.partition_leader_epoch)
    return best
