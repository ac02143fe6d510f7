"""Connections to peers under test, and a peer whose sockets the test gets one by one; on uvloop, as
in the broker."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import uvloop

from data_plane.broker.config.effective import EffectiveConfig
from data_plane.broker.request.turns import UnwatchedTurns
from data_plane.cell.metadata import BrokerImage, MetadataImage
from data_plane.server.clock import Clock
from data_plane.server.peer_connections import PeerConnections
from tests.broker.doubles import RememberingLog

PEER = 2
FETCH, FETCH_VERSION = 1, 17
LIST_OFFSETS, OLD_VERSION = 2, 1  # not flexible: no tags in the headers
RESPONSE_BYTES_MAX = 100_000


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), 30))


class PeerSocket:
    """The other broker's end of one connection, driven by the test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def request(self) -> tuple[int, int, int, bytes]:
        """(API, version, correlation id, body) of the next request."""
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        data = await self._reader.readexactly(size)
        api_key, version, correlation_id, client_id_size = struct.unpack_from(">hhih", data)
        assert data[10 : 10 + client_id_size] == b"broker-1"
        position = 10 + client_id_size
        if api_key == FETCH:
            assert data[position] == 0
            position += 1
        return api_key, version, correlation_id, data[position:]

    def answer(self, correlation_id: int, body: bytes, tags: bytes = b"\x00") -> None:
        self.write(response(correlation_id, body, tags))

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def is_closed_by_us(self) -> bool:
        """Waits for it; what comes before does not matter."""
        with suppress(ConnectionError):
            await self._reader.read()
        return True


def response(correlation_id: int, body: bytes, tags: bytes = b"\x00") -> bytes:
    return struct.pack(">ii", 4 + len(tags) + len(body), correlation_id) + tags + body


class Player:
    """Connections under test, and a peer whose sockets the test gets one by one."""

    def __init__(self, peers: PeerConnections, log: RememberingLog, services: Any) -> None:
        self.peers = peers
        self.services = services
        self.log = log
        self.accepted: asyncio.Queue[PeerSocket] = asyncio.Queue()
        self.answers: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.passes_count = 0

    def send(self, body: bytes = b"ask", api_key: int = FETCH, version: int = 17) -> None:
        is_within = True

        def on_response(answer: memoryview | None, now_ms: int) -> None:
            assert not is_within
            assert now_ms > 0
            self.answers.put_nowait(None if answer is None else bytes(answer))

        self.peers.send(PEER, api_key, version, [body[:1], memoryview(body)[1:]], on_response)
        is_within = False

    async def socket(self) -> PeerSocket:
        return await self.accepted.get()

    def set_timeout(self, timeout_s: float) -> None:
        """For the next request; nobody waits for an answer now."""
        self.peers.timeout_s = timeout_s
        connection = self.peers._peers[PEER].connection
        assert connection is not None
        assert connection._timer is not None
        connection._timer.cancel()
        connection._timer = None

    def end_pause(self) -> None:
        """What follows is as after the pause between two attempts to connect."""
        self.peers._peers[PEER]._retry_at_ms = 0

    def warnings(self) -> list[str]:
        return [fields["reason"] for level, _, fields in self.log.events if level == "warning"]


@asynccontextmanager
async def playing(
    timeout_ms: int = 5_000,
    host: str = "127.0.0.1",
    listener_tls: ssl.SSLContext | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Player]:
    config = EffectiveConfig(
        {
            "replica.socket.timeout.ms": str(timeout_ms),
            "socket.request.max.bytes": str(RESPONSE_BYTES_MAX - 1000),
            "replica.fetch.response.max.bytes": "1000",
        },
        1,
    )
    log = RememberingLog()
    services = SimpleNamespace(
        config=config, node_id=1, log=log, image=None, turns=UnwatchedTurns()
    )
    player: Player

    def end_pass(now_ms: int) -> None:
        player.passes_count += 1

    peers = PeerConnections(services, Clock(), end_pass, tls)  # type: ignore[arg-type]
    player = Player(peers, log, services)

    writers: list[asyncio.StreamWriter] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        player.accepted.put_nowait(PeerSocket(reader, writer))

    server = await asyncio.start_server(accept, host, 0, ssl=listener_tls)
    port = server.sockets[0].getsockname()[1]
    services.image = image_with(host, port)
    try:
        yield player
    finally:
        peers.close()
        server.close()
        for writer in writers:
            writer.transport.abort()
        # The loop tells the protocols of all that, and then lets go of the sockets.
        await asyncio.sleep(0.01)
    for counts in peers.counts.values():
        assert (counts.connections_count, counts.in_flight_count) == (0, 0)


def image_with(host: str, port: int) -> MetadataImage:
    broker = BrokerImage(PEER, "clients.example", 9092, None, host, port)
    return MetadataImage("cell", brokers={PEER: broker})
