"""The tag index of a segment: which sets of tags occur where.

The batches that the segment begins with are cut into *blocks*: neighbours of BLOCK_BYTES at most in
all, or one larger batch. The index has the distinct sets of tags, numbered as they came, and for
each of them the blocks in which it occurs and how often:

    block        0          1          2          3
    offsets      0..19      20..44     45         46..80
    set 1 {}     19 times              control    35 times
    set 2 {a}     1 time    25 times

So a filter is evaluated once for each set, finds the blocks of those that match, and their records
are counted without being read. A block is part of one transaction or of none, so that it is aborted
or not as a whole: it ends where the producer changes, and at a gap, where compaction may have taken
a transaction's end. A control batch is a block of its own.

Invariants
- Bounded, whatever the tags are: beyond SETS_MAX sets, SET_BYTES_MAX bytes of them, or POSTINGS_MAX
  entries, a block is listed as one that may hold anything (set OTHERS), and is to be read.
- One thread adds, others look: what is added counts when `publish` says so, and never changes.
- Of compacted batches it says what is there: it is made of the segment as it stands.

Deliberately absent: files, the batches themselves (tag_indexes.py), filters (tag_views.py).
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from data_plane.log.file_system import Buffer
from data_plane.log.side_files import Prefix
from data_plane.wire.kernel import map_header_sets
from data_plane.wire.records import BatchHeader, unpacked_records
from features.filtering.tags import TAG_HEADER, TAGS_BYTES_MAX, TAGS_PER_RECORD_MAX

if TYPE_CHECKING:
    from features.filtering.tag_views import TagView

# Small beside what a reader gets at once; smaller ones would each list most of the sets.
BLOCK_BYTES: Final = 64 << 10
# Of a segment. It takes some 20 MiB of memory then, and as much on the disk.
SETS_MAX: Final = 4_096
SET_BYTES_MAX: Final = 512 << 10
POSTINGS_MAX: Final = 2_000_000
# What lists and arrays of a set take beside its bytes and entries.
SET_OVERHEAD_BYTES: Final = 400

# What Kafka's attributes say does not matter to tags. Others may say that records are not shown: a
# batch with such is to be looked at.
ATTRIBUTES_MASK: Final = 0x7F

# The number that stands for all sets that have none.
OTHERS: Final = 0
NO_PRODUCER: Final = -1
# In the place of a producer: a control batch.
CONTROL: Final = -2

_COUNTS = struct.Struct(">qIII")
_SIZES = struct.Struct(">II")
_PRODUCER = struct.Struct(">qI")


class Postings:
    """The blocks in which a set occurs, and how often in each."""

    __slots__ = ("blocks", "counts")

    def __init__(self) -> None:
        self.blocks = array("I")
        self.counts = array("I")


class SegmentTags:
    """See the module. What lies at or above `next_offset` is not in it."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.prefix: Prefix | None = None
        # How many blocks count, and where they end: together, for who looks from another thread.
        self.published = (0, base_offset)
        # Of each block its first offset, from the base offset on.
        self.starts = array("I")
        # By number, and the numbers by set; OTHERS is none of them.
        self.sets: list[bytes] = [b""]
        self.numbers: dict[bytes, int] = {}
        self.postings: list[Postings] = [Postings()]
        # By producer, the blocks that are part of a transaction of his; and control batches.
        self.producers: dict[int, array[int]] = {}
        # A batch comes next that cannot be read.
        self.is_blocked = False
        # What filters have made of it, by whoever reads with them.
        self.views: WeakKeyDictionary[object, TagView] = WeakKeyDictionary()
        # For whoever has several of them.
        self.last_used = 0
        self.saved_bytes = 0
        self._set_bytes = 0
        self._postings_count = 0
        # The block that is being added to.
        self._block_numbers = bytearray()
        self._untagged_count = 0
        self._others_count = 0
        self._block_bytes = 0
        self._block_start = 0
        self._block_end = 0
        self._producer = NO_PRODUCER

    @property
    def size(self) -> int:
        """Up to which byte of the segment."""
        return 0 if self.prefix is None else self.prefix.size

    @property
    def memory_bytes(self) -> int:
        """About what it takes."""
        entries_bytes = 8 * self._postings_count + (8 + 2 * len(self.views)) * len(self.starts)
        overheads = SET_OVERHEAD_BYTES * (len(self.sets) + len(self.producers))
        return entries_bytes + overheads + 2 * self._set_bytes

    @property
    def next_offset(self) -> int:
        return self.published[1]

    # Adding

    def add(self, header: BatchHeader, buffer: Buffer) -> None:
        """Take in the next batch, which stands in `buffer`. Raises InvalidRecords; it is not taken
        in then."""
        if header.is_control:
            self._close_block()
            self._begin_block(header, CONTROL)
            self._block_bytes = header.size
            self._close_block()
            return
        is_known = not header.attributes & ~ATTRIBUTES_MASK
        found = self._numbers_in(header, buffer) if is_known else None
        producer = header.producer_id if header.is_transactional else NO_PRODUCER
        is_next = producer == self._producer and (
            producer == NO_PRODUCER or header.base_offset == self._block_end
        )
        if self._block_bytes and not (is_next and self._block_bytes + header.size <= BLOCK_BYTES):
            self._close_block()
        if not self._block_bytes:
            self._begin_block(header, producer)
        self._block_bytes += header.size
        self._block_end = header.next_offset
        if not is_known:
            self._others_count += header.record_count
        elif found is None:
            self._untagged_count += header.record_count
        else:
            self._block_numbers += found

    def _begin_block(self, header: BatchHeader, producer: int) -> None:
        self._block_start = header.base_offset - self.base_offset
        self._producer = producer

    def _numbers_in(self, header: BatchHeader, buffer: Buffer) -> bytearray | None:
        """The number of each record's set, as the kernel gives them; None where none has tags."""
        records, start, end = unpacked_records(buffer, header)
        return map_header_sets(
            records,
            start,
            end,
            header.record_count,
            TAG_HEADER,
            self.numbers,
            self._new_number,
            TAGS_PER_RECORD_MAX,
            TAGS_BYTES_MAX,
        )

    def _new_number(self, stored_tags: bytes) -> int:
        size = len(stored_tags)
        if len(self.sets) > SETS_MAX or self._set_bytes + size > SET_BYTES_MAX:
            return OTHERS
        self._set_bytes += size
        number = len(self.sets)
        # Who goes through the sets finds the entries of each.
        self.postings.append(Postings())
        self.sets.append(stored_tags)
        self.numbers[stored_tags] = number
        return number

    def _close_block(self) -> None:
        if not self._block_bytes:
            return
        block = len(self.starts)
        counts = self._counted()
        if counts and self._postings_count + len(counts) > POSTINGS_MAX:
            counts = Counter({OTHERS: counts.total()})
        for number, count in sorted(counts.items()):
            postings = self.postings[number]
            postings.blocks.append(block)
            postings.counts.append(count)
        self._postings_count += len(counts)
        if self._producer != NO_PRODUCER:
            self.producers.setdefault(self._producer, array("I")).append(block)
        self.starts.append(self._block_start)
        self._block_numbers = bytearray()
        self._untagged_count = 0
        self._others_count = 0
        self._block_bytes = 0

    def _counted(self) -> Counter[int]:
        """How many records of the block have each set."""
        numbers = array("i", bytes(self._block_numbers))
        if sys.byteorder == "little":
            numbers.byteswap()
        counts = Counter(numbers)
        # With those whose tags are too many to be put together.
        others_count = counts.pop(-1, 0) + self._others_count
        if others_count:
            counts[OTHERS] += others_count
        if self._untagged_count:
            number = self.numbers.get(b"")
            counts[self._new_number(b"") if number is None else number] += self._untagged_count
        return counts

    def publish(self, prefix: Prefix) -> None:
        """All that was added counts from now on: it was made of the segment's `prefix`."""
        self._close_block()
        self.prefix = prefix
        self.published = len(self.starts), prefix.next_offset

    # Looking

    def block_at(self, offset: int, blocks_count: int) -> int:
        """The block that `offset` lies in, or behind; the first one if it lies before."""
        found = bisect_right(self.starts, offset - self.base_offset, 0, blocks_count)
        return max(found - 1, 0)

    def first_offset(self, block: int) -> int:
        return self.base_offset + self.starts[block]

    # Storing

    def encode(self) -> bytes:
        """All that was published; to be called by the thread that adds."""
        assert not self._block_bytes
        pieces = [
            _COUNTS.pack(self.base_offset, len(self.starts), len(self.sets), len(self.producers)),
            _stored(self.starts),
        ]
        for stored_tags, postings in zip(self.sets, self.postings, strict=True):
            pieces.append(_SIZES.pack(len(stored_tags), len(postings.blocks)))
            pieces += (stored_tags, _stored(postings.blocks), _stored(postings.counts))
        for producer, blocks in self.producers.items():
            pieces += (_PRODUCER.pack(producer, len(blocks)), _stored(blocks))
        return b"".join(pieces)

    @classmethod
    def decode(cls, data: memoryview, prefix: Prefix) -> SegmentTags:
        """Of what `encode` has made, unchanged. Raises ValueError for what another version made."""
        reader = _Pieces(data)
        try:
            base_offset, blocks_count, sets_count, producers_count = reader.unpack(_COUNTS)
            tags = cls(base_offset)
            tags.starts = reader.numbers(blocks_count)
            tags.sets, tags.postings = [], []
            for number in range(sets_count):
                size, count = reader.unpack(_SIZES)
                stored_tags = reader.take(size)
                postings = Postings()
                postings.blocks = reader.numbers(count)
                postings.counts = reader.numbers(count)
                tags.sets.append(stored_tags)
                tags.postings.append(postings)
                tags._postings_count += count
                tags._set_bytes += size
                if number != OTHERS:
                    tags.numbers[stored_tags] = number
            for _ in range(producers_count):
                producer, count = reader.unpack(_PRODUCER)
                tags.producers[producer] = reader.numbers(count)
        except struct.error as error:
            raise ValueError(str(error)) from error
        tags.saved_bytes = prefix.size
        tags.publish(prefix)
        return tags


class _Pieces:
    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        found = layout.unpack_from(self._data, self._position)
        self._position += layout.size
        return found

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise ValueError("the tag index is cut off")
        found = bytes(self._data[self._position : end])
        self._position = end
        return found

    def numbers(self, count: int) -> array[int]:
        found = array("I", self.take(4 * count))
        if sys.byteorder == "little":
            found.byteswap()
        return found


def _stored(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        return numbers.tobytes()
    swapped = numbers[:]
    swapped.byteswap()
    return swapped.tobytes()
