"""The key map of a compaction: what it knows, and what it may take."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.log.batch_walk import Chunk
from data_plane.log.key_map import (
    ENTRY_BYTES,
    HASH_BYTES,
    KEY_BYTES,
    NOT_THERE,
    KeyMap,
    OffsetsByKey,
    _find,
)
from data_plane.wire.records import iter_batch_headers
from tests.log.one_log import batch_of

KEYS = st.binary(max_size=3)


@given(st.lists(st.tuples(KEYS, st.integers(0, 1 << 62))), KEYS, st.sampled_from([1, 100, 10_000]))
def test_it_knows_what_a_dictionary_knows(
    puts: list[tuple[bytes, int]], asked: bytes, keys_expected: int
) -> None:
    found, expected = OffsetsByKey(keys_expected), dict(puts)
    for key, offset in puts:
        found.put(key, offset)
    assert len(found) == len(expected)
    for key in (asked, *expected):
        assert found.get(key) == expected.get(key, NOT_THERE)


def test_the_same_bytes_across_two_entries_are_no_entry() -> None:
    hashed = bytes(range(HASH_BYTES))
    other = bytes(HASH_BYTES + 2) + hashed
    bucket = bytearray(other.ljust(2 * ENTRY_BYTES, b"."))
    assert len(bucket) == 2 * ENTRY_BYTES
    assert bucket.find(hashed) >= 0
    assert _find(bucket, hashed) == -1
    assert _find(bucket + hashed + bytes(8), hashed) == 2 * ENTRY_BYTES


def test_a_key_takes_what_it_is_counted_for_however_long_it_is() -> None:
    count = 50_000
    offsets = OffsetsByKey(count)
    for number in range(count):
        offsets.put(b"%d" % number + bytes(1000), number)
    buckets = [bucket for bucket in offsets._buckets if bucket is not None]
    taken = sys.getsizeof(offsets._buckets) + sum(map(sys.getsizeof, buckets))
    assert ENTRY_BYTES * count < taken < KEY_BYTES * count


def chunk_of(base_offset: int, keys: Sequence[bytes]) -> Chunk:
    data = batch_of(*(b"v" for _ in keys), keys=list(keys))
    data[0:8] = base_offset.to_bytes(8)
    return Chunk(0, data, list(iter_batch_headers(data, 0, len(data))))


@pytest.mark.parametrize("room", [3, 4])
def test_a_batch_that_may_not_fit_is_left_to_the_next_pass(room: int) -> None:
    keys = KeyMap(room * KEY_BYTES, (), 100)
    keys.add(chunk_of(0, [b"a", b"b"]), 0)
    keys.add(chunk_of(2, [b"a", b"c"]), 0)
    assert (keys.is_full, keys.end_offset) == ((False, 4) if room == 4 else (True, 2))
    assert keys.is_superseded(b"a", 0) is (room == 4)
    assert not keys.is_superseded(b"c", 3)


def test_the_first_batch_is_taken_whatever_it_has() -> None:
    keys = KeyMap(1, (), 100)
    keys.add(chunk_of(0, [b"a", b"b", b"a"]), 0)
    assert (keys.is_full, keys.end_offset) == (False, 3)
    assert keys.is_superseded(b"a", 0)
    keys.add(chunk_of(3, [b"a"]), 0)
    assert (keys.is_full, keys.end_offset) == (True, 3)
    assert not keys.is_superseded(b"a", 2)
