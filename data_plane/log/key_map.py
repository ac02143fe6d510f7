"""Key → offset of its last record, over the dirty part of a log, in a bounded piece of memory.

As in Kafka a key is known by a hash of 16 bytes and its offset: an entry takes the same room
however long the key is. Entries lie in many small buckets, which the first bytes of the hash
choose, back to back; looking through one is a search for 16 bytes in a kilobyte or two.

When the keys of a batch may not fit any more, the map is full: what is known by then is compacted,
and the next pass goes on from there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING

from data_plane.wire.kernel import list_keys
from data_plane.wire.records import BatchHeader, unpacked_records

if TYPE_CHECKING:
    from data_plane.log.batch_walk import Chunk
    from data_plane.log.indexes import AbortedTransaction
    from data_plane.log.record_kinds import RecordKinds

# As log.cleaner.dedupe.buffer.size has it by default, as in Kafka.
BUFFER_BYTES = 128 << 20
# What an entry takes with its share of its bucket (measured: 33).
KEY_BYTES = 34
HASH_BYTES = 16
ENTRY_BYTES = 24
BUCKET_ENTRIES = 64
_OFFSET = struct.Struct("<q")
NOT_THERE = -1


class AbortedRanges:
    """Whether a batch belongs to an aborted transaction."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._by_producer: dict[int, list[tuple[int, int]]] = {}
        for entry in aborted:
            ranges = self._by_producer.setdefault(entry.producer_id, [])
            ranges.append((entry.first_offset, entry.last_offset))

    def contains(self, header: BatchHeader) -> bool:
        if not header.is_transactional or header.is_control:
            return False
        return any(
            first <= header.base_offset <= last
            for first, last in self._by_producer.get(header.producer_id, ())
        )


class OffsetsByKey:
    """The entries. `keys_expected` sizes the list of buckets; more of them make it slower only."""

    def __init__(self, keys_expected: int) -> None:
        self._mask = (1 << (max(1, keys_expected) // BUCKET_ENTRIES).bit_length()) - 1
        self._buckets: list[bytearray | None] = [None] * (self._mask + 1)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, key: bytes, offset: int) -> None:
        """The last record of `key` so far is at `offset`."""
        hashed = blake2b(key, digest_size=HASH_BYTES).digest()
        number = int.from_bytes(hashed[:4]) & self._mask
        bucket = self._buckets[number]
        if bucket is None:
            self._buckets[number] = bytearray(hashed + _OFFSET.pack(offset))
            self._count += 1
            return
        position = _find(bucket, hashed)
        if position >= 0:
            _OFFSET.pack_into(bucket, position + HASH_BYTES, offset)
        else:
            bucket += hashed + _OFFSET.pack(offset)
            self._count += 1

    def get(self, key: bytes) -> int:
        """The offset, NOT_THERE for an unknown key."""
        hashed = blake2b(key, digest_size=HASH_BYTES).digest()
        bucket = self._buckets[int.from_bytes(hashed[:4]) & self._mask]
        position = NOT_THERE if bucket is None else _find(bucket, hashed)
        if bucket is None or position < 0:
            return NOT_THERE
        offset: int = _OFFSET.unpack_from(bucket, position + HASH_BYTES)[0]
        return offset


def _find(bucket: bytearray, hashed: bytes) -> int:
    """Where its entry begins, -1 when there is none."""
    position = bucket.find(hashed)
    while position >= 0 and position % ENTRY_BYTES:
        # The same bytes across two entries.
        position = bucket.find(hashed, position + 1)
    return position


class KeyMap:
    """What a compaction looks up."""

    def __init__(
        self,
        buffer_bytes: int,
        aborted: Iterable[AbortedTransaction],
        records_expected: int,
        kinds: RecordKinds | None = None,
    ) -> None:
        """`records_expected`: there are no more in what will be added. `kinds` says which records
        are no values."""
        self._keys_max = max(1, buffer_bytes // KEY_BYTES)
        self._last = OffsetsByKey(min(self._keys_max, records_expected))
        self._aborted = AbortedRanges(aborted)
        self._kinds = kinds
        self.end_offset = 0
        self.is_full = False

    def add(self, chunk: Chunk, first_offset: int) -> None:
        """Take in the records at or above `first_offset`, batch by batch until it is full. The
        first batch is taken whatever it has: there would be no end to it otherwise."""
        for header in chunk.headers:
            if self.is_full:
                return
            if header.last_offset < first_offset or header.is_control:
                continue
            if not self._aborted.contains(header):
                known = len(self._last)
                if known and known + header.record_count > self._keys_max:
                    self.is_full = True
                    return
                self._add_batch(chunk, header)
            self.end_offset = header.next_offset

    def _add_batch(self, chunk: Chunk, header: BatchHeader) -> None:
        put, base = self._last.put, header.base_offset
        values = None if self._kinds is None else self._kinds.values_in(chunk.data, header)
        data, start, end = unpacked_records(chunk.data, header)
        for index, (delta, key, _) in enumerate(list_keys(data, start, end, header.record_count)):
            if key is not None and (values is None or values[index]):
                put(key, base + delta)

    def is_superseded(self, key: bytes | None, offset: int) -> bool:
        """Whether a later record has the key, or there is none to keep it by."""
        return key is None or self._last.get(key) > offset

    def newest(self, key: bytes | None) -> int:
        """Where the last record of the key stands, NOT_THERE for none or without a key."""
        return NOT_THERE if key is None else self._last.get(key)
