"""How long peers are waited for, and what becomes of requests to connections at their end; without
a network, by a clock that the test turns."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from data_plane.server import peer_connections
from tests.server.peer_player import FETCH, FETCH_VERSION, PEER, Player, playing, response, run


class PlayedTransport:
    """Takes what is written, and can be at its end without having told anybody."""

    def __init__(self) -> None:
        self.is_at_its_end = False
        self.written = b""
        self.is_aborted = False

    def get_extra_info(self, name: str) -> Any:
        return SimpleNamespace(family=socket.AF_UNIX)

    def is_closing(self) -> bool:
        return self.is_at_its_end

    def writelines(self, buffers: Any) -> None:
        self.written += b"".join(buffers)

    def abort(self) -> None:
        self.is_aborted = True


class PlayedLoop:
    """A clock, and what is to be called later."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.timers: list[list[Any]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        timer = [self.now_s + delay_s, callback]
        self.timers.append(timer)
        return SimpleNamespace(cancel=lambda: self.timers.remove(timer))

    def turn_to(self, end_s: float) -> None:
        while due := [timer for timer in self.timers if timer[0] <= end_s + 1e-6]:
            timer = min(due, key=lambda one: one[0])
            self.timers.remove(timer)
            self.now_s = timer[0]
            timer[1]()
        self.now_s = end_s


def played_connection(
    player: Player,
) -> tuple[peer_connections._Peer, peer_connections._PeerConnection, PlayedTransport]:
    """A connection that is made, without a network."""
    peer = peer_connections._Peer(player.peers, PEER)
    connection = peer_connections._PeerConnection(peer)
    transport = PlayedTransport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    return peer, connection, transport


def ask_of(answers: list[bytes | None], body: bytes = b"") -> peer_connections._Request:
    def on_response(answer: memoryview | None, now_ms: int) -> None:
        answers.append(None if answer is None else bytes(answer))

    return peer_connections._Request(FETCH, FETCH_VERSION, [body], on_response)


def test_pauses_grow_to_a_second_and_no_further() -> None:
    async def main() -> None:
        async with playing() as player:
            elapsed_ms = 0
            peer = peer_connections._Peer(player.peers, PEER)
            peer._loop = SimpleNamespace(time=lambda: elapsed_ms / 1000)  # type: ignore[assignment]
            pauses_ms = []
            for _ in range(100):
                peer._not_connected("gone")
                begun_ms = elapsed_ms
                while peer._is_too_early():
                    elapsed_ms += 50
                pauses_ms.append(elapsed_ms - begun_ms)
            assert pauses_ms == [50, 100, 200, 400, 800] + [1_000] * 95

    run(main)


def test_after_an_answer_the_next_pause_is_a_short_one_again() -> None:
    async def main() -> None:
        async with playing() as player:
            elapsed_ms = 0
            peer, connection, _ = played_connection(player)
            peer._loop = SimpleNamespace(time=lambda: elapsed_ms / 1000)  # type: ignore[assignment]
            for _ in range(9):
                peer._not_connected("gone")
            peer._connected(connection)
            connection.send(ask_of([]))
            data = response(0, b"")
            connection.get_buffer(-1)[: len(data)] = data
            connection.buffer_updated(len(data))
            connection.connection_lost(None)
            assert peer._is_too_early()
            elapsed_ms += peer_connections.RECONNECT_BACKOFF_MS
            assert not peer._is_too_early()

    run(main)


def test_an_attempt_to_connect_is_not_waited_for_as_long_as_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peer_connections, "CONNECT_TIMEOUT_MS_MAX", 50)

    async def main() -> None:
        async with playing(timeout_ms=20_000) as player:
            peer = peer_connections._Peer(player.peers, PEER)

            async def create_connection(*_: Any, **__: Any) -> tuple[Any, Any]:
                await asyncio.sleep(20)
                raise AssertionError

            loop = SimpleNamespace(create_connection=create_connection, time=lambda: 1.0)
            peer._loop = loop  # type: ignore[assignment]
            await asyncio.wait_for(peer._connect("broker-2.example", 9092), 10)
            assert player.warnings() == ["no connection within 50 ms"]

    run(main)


def test_each_request_has_its_own_time_and_the_oldest_counts() -> None:
    async def main() -> None:
        async with playing(timeout_ms=1_000) as player:
            _, connection, transport = played_connection(player)
            connection._loop = loop = PlayedLoop()  # type: ignore[assignment]
            answers: list[bytes | None] = []
            connection.send(ask_of(answers))
            loop.turn_to(1_000.6)
            connection.send(ask_of(answers))
            data = response(0, b"in time")
            connection.get_buffer(-1)[: len(data)] = data
            connection.buffer_updated(len(data))
            assert answers == [b"in time"]
            loop.turn_to(1_000.9)
            connection.send(ask_of(answers))
            loop.turn_to(1_001.55)
            assert not transport.is_aborted
            loop.turn_to(1_001.6)
            assert transport.is_aborted
            # Of what it is given up with nothing is taken any more, whatever comes.
            connection.get_buffer(-1)[: len(data)] = response(1, b"in time")
            connection.buffer_updated(len(data))
            assert answers == [b"in time"]
            connection.connection_lost(None)
            assert answers == [b"in time", None, None]
            assert loop.timers == []

    run(main)


def test_correlation_ids_begin_anew_after_the_largest() -> None:
    async def main() -> None:
        async with playing() as player:
            _, connection, transport = played_connection(player)
            connection._loop = loop = PlayedLoop()  # type: ignore[assignment]
            connection._next_correlation_id = 2**31 - 1
            for _ in range(2):
                assert connection.send(ask_of([]))
            size = len(transport.written) // 2
            ids = [struct.unpack_from(">i", transport.written, at + 8)[0] for at in (0, size)]
            assert ids == [2**31 - 1, 0]
            connection.connection_lost(None)
            assert loop.timers == []

    run(main)


def test_what_waited_for_a_connection_that_is_at_its_end_is_not_forgotten() -> None:
    async def main() -> None:
        async with playing() as player:
            peer, connection, transport = played_connection(player)
            answers: list[bytes | None] = []
            peer._attempt = asyncio.create_task(asyncio.sleep(20))
            peer.send(ask_of(answers))
            peer._attempt.cancel()
            transport.is_at_its_end = True
            peer._connected(connection)
            assert answers == [], "not within what makes it"
            await asyncio.sleep(0.01)
            assert answers == [None]
            connection.connection_lost(None)

    run(main)


def test_a_connection_that_ends_as_soon_as_it_was_made_is_none() -> None:
    async def main() -> None:
        async with playing() as player:
            peer = peer_connections._Peer(player.peers, PEER)

            async def create_connection(
                make: Callable[[], peer_connections._PeerConnection], *_: Any, **__: Any
            ) -> tuple[Any, Any]:
                connection, transport = make(), PlayedTransport()
                connection.connection_made(transport)  # type: ignore[arg-type]
                connection.connection_lost(None)
                return transport, connection

            loop = SimpleNamespace(create_connection=create_connection, time=lambda: 1.0)
            peer._loop = loop  # type: ignore[assignment]
            answers: list[bytes | None] = []
            peer._attempt = asyncio.current_task()
            peer.send(ask_of(answers))
            await peer._connect("broker-2.example", 9092)
            assert answers == [None]
            assert player.warnings() == ["closed as soon as it was made"]
            assert peer.connection is None
            assert peer.counts.connections_count == 0
            # Not again at once: the peer may do that each time.
            assert peer._is_too_early()

    run(main)


def test_a_pause_is_over_after_its_last_millisecond() -> None:
    """By a clock of whole milliseconds, told in seconds, some hours after the machine's start."""
    first_ms, pause_ms = 7_800_000, peer_connections.RECONNECT_BACKOFF_MS

    async def main() -> None:
        async with playing() as player:
            elapsed_ms = first_ms
            loop = SimpleNamespace(time=lambda: elapsed_ms / 1000)
            for begun_ms in range(first_ms, first_ms + 1000):
                peer = peer_connections._Peer(player.peers, PEER)
                peer._loop = loop  # type: ignore[assignment]
                elapsed_ms = begun_ms
                peer._not_connected("gone")
                elapsed_ms = begun_ms + pause_ms - 1
                assert peer._is_too_early()
                elapsed_ms = begun_ms + pause_ms
                assert not peer._is_too_early(), begun_ms

    run(main)
