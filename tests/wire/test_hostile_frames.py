"""No bytes whatever make a decoder raise anything but MalformedFrame, or take much memory."""

from __future__ import annotations

import os
import random
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from data_plane.wire import reader as reader_module
from data_plane.wire.errors import MalformedFrame
from data_plane.wire.headers import decode_request_header
from data_plane.wire.messages.delete_topics_request import decode_delete_topics_request
from data_plane.wire.messages.metadata_request import decode_metadata_request
from data_plane.wire.messages.produce_request import decode_produce_request
from data_plane.wire.primitives import ARRAY_ITEMS_MAX, Reader, Writer
from data_plane.wire.registry import API_BY_KEY
from tests.wire.frame_corpus import damage, hostile_request_frames, valid_bodies
from tests.wire.message_cases import all_messages, decoder, versions_of

MESSAGES = all_messages()
CODECS = [(message, version) for message in MESSAGES.values() for version in versions_of(message)]

MEMORY_PER_FRAME_BYTE = 120
"""A decoded array item is an object of up to a few hundred bytes for at least one or two on the
wire; ARRAY_ITEMS_MAX caps the product for long frames."""

MEMORY_FLOOR_BYTES = 64 * 1024


def decode_whatever(data: bytes, codec: int) -> bool:
    """Decodes as the given codec; whether the bytes made sense."""
    message, version = CODECS[codec]
    try:
        decoder(message)(Reader(data), version)
    except MalformedFrame:
        return False
    return True


def decode_frame(frame: bytes) -> bool:
    """As a broker would: header, then the API's request decoder."""
    reader = Reader(frame, min(4, len(frame)))
    try:
        header = decode_request_header(reader)
        spec = API_BY_KEY[header.api_key]
        if not spec.min_version <= header.api_version <= spec.max_version:
            return False
        spec.decode_request(reader, header.api_version)
    except MalformedFrame:
        return False
    return True


def fuzz(seed: int, frames: int) -> tuple[int, int]:
    """Damages bodies and frames and decodes them; how many were still valid, and how many not."""
    rng = random.Random(seed)
    counts = [0, 0]
    bodies = [
        (CODECS.index((body.message, body.version)), body.data) for body in valid_bodies(rng, 2)
    ]
    for _ in range(frames // 2):
        codec, data = rng.choice(bodies)
        counts[decode_whatever(damage(rng, data), codec)] += 1
    for frame in hostile_request_frames(rng, frames - frames // 2):
        counts[decode_frame(frame)] += 1
    return counts[1], counts[0]


@given(data=st.binary(max_size=300), codec=st.integers(0, len(CODECS) - 1))
def test_random_bytes_are_decoded_or_malformed(data: bytes, codec: int) -> None:
    decode_whatever(data, codec)


@given(data=st.binary(max_size=300))
@example(data=b"")
def test_random_frames_are_decoded_or_malformed(data: bytes) -> None:
    decode_frame(data)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_frames_are_decoded_or_malformed(seed: int) -> None:
    valid, malformed = fuzz(seed, frames=20_000)
    assert valid > 1_000, "the damage leaves too little of the frames to test anything"
    assert malformed > 4_000


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(10))
def test_a_million_damaged_frames(part: int) -> None:
    """Every run takes new seeds; TIDEWHEEL_FUZZ_SEED repeats one."""
    run = int(os.environ.get("TIDEWHEEL_FUZZ_SEED", time.time_ns()))
    print(f"TIDEWHEEL_FUZZ_SEED={run}")
    fuzz(run + part, frames=120_000)


@pytest.fixture
def traced() -> Iterator[Callable[[], int]]:
    """Traces allocations; what it gives says how many bytes were in use at most since then, and
    starts over."""

    def peak_bytes() -> int:
        peak = tracemalloc.get_traced_memory()[1] - base[0]
        tracemalloc.reset_peak()
        base[0] = tracemalloc.get_traced_memory()[0]
        return peak

    tracemalloc.start()
    base = [0]
    yield peak_bytes
    tracemalloc.stop()


def test_memory_is_bounded_by_the_size_of_the_frame(traced: Callable[[], int]) -> None:
    rng = random.Random(11)
    bodies = [(CODECS.index((body.message, body.version)), body.data) for body in valid_bodies(rng)]
    for codec, data in bodies:
        decode_whatever(data, codec)
        for _ in range(2):
            damaged = damage(rng, data)
            traced()
            decode_whatever(damaged, codec)
            assert traced() < MEMORY_FLOOR_BYTES + MEMORY_PER_FRAME_BYTE * len(damaged), (
                CODECS[codec],
                damaged,
            )


def test_twelve_bytes_cannot_ask_for_two_billion_items(traced: Callable[[], int]) -> None:
    frame = b"\x7f\xff\xff\xff" + b"\0" * 8
    traced()
    # By the clock of this thread: others may have the processor meanwhile.
    started = time.thread_time()
    with pytest.raises(MalformedFrame, match="topics claims 2147483647 items"):
        decode_metadata_request(Reader(frame), 1)
    assert time.thread_time() - started < 0.1
    assert traced() < MEMORY_FLOOR_BYTES


def test_records_are_not_copied(traced: Callable[[], int]) -> None:
    writer = Writer()
    writer.write_nullable_string(None)
    writer.buf += struct.pack(">hii", 1, 1000, 1)
    writer.write_string("t")
    writer.buf += struct.pack(">iii", 1, 0, 1 << 20)
    frame = bytes(writer.buf) + bytes(1 << 20)
    traced()
    request = decode_produce_request(Reader(frame), 3)
    assert traced() < MEMORY_FLOOR_BYTES
    assert request.topic_data[0].partition_data[0].records == bytes(1 << 20)


def many_items(count: int) -> bytes:
    """DeleteTopics version 6 with `count` topics that have no name, only an id."""
    writer = Writer()
    writer.write_uvarint(count + 1)
    writer.buf += (b"\x00" + bytes(16) + b"\x00") * count
    writer.write_int32(0)
    writer.buf.append(0)
    return bytes(writer.buf)


@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_the_items_of_one_frame_are_capped(excess: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "ARRAY_ITEMS_MAX", 1000)
    reader = Reader(many_items(1000 + excess))
    if excess <= 0:
        assert len(decode_delete_topics_request(reader, 6).topics) == 1000 + excess
    else:
        with pytest.raises(MalformedFrame, match="more than 1000 array items"):
            decode_delete_topics_request(reader, 6)


def test_the_cap_counts_all_arrays_of_the_frame() -> None:
    reader = Reader(struct.pack(">i", 4) * 3 + bytes(16))
    reader.items_left = 10
    assert reader.read_array_length(1) == 4
    assert reader.read_array_length(1) == 4
    with pytest.raises(MalformedFrame, match=f"more than {ARRAY_ITEMS_MAX} array items"):
        reader.read_array_length(1)
