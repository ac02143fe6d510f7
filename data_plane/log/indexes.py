"""The sparse indexes of a segment, in Kafka's file formats (big-endian, no header).

- `.index`: (relative offset u32, position u32); the offset is the last one of the batch that
  begins at the position. At most one entry in every `index.interval.bytes`.
- `.timeindex`: (timestamp i64, relative offset u32): the largest timestamp up to that batch, by
  its last offset. Timestamps strictly increase.
- `.txnindex`: (version i16, producer id, first offset, last offset, last stable offset, all i64)
  of each aborted transaction, in order of its last offset.

A file that is not what its segment wrote is found by its order: entries strictly increase, a lost
sector reads as zeros. Looking up needs no more than the greatest entry at or below the target, so
an index that lacks entries is slow, never wrong. Not in here: files, and when entries are added.

Worked example: base 100, batches at bytes 0 (100..104), 5000 (105..109), 9000 (110..110), interval
4096: the entries are (9, 5000) and (10, 9000). Offset 107 → no entry ≤ 7 → walk from byte 0.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from data_plane.log.file_system import File

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY = struct.Struct(">qI")
TIME_ENTRY_BYTES = TIME_ENTRY.size
ABORTED_ENTRY = struct.Struct(">hqqqq")
ABORTED_VERSION = 0


class InvalidIndex(Exception):
    """An index file that its segment cannot have written; it is to be built anew."""


class OffsetIndex:
    """Relative last offset → position of its batch. Eight bytes an entry in memory."""

    __slots__ = ("_positions", "offsets")

    def __init__(self) -> None:
        self.offsets = array("I")
        self._positions = array("I")

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, relative_offset: int, position: int) -> None:
        assert not self.offsets or relative_offset > self.offsets[-1]
        self.offsets.append(relative_offset)
        self._positions.append(position)

    def position_for(self, relative_offset: int) -> int:
        """Where to begin to walk for `relative_offset`: never past its batch."""
        entry = self.entry_for(relative_offset)
        return 0 if entry is None else entry[1]

    def entry_for(self, relative_offset: int) -> tuple[int, int] | None:
        """(relative offset, position) of the greatest entry at or below `relative_offset`."""
        index = bisect_right(self.offsets, relative_offset) - 1
        return (self.offsets[index], self._positions[index]) if index >= 0 else None

    def boundary_at_or_below(self, position: int) -> int:
        """The greatest known batch start ≤ position, or 0."""
        index = bisect_right(self._positions, position) - 1
        return self._positions[index] if index >= 0 else 0

    def boundary_above(self, position: int) -> int | None:
        """The least known batch start > position."""
        index = bisect_right(self._positions, position)
        return self._positions[index] if index < len(self._positions) else None

    def entries(self) -> Iterator[tuple[int, int]]:
        """(relative offset, position), in order."""
        return zip(self.offsets, self._positions, strict=True)

    def encode(self) -> bytes:
        both = array("I", bytes(8 * len(self.offsets)))
        both[0::2] = self.offsets
        both[1::2] = self._positions
        if sys.byteorder == "little":
            both.byteswap()
        return both.tobytes()

    @classmethod
    def decode(cls, data: bytes, segment_size: int) -> OffsetIndex:
        """Raises InvalidIndex unless offsets and positions strictly increase within the segment."""
        if len(data) % OFFSET_ENTRY_BYTES:
            raise InvalidIndex(f"{len(data)} bytes is not a whole number of entries")
        both = array("I", data)
        if sys.byteorder == "little":
            both.byteswap()
        index = cls()
        index.offsets = both[0::2]
        index._positions = both[1::2]
        for values in (index.offsets, index._positions):
            if any(low >= high for low, high in pairwise(values)):
                raise InvalidIndex("entries do not increase")
        if index._positions and index._positions[-1] >= segment_size:
            raise InvalidIndex("the last entry lies beyond the segment")
        return index


class TimeIndex:
    """Largest timestamp so far → relative last offset of the batch that has it."""

    __slots__ = ("_timestamps", "offsets")

    def __init__(self) -> None:
        self._timestamps = array("q")
        self.offsets = array("I")

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def last(self) -> tuple[int, int] | None:
        """(timestamp, relative offset) of the last entry."""
        return (self._timestamps[-1], self.offsets[-1]) if self.offsets else None

    def append_if_later(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry when both values exceed those of the last one."""
        if self.offsets and (
            timestamp <= self._timestamps[-1] or relative_offset <= self.offsets[-1]
        ):
            return
        self._timestamps.append(timestamp)
        self.offsets.append(relative_offset)

    def offset_for(self, timestamp: int) -> int:
        """A relative offset below which no batch has a timestamp ≥ `timestamp`."""
        entry = self.entry_below(timestamp)
        return 0 if entry is None else entry[0]

    def entry_below(self, timestamp: int) -> tuple[int, int] | None:
        """(relative offset, timestamp) of the last entry with a smaller timestamp."""
        index = bisect_left(self._timestamps, timestamp) - 1
        return (self.offsets[index], self._timestamps[index]) if index >= 0 else None

    def entries(self) -> Iterator[tuple[int, int]]:
        """(relative offset, timestamp), in order."""
        return zip(self.offsets, self._timestamps, strict=True)

    def encode(self) -> bytes:
        entries = zip(self._timestamps, self.offsets, strict=True)
        return b"".join(TIME_ENTRY.pack(timestamp, offset) for timestamp, offset in entries)

    @staticmethod
    def last_of_file(file: File) -> tuple[int, int] | None:
        """`last` of the index in `file`, by its last two entries; None when there is none, or it
        takes a look at the whole to know."""
        size = file.size()
        if not size or size % TIME_ENTRY.size:
            return None
        start = max(0, size - 2 * TIME_ENTRY.size)
        *before, last = TIME_ENTRY.iter_unpack(file.read_at(start, size - start))
        if before and (last[0] <= before[0][0] or last[1] <= before[0][1]):
            return None
        return last[0], last[1]

    @classmethod
    def decode(cls, data: bytes) -> TimeIndex:
        """Raises InvalidIndex unless timestamps and offsets strictly increase."""
        if len(data) % TIME_ENTRY.size:
            raise InvalidIndex(f"{len(data)} bytes is not a whole number of entries")
        index = cls()
        for timestamp, offset in TIME_ENTRY.iter_unpack(data):
            if index.offsets and (
                timestamp <= index._timestamps[-1] or offset <= index.offsets[-1]
            ):
                raise InvalidIndex("entries do not increase")
            index._timestamps.append(timestamp)
            index.offsets.append(offset)
        return index


class IndexCheck:
    """Whether both indexes of a segment say the truth about its batches.

    An index file has no checksum: one flipped bit may let look-ups begin behind the wanted batch,
    and records would be skipped. So whoever walks a segment shows its batches to this."""

    def __init__(
        self, base_offset: int, offset_index: OffsetIndex | None, time_index: TimeIndex | None
    ) -> None:
        self._base_offset = base_offset
        self._positions = dict(offset_index.entries()) if offset_index is not None else {}
        self._times = dict(time_index.entries()) if time_index is not None else {}
        self._wanted_timestamp = max(self._times.values(), default=-1)
        self._has_indexes = offset_index is not None and time_index is not None
        self._max_timestamp = -1

    def see(self, position: int, last_offset: int, max_timestamp: int) -> None:
        """The sound batch at `position`."""
        relative = last_offset - self._base_offset
        if self._positions.get(relative) == position:
            del self._positions[relative]
        if self._times.get(relative) == max_timestamp:
            del self._times[relative]
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp

    @property
    def is_passed(self) -> bool:
        """Whether every entry was seen; to be asked when all batches were."""
        return not self._has_indexes or (
            not self._positions
            and not self._times
            and self._wanted_timestamp == self._max_timestamp
        )


class AbortedTransaction(NamedTuple):
    """One aborted transaction: its producer's records in [first_offset, last_offset] are void.

    `last_stable_offset` is what the LSO became when its marker was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_aborted(transactions: list[AbortedTransaction]) -> bytes:
    """The bytes of a `.txnindex` file."""
    return b"".join(ABORTED_ENTRY.pack(ABORTED_VERSION, *entry) for entry in transactions)


def decode_aborted(data: bytes, base_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Raises InvalidIndex unless every entry's marker lies in the segment, in order."""
    if len(data) % ABORTED_ENTRY.size:
        raise InvalidIndex(f"{len(data)} bytes is not a whole number of entries")
    transactions = []
    previous = base_offset - 1
    for version, *fields in ABORTED_ENTRY.iter_unpack(data):
        entry = AbortedTransaction(*fields)
        if version != ABORTED_VERSION or not previous < entry.last_offset < end_offset:
            raise InvalidIndex(f"entry {entry} is out of order")
        previous = entry.last_offset
        transactions.append(entry)
    return transactions
