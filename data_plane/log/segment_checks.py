"""A sealed segment's indexes against its batches: read, checked and made anew, in worker threads.

Index files have no checksum. Once a check has found that one of them says what is not so, both are
made anew from the batches whenever they are wanted: what is on the disk stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable

from data_plane.log.batch_walk import BadRange, BatchWalk, Chunk, find_bad_ranges
from data_plane.log.cold_files import Retired, cold_file
from data_plane.log.file_system import File
from data_plane.log.indexes import IndexCheck, InvalidIndex, OffsetIndex, TimeIndex
from data_plane.log.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, Segment
from data_plane.wire.errors import InvalidRecords
from data_plane.wire.records import BATCH_HEADER_BYTES, read_batch_header

INTERVAL_BYTES = 4096

Indexes = tuple[OffsetIndex, TimeIndex]


def read_indexes(
    segment: Segment, file: File, between: Callable[[], None] | None = None
) -> Indexes:
    """From the index files, or from the batches where those are missing or unsound: `between` is
    called often then, and may end it by raising."""
    if segment.has_unsound_index_files:
        return rebuild_indexes(segment, file, between)
    fs = segment.directory.fs
    try:
        offset_index = OffsetIndex.decode(fs.read_file(segment.path(INDEX_SUFFIX)), segment.size)
        time_index = TimeIndex.decode(fs.read_file(segment.path(TIME_INDEX_SUFFIX)))
        last = time_index.last
        if segment.size and last is None and not segment.has_untimed:
            # Retention would take the segment for ages old.
            raise InvalidIndex("a sealed segment has timestamps, or records without them")
        if last is not None and segment.base_offset + last[1] >= segment.next_offset:
            raise InvalidIndex("the last entry lies beyond the segment")
    except (InvalidIndex, FileNotFoundError):
        return rebuild_indexes(segment, file, between)
    return offset_index, time_index


def load_indexes(segment: Segment, file: File) -> Indexes:
    """The indexes, loaded or made anew where a sealed segment does not have them in memory; in a
    worker thread or at a load. A thread goes by what it gets here: the segment's own may be dropped
    at any time, when others need the room.

    The finished objects are assigned last, so that the loop sees whole ones or none."""
    offset_index, time_index = segment.offset_index, segment.time_index
    if offset_index is not None and time_index is not None:
        return offset_index, time_index
    indexes = read_indexes(segment, file)
    segment.adopt_indexes(*indexes)
    return indexes


def largest_timestamp(segment: Segment) -> int:
    """The largest timestamp of a sealed segment; touches the disk the first time, and walks all
    batches where the time index is not sound. Raises Retired in a worker thread."""
    if not segment.knows_timestamps and segment.sealed and segment.size:
        find_largest_timestamp(segment)
    return segment.max_timestamp


def indexes_for(
    segment: Segment, file: File, *, offset: int | None = None, timestamp_ms: int | None = None
) -> Indexes:
    """The indexes to look `offset` or `timestamp_ms` up in.

    As long as not all batches were compared with them, the entries in use are: a bit that has
    flipped in one of them would lead behind what is looked for, and it would be skipped."""
    indexes = load_indexes(segment, file)
    if not segment.unverified_end or not segment.sealed or segment.has_unsound_index_files:
        return indexes
    offset_index, time_index = indexes
    is_sound = offset is None or _is_there(segment, file, offset_index, offset)
    if is_sound and timestamp_ms is not None:
        first = segment.base_offset + time_index.offset_for(timestamp_ms)
        is_sound = _is_there(segment, file, offset_index, first)
        entry = time_index.entry_below(timestamp_ms)
        if is_sound and entry is not None:
            position = segment.position_of(file.read_at, first, offset_index)
            is_sound = _batch_at(file, position) == (first, entry[1])
    if is_sound:
        return indexes
    segment.has_unsound_index_files = True
    indexes = rebuild_indexes(segment, file)
    segment.adopt_indexes(*indexes)
    return indexes


def checked_largest_timestamp(segment: Segment) -> int:
    """The largest timestamp of a segment, by an index entry that is that of a batch. What goes by
    it passes over the segment's records."""
    largest = largest_timestamp(segment)
    if segment.unverified_end and segment.sealed and segment.size:
        with cold_file(segment) as file:
            indexes_for(segment, file, timestamp_ms=largest + 1)
    return segment.max_timestamp


def _is_there(segment: Segment, file: File, index: OffsetIndex, offset: int) -> bool:
    """Whether the entry for `offset` is that of a batch where it says."""
    entry = index.entry_for(offset - segment.base_offset)
    if entry is None:
        return True
    batch = _batch_at(file, entry[1])
    return batch is not None and batch[0] == segment.base_offset + entry[0]


def _batch_at(file: File, position: int) -> tuple[int, int] | None:
    """(last offset, largest timestamp) of the batch at `position`; None when there is none."""
    data = file.read_at(position, BATCH_HEADER_BYTES)
    try:
        header = read_batch_header(data, 0)
    except InvalidRecords:
        return None
    return header.last_offset, header.max_timestamp


def find_largest_timestamp(segment: Segment, between: Callable[[], None] | None = None) -> None:
    """Have the segment know its largest timestamp: by the end of its time index, and by all of both
    indexes only where that is not sound. `between` as in `read_indexes`. Raises Retired in a worker
    thread."""
    if not read_largest_timestamp(segment):
        with cold_file(segment) as file:
            segment.adopt_indexes(*read_indexes(segment, file, between))


def read_largest_timestamp(segment: Segment) -> bool:
    """Have the segment know its largest timestamp by the end of its time index. False where that is
    missing or not sound: it takes a walk over all batches then. Raises Retired in a worker
    thread."""
    if segment.has_unsound_index_files:
        return False
    try:
        file = segment.directory.fs.open(segment.path(TIME_INDEX_SUFFIX), write=False)
    except FileNotFoundError:
        if segment.retired:
            raise Retired from None
        return False
    try:
        is_empty = not file.size()
        last = TimeIndex.last_of_file(file)
    finally:
        file.close()
    if segment.retired:
        raise Retired
    if last is None:
        # Without an entry it is sound only where no record has a timestamp.
        segment.knows_timestamps = is_empty and segment.has_untimed
    elif segment.base_offset + last[1] < segment.next_offset:
        segment.max_timestamp_offset = segment.base_offset + last[1]
        segment.max_timestamp = last[0]
        segment.knows_timestamps = True
    return segment.knows_timestamps


def rebuild_indexes(
    segment: Segment, file: File, between: Callable[[], None] | None = None
) -> Indexes:
    """Indexes of the segment's sound batches, as if they were appended again. `between` as in
    `read_indexes`."""
    twin = segment.empty_twin()
    position: int | None = 0
    while position is not None and position < segment.size:
        walk = BatchWalk(
            file,
            position,
            segment.size,
            check_crc=True,
            next_offset=twin.next_offset,
            end_offset=segment.next_offset,
        )
        for chunk in walk:
            if between is not None:
                between()
            for header in chunk.headers:
                twin.add_batch(header, chunk.position + header.position, INTERVAL_BYTES)
        position = walk.resume_position() if walk.problem else None
    assert twin.offset_index is not None
    assert twin.time_index is not None
    segment.has_untimed = segment.has_untimed or twin.has_untimed
    if twin.max_timestamp >= 0:
        twin.time_index.append_if_later(
            twin.max_timestamp, twin.max_timestamp_offset - segment.base_offset
        )
    return twin.offset_index, twin.time_index


def verify(
    segment: Segment, file: File, between: Callable[[], None] | None = None
) -> list[BadRange]:
    """Check all batches of an earlier process and remember what is bad.

    Indexes of a sealed segment that do not fit to its batches are built anew. Returns the bad
    ranges that were not known before. `between` is called often, and may end it by raising."""
    offset_index, time_index = load_indexes(segment, file)
    known = segment.bad_ranges or []
    end = segment.unverified_end or segment.size
    check = IndexCheck(segment.base_offset, offset_index, time_index)

    def on_chunk(chunk: Chunk) -> None:
        if between is not None:
            between()
        for header in chunk.headers:
            check.see(chunk.position + header.position, header.last_offset, header.max_timestamp)

    found = find_bad_ranges(
        file,
        end,
        segment.base_offset,
        segment.next_offset,
        offset_index.boundary_above,
        on_chunk,
    )
    segment.add_bad_ranges(found)
    if segment.sealed and not check.is_passed:
        segment.has_unsound_index_files = True
        segment.adopt_indexes(*rebuild_indexes(segment, file))
    if end >= segment.unverified_end:
        segment.unverified_end = 0
    starts = {bad.start for bad in known}
    return [bad for bad in found if bad.start not in starts]
