"""Requests leave the loop to its timers: how much of them an iteration handles, and whose."""

from __future__ import annotations

import random
from typing import Any

import pytest

from data_plane.server.connection import PASS_MS_MAX
from data_plane.server.loop_share import MARK_MS, SHARE_MS
from data_plane.server.receive_buffers import SMALL_READ_BYTES
from tests.server.connection_player import (
    MemoryTransport,
    PlayedListener,
    connect,
    feed,
    frame,
)


class PlayedLoop:
    """Iterations of a loop: callbacks that are due, then every socket that has something."""

    def __init__(self, request_ms: int) -> None:
        self.listener = PlayedListener(self._answer)
        self.request_ms = request_ms
        self.sockets: list[tuple[Any, MemoryTransport, bytearray]] = []
        self.handled: list[bytes] = []
        self.iterations_ms: list[int] = []

    def _answer(self, request: bytes) -> list[bytes]:
        self.listener.clock.ms += self.request_ms
        self.handled.append(request)
        return [request]

    def connect(self, data: bytes) -> int:
        connection, transport = connect(self.listener)
        self.sockets.append((connection, transport, bytearray(data)))
        return len(self.sockets) - 1

    def iterate(self) -> None:
        began_ms = self.listener.clock.ms
        self.listener.take_turn()
        for connection, transport, data in self.sockets:
            if data and transport.is_reading_now:
                view = connection.get_buffer(-1)
                count = min(len(view), len(data))
                view[:count] = data[:count]
                del data[:count]
                connection.buffer_updated(count)
        self.iterations_ms.append(self.listener.clock.ms - began_ms)

    def run(self) -> None:
        while self.listener.soon or any(data for _, _, data in self.sockets):
            self.iterate()


@pytest.mark.parametrize("request_ms", [1, 7, 250])
def test_timers_have_their_turn_however_many_requests_come(request_ms: int) -> None:
    loop = PlayedLoop(request_ms)
    for number in range(40):
        loop.connect(b"".join(frame(b"%d %d" % (number, of)) for of in range(5)))
    loop.run()
    pass_ms = max(PASS_MS_MAX + request_ms, request_ms)
    assert max(loop.iterations_ms) <= MARK_MS + SHARE_MS + 2 * pass_ms
    assert len(loop.handled) == 200
    for number, (_, transport, _) in enumerate(loop.sockets):
        assert transport.sent == b"".join(b"%d %d" % (number, of) for of in range(5))
        assert transport.is_reading_now
    assert loop.listener.memory.waiting_bytes == 0


def test_who_waits_has_his_turn_before_who_asks_again() -> None:
    loop = PlayedLoop(30)
    greedy = [loop.connect(frame(b"greedy") * 100) for _ in range(5)]
    loop.iterate()
    loop.connect(frame(b"modest"))
    for _ in range(2 * len(greedy)):
        loop.iterate()
    assert b"modest" in loop.handled


def test_requests_that_come_one_at_a_time_have_nothing_called_back() -> None:
    """A callback wakes the loop once more. Only work counts, not the time between."""
    loop = PlayedLoop(1)
    connection, transport = connect(loop.listener)
    called_count = 0
    for _ in range(4 * MARK_MS):
        loop.listener.clock.ms += 1_000
        feed(connection, frame(b"x"))
        called_count += len(loop.listener.soon)
        loop.listener.take_turn()
    assert transport.sent == b"x" * 4 * MARK_MS
    # Once in MARK_MS of work, and at the beginning.
    assert called_count <= 5


def test_what_waits_takes_little_memory() -> None:
    """A read of a megabyte for each of ten thousand connections would take ten gigabytes."""
    loop = PlayedLoop(100)
    for _ in range(50):
        loop.connect(frame(bytes(10)) * 30_000)
    loop.iterate()
    waiting_bytes = loop.listener.memory.waiting_bytes
    assert waiting_bytes <= (1 << 20) * 3 + SMALL_READ_BYTES * 50


def test_a_large_frame_waits_where_it_is() -> None:
    loop = PlayedLoop(100)
    large = frame(bytes(2_000_000))
    for _ in range(4):
        loop.connect(large)
    for _ in range(3):
        loop.iterate()
    assert any(connection.has_backlog for connection, _, _ in loop.sockets)
    assert loop.listener.memory.waiting_bytes == 0
    loop.run()
    assert loop.handled == [bytes(2_000_000)] * 4
    assert loop.listener.memory.half_frames_bytes == 0


@pytest.mark.parametrize("seed", range(20))
def test_frames_cut_anywhere_are_handled_once_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    loop = PlayedLoop(0)
    expected = []
    feeds: list[tuple[int, bytes]] = []
    for _ in range(6):
        frames = [frame(rng.randbytes(rng.choice([1, 30, 5_000, 60_000]))) for _ in range(20)]
        expected.append(b"".join(one[4:] for one in frames))
        feeds.append((loop.connect(b""), b"".join(frames)))
    while any(data for _, data in feeds) or loop.listener.soon:
        loop.request_ms = rng.choice([0, 0, 5, 40])
        for at, (socket, data) in enumerate(feeds):
            count = rng.choice([0, 1, 3, 100, 10_000])
            loop.sockets[socket][2].extend(data[:count])
            feeds[at] = (socket, data[count:])
        loop.iterate()
    loop.run()
    assert [bytes(transport.sent) for _, transport, _ in loop.sockets] == expected
    memory = loop.listener.memory
    assert (memory.waiting_bytes, memory.half_frames_bytes) == (0, 0)


def test_an_empty_frame_is_refused_at_once() -> None:
    loop = PlayedLoop(100)
    loop.connect(frame(b"x"))
    loop.connect(frame(b"x"))
    loop.connect(frame(b"x"))
    connection, _ = connect(loop.listener)
    feed(connection, b"\0")
    loop.iterate()
    feed(connection, b"\0\0\0")
    assert loop.handled[-1] == b""
