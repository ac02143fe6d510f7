"""One segment of a log: a file of batches, its sparse indexes, and how they are read.

Invariants
- Batches lie back to back in [0, size); offsets of the segment lie in [base_offset, next_offset).
- Bytes below `unverified_end` were written by an earlier process and not yet checked in this one:
  they are not served on the hot path. Bad ranges found by the check are never served.
- A sealed segment never changes. Whoever renames or removes its files sets `retired` first, so a
  worker thread that opened one by name can tell whether it got the right file.
- On the loop nothing is read that may have to come from the disk: bytes of a mapping are the last
  HOT_TAIL_BYTES, written a moment ago, or known to be in memory; all else is read with preadv, and
  refused where that would block.

Deliberately absent: which offsets are visible (log.py) and when to seal (log.py).
"""

from __future__ import annotations

import struct
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from operator import itemgetter

from data_plane.log.batch_walk import BadRange
from data_plane.log.errors import CorruptSegment
from data_plane.log.file_system import Buffer, File
from data_plane.log.indexes import (
    AbortedTransaction,
    InvalidIndex,
    OffsetIndex,
    TimeIndex,
    decode_aborted,
)
from data_plane.log.log_directory import LogDirectory
from data_plane.log.mappings import Mapping
from data_plane.wire.kernel_types import FACTS_FLAG, HIDDEN_FLAG
from data_plane.wire.records import BatchHeader

# Of such a batch folds look at each record.
FOLDED_FLAGS = HIDDEN_FLAG | FACTS_FLAG

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
# When the last record was appended, by a date that was vouched for, or that nobody knows: only
# where records have no timestamps.
APPEND_TIME_SUFFIX = ".appendtime"
# Ends the names of what others have made of its batches (side_files.py).
SIDE_SUFFIX = ".side"
SEGMENT_SUFFIXES = frozenset(
    {LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, APPEND_TIME_SUFFIX}
)

# Reads that end so far beyond the mapping make a new one, and so do large reads that end beyond it
# at all; smaller tails are copied.
REMAP_BYTES = 1 << 20
REMAP_READ_BYTES_MIN = 256 << 10
# How much of the end of a mapped segment counts as hot: it was written a moment ago.
HOT_TAIL_BYTES = 64 << 20
# From this size on it costs less to ask whether mapped bytes are in memory than to copy them.
MAPPED_READ_BYTES_MIN = 64 << 10
# From this size of a segment on room is reserved on the disk ahead of the writes, half of what is
# there: writing a gigabyte of large batches costs 0.12 s of processor instead of 0.19 on ext4.
RESERVE_FROM_BYTES = 4 << 20
RESERVED_BYTES_MAX = 16 << 20
# Headers are looked at through windows of this size; an index interval fits in.
WALK_WINDOW_BYTES = 8192
# Where recent reads ended, so that a reader which comes on later needs no look-up.
HINTS_MAX = 8
# Where the batches appended last begin, for readers that follow the log: so many at least, and
# twice as many at most.
RECENT_BATCHES_MIN = 16

# Of a segment's last append: only the disk knows.
NOT_LOOKED_UP = -1

_FRAME = struct.Struct(">qi11xi")
_BASE_OFFSET = itemgetter(1)
FRAME_BYTES = 12
MIN_BATCH_BYTES = 61

Fetch = Callable[[int, int], Buffer]


class WouldBlock(Exception):
    """The bytes (or an index) are not in memory: read in a worker thread."""


def segment_name(base_offset: int) -> str:
    """The files' common name: the base offset in twenty digits."""
    return f"{base_offset:020d}"


class Segment:
    """See the module. Offsets are absolute, positions and sizes bytes, timestamps ms."""

    __slots__ = (
        "_hints",
        "_mapping",
        "_recent",
        "aborted",
        "bad_ranges",
        "base_offset",
        "bytes_since_index",
        "directory",
        "ever_mapped",
        "file",
        "first_append_ms",
        "folded_count",
        "folder",
        "has_unsound_index_files",
        "has_untimed",
        "knows_timestamps",
        "last_append_ms",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "offset_index",
        "pins",
        "recently_used",
        "reserved_end",
        "retired",
        "sealed",
        "size",
        "time_index",
        "unverified_end",
    )

    def __init__(
        self, directory: LogDirectory, folder: str, base_offset: int, next_offset: int, size: int
    ) -> None:
        self.directory = directory
        self.folder = folder
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.size = size
        self.file: File | None = None
        self.offset_index: OffsetIndex | None = None
        self.time_index: TimeIndex | None = None
        # Found to say what is not so: they are not read again.
        self.has_unsound_index_files = False
        self.aborted: list[AbortedTransaction] | None = None
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        self.first_append_ms = -1
        # Records of batches with FOLDED_FLAGS, of the active segment.
        self.folded_count = 0
        # NOT_LOOKED_UP, or UNKNOWN_MS of vouched_date.py; see segment_age.py.
        self.last_append_ms = NOT_LOOKED_UP
        # Whether `max_timestamp` and `has_untimed` are those of all its batches.
        self.knows_timestamps = False
        # Whether a batch is known to hold records without timestamps.
        self.has_untimed = False
        self.bytes_since_index = 0
        self.unverified_end = size
        self.bad_ranges: list[BadRange] | None = None
        self.sealed = False
        self.retired = False
        self.recently_used = False
        self.ever_mapped = False
        self.pins = 0
        self.reserved_end = RESERVE_FROM_BYTES
        self._mapping: Mapping | None = None
        self._hints: dict[int, int] | None = None
        # (position, base offset), with all sound batches up to the end. Only added to, else
        # replaced: worker threads look into it, too.
        self._recent: list[tuple[int, int]] | None = None

    def path(self, suffix: str = LOG_SUFFIX) -> str:
        return f"{self.folder}/{self.base_offset:020d}{suffix}"

    # Files

    def open_file(self, *, create: bool = False) -> File:
        """The descriptor, opened when need be. On the loop only."""
        file = self.file
        if file is None:
            file = self.directory.fs.open(self.path(), create=create)
            self.file = file
            self.directory.open_files.opened(self)
        self.recently_used = True
        return file

    def close_file(self) -> None:
        """Give back descriptor, mapping and what a sealed segment can load again."""
        if self.pins:
            # A worker thread syncs through this descriptor; the sweep comes round again.
            self.directory.open_files.opened(self)
            return
        file, self.file = self.file, None
        self._mapping = None
        if file is not None:
            file.close()
        if self.sealed:
            self.offset_index = None
            self.time_index = None

    def release(self) -> None:
        """Close for good, wherever the LRU has it."""
        self.directory.open_files.closed(self)
        self.close_file()

    # Appends

    def reserve(self, position: int, size: int) -> None:
        """A write of `size` bytes at `position` goes beyond `reserved_end`: find room for it, and
        for more."""
        size += min(position // 2, RESERVED_BYTES_MAX)
        is_reserved = self.open_file().reserve(position, size)
        self.reserved_end = position + size if is_reserved else sys.maxsize

    def give_back_reserved(self) -> None:
        """Nothing will be appended any more."""
        if self.size > RESERVE_FROM_BYTES:
            self.open_file().give_back_reserved()

    def start_indexes(self) -> None:
        """Become the segment that takes appends: indexes live in memory until it is sealed."""
        self.offset_index = OffsetIndex()
        self.time_index = TimeIndex()
        self.knows_timestamps = True
        self.aborted = []
        self.folded_count = 0
        self.forget_hints()

    def empty_twin(self) -> Segment:
        """One of the same base offset that batches can be shown to."""
        twin = Segment(self.directory, self.folder, self.base_offset, self.base_offset, 0)
        twin.start_indexes()
        return twin

    def add_batch(self, header: BatchHeader, position: int, interval_bytes: int) -> None:
        """Account for a stored batch at byte `position`: indexes, timestamps, next offset."""
        last_offset = header.base_offset + header.last_offset_delta
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = last_offset
        elif header.max_timestamp < 0:
            self.has_untimed = True
        if header.attributes & FOLDED_FLAGS:
            self.folded_count += header.record_count
        if self.bytes_since_index > interval_bytes:
            assert self.offset_index is not None
            assert self.time_index is not None
            self.offset_index.append(last_offset - self.base_offset, position)
            if self.max_timestamp >= 0:
                self.time_index.append_if_later(
                    self.max_timestamp, self.max_timestamp_offset - self.base_offset
                )
            self.bytes_since_index = 0
        self.bytes_since_index += header.batch_length + FRAME_BYTES
        self.next_offset = last_offset + 1
        recent = self._recent
        if recent is None:
            self._recent = [(position, header.base_offset)]
            return
        if len(recent) >= 2 * RECENT_BATCHES_MIN:
            self._recent = recent = recent[RECENT_BATCHES_MIN:]
        recent.append((position, header.base_offset))

    def hint(self, offset: int, position: int) -> None:
        """Remember that the first batch at or above `offset` begins at `position`."""
        hints = self._hints
        if hints is None:
            self._hints = {offset: position}
            return
        if len(hints) >= HINTS_MAX:
            del hints[next(iter(hints))]
        hints[offset] = position

    def forget_hints(self) -> None:
        self._hints = None
        self._recent = None

    # Reads

    def fetch_hot(self, position: int, size: int) -> Buffer:
        """Bytes that are surely in memory; raises WouldBlock otherwise. On the loop only."""
        end = position + size
        if position < self.unverified_end:
            raise WouldBlock
        mapping = self._mapping
        mapped = 0 if mapping is None else mapping.size
        if (end - mapped >= REMAP_BYTES and self.size - mapped >= REMAP_BYTES) or (
            end > mapped and size >= REMAP_READ_BYTES_MIN
        ):
            mapping = self._map()
        if (
            mapping is not None
            and end <= mapping.size
            and (
                position >= self.size - HOT_TAIL_BYTES
                or (size >= MAPPED_READ_BYTES_MIN and mapping.is_in_memory(position, end))
            )
        ):
            self.recently_used = True
            return mapping.view(position, end)
        file = self.file or self.open_file()
        self.recently_used = True
        data = file.read_at_nowait(position, size)
        if data is not None:
            return data
        if self.sealed or file.nowait_supported:
            raise WouldBlock
        # This file system cannot say whether it would block; the tail was written just now.
        return file.read_at(position, size)

    def _map(self) -> Mapping | None:
        mapping = self.open_file().map(self.size)
        if mapping is not None:
            self._mapping = mapping
            self.ever_mapped = True
        return mapping

    def position_of(self, fetch: Fetch, offset: int, index: OffsetIndex | None = None) -> int:
        """Where the first batch begins whose last offset is ≥ `offset`; `size` without one.
        Worker threads give the index that they have loaded.

        Raises CorruptSegment when that batch may lie in a bad range, WouldBlock as `fetch` does.
        """
        if offset >= self.next_offset:
            return self.size
        hints = self._hints
        if hints is not None:
            position = hints.get(offset, -1)
            if position >= 0:
                return position
        recent = self._recent
        if recent is not None:
            found = bisect_left(recent, offset, key=_BASE_OFFSET)
            if found < len(recent) and recent[found][1] == offset:
                return recent[found][0]
        if index is None:
            index = self.offset_index
            if index is None:
                raise WouldBlock
        position = index.position_for(offset - self.base_offset)
        skipped: BadRange | None = None
        size = self.size
        window: Buffer = b""
        window_start = position
        while position < size:
            if self.bad_ranges and (bad := self.bad_range_at(position)) is not None:
                skipped = bad
                position = bad.end
                continue
            if position - window_start + 27 > len(window):
                window_start = position
                window = fetch(position, min(WALK_WINDOW_BYTES, size - position))
                if len(window) < 27:
                    raise CorruptSegment(self.path(), position, "the file ends within a batch")
            base_offset, length, last_delta = _FRAME.unpack_from(window, position - window_start)
            if length < MIN_BATCH_BYTES - FRAME_BYTES:
                raise CorruptSegment(self.path(), position, f"batch length {length}")
            if base_offset + last_delta >= offset:
                if skipped is not None and base_offset > offset:
                    raise CorruptSegment(self.path(), skipped.start, skipped.reason)
                return position
            skipped = None
            position += FRAME_BYTES + length
        if skipped is not None:
            raise CorruptSegment(self.path(), skipped.start, skipped.reason)
        return size

    def cut_position(
        self, fetch: Fetch, start: int, limit: int, index: OffsetIndex | None = None
    ) -> int:
        """The end of the last whole batch in [start, limit); `start` when the first is larger.

        `limit` lies below the segment's end; `index` as in `position_of`.
        """
        recent = self._recent
        if recent is not None and recent[0][0] <= limit:
            return max(start, recent[bisect_right(recent, (limit + 1,)) - 1][0])
        if index is None:
            index = self.offset_index
            if index is None:
                raise WouldBlock
        position = max(start, index.boundary_at_or_below(limit))
        window: Buffer = b""
        window_start = position
        while position < limit:
            if position - window_start + FRAME_BYTES > len(window):
                window_start = position
                window = fetch(position, min(WALK_WINDOW_BYTES, self.size - position))
            length = int.from_bytes(window[position - window_start + 8 :][:4], "big")
            if position + FRAME_BYTES + length > limit:
                break
            position += FRAME_BYTES + length
        return position

    def batch_end(self, fetch: Fetch, position: int) -> int:
        """The end of the batch at `position`."""
        length: int = _FRAME.unpack_from(fetch(position, 27))[1]
        return min(position + FRAME_BYTES + length, self.size)

    def next_offset_at(self, fetch: Fetch, position: int) -> int:
        """The offset where reading goes on at `position`, a batch start or the end."""
        if position >= self.size:
            return self.next_offset
        recent = self._recent
        if recent is not None:
            found = bisect_left(recent, (position,))
            if found < len(recent) and recent[found][0] == position:
                return recent[found][1]
        return int.from_bytes(fetch(position, 27)[:8], "big")

    # Checks

    def bad_range_at(self, position: int) -> BadRange | None:
        """The bad range that `position` lies in."""
        for bad in self.bad_ranges or ():
            if bad.start <= position < bad.end:
                return bad
        return None

    def first_bad_range(self, start: int, end: int) -> BadRange | None:
        """The first bad range that meets [start, end)."""
        for bad in self.bad_ranges or ():
            if bad.start < end and start < bad.end:
                return bad
        return None

    def add_bad_ranges(self, found: list[BadRange]) -> None:
        """Stop serving `found`."""
        if not found:
            return
        merged = {bad.start: bad for bad in (self.bad_ranges or [])}
        merged.update({bad.start: bad for bad in found})
        self.forget_hints()
        self.bad_ranges = [merged[start] for start in sorted(merged)]

    # Loading what a sealed segment keeps on disk

    def adopt_indexes(self, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        """Use these, and the largest timestamp that they know."""
        last = time_index.last
        if last is not None:
            self.max_timestamp = last[0]
            self.max_timestamp_offset = self.base_offset + last[1]
        self.time_index = time_index
        self.offset_index = offset_index
        self.knows_timestamps = True

    def aborted_transactions(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers the segment holds."""
        if self.aborted is None:
            try:
                data = self.directory.fs.read_file(self.path(TRANSACTION_INDEX_SUFFIX))
            except FileNotFoundError:
                data = b""
            try:
                self.aborted = decode_aborted(data, self.base_offset, self.next_offset)
            except InvalidIndex as error:
                path = self.path(TRANSACTION_INDEX_SUFFIX)
                raise CorruptSegment(path, 0, str(error)) from error
        return self.aborted
