"""The kernel on record batches, both forms: Kafka's refusals one by one, searches, and hostile
bytes, for which the two forms must give equal results and equal errors."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.wire.compression import Compression
from data_plane.wire.control_batches import EndTransactionMarker as Marker
from data_plane.wire.control_batches import build_end_transaction_marker, skip_batch
from data_plane.wire.errors import ErrorCode, InvalidRecords
from data_plane.wire.records import (
    NewRecord,
    build_batch,
    read_batch_header,
    set_log_append_time,
    set_max_timestamp,
)
from tests.wire.kernel_pairs import (
    COMPILED,
    INTERPRETED,
    NEW_RECORDS,
    Implementation,
    both,
    mutate,
    needs_compiled,
    outcome,
    with_crc,
)

TWO = [NewRecord(5, b"k", b"v"), NewRecord(6, None, None, ((b"h", None),))]


def batch_with(position: int, value: bytes) -> bytearray:
    """A sound batch of two records, some bytes of its header replaced, and its CRC right."""
    batch = build_batch(TWO, producer_id=4, producer_epoch=1, base_sequence=0)
    batch[position : position + len(value)] = value
    return with_crc(batch)


def raw_batch(records: bytes, record_count: int) -> bytearray:
    """A batch of these bytes as records."""
    batch = build_batch(TWO)[:61] + records
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[23:27] = (record_count - 1).to_bytes(4, "big")
    batch[57:61] = record_count.to_bytes(4, "big")
    return with_crc(batch)


@both
@given(
    times=st.lists(st.sampled_from([-1, 0, 1, 63, 64, 8_191, 8_192, 1 << 40]), min_size=1),
    header=st.booleans(),
)
def test_the_lowest_timestamp_is_that_of_records_that_have_one(
    implementation: Implementation, times: list[int], header: bool
) -> None:
    # With headers none is of the common shape, which has a walk of its own.
    headers = ((b"h", None),) if header else ()
    batch = build_batch([NewRecord(time, None, b"v", headers) for time in times])
    found = implementation.batches.walk_records(
        batch, 61, len(batch), len(times), read_batch_header(batch, 0).base_timestamp
    )
    assert found.min_timestamp == min((time for time in times if time != -1), default=-1)
    assert found.max_timestamp == max(times)


@both
@pytest.mark.parametrize(
    ("base", "time"),
    [
        (base, time)
        for base in (-(2**63), -(2**63) + 1, -(2**62), -1, 0, 5, 2**63 - 1)
        for time in (-1, 0, 2**63 - 1, -(2**63))
        if -(2**63) <= time - base < 2**63
    ],
)
@pytest.mark.parametrize("header", [True, False])
def test_the_lowest_timestamp_whatever_the_base(
    implementation: Implementation, base: int, time: int, header: bool
) -> None:
    headers = ((b"h", None),) if header else ()
    records = [NewRecord(time, None, None, headers)] * 2
    payload, _ = implementation.batches.encode_records(records, base)
    found = implementation.batches.walk_records(payload, 0, len(payload), 2, base)
    assert (found.min_timestamp, found.max_timestamp) == (time, time)


@both
def test_accepts_what_clients_send(implementation: Implementation) -> None:
    for codec in Compression:
        batch = b"..." + build_batch(TWO, compression=codec) + b"..."
        for buf in (batch, bytearray(batch), memoryview(batch)):
            headers = implementation.batches.check_batches(
                buf, 3, len(batch) - 3, batch_bytes_max=len(batch) - 6, walk=True
            )
            assert headers == [read_batch_header(batch, 3)]
            assert type(headers[0]).__name__ == "BatchHeader"


REFUSALS = {
    "nothing": (bytearray(), ErrorCode.INVALID_RECORD, "at least one"),
    "less than a size": (bytearray(11), ErrorCode.INVALID_RECORD, "at least one"),
    "cut": (build_batch(TWO)[:-1], ErrorCode.INVALID_RECORD, "at least one"),
    "tiny": (batch_with(8, b"\0\0\0\x0d"), ErrorCode.CORRUPT_MESSAGE, "minimum record overhead"),
    "negative": (batch_with(8, b"\xff\xff\xff\xff"), ErrorCode.CORRUPT_MESSAGE, "overhead"),
    "less than a header": (batch_with(8, b"\0\0\0\x30"), ErrorCode.CORRUPT_MESSAGE, "header"),
    "magic 0": (batch_with(16, b"\0"), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "format 0"),
    "magic 1": (batch_with(16, b"\1"), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "format 1"),
    "magic 3": (batch_with(16, b"\3"), ErrorCode.CORRUPT_MESSAGE, "invalid magic 3"),
    "magic -1": (batch_with(16, b"\xff"), ErrorCode.CORRUPT_MESSAGE, "invalid magic -1"),
    "two batches": (build_batch(TWO) * 2, ErrorCode.INVALID_RECORD, "batch 1: only one batch"),
    "tail": (build_batch(TWO) + b"\0" * 11, ErrorCode.CORRUPT_MESSAGE, "batch 1: it ends"),
    "base offset": (build_batch(TWO, base_offset=1), ErrorCode.INVALID_RECORD, "but it is 1"),
    "crc": (build_batch(TWO)[:-1] + b"x", ErrorCode.CORRUPT_MESSAGE, "stored crc"),
    "codec": (batch_with(21, b"\0\5"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "codec 5"),
    "count 0": (batch_with(57, bytes(4)), ErrorCode.INVALID_RECORD, "record count 0"),
    "count -1": (batch_with(57, b"\xff" * 4), ErrorCode.INVALID_RECORD, "record count -1"),
    "count 1": (batch_with(57, b"\0\0\0\1"), ErrorCode.INVALID_RECORD, "inconsistent"),
    "deltas": (batch_with(23, b"\xff" * 4), ErrorCode.INVALID_RECORD, "offset range"),
    "control": (batch_with(21, b"\0\x20"), ErrorCode.INVALID_RECORD, "control records"),
    "append time": (batch_with(21, b"\0\x08"), ErrorCode.INVALID_TIMESTAMP, "LogAppendTime"),
    "horizon": (batch_with(21, b"\0\x40"), ErrorCode.INVALID_RECORD, "0x0040 set unknown bits"),
    "bit 15": (batch_with(21, b"\x80\0"), ErrorCode.INVALID_RECORD, "0x8000 set unknown bits"),
    "sequence": (batch_with(53, b"\xff" * 4), ErrorCode.INVALID_RECORD, "sequence number -1"),
    "epoch": (batch_with(51, b"\xff" * 2), ErrorCode.INVALID_PRODUCER_EPOCH, "epoch -1"),
    "transaction": (
        build_batch(TWO, is_transactional=True), ErrorCode.INVALID_RECORD, "without a producer id",
    ),
    "records": (raw_batch(b"\x02\x00", 1), ErrorCode.INVALID_RECORD, "batch 0: record 0: "),
}  # fmt: skip


@both
@pytest.mark.parametrize("name", REFUSALS)
def test_refuses_what_kafka_refuses(implementation: Implementation, name: str) -> None:
    batch, code, words = REFUSALS[name]
    with pytest.raises(InvalidRecords, match=words) as caught:
        implementation.batches.check_batches(batch, 0, len(batch), walk=True)
    assert caught.value.error_code is code


@both
def test_options_of_the_check(implementation: Implementation) -> None:
    check = implementation.batches.check_batches
    batch = build_batch(TWO, compression=Compression.ZSTD)
    two = batch + build_batch(TWO)
    assert len(check(two, 0, len(two), one_batch=False)) == 2
    with pytest.raises(InvalidRecords) as caught:
        check(batch, 0, len(batch), zstd_allowed=False)
    assert caught.value.error_code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert check(batch, 0, len(batch), batch_bytes_max=len(batch))
    with pytest.raises(InvalidRecords, match=f"{len(batch)} bytes") as caught:
        check(batch, 0, len(batch), batch_bytes_max=len(batch) - 1)
    assert caught.value.error_code is ErrorCode.MESSAGE_TOO_LARGE
    unsound = raw_batch(b"\x02\x00", 1)
    assert check(unsound, 0, len(unsound))
    for start, end in ((-1, 5), (5, 4), (0, len(batch) + 1)):
        with pytest.raises(ValueError, match="no range"):
            check(batch, start, end)
        with pytest.raises(ValueError, match="no range"):
            implementation.batches.walk_records(batch, start, end, 2)


@both
def test_a_refusal_does_not_pin_the_buffer(implementation: Implementation) -> None:
    """A bytearray must be resizable while somebody still holds the exception."""
    batch = bytearray(build_batch(TWO)[:-1])
    size = len(batch)
    kernel = implementation.batches
    kept = []
    for function, *arguments in (
        (kernel.check_batches, 0, size),
        (kernel.walk_records, 61, size, 2),
        (kernel.decode_records, 61, size, 2, 0, 0),
    ):
        with pytest.raises(InvalidRecords) as caught:
            function(batch, *arguments)
        kept.append(caught)
        batch.append(0)
        del batch[-1:]


# One record's body, field by field, and what is wrong with it.
UNSOUND_RECORDS = {
    "truncated size": (b"\xff", "premature end"),
    "endless size": (b"\xff" * 5 + b"\x00", "premature end"),
    "empty": (b"\x00", "reaches beyond the end of its batch"),
    "negative size": (b"\x01", "reaches beyond the end of its batch"),
    "too long": (b"\x10\x00", "reaches beyond the end of its batch"),
    "no key": (b"\x06\x00\x00\x00", "do not fill its size"),
    "key too long": (b"\x0c\x00\x00\x00\x10\x00\x00", "beyond the end of the record"),
    "value too long": (b"\x0c\x00\x00\x00\x01\x04\x00", "beyond the end of the record"),
    "negative headers": (b"\x0c\x00\x00\x00\x01\x01\x01", "number of record headers"),
    "too many headers": (b"\x0c\x00\x00\x00\x01\x01\x02", "number of record headers"),
    "null header key": (b"\x10\x00\x00\x00\x01\x01\x02\x01\x00", "header key"),
    "long header key": (b"\x10\x00\x00\x00\x01\x01\x02\x02\x00", "do not fill"),
    "long header value": (b"\x10\x00\x00\x00\x01\x01\x02\x00\x02", "beyond the end of the record"),
    "slack": (b"\x0e\x00\x00\x00\x01\x01\x00\x00", "do not fill its size"),
    "first offset 1": (b"\x0c\x00\x00\x02\x01\x01\x00", "not one more"),
    "rest": (b"\x0c\x00\x00\x00\x01\x01\x00\x07", "1 bytes remain"),
    "endless timestamp": (b"\x1e\x00" + b"\xff" * 10 + b"\x00\x01\x01\x00", "do not fill"),
}


@both
@pytest.mark.parametrize("name", UNSOUND_RECORDS)
def test_unsound_records(implementation: Implementation, name: str) -> None:
    data, words = UNSOUND_RECORDS[name]
    with pytest.raises(InvalidRecords, match=words) as caught:
        implementation.batches.walk_records(data, 0, len(data), 1)
    assert caught.value.error_code is ErrorCode.INVALID_RECORD


@both
def test_walk_summary(implementation: Implementation) -> None:
    records = [NewRecord(t, k, b"") for t, k in ((50, b"a"), (40, None), (90, None), (90, b"b"))]
    batch = build_batch(records)
    walk = implementation.batches.walk_records
    assert walk(batch, 61, len(batch), 4, 50) == (4, 40, 90, 2, 2)
    batch = build_batch([NewRecord(1, b"", b"", (), 3), NewRecord(1, b"", b"", (), 7)])
    assert walk(batch, 61, len(batch), 2, 1, consecutive=False) == (2, 1, 1, 3, 0)
    with pytest.raises(InvalidRecords, match="not one more"):
        walk(batch, 61, len(batch), 2, 1)
    again = batch[61:] + batch[61:]
    with pytest.raises(InvalidRecords, match="record 2: its offset is not higher"):
        walk(again, 0, len(again), 4, consecutive=False)


@both
def test_timestamps_that_leave_64_bits(implementation: Implementation) -> None:
    batch = build_batch([NewRecord(0, None, None), NewRecord(9, None, None)])
    kernel = implementation.batches
    assert kernel.walk_records(batch, 61, len(batch), 2, 2**63 - 10).max_timestamp == 2**63 - 1
    assert kernel.decode_records(batch, 61, len(batch), 2, 0, 2**63 - 10)[1].timestamp == 2**63 - 1
    with pytest.raises(InvalidRecords) as caught:
        kernel.walk_records(batch, 61, len(batch), 2, 2**63 - 9)
    assert caught.value.error_code is ErrorCode.INVALID_TIMESTAMP
    for function, *arguments in (
        (kernel.decode_records, 0, 2**63 - 9),
        (kernel.decode_records, 2**63 - 1, 0),
        (kernel.filter_records, 2**63 - 9, b"\1\1"),
    ):
        with pytest.raises(InvalidRecords, match="64 bits"):
            function(batch, 61, len(batch), 2, *arguments)


@both
def test_scan_of_stored_batches(implementation: Implementation) -> None:
    scan = implementation.batches.scan_batches
    marker = build_end_transaction_marker(
        Marker(True, 0), base_offset=20, timestamp=1, producer_id=1, producer_epoch=0
    )
    stamped = build_batch(TWO, base_offset=30, compression=Compression.LZ4)
    set_log_append_time(stamped, 0, 8)
    parts: list[bytes | bytearray] = [
        build_batch(TWO, base_offset=7),
        marker,
        stamped,
        skip_batch(40),
    ]
    good = b"".join(parts)
    headers, position, problem = scan(good, 0, len(good))
    assert [header.base_offset for header in headers] == [7, 20, 30, 40]
    assert (position, problem) == (len(good), "")
    for cut in (1, 40, len(parts[3])):
        headers, position, problem = scan(good, 0, len(good) - cut)
        assert (len(headers), position) == (3, len(good) - len(parts[3]))
        assert problem == ("" if cut == len(parts[3]) else "incomplete")
    flipped = bytearray(good)
    flipped[-1] ^= 1
    headers, position, problem = scan(flipped, 0, len(good))
    assert (len(headers), position) == (3, len(good) - len(parts[3]))
    assert "crc" in problem
    assert scan(flipped, 0, len(good), check_crc=False)[1:] == (len(good), "")
    backwards = parts[1] + parts[0]
    assert "out of order" in scan(backwards, 0, len(backwards))[2]
    zeros = bytes(200)
    assert scan(zeros, 0, 200) == ([], 0, "the batch length 0 is less than a header")


@both
def test_sets_of_header_values_are_numbered(implementation: Implementation) -> None:
    tags = [(b"a",), (), (b"a",), (b"a",), (b"b", b"a"), (b"a", b"b"), (None,), (b"b", b"a"), ()]
    records = [
        NewRecord(
            0,
            b"tw-tag",
            None,
            ((b"tw-tags", b"x"), *((b"tw-tag", tag) for tag in record), (b"tw-ta", b"y")),
        )
        for record in tags
    ]
    batch = build_batch(records)
    for buf in (batch, bytes(batch), memoryview(batch)):
        numbers, known = sets_of(implementation.batches, buf, 61, len(batch), len(tags))
        assert list(numbers[3::4]) == [1, 0, 1, 1, 2, 3, 4, 2, 0]
        assert not any(numbers[0::4] + numbers[1::4] + numbers[2::4])
        assert known == {b"": 0, b"\x02a": 1, b"\x02b\x02a": 2, b"\x02a\x02b": 3, b"\x01": 4}
    plain = build_batch([NewRecord(0, b"tw-tag", b"tw-tag", ())] * 2)
    assert sets_of(implementation.batches, plain, 61, len(plain), 2) == (None, {b"": 0})


@both
def test_numbers_of_header_sets_may_be_large_and_forgotten(implementation: Implementation) -> None:
    batch = build_batch([NewRecord(0, None, None, ((b"t", b"%d" % (i // 2)),)) for i in range(6)])
    asked: list[bytes] = []

    def missing(values: bytes) -> int:
        asked.append(values)
        return 2**31 - 1

    numbers = implementation.batches.map_header_sets(batch, 61, len(batch), 6, b"t", {}, missing)
    assert numbers == (2**31 - 1).to_bytes(4, "big") * 6
    assert asked == [b"\x020", b"\x021", b"\x022"]
    with pytest.raises(ZeroDivisionError):
        implementation.batches.map_header_sets(
            batch, 61, len(batch), 6, b"t", {}, lambda values: 1 // 0
        )


@both
def test_no_more_values_of_a_record_are_put_together(implementation: Implementation) -> None:
    """Which would take time with the square of them."""
    few = tuple((b"t", b"%d" % number) for number in range(3))
    records = [few, (*few, (b"t", b"")), ((b"t", b"x" * 20),), (), ((b"t", b"y"),), few]
    batch = build_batch([NewRecord(0, None, None, record) for record in records])
    asked: list[bytes] = []

    def missing(values: bytes) -> int:
        asked.append(values)
        return 7

    numbers = implementation.batches.map_header_sets(
        batch, 61, len(batch), len(records), b"t", {}, missing, 3, 20
    )
    found = [int.from_bytes(numbers[at : at + 4], "big", signed=True) for at in range(0, 24, 4)]
    assert found == [7, -1, -1, 7, 7, 7]
    assert asked == [b"\x020\x021\x022", b"", b"\x02y", b"\x020\x021\x022"]
    many = build_batch([NewRecord(0, None, None, ((b"t", b"1"),) * 200_000)])
    assert (
        implementation.batches.map_header_sets(many, 61, len(many), 1, b"t", {}, missing)
        == b"\xff" * 4
    )


@both
def test_no_more_headers_are_found_than_wanted(implementation: Implementation) -> None:
    scan = implementation.batches.scan_headers
    batch = build_batch([NewRecord(0, None, None, ((b"tw-a", b"1"), (b"tw-b", b"2")))] * 3)
    found = scan(batch, 61, len(batch), 3, b"tw-", b"", 100)
    assert len(found) == 6
    assert scan(batch, 61, len(batch), 3, b"tw-", b"", 3) == found[:3]
    assert scan(batch, 61, len(batch), 3, b"tw-", b"tw-a", 2) == [found[1], found[3]]


@both
def test_headers_are_found(implementation: Implementation) -> None:
    scan = implementation.batches.scan_headers
    records = [
        NewRecord(0, b"tw-", b"tw-tag", ((b"other", b"tw-tag"), (b"tw-tag", b"a"), (b"tw", b""))),
        NewRecord(0, None, None),
        NewRecord(0, None, None, ((b"tw-tag", None), (b"tw-", b""), (b"xtw-tag", b""))),
    ]
    batch = build_batch(records)
    found = [(0, b"tw-tag", b"a"), (2, b"tw-tag", None), (2, b"tw-", b"")]
    for buf in (batch, bytes(batch), memoryview(batch)):
        assert scan(buf, 61, len(batch), 3) == found
    assert scan(batch, 61, len(batch), 3, b"tw-tag") == found[:2]
    assert scan(batch, 61, len(batch), 3, b"nowhere") == []
    assert scan(batch, 61, len(batch), 3, b"tw-", b"tw-tag") == found[2:]
    assert scan(batch, 61, len(batch), 3, b"tw-", b"tw-ta") == found
    assert len(scan(batch, 61, len(batch), 3, b"")) == 6
    broken = bytes(batch[61:-1])
    assert scan(broken, 0, len(broken), 3, b"nowhere") == []
    with pytest.raises(InvalidRecords):
        scan(broken, 0, len(broken), 3)


@both
def test_keys(implementation: Implementation) -> None:
    batch = build_batch(
        [NewRecord(0, b"a", None), NewRecord(0, None, b""), NewRecord(0, b"", b"x")]
    )
    assert implementation.batches.list_keys(batch, 61, len(batch), 3) == [
        (0, b"a", True), (1, None, False), (2, b"", False),
    ]  # fmt: skip


@both
@pytest.mark.parametrize("headers_first", [False, True])
@pytest.mark.parametrize("consecutive", [False, True])
def test_records_and_headers_are_bounded_together(
    implementation: Implementation, headers_first: bool, consecutive: bool
) -> None:
    headers = ((b"h", b"v"),) * 4
    records = [NewRecord(5, b"a", None)] * 3
    records.insert(0 if headers_first else 3, NewRecord(5, b"a", None, headers))
    batch = build_batch(records)
    walk = implementation.batches.walk_records
    where = (batch, 61, len(batch), 4, 5)
    assert walk(*where, consecutive=consecutive, parts_max=8).record_count == 4
    for parts_max in (7, 4, 3, 0):
        with pytest.raises(InvalidRecords, match=f"more than {parts_max} records and h") as caught:
            walk(*where, consecutive=consecutive, parts_max=parts_max)
        assert caught.value.error_code is ErrorCode.MESSAGE_TOO_LARGE
    # A count that the bytes have no room for is wrong, not too large.
    with pytest.raises(InvalidRecords, match="record 4: ") as caught:
        walk(batch, 61, len(batch), 1000, 5, consecutive=consecutive, parts_max=20)
    assert caught.value.error_code is ErrorCode.INVALID_RECORD
    with pytest.raises(InvalidRecords, match="batch 0: it has more than 7 records") as caught:
        implementation.batches.check_batches(batch, 0, len(batch), walk=True, parts_max=7)
    assert len(implementation.batches.check_batches(batch, 0, len(batch), parts_max=7)) == 1


@both
def test_outlines(implementation: Implementation) -> None:
    headers = ((b"h", b"v"),)
    batch = build_batch(
        [NewRecord(-1, b"a", None), NewRecord(7, None, b"", headers), NewRecord(5, b"", b"x")]
    )
    assert implementation.batches.outline_records(batch, 61, len(batch), 3, -1) == [
        (-1, True), (7, False), (5, True),
    ]  # fmt: skip


@both
def test_filter_wants_a_choice_for_each_record(implementation: Implementation) -> None:
    batch = build_batch(TWO)
    with pytest.raises(ValueError, match="3 choices for 2 records"):
        implementation.batches.filter_records(batch, 61, len(batch), 2, 0, b"\1\1\1")
    assert implementation.batches.filter_records(batch, 61, len(batch), 2, 0, b"\0\0") == (
        b"", 0, -1, -1,
    )  # fmt: skip


@both
@pytest.mark.parametrize(
    "value", [0, 1, -1, 63, 64, -64, -65, 2**31 - 1, -(2**31), 2**62, -(2**63)]
)
def test_timestamps_of_every_width(implementation: Implementation, value: int) -> None:
    record = NewRecord(value, b"", b"")
    payload, last = implementation.batches.encode_records([record], 0)
    assert last == 0
    (decoded,) = implementation.batches.decode_records(payload, 0, len(payload), 1, 0, 0)
    assert decoded.timestamp == value
    with pytest.raises(ValueError, match="does not fit 64 bits"):
        implementation.batches.encode_records([record], -(2**63) if value >= 0 else 2**63)


def sets_of(kernel: Any, batch: Any, start: int, end: int, count: int) -> Any:
    """What is found of the values of a header, and which sets there are."""
    known: dict[bytes, int] = {b"": 0}
    numbers = kernel.map_header_sets(
        batch, start, end, count, b"tw-tag", known, lambda s: known.setdefault(s, len(known))
    )
    return numbers, known


def calls(batch: bytes | bytearray, record_count: int, seed: int) -> list[Callable[[Any], Any]]:
    """Every function that reads batches, on these bytes."""
    rng = random.Random(seed)
    end = len(batch)
    start = min(61, end)
    keep = bytes(rng.randrange(2) for _ in range(record_count))
    base = rng.choice([0, 5, 2**63 - 1, -(2**63)])
    target = rng.choice([-1, 0, 7, 2**63 - 1, -(2**63)])
    return [
        lambda k: k.check_batches(batch, 0, end, batch_bytes_max=400, walk=True, parts_max=9),
        lambda k: k.check_batches(batch, 0, end, one_batch=False),
        lambda k: k.scan_batches(batch, 0, end),
        lambda k: k.scan_batches(batch, 0, end, check_crc=False),
        lambda k: k.walk_records(batch, start, end, record_count, base),
        lambda k: k.walk_records(batch, start, end, record_count, base, consecutive=False),
        lambda k: k.scan_headers(batch, start, end, record_count),
        lambda k: k.scan_headers(batch, start, end, record_count, b""),
        lambda k: k.scan_headers(batch, start, end, record_count, b"", b"tw-"),
        lambda k: k.scan_headers(batch, start, end, record_count, b"", b"", 2),
        lambda k: k.map_header_sets(
            batch, start, end, record_count, b"tw-tag", {}, lambda values: len(values), 1, 9
        ),
        lambda k: sets_of(k, batch, start, end, record_count),
        lambda k: k.walk_records(batch, start, end, record_count, base, parts_max=5),
        lambda k: k.find_timestamp(batch, start, end, record_count, base, target),
        lambda k: k.find_timestamp(batch, start, end, record_count, base, target, 3),
        lambda k: k.find_max_timestamp(batch, start, end, record_count, base),
        lambda k: k.find_max_timestamp(batch, start, end, record_count, base, 2, 4),
        lambda k: k.list_keys(batch, start, end, record_count),
        lambda k: k.outline_records(batch, start, end, record_count, base),
        lambda k: k.filter_records(batch, start, end, record_count, base, keep),
        lambda k: k.decode_records(batch, start, end, record_count, base, base),
        lambda k: k.decode_records(batch, start, end, record_count, 0, 0, 99),
    ]


def compare(records: list[NewRecord], seed: int, rounds: int) -> None:
    assert COMPILED is not None
    rng = random.Random(seed)
    sound = build_batch(records, compression=rng.choice([0, 0, 0, 4]))
    for _ in range(rounds):
        batch = mutate(rng, sound)
        if rng.random() < 0.7:
            batch = with_crc(batch)
        count = rng.choice([len(records), len(records), 0, 1, 1000])
        for number, call in enumerate(calls(batch, count, seed)):
            interpreted = outcome(call, INTERPRETED.batches)
            compiled = outcome(call, COMPILED.batches)
            assert interpreted == compiled, (number, bytes(batch).hex(), count)


@needs_compiled
@given(NEW_RECORDS, st.integers(0, 2**32))
def test_both_forms_agree(records: list[NewRecord], seed: int) -> None:
    compare(records, seed, 20)


@needs_compiled
@pytest.mark.nightly
@pytest.mark.timeout(3600)
@settings(max_examples=20_000)
@given(NEW_RECORDS, st.integers(0, 2**32))
def test_both_forms_agree_at_length(records: list[NewRecord], seed: int) -> None:
    compare(records, seed, 50)


@needs_compiled
@given(NEW_RECORDS, st.integers(-(2**40), 2**40))
def test_both_forms_encode_alike(records: list[NewRecord], base_timestamp: int) -> None:
    assert COMPILED is not None
    assert INTERPRETED.batches.encode_records(
        records, base_timestamp
    ) == COMPILED.batches.encode_records(records, base_timestamp)


@both
@pytest.mark.parametrize("lie", [0, 4, 10**15, -1])
def test_a_walk_tells_the_highest_timestamp_of_the_records(
    implementation: Implementation, lie: int
) -> None:
    batch = build_batch([NewRecord(stamp, None, b"v", ()) for stamp in (5, 9, 7)])
    set_max_timestamp(batch, 0, lie)
    check = implementation.batches.check_batches
    assert check(batch, 0, len(batch), walk=True)[0].max_timestamp == 9
    assert check(batch, 0, len(batch))[0].max_timestamp == lie


@both
@pytest.mark.parametrize("size", [262_143, 262_144, 262_145, 1_000_001])
def test_no_byte_of_a_large_batch_may_be_another(implementation: Implementation, size: int) -> None:
    """From 256 KiB on another library computes the checksum."""
    batches, rng = implementation.batches, random.Random(size)
    others = len(build_batch([NewRecord(5, None, bytes(size))])) - size
    # Of these bytes the first 21 are not covered.
    batch = build_batch([NewRecord(5, None, rng.randbytes(size + 21 - others))])
    assert len(batch) == 21 + size
    assert batches.check_batches(batch, 0, len(batch), batch_bytes_max=1 << 30)
    assert batches.scan_batches(batch, 0, len(batch))[2] == ""
    for position in (21, 60, *(rng.randrange(61, len(batch)) for _ in range(20)), len(batch) - 1):
        for buf in (batch, b"x" * 3 + batch):
            spoilt = bytearray(buf)
            start = len(buf) - len(batch)
            spoilt[start + position] ^= 1 << rng.randrange(8)
            with pytest.raises(InvalidRecords, match="corrupt"):
                batches.check_batches(spoilt, start, len(buf), batch_bytes_max=1 << 30)
            assert "crc" in batches.scan_batches(spoilt, start, len(buf))[2]


def test_the_library_for_large_batches_is_loaded_with_the_first() -> None:
    """It would be a seventh of a start's time and a tenth of an idle broker's memory."""
    code = """
import sys
import data_plane.server.broker_process
from data_plane.wire.kernel import check_batches
from data_plane.wire.records import NewRecord, build_batch
for size in (1000, 300_000):
    batch = build_batch([NewRecord(5, None, bytes(size))])
    check_batches(batch, 0, len(batch))
    print("_awscrt" in sys.modules)
"""
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert loaded.stdout.split() == ["False", "True"]
