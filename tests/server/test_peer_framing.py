"""The receive buffer of a peer: any frames in any pieces, in bounded memory."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.server.peer_framing import (
    BUFFER_BYTES_MIN,
    GROWTH_FACTOR,
    MEMORY_FRAMES,
    FrameBuffer,
)
from data_plane.wire.errors import MalformedFrame

FRAME_BYTES_MAX = 1 << 20


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def take(frames: FrameBuffer) -> list[bytes]:
    taken = []
    while (frame := frames.next_frame()) is not None:
        taken.append(bytes(frame))
    return taken


def feed(frames: FrameBuffer, data: bytes, piece_max: int = 1 << 30) -> list[bytes]:
    """As the event loop does it: as much as there is room for, then the frames."""
    taken = []
    while data:
        view = frames.free_view()
        assert len(view) > 0
        size = min(len(view), len(data), piece_max)
        view[:size] = data[:size]
        data = data[size:]
        may_have_frame = frames.received(size)
        found = take(frames)
        assert may_have_frame or not found
        taken += found
    return taken


def pass_on(frames: FrameBuffer, data: bytes) -> tuple[list[bytes], int]:
    """As the connection does it: no look for frames where there can be none. With the frames, how
    often it looked."""
    taken, looks_count = [], 0
    while data:
        view = frames.free_view()
        size = min(len(view), len(data))
        view[:size] = data[:size]
        data = data[size:]
        if frames.received(size):
            looks_count += 1
            taken += take(frames)
    return taken, looks_count


SIZES = st.integers(0, 300) | st.integers(BUFFER_BYTES_MIN - 6, BUFFER_BYTES_MIN + 6)


@given(st.lists(SIZES | st.integers(0, 400_000), max_size=12), st.lists(SIZES, max_size=20))
def test_frames_come_out_as_they_went_in(sizes: list[int], pieces: list[int]) -> None:
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    data = b"".join(map(framed, bodies))
    frames = FrameBuffer(FRAME_BYTES_MAX)
    taken = []
    for size in pieces:
        taken += feed(frames, data[:size])
        data = data[size:]
    taken += feed(frames, data)
    assert taken == bodies
    assert not frames.has_half_frame


@given(st.lists(SIZES | st.integers(0, 400_000), max_size=12), st.lists(SIZES, max_size=20))
def test_no_frame_waits_for_a_look_that_was_not_taken(sizes: list[int], pieces: list[int]) -> None:
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    data = b"".join(map(framed, bodies))
    frames = FrameBuffer(FRAME_BYTES_MAX)
    taken = []
    for size in pieces:
        taken += pass_on(frames, data[:size])[0]
        data = data[size:]
    taken += pass_on(frames, data)[0]
    assert taken == bodies


def test_a_frame_in_many_pieces_is_looked_for_twice() -> None:
    frames = FrameBuffer(FRAME_BYTES_MAX)
    data = framed(bytes(200_000))
    looks = [pass_on(frames, data[start : start + 1000])[1] for start in range(0, len(data), 1000)]
    # When its size has come, and when it is whole.
    assert [number for number, count in enumerate(looks) if count] == [0, len(looks) - 1]
    assert not frames.has_half_frame


def test_bounds_of_a_frame() -> None:
    assert feed(FrameBuffer(10), framed(bytes(10))) == [bytes(10)]
    assert feed(FrameBuffer(10), framed(b"")) == [b""]
    for size in (11, -1, 2**31 - 1, -(2**31)):
        with pytest.raises(MalformedFrame, match="allowed are 0 to 10"):
            feed(FrameBuffer(10), struct.pack(">i", size))


def test_a_claim_reserves_nothing() -> None:
    frames = FrameBuffer(1 << 30)
    assert feed(frames, struct.pack(">i", 1 << 30) + bytes(1000)) == []
    assert frames.size_bytes == BUFFER_BYTES_MIN
    feed(frames, bytes(BUFFER_BYTES_MIN))
    assert frames.size_bytes <= GROWTH_FACTOR * (BUFFER_BYTES_MIN + 1004)
    assert frames.has_half_frame


def test_a_large_frame_is_received_in_a_buffer_of_its_size() -> None:
    frames = FrameBuffer(64 << 20)
    body = bytes(10 << 20)
    assert feed(frames, framed(body), 200_000) == [body]
    assert frames.size_bytes == len(body) + 4


def test_memory_is_given_back_when_frames_stay_small() -> None:
    frames = FrameBuffer(64 << 20)
    large = framed(bytes(8 << 20))
    feed(frames, large)
    for _ in range(5):
        feed(frames, framed(b"small"))
    feed(frames, large)
    assert frames.size_bytes == len(large), "kept while large ones come"
    for _ in range(MEMORY_FRAMES * 6):
        feed(frames, framed(b"small"))
    assert frames.size_bytes <= GROWTH_FACTOR * BUFFER_BYTES_MIN


def test_a_frame_behind_another_is_moved_only_when_it_must() -> None:
    frames = FrameBuffer(FRAME_BYTES_MAX)
    first, second = framed(b"a" * 1000), framed(b"b" * 1000)
    data = first + second[:500]
    view = frames.free_view()
    view[: len(data)] = data
    frames.received(len(data))
    assert take(frames) == [b"a" * 1000]
    assert feed(frames, second[500:]) == [b"b" * 1000]
    # One that does not fit behind what is already there.
    data = framed(b"c" * (BUFFER_BYTES_MIN - 2000)) + framed(b"d" * 5000)[:1500]
    view = frames.free_view()
    view[: len(data)] = data
    frames.received(len(data))
    assert take(frames) == [b"c" * (BUFFER_BYTES_MIN - 2000)]
    assert feed(frames, framed(b"d" * 5000)[1500:]) == [b"d" * 5000]
    assert frames.size_bytes == BUFFER_BYTES_MIN
