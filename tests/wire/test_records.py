"""Record batches: round trips, edits in place, rewriting, and other people's codecs as referees."""

from __future__ import annotations

import random
import warnings

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from hypothesis import given
from hypothesis import strategies as st

from data_plane.wire import records as room
from data_plane.wire.control_batches import (
    ControlType,
    EndTransactionMarker,
    build_end_transaction_marker,
    read_control_type,
    read_end_transaction_marker,
    skip_batch,
)
from data_plane.wire.errors import ErrorCode, InvalidRecords
from data_plane.wire.records import (
    BatchHeader,
    Compression,
    NewRecord,
    Record,
    build_batch,
    decode_batch,
    decode_chosen,
    filter_batch,
    find_first_at,
    find_max_timestamp,
    is_crc_valid,
    iter_batch_headers,
    read_batch_header,
    recompress,
    set_base_offset,
    set_leader_epoch,
    set_log_append_time,
    summarize_batch,
)
from tests.wire.kernel_pairs import NEW_RECORDS, mutate, with_crc

with warnings.catch_warnings():
    # Importing kafka-python warns about how it reads its own resources.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder

CODECS = st.sampled_from(list(Compression))
codecs = pytest.mark.parametrize("codec", list(Compression))


def expected(records: list[NewRecord], base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + i, record.timestamp, record.key, record.value, record.headers)
        for i, record in enumerate(records)
    ]


def header_of(batch: bytes | bytearray) -> BatchHeader:
    return read_batch_header(batch, 0)


@given(NEW_RECORDS, CODECS, st.integers(0, 2**50))
def test_round_trip(records: list[NewRecord], codec: Compression, base_offset: int) -> None:
    batch = build_batch(
        records, base_offset=base_offset, compression=codec, producer_id=7, producer_epoch=3,
        base_sequence=2**31 - 2, partition_leader_epoch=9, is_transactional=True,
    )  # fmt: skip
    header = header_of(batch)
    assert decode_batch(batch) == expected(records, base_offset)
    assert is_crc_valid(batch, header)
    assert header.size == header.end_position == len(batch)
    assert header.compression == codec
    assert header.is_transactional
    assert not header.is_control
    assert header[3] == 9
    assert header[10:] == (7, 3, 2**31 - 2, len(records))
    assert header.next_offset == base_offset + len(records)
    assert header.last_sequence == (2**31 - 2 + len(records) - 1) % 2**31
    assert header.max_timestamp == max(record.timestamp for record in records)


@codecs
def test_others_read_what_is_built(codec: Compression) -> None:
    records = [
        NewRecord(1_700_000_000_000 + i, b"k%d" % i if i % 3 else None, b"v" * i if i % 4 else None,
                  ((b"h", b"x"), (b"empty", b""), (b"h", None)))
        for i in range(300)
    ]  # fmt: skip
    batch = build_batch(records, base_offset=50, compression=codec)
    readers = (AiokafkaBatch(bytes(batch)), KafkaPythonBatch(bytes(batch)))
    for reader in readers:
        assert reader.validate_crc()
        read = [
            Record(r.offset, r.timestamp, r.key, r.value,
                   tuple((key.encode(), value) for key, value in r.headers))
            for r in reader
        ]  # fmt: skip
        assert read == expected(records, 50)


@codecs
def test_reads_what_others_build(codec: Compression) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=int(codec), is_transactional=0, producer_id=4, producer_epoch=1,
        base_sequence=6, batch_size=1_000_000,
    )  # fmt: skip
    for i in range(100):
        builder.append(i, 1_700_000_000_000 - i, b"key", b"value" * 20, [("h", b"x")])
    batch = bytes(builder.build())
    header = header_of(batch)
    assert is_crc_valid(batch, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 1, 6)
    assert decode_batch(batch)[-1] == Record(
        99, 1_700_000_000_000 - 99, b"key", b"value" * 20, ((b"h", b"x"),)
    )


def test_set_base_offset_leaves_the_crc_alone() -> None:
    batch = bytearray(3) + build_batch([NewRecord(5, b"k", b"v"), NewRecord(6, None, None)])
    before = bytes(batch)
    set_base_offset(batch, 3, 2**40, 12)
    header = read_batch_header(batch, 3)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 12)
    assert is_crc_valid(batch, header)
    assert batch[19:] == before[19:]
    assert batch[11:15] == before[11:15]
    set_leader_epoch(batch, 3, -1)
    assert read_batch_header(batch, 3) == header._replace(partition_leader_epoch=-1)


@codecs
def test_log_append_time(codec: Compression) -> None:
    records = [NewRecord(5, b"k", b"v"), NewRecord(60, None, None)]
    batch = build_batch(records, compression=codec)
    set_log_append_time(batch, 0, 99)
    header = header_of(batch)
    assert is_crc_valid(batch, header)
    assert header.log_append_time
    assert [record.timestamp for record in decode_batch(batch)] == [99, 99]
    assert find_first_at(batch, header, 99) == (0, 99)
    assert find_first_at(batch, header, 100) is None
    assert find_max_timestamp(batch, header) == (0, 99)
    assert decode_batch(build_batch(records, log_append_time=99)) == decode_batch(batch)


@given(NEW_RECORDS, CODECS, CODECS)
def test_recompress(records: list[NewRecord], old: Compression, new: Compression) -> None:
    batch = build_batch(records, base_offset=70, compression=old, producer_id=1, producer_epoch=0,
                        base_sequence=0)  # fmt: skip
    again = recompress(batch, 0, new)
    assert decode_batch(again) == decode_batch(batch)
    assert is_crc_valid(again, header_of(again))
    ignored = {"batch_length": 0, "crc": 0, "attributes": 0}
    assert header_of(again)._replace(**ignored) == header_of(batch)._replace(**ignored)
    assert header_of(again).compression == new


@given(NEW_RECORDS, CODECS, st.none() | st.integers(0, 2**45), st.data())
def test_decode_chosen(
    records: list[NewRecord], codec: Compression, append_ms: int | None, data: st.DataObject
) -> None:
    batch = build_batch(records, base_offset=70, compression=codec, log_append_time=append_ms)
    offsets = range(70, 70 + len(records))
    chosen = sorted(data.draw(st.sets(st.sampled_from(offsets)))) if records else []
    expected = [record for record in decode_batch(batch) if record.offset in chosen]
    assert decode_chosen(batch, header_of(batch), chosen) == expected


def test_all_of_a_batch_with_gaps_are_decoded() -> None:
    records = [NewRecord(5, None, b"%d" % number) for number in range(4)]
    batch = filter_batch(build_batch(records, base_offset=70), 0, b"\1\0\1\1")
    assert batch is not None
    found = decode_chosen(batch, header_of(batch), [73])
    assert found == decode_batch(batch)
    assert [record.offset for record in found] == [70, 72, 73]


@given(NEW_RECORDS, CODECS, st.data())
def test_filter_batch(records: list[NewRecord], codec: Compression, data: st.DataObject) -> None:
    keep = bytes(
        data.draw(st.lists(st.integers(0, 1), min_size=len(records), max_size=len(records)))
    )
    batch = build_batch(records, base_offset=70, compression=codec, producer_id=3, producer_epoch=1,
                        base_sequence=8)  # fmt: skip
    shrink = data.draw(st.booleans())
    horizon = data.draw(st.none() | st.integers(0, 2**45))
    thinner = filter_batch(batch, 0, keep, shrink=shrink, delete_horizon_ms=horizon)
    survivors = [record for record, kept in zip(decode_batch(batch), keep, strict=True) if kept]
    if not survivors:
        assert thinner is None
        return
    assert thinner is not None
    header = header_of(thinner)
    assert decode_batch(thinner) == survivors
    assert is_crc_valid(thinner, header)
    assert header.compression == codec
    assert header.base_offset == 70
    assert header.last_offset == (survivors[-1].offset if shrink else 70 + len(records) - 1)
    assert header.max_timestamp == max(record.timestamp for record in survivors)
    assert header.delete_horizon_ms == horizon
    assert header.base_sequence == 8
    assert summarize_batch(thinner, header, consecutive=False).record_count == len(survivors)


@codecs
@pytest.mark.parametrize("horizon", [None, 7])
def test_what_the_broker_has_stamped_keeps_its_time(
    codec: Compression, horizon: int | None
) -> None:
    """Also where the records' own times run backwards."""
    batch = build_batch([NewRecord(t, b"k", b"v") for t in (50, 40, 30)], compression=codec)
    set_log_append_time(batch, 0, 99)
    header = header_of(batch)
    assert find_first_at(batch, header, 99, 1) == (1, 99)
    assert find_max_timestamp(batch, header, 2) == (2, 99)
    thinner = filter_batch(batch, 0, b"\0\1\1", delete_horizon_ms=horizon)
    assert thinner is not None
    assert header_of(thinner).max_timestamp == 99
    assert decode_batch(thinner) == decode_batch(batch)[1:]


@codecs
def test_survivors_may_become_tombstones(codec: Compression) -> None:
    records = [NewRecord(5 + i, b"k%d" % i, b"v", ((b"h", b"x"),)) for i in range(4)]
    batch = build_batch(records, base_offset=70, compression=codec)
    thinner = filter_batch(batch, 0, b"\0\1\1\0", blanks=b"\1\0\1\1")
    assert thinner is not None
    assert is_crc_valid(thinner, header_of(thinner))
    _, second, third, _ = decode_batch(batch)
    assert decode_batch(thinner) == [second, third._replace(value=None)]


def test_filter_keeps_the_records_bytes() -> None:
    """Even bytes that this module would write otherwise: here a varint of two bytes for 0."""
    body = b"\x00\x80\x00\x00\x02k\x02v\x00"
    odd = bytes([len(body) * 2]) + body
    plain = build_batch([NewRecord(0, b"k", b"v")])
    batch = room._assemble(header_of(plain), odd, None)
    kept = filter_batch(batch, 0, b"\x01")
    assert kept == batch


def test_batch_built_with_gaps() -> None:
    batch = build_batch([NewRecord(1, b"a", None, (), 4), NewRecord(2, b"b", None)])
    assert [record.offset for record in decode_batch(batch)] == [4, 5]
    with pytest.raises(ValueError, match="offset delta 3 after 4"):
        build_batch([NewRecord(1, b"a", None, (), 4), NewRecord(2, b"b", None, (), 3)])
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])


@codecs
def test_the_outline_of_a_batch(codec: Compression) -> None:
    records = [NewRecord(50, b"", b"v"), NewRecord(40, None, b"v"), NewRecord(60, b"k", None)]
    batch = bytes(7) + build_batch(records, compression=codec)
    outline = room.outline_batch(batch, read_batch_header(batch, 7))
    assert outline == [(50, True), (40, False), (60, True)]


def test_time_searches() -> None:
    times = [50, 40, 90, 90, 70]
    batch = build_batch([NewRecord(t, None, b"") for t in times], base_offset=10)
    header = header_of(batch)
    assert find_first_at(batch, header, -1) == (10, 50)
    assert find_first_at(batch, header, 51) == (12, 90)
    assert find_first_at(batch, header, 91) is None
    assert find_first_at(batch, header, 2**63 - 1) is None
    assert find_first_at(batch, header, -(2**63)) == (10, 50)
    assert find_max_timestamp(batch, header) == (12, 90)


def test_end_transaction_markers() -> None:
    for is_commit in (True, False):
        marker = EndTransactionMarker(is_commit, 6)
        batch = build_end_transaction_marker(
            marker,
            base_offset=8,
            timestamp=1000,
            producer_id=5,
            producer_epoch=2,
            partition_leader_epoch=4,
        )
        header = header_of(batch)
        assert is_crc_valid(batch, header)
        assert (header.base_offset, header.partition_leader_epoch) == (8, 4)
        assert header.base_timestamp == header.max_timestamp == 1000
        assert header.is_control
        assert header.is_transactional
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, -1)
        (record,) = decode_batch(batch)
        assert record.key == bytes([0, 0, 0, is_commit])
        assert record.value == b"\x00\x00\x00\x00\x00\x06"
        assert read_end_transaction_marker(record) == marker


def test_the_bits_of_attributes() -> None:
    """As Apache Kafka counts them."""
    batch = build_batch([NewRecord(5, b"k", b"v")], compression=Compression.ZSTD, is_control=True)
    assert header_of(batch).attributes == 4 | 1 << 5
    batch = build_batch([NewRecord(5, b"k", b"v")], is_transactional=True, producer_id=1)
    assert header_of(batch).attributes == 1 << 4
    thinner = filter_batch(batch, 0, b"\1", delete_horizon_ms=7)
    assert thinner is not None
    assert header_of(thinner).attributes == 1 << 4 | 1 << 6
    set_log_append_time(batch, 0, 9)
    assert header_of(batch).attributes == 1 << 4 | 1 << 3


def test_odd_control_records() -> None:
    assert read_control_type(Record(0, 0, b"\0\0\x7f\xff", None)) is ControlType.UNKNOWN
    assert read_end_transaction_marker(Record(0, 0, b"\0\0\0\2", b"")) is None
    for record in (
        Record(0, 0, None, None),
        Record(0, 0, b"\0\0\0", None),
        Record(0, 0, b"\xff\xff\0\1", None),
        Record(0, 0, b"\0\0\0\1", b"\0\0\0\0\0"),
        Record(0, 0, b"\0\0\0\1", None),
    ):
        with pytest.raises(InvalidRecords):
            read_end_transaction_marker(record)


def test_skip_batch() -> None:
    batch = skip_batch(2**40 + 1)
    header = header_of(batch)
    assert is_crc_valid(batch, header)
    assert header.base_offset == header.last_offset == 2**40 + 1
    assert header.attributes == 0x20
    assert header[10:] == (-1, -1, -1, 1)
    (record,) = decode_batch(batch)
    assert record.key == b"\0\0\0\x09"
    assert read_control_type(record) is ControlType.SKIP


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda b: b[:16] + b"\x00" + b[17:], ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (lambda b: (b[:16] + b"\x01" + b[17:])[:30], ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (lambda b: b[:16] + b"\x03" + b[17:], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:60], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:8] + b"\x00\x00\x00\x30" + b[12:], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:8] + b"\xff\xff\xff\xff" + b[12:], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:-1], ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_unsound_headers(change: object, code: ErrorCode) -> None:
    batch = change(bytes(build_batch([NewRecord(0, b"k", b"v")])))  # type: ignore[operator]
    with pytest.raises(InvalidRecords) as caught:
        decode_batch(batch)
    assert caught.value.error_code is code


def test_iterating_over_headers() -> None:
    one = build_batch([NewRecord(0, b"k", b"v")])
    buf = b"junk" + one + one + one[:-1]
    end = len(buf)
    assert [h.position for h in iter_batch_headers(buf, 4, 4 + 2 * len(one))] == [4, 4 + len(one)]
    for cut in (end, end - len(one) + 5, end - len(one) + 15):
        assert len(list(iter_batch_headers(buf[:cut], 4, cut, incomplete_tail=True))) == 2
        with pytest.raises(InvalidRecords):
            list(iter_batch_headers(buf[:cut], 4, cut))


def test_filtering_offsets_that_do_not_ascend() -> None:
    batch = bytearray(build_batch([NewRecord(0, b"k", b"v"), NewRecord(0, b"k", b"v")]))
    # Length, attributes, timestamp delta, offset delta (zigzag), …: the same record twice.
    record_bytes = (len(batch) - 61) // 2
    assert (batch[61 + 3], batch[61 + record_bytes + 3]) == (0, 2)
    batch[61 + 3], batch[61 + record_bytes + 3] = 2, 0
    with pytest.raises(InvalidRecords, match="offset delta 0 after 1"):
        filter_batch(with_crc(batch), 0, b"\x01\x01", delete_horizon_ms=7)


@given(NEW_RECORDS, CODECS, st.integers(0, 2**32))
def test_hostile_batches_raise_nothing_else(
    records: list[NewRecord], codec: Compression, seed: int
) -> None:
    rng = random.Random(seed)
    batch = with_crc(mutate(rng, build_batch(records, compression=codec)))
    position = rng.choice([0, 0, 0, 1, len(batch)])
    for call in (
        lambda: decode_batch(batch, position, size_max=100_000),
        lambda: summarize_batch(batch, read_batch_header(batch, position)),
        lambda: find_first_at(batch, read_batch_header(batch, position), 5),
        lambda: recompress(batch, position, Compression.NONE, size_max=100_000),
        lambda: filter_batch(
            batch, position, b"\x01" * len(records), shrink=True, delete_horizon_ms=7
        ),
        lambda: set_log_append_time(batch, position, 9),
    ):
        try:
            call()
        except InvalidRecords:
            pass
        except ValueError as error:
            assert "choices for" in str(error)  # noqa: PT017
