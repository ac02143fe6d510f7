"""The kernel on frames, Produce and Fetch: both forms against the generated codecs, on sound and
on hostile bytes, and the frame splitter at its limits."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.wire.errors import MalformedFrame, UnsupportedVersion
from data_plane.wire.messages import fetch_request as fetch
from data_plane.wire.primitives import ARRAY_ITEMS_MAX, STRING_BYTES_MAX, Reader, Writer
from tests.wire.kernel_pairs import (
    COMPILED,
    INTERPRETED,
    Implementation,
    both,
    mutate,
    needs_compiled,
    outcome,
)
from tests.wire.message_cases import RandomChooser, all_messages, build, decoder, encoder

SEEDS = st.integers(0, 2**32)
PRODUCE, FETCH = all_messages()["produce_request"], all_messages()["fetch_request"]
FIRST_PRODUCE, LAST_PRODUCE = 3, 13
FIRST_FETCH, LAST_FETCH = 4, 18


def encoded(message: Any, version: int, rng: random.Random) -> bytes:
    writer = Writer()
    encoder(message)(writer, build(message, version, RandomChooser(rng)), version)
    return bytes(writer.buf)


def generated_produce(data: bytes | bytearray, version: int) -> Any:
    """What the generated codec reads, in the kernel's shape, records as bytes."""
    message = decoder(PRODUCE)(Reader(data), version)
    return (
        message.transactional_id,
        message.acks,
        message.timeout_ms,
        [
            (
                topic.name,
                topic.topic_id.bytes,
                [
                    (part.index, None if part.records is None else bytes(part.records))
                    for part in topic.partition_data
                ],
            )
            for topic in message.topic_data
        ],
    )


def kernel_produce(implementation: Implementation, data: bytes | bytearray, version: int) -> Any:
    view = implementation.requests.parse_produce(data, 0, len(data), version)
    return (
        *view[:3],
        [
            (
                topic.name,
                topic.topic_id,
                [
                    (
                        part.partition_index,
                        None
                        if part.records_start < 0
                        else bytes(data[part.records_start : part.records_end]),
                    )
                    for part in topic.partitions
                ],
            )
            for topic in view.topics
        ],
    )


def generated_fetch(data: bytes | bytearray, version: int) -> Any:
    message = decoder(FETCH)(Reader(data), version)
    state = message.replica_state
    return (
        message.cluster_id,
        state.replica_id if version >= 15 else message.replica_id,
        state.replica_epoch,
        message.max_wait_ms,
        message.min_bytes,
        message.max_bytes,
        message.isolation_level,
        message.session_id,
        message.session_epoch,
        [
            (
                topic.topic,
                topic.topic_id.bytes,
                [
                    (
                        part.partition,
                        part.current_leader_epoch,
                        part.fetch_offset,
                        part.last_fetched_epoch,
                        part.log_start_offset,
                        part.partition_max_bytes,
                        part.replica_directory_id.bytes,
                        part.high_watermark,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in message.topics
        ],
        [
            (topic.topic, topic.topic_id.bytes, list(topic.partitions))
            for topic in message.forgotten_topics_data
        ],
        message.rack_id,
    )


def refusal(result: Any) -> Any:
    """Errors by their class alone: the generated codec words them differently."""
    if isinstance(result, tuple) and result and isinstance(result[0], type):
        return result[0]
    return result


def compare_produce(version: int, data: bytes | bytearray) -> None:
    generated = refusal(outcome(generated_produce, data, version))
    interpreted = outcome(kernel_produce, INTERPRETED, data, version)
    assert refusal(interpreted) == generated, (version, data.hex())
    if COMPILED is not None:
        assert outcome(kernel_produce, COMPILED, data, version) == interpreted


def compare_fetch(version: int, data: bytes | bytearray) -> None:
    generated = refusal(outcome(generated_fetch, data, version))
    arguments = (data, 0, len(data), version)
    interpreted = outcome(INTERPRETED.requests.parse_fetch, *arguments)
    if not isinstance(interpreted[0], type):
        assert tuple(interpreted) == generated, (version, data.hex())
    else:
        assert interpreted[0] == generated, (version, data.hex())
    if COMPILED is not None:
        assert outcome(COMPILED.requests.parse_fetch, *arguments) == interpreted


@given(SEEDS, st.integers(FIRST_PRODUCE, LAST_PRODUCE))
def test_produce_is_read_as_the_generated_codec_reads_it(seed: int, version: int) -> None:
    rng = random.Random(seed)
    data = encoded(PRODUCE, version, rng)
    compare_produce(version, data)
    for _ in range(10):
        compare_produce(version, mutate(rng, data))
    compare_produce(version, data[: rng.randrange(len(data))])


@given(SEEDS, st.integers(FIRST_FETCH, LAST_FETCH))
def test_fetch_is_read_as_the_generated_codec_reads_it(seed: int, version: int) -> None:
    rng = random.Random(seed)
    data = encoded(FETCH, version, rng)
    compare_fetch(version, data)
    for _ in range(10):
        compare_fetch(version, mutate(rng, data))
    compare_fetch(version, data[: rng.randrange(len(data))])


@needs_compiled
@pytest.mark.nightly
@pytest.mark.timeout(3600)
@settings(max_examples=20_000)
@given(SEEDS, st.booleans())
def test_both_forms_agree_at_length(seed: int, produce: bool) -> None:
    rng = random.Random(seed)
    version = rng.randint(3, 13) if produce else rng.randint(4, 18)
    message, compare = (PRODUCE, compare_produce) if produce else (FETCH, compare_fetch)
    data = encoded(message, version, rng)
    for _ in range(50):
        compare(version, mutate(rng, data))


@both
def test_place_in_a_larger_buffer(implementation: Implementation) -> None:
    rng = random.Random(1)
    data = max((encoded(PRODUCE, 9, rng) for _ in range(9)), key=len)
    framed = b"junk" + data + b"junk"
    view = implementation.requests.parse_produce(memoryview(framed), 4, 4 + len(data), 9)
    assert view.topics
    for topic in view.topics:
        for part in topic.partitions:
            assert part.records_start == -1 or 4 < part.records_start <= part.records_end
    with pytest.raises(MalformedFrame):
        implementation.requests.parse_produce(framed, 4, 4 + len(data) - 1, 9)
    with pytest.raises(ValueError, match="no range"):
        implementation.requests.parse_produce(framed, 4, len(framed) + 1, 9)


@both
def test_other_versions_are_refused(implementation: Implementation) -> None:
    for version in (2, 14, -1):
        with pytest.raises(UnsupportedVersion):
            implementation.requests.parse_produce(b"", 0, 0, version)
    for version in (3, 19):
        with pytest.raises(UnsupportedVersion):
            implementation.requests.parse_fetch(b"", 0, 0, version)


@both
def test_arrays_are_bounded_before_they_are_built(implementation: Implementation) -> None:
    head = b"\x00\x00\x01\x00\x00\x00\x00"  # No transactional id, acks 1, no time-out.
    for count in (b"\xff\xff\xff\xff\x1f", b"\xff\xff\xff\xff\xff\x01", b"\xff"):
        with pytest.raises(MalformedFrame, match="a broken varint at byte 7"):
            implementation.requests.parse_produce(head + count, 0, 7 + len(count), 9)
    for count in (b"\xff\xff\xff\xff\x0f", b"\x05", b"\x00"):
        with pytest.raises(MalformedFrame, match="array"):
            implementation.requests.parse_produce(head + count, 0, 8 + len(count) - 1, 9)
    item = b"\x00\x00\x00\x00\x01\x00"
    for items, fits in ((ARRAY_ITEMS_MAX - 1, True), (ARRAY_ITEMS_MAX, False)):
        writer = Writer()
        writer.buf += head
        writer.write_uvarint(2)
        writer.buf += b"\x02t"
        writer.write_uvarint(items + 1)
        data = bytes(writer.buf) + item * items + b"\x00\x00"
        if fits:
            view = implementation.requests.parse_produce(data, 0, len(data), 9)
            assert len(view.topics[0].partitions) == items
        else:
            with pytest.raises(MalformedFrame, match=f"more than {ARRAY_ITEMS_MAX} array items"):
                implementation.requests.parse_produce(data, 0, len(data), 9)


@both
def test_longest_string(implementation: Implementation) -> None:
    for size, fits in ((STRING_BYTES_MAX, True), (STRING_BYTES_MAX + 1, False)):
        writer = Writer()
        writer.buf += b"\x00\x00\x01\x00\x00\x00\x00\x02"
        writer.write_uvarint(size + 1)
        data = bytes(writer.buf) + b"t" * size + b"\x01\x00\x00"
        if fits:
            view = implementation.requests.parse_produce(data, 0, len(data), 9)
            assert view.topics == [("t" * size, bytes(16), [])]
        else:
            with pytest.raises(MalformedFrame, match=f"a string of {size} bytes"):
                implementation.requests.parse_produce(data, 0, len(data), 9)


@both
@pytest.mark.parametrize("version", range(12, LAST_FETCH + 1))
def test_tags_of_later_versions_are_skipped(implementation: Implementation, version: int) -> None:
    """A partition's directory id is known from version 17 on, its high watermark from 18 on."""
    writer = Writer()
    fetch.encode_fetch_request(
        writer,
        fetch.FetchRequest(
            max_wait_ms=1,
            min_bytes=1,
            topics=[
                fetch.FetchTopic(partitions=[fetch.FetchPartition(fetch_offset=9)], topic="")
                if version >= 13
                else fetch.FetchTopic(topic="t", partitions=[fetch.FetchPartition(fetch_offset=9)])
            ],
        ),
        version,
    )
    plain = bytes(writer.buf)
    assert plain.endswith(b"\x00\x00\x01\x01\x00")
    tags = b"\x02\x00\x10" + b"d" * 16 + b"\x01\x08" + bytes(7) + b"\x05"
    data = plain[:-5] + tags + b"\x00\x01\x01\x00"
    view = implementation.requests.parse_fetch(data, 0, len(data), version)
    part = view.topics[0].partitions[0]
    assert part.replica_directory_id == (b"d" * 16 if version >= 17 else bytes(16))
    assert part.high_watermark == (5 if version >= 18 else 2**63 - 1)
    assert part.fetch_offset == 9


@both
def test_topic_ids_are_their_bytes(implementation: Implementation) -> None:
    topic_id = UUID(int=77)
    message = fetch.FetchRequest(
        max_wait_ms=1,
        min_bytes=1,
        topics=[fetch.FetchTopic(topic_id=topic_id, partitions=[])],
        forgotten_topics_data=[fetch.ForgottenTopic(topic_id=topic_id, partitions=[3, 4])],
    )
    writer = Writer()
    fetch.encode_fetch_request(writer, message, 13)
    view = implementation.requests.parse_fetch(writer.buf, 0, len(writer.buf), 13)
    assert view.topics == [("", topic_id.bytes, [])]
    assert view.forgotten_topics == [("", topic_id.bytes, [3, 4])]


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@both
@given(
    bodies=st.lists(st.binary(min_size=1, max_size=20), max_size=6),
    cut=st.integers(0, 30),
    lead=st.integers(0, 5),
)
def test_frames_are_split(
    implementation: Implementation, bodies: list[bytes], cut: int, lead: int
) -> None:
    data = b"".join(frame(body) for body in bodies)
    data = data[: max(0, len(data) - cut)]
    buf = bytearray(lead) + data + b"\xff"
    split = implementation.requests.split_frames(buf, lead, lead + len(data), 20)
    whole = [bytes(buf[start:end]) for start, end in split.frames]
    assert whole == bodies[: len(whole)]
    assert split.consumed == lead + sum(4 + len(body) for body in whole)
    left = data[split.consumed - lead :]
    assert len(left) < split.frame_bytes
    if len(left) >= 4:
        assert split.frame_bytes == 4 + int.from_bytes(left[:4], "big")
    else:
        assert split.frame_bytes == 4


@both
@pytest.mark.parametrize("size", [0, -1, -(2**31), 101, 2**31 - 1, 0x16030100])
def test_frames_of_impossible_size(implementation: Implementation, size: int) -> None:
    bad = (size & 0xFFFFFFFF).to_bytes(4, "big") + bytes(200)
    split_frames = implementation.requests.split_frames
    with pytest.raises(MalformedFrame, match=f"a frame of {size} bytes, allowed are 1 to 100"):
        split_frames(bad, 0, len(bad), 100)
    buf = frame(b"good") + bad
    split = split_frames(buf, 0, len(buf), 100)
    assert split == ([(4, 8)], 8, 4)
    with pytest.raises(MalformedFrame):
        split_frames(buf, split.consumed, len(buf), 100)
    largest = frame(bytes(100))
    assert split_frames(largest, 0, len(largest), 100).frames == [(4, 104)]
