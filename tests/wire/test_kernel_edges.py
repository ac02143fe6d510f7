"""The kernel at its edges, both forms: what of stored bytes is no batch, bounds over several
arrays, the smallest partitions, and tagged fields that say what they must not."""

from __future__ import annotations

from typing import Any

import pytest

from data_plane.wire.compression import Compression
from data_plane.wire.errors import InvalidRecords, MalformedFrame
from data_plane.wire.kernel_responses import encode_fetch_response
from data_plane.wire.kernel_types import FetchPartitionResult
from data_plane.wire.messages import fetch_request as fetch
from data_plane.wire.messages import produce_request as produce
from data_plane.wire.primitives import ARRAY_ITEMS_MAX, Reader, Writer
from data_plane.wire.records import NewRecord, build_batch
from tests.wire.kernel_pairs import Implementation, both, with_crc

TWO = [NewRecord(5, b"k", b"v"), NewRecord(6, None, None)]


def batch_with(position: int, value: bytes) -> bytearray:
    """A sound batch of two records, some bytes of its header replaced, and its CRC right."""
    batch = build_batch(TWO, base_offset=7)
    batch[position : position + len(value)] = value
    return with_crc(batch)


@both
@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        (batch_with(16, b"\1"), "unknown magic 1"),
        (batch_with(16, b"\3"), "unknown magic 3"),
        (batch_with(8, b"\0\0\0\x30"), "the batch length 48 is less than a header"),
        (batch_with(23, b"\xff" * 4), "a negative offset delta or record count"),
        (batch_with(57, b"\xff" * 4), "a negative offset delta or record count"),
        (batch_with(0, b"\xff" * 8), "the base offset -1 is out of order"),
        (batch_with(0, b"\x7f" + b"\xff" * 7), f"the base offset {2**63 - 1} is out of order"),
    ],
)
def test_what_is_stored_and_no_batch(
    implementation: Implementation, batch: bytearray, problem: str
) -> None:
    scan = implementation.batches.scan_batches
    sound = build_batch(TWO)
    assert scan(batch, 0, len(batch)) == ([], 0, problem)
    headers, position, found = scan(sound + batch, 0, len(sound + batch))
    assert ([header.base_offset for header in headers], position) == ([0], len(sound))
    assert found == problem


@both
def test_stored_batches_share_no_offset(implementation: Implementation) -> None:
    scan = implementation.batches.scan_batches
    first = build_batch(TWO, base_offset=7)
    for base_offset, problem in ((9, ""), (8, "the base offset 8 is out of order")):
        both_batches = first + build_batch(TWO, base_offset=base_offset)
        headers, _, found = scan(both_batches, 0, len(both_batches))
        assert found == problem
        assert len(headers) == (1 if problem else 2)


@both
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
@pytest.mark.parametrize("before", [0, 1])
def test_a_stored_batch_cut_at_every_length(
    implementation: Implementation, compression: Compression, before: int
) -> None:
    """What is not there says nothing: the answer is the same at the end of a buffer of its own and
    before foreign bytes, whatever these are."""
    sound = build_batch(TWO)
    batch = build_batch(TWO, base_offset=7, compression=compression)
    front = sound * before
    kernel = implementation.batches
    for size in range(len(batch)):
        end = len(front) + size
        own = bytes(front + batch[:size])
        problem = "incomplete" if size else ""
        answers = [kernel.scan_batches(own, 0, end)]
        for foreign in (*range(4), 49, 127, 128, 255):
            for check_crc in (True, False):
                buf = front + batch[:size] + bytes([foreign]) * 100
                answers.append(kernel.scan_batches(buf, 0, end, check_crc=check_crc))
        for headers, position, found in answers:
            assert (len(headers), position, found) == (before, len(front), problem), size


@both
@pytest.mark.parametrize("headers", [(), ((b"h", None),)])
def test_no_two_records_share_an_offset(implementation: Implementation, headers: Any) -> None:
    one, _ = implementation.batches.encode_records([NewRecord(5, b"k", b"v", headers, 3)], 5)
    walk = implementation.batches.walk_records
    assert walk(one, 0, len(one), 1, consecutive=False).record_count == 1
    with pytest.raises(InvalidRecords, match="record 1: its offset is not higher"):
        walk(one + one, 0, 2 * len(one), 2, consecutive=False)


@both
@pytest.mark.parametrize("prefix", [b"tw-", b"t"])
def test_a_prefix_is_seen_up_to_the_last_byte(
    implementation: Implementation, prefix: bytes
) -> None:
    """No sound record ends with a header's key; so the records behind it are looked at."""
    scan = implementation.batches.scan_headers
    for data in (b"\x7f..." + prefix, prefix):
        with pytest.raises(InvalidRecords):
            scan(data, 0, len(data), 1, prefix)
        for buf in (data, memoryview(data)):
            assert scan(buf, 0, len(data) - 1, 1, prefix) == []


def encoded(encode: Any, message: Any, version: int) -> bytes:
    writer = Writer()
    encode(writer, message, version)
    return bytes(writer.buf)


def fetch_of(topics: list[Any], forgotten: list[Any] | None = None) -> Any:
    return fetch.FetchRequest(
        max_wait_ms=1, min_bytes=1, topics=topics, forgotten_topics_data=forgotten or []
    )


HALF = ARRAY_ITEMS_MAX // 2
# Two topics and their partitions, at the bound and one more.
COUNTS = [(HALF - 1, HALF - 1, True), (HALF - 1, HALF, False)]


@both
@pytest.mark.parametrize(("first", "second", "fits"), COUNTS)
def test_items_of_all_arrays_are_bounded_together(
    implementation: Implementation, first: int, second: int, fits: bool
) -> None:
    requests = implementation.requests
    counts = (first, second)
    part = produce.PartitionProduceData(index=0, records=None)
    frames = [
        (
            requests.parse_produce,
            3,
            encoded(
                produce.encode_produce_request,
                produce.ProduceRequest(
                    transactional_id=None,
                    acks=1,
                    timeout_ms=1,
                    topic_data=[
                        produce.TopicProduceData(name="t", partition_data=[part] * count)
                        for count in counts
                    ],
                ),
                3,
            ),
        )
    ]
    wanted = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    asked = [fetch.FetchTopic(topic="t", partitions=[wanted] * count) for count in counts]
    dropped = [fetch.ForgottenTopic(topic="t", partitions=[0] * count) for count in counts]
    for message in (fetch_of(asked), fetch_of([], dropped), fetch_of(asked[:1], dropped[1:])):
        data = encoded(fetch.encode_fetch_request, message, 7)
        frames.append((requests.parse_fetch, 7, data))
    for parse, version, data in frames:
        if fits:
            parse(data, 0, len(data), version)
        else:
            with pytest.raises(MalformedFrame, match=f"more than {ARRAY_ITEMS_MAX} array items"):
                parse(data, 0, len(data), version)


@both
def test_a_field_of_a_later_version_is_not_read(implementation: Implementation) -> None:
    """The follower's own number came into a tagged field with version 15."""
    tag = b"\x01\x01\x0d" + (9).to_bytes(4, "big") + (3).to_bytes(8, "big") + b"\0"
    for version, replica in ((14, (-1, -1)), (15, (9, 3))):
        data = encoded(fetch.encode_fetch_request, fetch_of([]), version)
        assert data.endswith(b"\0")
        data = data[:-1] + tag
        view = implementation.requests.parse_fetch(data, 0, len(data), version)
        assert (view.replica_id, view.replica_epoch) == replica
        message = fetch.decode_fetch_request(Reader(data), version)
        state = message.replica_state
        generated = state.replica_id if version >= 15 else message.replica_id
        assert (generated, state.replica_epoch) == replica


@both
def test_a_tagged_field_takes_what_it_says(implementation: Implementation) -> None:
    plain = encoded(fetch.encode_fetch_request, fetch_of([]), 17)
    for tag, is_sound in ((b"\x01\0\x03\x03ab", True), (b"\x01\0\x04\x03abc", False)):
        data = plain[:-1] + tag
        if is_sound:
            view = implementation.requests.parse_fetch(data, 0, len(data), 17)
            assert view.cluster_id == "ab"
            continue
        with pytest.raises(MalformedFrame, match="a tagged field takes"):
            implementation.requests.parse_fetch(data, 0, len(data), 17)
        with pytest.raises(MalformedFrame):
            fetch.decode_fetch_request(Reader(data), 17)


@both
def test_partitions_without_anything_to_say_are_the_smallest(
    implementation: Implementation,
) -> None:
    results = [FetchPartitionResult(number, 6, -1, records=None) for number in range(100)]
    data = b"".join(encode_fetch_response(bytes(4), 17, [("", bytes(16), results)]))
    view = implementation.fetched.parse_fetch_response(data, 4, len(data), 17)
    assert [part.partition for part in view.partitions] == list(range(100))
    assert {part.error_code for part in view.partitions} == {6}


@both
def test_leaders_addresses_are_sent_from_the_version_on_that_has_them(
    implementation: Implementation,
) -> None:
    responses = implementation.responses
    endpoints = [(3, "broker-3.example", 9092, None)]
    for encode, first in (
        (responses.encode_fetch_response, 16),
        (responses.encode_produce_response, 10),
    ):
        for version in (first - 1, first):
            with_them = encode(bytes(4), version, [], node_endpoints=endpoints)
            without = encode(bytes(4), version, [])
            assert (with_them == without) == (version < first)
