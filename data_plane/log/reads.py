"""Reading batches out of a list of segments: the same plan hot on the loop and cold in a thread.

A read answers with whole batches of one segment, beginning with the one that holds (or follows)
the wanted offset, ending below `max_offset`. What is not in memory, not yet checked since the
process started, or needs an index from disk raises WouldBlock on the loop; the cold path then does
all of that in a worker thread with descriptors of its own, and checks CRCs the first time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from data_plane.log.batch_walk import BadRange, BatchWalk
from data_plane.log.cold_files import cold_file
from data_plane.log.errors import CorruptSegment
from data_plane.log.file_system import Buffer, File
from data_plane.log.indexes import OffsetIndex
from data_plane.log.segment import Fetch, Segment
from data_plane.log.segment_checks import indexes_for, verify
from data_plane.wire.records import iter_batch_headers

# The first read of a segment in a process checks all of it up to this size, and beyond only what
# it serves: the scrubber gets to the rest, and a reader need not wait for a gigabyte.
FIRST_READ_CHECK_BYTES_MAX = 64 << 20


class ReadResult(NamedTuple):
    """Whole batches as `buffers`, `size` bytes in all; reading goes on at `next_offset`.

    `is_cold`: nothing was read; call `Log.read_cold` with the same arguments in a worker thread.
    """

    buffers: list[Buffer]
    size: int
    is_cold: bool
    next_offset: int


def read_segment(
    segment: Segment,
    fetch: Fetch,
    offset: int,
    max_bytes: int,
    max_offset: int,
    at_least_one_batch: bool,
    *,
    is_hot: bool = False,
    index: OffsetIndex | None = None,
) -> ReadResult | None:
    """Batches of `segment`; None when it has none in [offset, max_offset). A worker thread gives
    the `index` that it has loaded.

    Raises CorruptSegment when the first batch lies in a bad range.
    """
    start = segment.position_of(fetch, offset, index)
    end = segment.size
    next_offset = segment.next_offset
    if max_offset < next_offset:
        end = segment.position_of(fetch, max_offset, index)
        next_offset = max_offset
    if start >= end:
        return None
    cut = end
    if end - start > max_bytes:
        limit = start + max_bytes
        cut = segment.cut_position(fetch, start, limit, index) if max_bytes > 0 else start
        if cut <= start:
            if not at_least_one_batch:
                return ReadResult([], 0, False, offset)
            cut = segment.batch_end(fetch, start)
    if segment.bad_ranges:
        bad = segment.first_bad_range(start, cut)
        if bad is not None:
            if bad.start <= start:
                raise CorruptSegment(segment.path(), bad.start, bad.reason)
            cut = bad.start
    data = fetch(start, cut - start)
    if cut != end and segment.bad_range_at(cut) is not None:
        # What stands at the cut may lie about its offset.
        next_offset = _next_offset_of_last(data)
    elif cut != end:
        next_offset = segment.next_offset_at(fetch, cut)
        if is_hot:
            # Hints belong to the loop.
            segment.hint(next_offset, cut)
    return ReadResult([data], cut - start, False, next_offset)


def _next_offset_of_last(data: Buffer) -> int:
    """Where reading goes on behind the whole batches of `data`."""
    for header in iter_batch_headers(data, 0, len(data)):
        next_offset = header.next_offset
    return next_offset


def read_segment_cold(
    segment: Segment,
    offset: int,
    max_bytes: int,
    max_offset: int,
    at_least_one_batch: bool,
) -> tuple[ReadResult | None, list[BadRange]]:
    """`read_segment` from the disk, and the bad ranges that this read has found."""
    found: list[BadRange] = []
    with cold_file(segment) as file:
        if segment.unverified_end and segment.size <= FIRST_READ_CHECK_BYTES_MAX:
            found = verify(segment, file)
        # Held here: the loop may close the segment at any time, to have room for others.
        index, _ = indexes_for(segment, file, offset=offset)
        if max_offset < segment.next_offset:
            index, _ = indexes_for(segment, file, offset=max_offset)
        arguments = (offset, max_bytes, max_offset, at_least_one_batch)
        try:
            result = read_segment(segment, file.read_at, *arguments, index=index)
            if result is not None and result.size and segment.unverified_end:
                bad = _check_served(segment, file, offset, result, index)
                if bad:
                    found += bad
                    result = read_segment(segment, file.read_at, *arguments, index=index)
        except CorruptSegment as error:
            if not found:
                raise
            error.found = found
            raise
        return result, found


def _check_served(
    segment: Segment, file: File, offset: int, result: ReadResult, index: OffsetIndex
) -> list[BadRange]:
    """Check the CRCs of what `result` would serve."""
    start = segment.position_of(file.read_at, offset, index)
    walk = BatchWalk(file, start, start + result.size, check_crc=True)
    for _ in walk:
        pass
    if not walk.problem:
        return []
    end = segment.batch_end(file.read_at, walk.end_position)
    bad = [BadRange(walk.end_position, max(end, walk.end_position + 1), walk.problem)]
    segment.add_bad_ranges(bad)
    return bad


def segments_from(segments: Sequence[Segment], offset: int) -> int:
    """The index of the last segment that begins at or below `offset`, at least 0."""
    low, high = 0, len(segments)
    while high - low > 1:
        middle = (low + high) // 2
        if segments[middle].base_offset <= offset:
            low = middle
        else:
            high = middle
    return low
