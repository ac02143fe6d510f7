"""Looking up offsets by time, over the sparse time indexes.

Both functions may read the disk: for a worker thread when the log is large, harmless on the loop
when it is small. They open descriptors of their own.

Damage in the way of a search ends it, as it ends a read: what is in there may be what is looked
for, and whoever were sent behind it would miss that, although it may be repaired in a moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from data_plane.log.batch_walk import BadRange, BatchWalk, Chunk
from data_plane.log.cold_files import cold_file, read_as_it_is
from data_plane.log.errors import CorruptSegment
from data_plane.log.file_system import File
from data_plane.log.log_state import LogState
from data_plane.log.segment import Segment
from data_plane.log.segment_checks import checked_largest_timestamp, indexes_for, largest_timestamp
from data_plane.wire.errors import InvalidRecords
from data_plane.wire.records import BatchHeader, find_first_at, find_max_timestamp

Found = tuple[int, int, int]


def offset_for_timestamp(log: LogState, timestamp_ms: int, max_offset: int) -> Found | None:
    """(offset, timestamp, leader epoch) of the first record at or after `timestamp_ms`, below
    `max_offset` and not below the log start; None without one. Raises CorruptSegment."""
    return read_as_it_is(log, lambda segments: _find(log, segments, timestamp_ms, max_offset))


def _find(
    log: LogState, segments: list[Segment], timestamp_ms: int, max_offset: int
) -> Found | None:
    for segment in segments:
        if segment.next_offset <= log.log_start_offset:
            continue
        if segment.base_offset >= max_offset:
            return None
        # Passed over only by an entry that is right: another must not hide what is looked for.
        if (
            largest_timestamp(segment) < timestamp_ms
            and checked_largest_timestamp(segment) < timestamp_ms
        ):
            continue
        found = _find_in(segment, timestamp_ms, log.log_start_offset, max_offset)
        if found is not None:
            return found if found[0] < max_offset else None
    return None


def _find_in(segment: Segment, timestamp_ms: int, start: int, end: int) -> Found | None:
    if not segment.size:
        return None
    with cold_file(segment) as file:
        offset_index, time_index = indexes_for(segment, file, timestamp_ms=timestamp_ms)
        position = offset_index.position_for(time_index.offset_for(timestamp_ms))
        for chunk, header in _batches(segment, file, position, start, end):
            if header.max_timestamp < timestamp_ms:
                continue
            with _told_as_damage(segment, chunk, header):
                found = find_first_at(chunk.data, header, timestamp_ms, start)
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


def _batches(
    segment: Segment, file: File, position: int, start: int, end: int
) -> Iterator[tuple[Chunk, BatchHeader]]:
    """The batches from byte `position` on that reach into the offsets [start, end), with the chunk
    that they lie in. Raises CorruptSegment where one of them may be damaged."""
    skipped: BadRange | None = None
    for bad in (*(segment.bad_ranges or ()), None):
        piece_end = segment.size if bad is None else bad.start
        walk = BatchWalk(file, position, piece_end, check_crc=False)
        for chunk in walk:
            for header in chunk.headers:
                if skipped is not None and header.base_offset > start:
                    raise CorruptSegment(segment.path(), skipped.start, skipped.reason)
                skipped = None
                if header.base_offset >= end:
                    return
                if header.last_offset >= start:
                    yield chunk, header
                if header.last_offset + 1 >= end:
                    return
        if walk.problem:
            raise CorruptSegment(segment.path(), walk.end_position, walk.problem)
        if bad is not None and position < bad.end:
            skipped, position = bad, bad.end
    if skipped is not None:
        raise CorruptSegment(segment.path(), skipped.start, skipped.reason)


def max_timestamp_offset(log: LogState, max_offset: int) -> Found | None:
    """(offset, timestamp, leader epoch) of the first record with the highest timestamp of all in
    [log start, `max_offset`); None without one. Raises CorruptSegment."""
    return read_as_it_is(log, lambda segments: _find_max(log, segments, max_offset))


def _find_max(log: LogState, segments: list[Segment], max_offset: int) -> Found | None:
    start = log.log_start_offset
    candidates = [
        segment
        for segment in segments
        if segment.size and segment.next_offset > start and segment.base_offset < max_offset
    ]
    # Only the segments at the two ends can have less to show than their largest timestamp.
    candidates.sort(key=lambda one: (-checked_largest_timestamp(one), one.base_offset))
    best: Found | None = None
    for segment in candidates:
        if best is not None and largest_timestamp(segment) < best[1]:
            break
        found = _max_in(segment, start, max_offset)
        if found is not None and (best is None or (-found[1], found[0]) < (-best[1], best[0])):
            best = found
    return best


def _max_in(segment: Segment, start: int, end: int) -> Found | None:
    """The first record with the highest timestamp of a segment's in [start, end)."""
    best: Found | None = None
    with cold_file(segment) as file:
        offset_index, time_index = indexes_for(segment, file, timestamp_ms=segment.max_timestamp)
        position = 0
        if segment.base_offset >= start and segment.next_offset <= end:
            relative = time_index.offset_for(segment.max_timestamp)
            position = offset_index.position_for(relative)
        for chunk, header in _batches(segment, file, position, start, end):
            if best is not None and header.max_timestamp <= best[1]:
                continue
            with _told_as_damage(segment, chunk, header):
                found = find_max_timestamp(chunk.data, header, start, end)
            if found is not None and (best is None or found[1] > best[1]):
                best = (*found, header.partition_leader_epoch)
    return best
