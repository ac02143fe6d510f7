"""Searches by timestamp within a batch, against what its decoded records say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from data_plane.wire import kernel
from data_plane.wire.errors import InvalidRecords
from data_plane.wire.records import (
    NewRecord,
    build_batch,
    decode_batch,
    find_first_at,
    find_max_timestamp,
    read_batch_header,
)
from tests.wire.kernel_pairs import Implementation, both

# (timestamp, how many offsets the compaction has left out before it)
STAMPED = st.lists(st.tuples(st.integers(-1, 12), st.integers(0, 2)), min_size=1, max_size=9)
BASE_OFFSET = 20


def gapped(stamped: list[tuple[int, int]], **options: Any) -> bytearray:
    records = []
    delta = -1
    for timestamp, gap in stamped:
        delta += 1 + gap
        records.append(NewRecord(timestamp, None, b"v", (), delta))
    return build_batch(records, base_offset=BASE_OFFSET, **options)


@pytest.mark.parametrize("log_append_time", [None, 5])
@pytest.mark.parametrize("compression", [0, 4])
@given(STAMPED, st.integers(-2, 14), st.integers(-3, 30), st.integers(0, 40))
@example([(0, 0), (9, 2), (9, 0), (3, 1)], 4, 0, 40)
def test_searches_find_what_the_records_say(
    log_append_time: int | None,
    compression: int,
    stamped: list[tuple[int, int]],
    timestamp: int,
    start: int,
    length: int,
) -> None:
    batch = gapped(stamped, compression=compression, log_append_time=log_append_time)
    header = read_batch_header(batch, 0)
    records = [(record.offset, record.timestamp) for record in decode_batch(batch)]
    offset_min, offset_end = BASE_OFFSET + start, BASE_OFFSET + start + length
    later = [one for one in records if one[1] >= timestamp and one[0] >= offset_min]
    assert find_first_at(batch, header, timestamp, offset_min) == (later[0] if later else None)
    inside = [one for one in records if offset_min <= one[0] < offset_end]
    found = find_max_timestamp(batch, header, offset_min, offset_end)
    whole = offset_min <= BASE_OFFSET and header.last_offset < offset_end
    if log_append_time is not None and whole:
        # Whether its first record is still there need not be looked at.
        assert found == (BASE_OFFSET, log_append_time)
    else:
        assert found == max(inside, key=lambda one: (one[1], -one[0]), default=None)


@pytest.mark.parametrize(
    ("base_offset", "is_found"), [(-(2**63), False), (-1, False), (2**63 - 2, True)]
)
def test_a_base_offset_at_the_ends_of_its_range(base_offset: int, is_found: bool) -> None:
    batch = build_batch([NewRecord(5, None, b"v")])
    batch[:8] = base_offset.to_bytes(8, "big", signed=True)
    header = read_batch_header(batch, 0)
    found = (base_offset, 5) if is_found else None
    assert find_first_at(batch, header, 5) == found
    assert find_max_timestamp(batch, header) == found


@both
@given(STAMPED, st.integers(-2, 14), st.integers(0, 30), st.integers(0, 30))
def test_both_kernels_search_alike(
    implementation: Implementation,
    stamped: list[tuple[int, int]],
    timestamp: int,
    delta_min: int,
    delta_end: int,
) -> None:
    batch = gapped(stamped)
    where = (batch, 61, len(batch), len(stamped), stamped[0][0])
    found = implementation.batches.find_timestamp(*where, timestamp, delta_min)
    assert found == kernel.find_timestamp(*where, timestamp, delta_min)
    found = implementation.batches.find_max_timestamp(*where, delta_min, delta_end)
    assert found == kernel.find_max_timestamp(*where, delta_min, delta_end)


@both
@pytest.mark.parametrize("count", [10, 40_000])
def test_a_search_in_what_is_no_record_is_refused(
    implementation: Implementation, count: int
) -> None:
    batch = build_batch([NewRecord(5, b"key", b"value")] * count)
    batch[-6:] = b"\x7f" * 6
    where = (batch, 61, len(batch), count, 0)
    with pytest.raises(InvalidRecords, match=rf"record {count - 1}: "):
        implementation.batches.find_max_timestamp(*where)
    with pytest.raises(InvalidRecords, match=rf"record {count - 1}: "):
        implementation.batches.find_timestamp(*where, 6)


@both
def test_long_searches_find_the_last_record(implementation: Implementation) -> None:
    records = [NewRecord(5, b"key", b"value")] * 40_000 + [NewRecord(6, b"key", b"value")]
    batch = build_batch(records)
    where = (batch, 61, len(batch), len(records), 5)
    assert implementation.batches.find_max_timestamp(*where) == (40_000, 6)
    assert implementation.batches.find_timestamp(*where, 6) == (40_000, 6)
    assert implementation.batches.find_max_timestamp(*where, 3, 40_000) == (3, 5)


@both
@pytest.mark.parametrize("base_timestamp", [2**63 - 10, 10 - 2**63])
def test_a_timestamp_beyond_64_bits_is_refused(
    implementation: Implementation, base_timestamp: int
) -> None:
    delta = 50 if base_timestamp > 0 else -50
    batch = build_batch([NewRecord(0, None, b""), NewRecord(delta, None, b"")])
    where = (batch, 61, len(batch), 2, base_timestamp)
    lowest = -(2**63)
    with pytest.raises(InvalidRecords, match="its timestamp or offset leaves the range"):
        implementation.batches.find_max_timestamp(*where, 1)
    with pytest.raises(InvalidRecords, match="its timestamp or offset leaves the range"):
        implementation.batches.find_timestamp(*where, lowest * 2, 1)
    assert implementation.batches.find_max_timestamp(*where, 0, 1) == (0, base_timestamp)
