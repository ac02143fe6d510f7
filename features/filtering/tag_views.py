"""What a filter makes of a segment's tag index: where it has to read, and what it may count unread.

The filter is evaluated once for each set of tags. The blocks of those that match are *marked*, and
so are those that may hold anything:

    block        0    1    2    3    4
    marked            x         x    x      a reader goes from 1 to 3
    counted      0    7    0    ?    2      3 has sets without a number: it is read to be counted

Invariants
- `update` is for worker threads, and makes new marks; all else looks at marks that do not change.
- What is not marked was looked at whole: nothing is skipped behind `next_offset`.

Deliberately absent: which segment an offset lies in (indexed_records.py), reading.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from data_plane.log.indexes import AbortedTransaction
from features.filtering.tag_index import CONTROL, OTHERS, SegmentTags

_MARK = b"\x01"
_NO_MARK = b"\x00"


class _Marks(NamedTuple):
    """As of the first `blocks_count` blocks. `with_controls` has control batches marked, too."""

    blocks_count: int
    next_offset: int
    sets_count: int
    matching: Sequence[int]
    marks: bytes
    with_controls: bytes


class TagView:
    """See the module. `passes` tells whether a record with these tags passes the filter. The index,
    which keeps this, is given with every call."""

    def __init__(self, passes: Callable[[bytes], bool]) -> None:
        self._passes = passes
        self._marks = _Marks(0, 0, OTHERS + 1, (), b"", b"")

    @property
    def next_offset(self) -> int:
        """What lies at or above is not known."""
        return self._marks.next_offset

    def update(self, tags: SegmentTags) -> None:
        """Take in what the index has now. In a worker thread."""
        old = self._marks
        blocks_count, next_offset = tags.published
        if blocks_count == old.blocks_count:
            return
        sets_count = len(tags.sets)
        matching = [
            *old.matching,
            *(n for n in range(old.sets_count, sets_count) if self._passes(tags.sets[n])),
        ]
        more = bytearray(blocks_count - old.blocks_count)
        for number in (OTHERS, *matching):
            _mark(more, tags.postings[number].blocks, old.blocks_count)
        marks = old.marks + more
        _mark(more, tags.producers.get(CONTROL, ()), old.blocks_count)
        with_controls = old.with_controls + more
        self._marks = _Marks(blocks_count, next_offset, sets_count, matching, marks, with_controls)

    def candidates(self, tags: SegmentTags, offset: int, *, has_shown: bool) -> tuple[int, int]:
        """(start, stop): nothing is shown of [offset, start), something may be of [start, stop).
        `start` is `next_offset` where there is nothing."""
        known = self._marks
        marks = known.with_controls if has_shown else known.marks
        if offset >= known.next_offset:
            return offset, offset
        found = marks.find(_MARK, tags.block_at(offset, known.blocks_count))
        if found < 0:
            return known.next_offset, known.next_offset
        end = marks.find(_NO_MARK, found)
        stop = known.next_offset if end < 0 else tags.first_offset(end)
        return max(offset, tags.first_offset(found)), stop

    def counted(
        self, tags: SegmentTags, offset: int, end: int, aborted: Sequence[AbortedTransaction]
    ) -> tuple[int, int, int]:
        """(count, start, stop): so many visible records of [offset, start) pass; those of
        [start, stop) are to be read. `offset` lies below `next_offset`. In a worker thread."""
        known = self._marks
        first = tags.block_at(offset, known.blocks_count)
        last = known.blocks_count
        if end < known.next_offset:
            # The block that the end lies in is not counted whole.
            last = tags.block_at(end, known.blocks_count)
        others = tags.postings[OTHERS].blocks
        found = bisect_left(others, first)
        if found < len(others):
            last = min(last, others[found])
        if tags.first_offset(first) < offset or last <= first:
            return 0, offset, min(_start_of(tags, known, first + 1), end)
        start = min(_start_of(tags, known, last), end)
        hidden = _aborted_blocks(tags, first, last, aborted)
        return _count(tags, known, first, last, hidden), start, start


def _start_of(tags: SegmentTags, known: _Marks, block: int) -> int:
    return known.next_offset if block >= known.blocks_count else tags.first_offset(block)


def _count(tags: SegmentTags, known: _Marks, first: int, last: int, hidden: set[int]) -> int:
    """The records that pass in the blocks [first, last), without the hidden ones."""
    total = 0
    for number in known.matching:
        postings = tags.postings[number]
        low = bisect_left(postings.blocks, first)
        high = bisect_left(postings.blocks, last, low)
        counts = postings.counts[low:high]
        total += sum(counts)
        if hidden:
            pairs = zip(postings.blocks[low:high], counts, strict=True)
            total -= sum(count for block, count in pairs if block in hidden)
    return total


def _aborted_blocks(
    tags: SegmentTags, first: int, last: int, aborted: Sequence[AbortedTransaction]
) -> set[int]:
    """Those of [first, last) that are part of these transactions."""
    hidden: set[int] = set()
    starts, base = tags.starts, tags.base_offset
    for one in aborted:
        blocks = tags.producers.get(one.producer_id)
        if blocks is None:
            continue
        low = max(bisect_left(starts, one.first_offset - base, 0, last), first)
        high = bisect_right(starts, one.last_offset - base, 0, last)
        hidden.update(blocks[bisect_left(blocks, low) : bisect_left(blocks, high)])
    return hidden


def _mark(marks: bytearray, blocks: Sequence[int], first: int) -> None:
    """Mark those of `blocks` that `marks`, which begin at block `first`, reach to."""
    end = first + len(marks)
    for block in blocks[bisect_left(blocks, first) : bisect_left(blocks, end)]:
        marks[block - first] = 1
