"""Buffers of half frames: growth, the bound over all of them, the pool."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from data_plane.server.receive_buffers import (
    FRAME_BUFFER_BYTES_MIN,
    GROWTH_FACTOR,
    POOLED_BUFFER_BYTES,
    POOLED_BUFFERS_MAX,
    HalfFrame,
    ReceiveMemory,
)


def test_a_size_prefix_alone_reserves_next_to_nothing() -> None:
    memory = ReceiveMemory()
    half = HalfFrame.start(
        memory, memory.budget.of("a"), memoryview(b"\x06\x40\x00\x00"), 100 << 20, 0, 0
    )
    assert half is not None
    assert memory.half_frames_bytes == FRAME_BUFFER_BYTES_MIN


def test_all_half_frames_together_stay_below_the_bound() -> None:
    memory = ReceiveMemory(half_frames_bytes_max=3 * FRAME_BUFFER_BYTES_MIN)
    data = memoryview(b"1234")
    halves = [HalfFrame.start(memory, memory.budget.of("a"), data, 1 << 20, 0, 0) for _ in range(3)]
    assert all(half is not None for half in halves)
    assert HalfFrame.start(memory, memory.budget.of("a"), data, 1 << 20, 0, 0) is None
    assert halves[0] is not None
    halves[0].release()
    assert HalfFrame.start(memory, memory.budget.of("a"), data, 1 << 20, 0, 0) is not None


def test_growth_is_refused_at_the_bound() -> None:
    memory = ReceiveMemory(half_frames_bytes_max=2 * FRAME_BUFFER_BYTES_MIN)
    half = HalfFrame.start(memory, memory.budget.of("a"), memoryview(b"1234"), 1 << 20, 0, 0)
    assert half is not None
    half.received = FRAME_BUFFER_BYTES_MIN
    assert not half.grow()


def test_a_buffer_grows_with_what_came_and_not_with_what_is_claimed() -> None:
    memory = ReceiveMemory()
    half = HalfFrame.start(memory, memory.budget.of("a"), memoryview(b"1234"), 100 << 20, 0, 0)
    assert half is not None
    sizes = []
    while len(half.buffer) < 200_000:
        half.received += len(half.free_view())
        assert half.grow()
        sizes.append(len(half.buffer))
        assert memory.half_frames_bytes == len(half.buffer)
    assert sizes == [FRAME_BUFFER_BYTES_MIN * GROWTH_FACTOR**power for power in range(1, 4)]


def test_the_pool_is_bounded() -> None:
    memory = ReceiveMemory()
    share = memory.budget.of("a")
    buffers = [memory.reserve(1_000_000, share) for _ in range(POOLED_BUFFERS_MAX + 2)]
    for buffer in buffers:
        assert buffer is not None
        memory.release(buffer, share)
    again = [memory.reserve(1_000_000, share) for _ in range(POOLED_BUFFERS_MAX + 2)]
    assert sum(any(one is buffer for buffer in buffers) for one in again) == POOLED_BUFFERS_MAX
    assert memory.half_frames_bytes == len(again) * POOLED_BUFFER_BYTES


def test_a_connection_that_sends_big_frames_gets_a_pooled_buffer_at_once() -> None:
    memory = ReceiveMemory()
    total = 1_000_000
    first = HalfFrame.start(memory, memory.budget.of("a"), memoryview(b"1234"), total, total, 0)
    assert first is not None
    assert len(first.buffer) == POOLED_BUFFER_BYTES
    buffer = first.buffer
    first.release()
    second = HalfFrame.start(memory, memory.budget.of("a"), memoryview(b"1234"), total, total, 0)
    assert second is not None
    assert second.buffer is buffer
    assert len(second.free_view()) == total - 4


@given(st.binary(min_size=1, max_size=200_000), st.data())
def test_a_frame_in_pieces_is_the_frame(frame: bytes, data: st.DataObject) -> None:
    memory = ReceiveMemory()
    first = data.draw(st.integers(0, len(frame) - 1))
    half = HalfFrame.start(
        memory, memory.budget.of("a"), memoryview(frame)[:first], len(frame), 0, 0
    )
    assert half is not None
    position = first
    while position < len(frame):
        assert half.grow()
        free = half.free_view()
        assert len(free) > 0
        assert len(half.buffer) <= max(FRAME_BUFFER_BYTES_MIN, GROWTH_FACTOR * position) or (
            len(half.buffer) == POOLED_BUFFER_BYTES
        )
        count = data.draw(st.integers(1, len(free)))
        free[:count] = frame[position : position + count]
        half.received += count
        position += count
    assert half.received == half.total
    assert bytes(half.buffer[: len(frame)]) == frame
    half.release()
    assert memory.half_frames_bytes == 0
