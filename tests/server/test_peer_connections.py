"""Connections to peers over real sockets: a peer that answers, lies, sleeps, hangs up, or is gone;
on uvloop, as in the broker. TLS with certificates made by openssl on the spot."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from data_plane.broker.config.effective import EffectiveConfig
from data_plane.cell.metadata import BrokerImage, MetadataImage
from data_plane.server import peer_connections
from data_plane.server.clock import Clock
from data_plane.server.inter_broker_tls import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    LISTENER,
    TlsFiles,
    find_problems,
    is_loopback,
    make_contexts,
)
from data_plane.server.peer_connections import OPEN_REQUESTS_MAX, PeerConnections
from data_plane.server.peer_metrics import PeerCollector, PeerCounts
from tests.broker.doubles import RememberingLog
from tests.certificates import WHY_NO_CERTIFICATES, Authority

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
    services = SimpleNamespace(config=config, node_id=1, log=log, image=None)
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


def test_requests_in_order_on_one_connection() -> None:
    async def main() -> None:
        async with playing() as player:
            player.send(b"one")
            player.send(b"two", LIST_OFFSETS, OLD_VERSION)
            peer = await player.socket()
            assert await peer.request() == (FETCH, 17, 0, b"one")
            assert await peer.request() == (LIST_OFFSETS, 1, 1, b"two")
            player.send(b"three")
            assert (await peer.request())[2:] == (2, b"three")
            # Tags in a response header are passed over; old responses have none.
            peer.answer(0, b"ONE", b"\x01\x07\x02ab")
            peer.answer(1, b"TWO", b"")
            peer.answer(2, b"")
            assert [await player.answers.get() for _ in range(3)] == [b"ONE", b"TWO", b""]
            assert player.peers.connected_count == 1
            assert player.accepted.empty()
            assert player.passes_count >= 1

    run(main)


def test_what_a_scraper_sees() -> None:
    async def main() -> None:
        async with playing() as player:

            def seen() -> dict[str, float]:
                collector = PeerCollector(lambda: [player.peers.counts])
                return {
                    sample.name.removeprefix("tidewheel_peer_"): sample.value
                    for metric in collector.collect()
                    for sample in metric.samples
                    if sample.labels == {"peer": str(PEER)} and not sample.name.endswith("created")
                }

            assert seen() == {}
            player.send(b"one")
            assert seen()["requests_in_flight"] == 1, "it waits for the connection"
            player.send(b"two")
            peer = await player.socket()
            for _ in range(2):
                await peer.request()
            assert (seen()["connections"], seen()["requests_in_flight"]) == (1, 2)
            peer.answer(0, bytes(1000))
            assert await player.answers.get() == bytes(1000)
            now = seen()
            assert (now["requests_in_flight"], now["responses_total"]) == (1, 1)
            assert now["received_bytes_total"] == 1009
            assert now["sent_bytes_total"] == 2 * (4 + 10 + len("broker-1") + 1 + 3)
            peer.writer.close()
            assert await player.answers.get() is None
            now = seen()
            assert (now["connections"], now["requests_in_flight"]) == (0, 0)
            assert now["reconnects_total"] == 0
            await asyncio.sleep(peer_connections.RECONNECT_BACKOFF_MS / 1000)
            player.send()
            await (await player.socket()).request()
            now = seen()
            assert (now["connections"], now["reconnects_total"]) == (1, 1)
            # Given up by us, and asked again at once: the old one is on its way out.
            player.peers.disconnect(PEER)
            player.send()
            await (await player.socket()).request()
            assert await player.answers.get() is None
            now = seen()
            assert (now["connections"], now["requests_in_flight"]) == (1, 1)
            assert now["reconnects_total"] == 2
            assert now["connection_failures_total"] == 0

    run(main)


def test_the_counts_of_several_purposes_are_added() -> None:
    first, second, third = PeerCounts(), PeerCounts(), PeerCounts()
    first.responses_count, second.responses_count, third.responses_count = 2, 3, 5
    collector = PeerCollector(lambda: [{2: first, 3: second}, {2: third}])
    responses = {
        sample.labels["peer"]: sample.value
        for metric in collector.collect()
        for sample in metric.samples
        if sample.name == "tidewheel_peer_responses_total"
    }
    assert responses == {"2": 7, "3": 3}


def test_answers_in_any_pieces() -> None:
    async def main() -> None:
        async with playing() as player:
            for _ in range(3):
                player.send()
            peer = await player.socket()
            for _ in range(3):
                await peer.request()
            bodies = [bytes([number]) * (size + 1) for number, size in enumerate((10, 70_000, 3))]
            data = b"".join(response(number, body) for number, body in enumerate(bodies))
            for start, end in ((0, 2), (2, 9), (9, 30), (30, 50_000), (50_000, len(data))):
                peer.write(data[start:end])
                await peer.writer.drain()
                await asyncio.sleep(0.01)
            assert [await player.answers.get() for _ in range(3)] == bodies

    run(main)


async def fails_with(player: Player, reason: str) -> None:
    assert await player.answers.get() is None
    assert reason in player.warnings()[-1]


def test_a_peer_that_hangs_up() -> None:
    async def main() -> None:
        async with playing() as player:
            player.send()
            player.send()
            peer = await player.socket()
            await peer.request()
            await peer.request()
            peer.writer.close()
            assert await player.answers.get() is None
            await fails_with(player, "the peer has closed it")
            # Again at once is too early; a moment later there is a new connection.
            player.send()
            assert await player.answers.get() is None
            await asyncio.sleep(peer_connections.RECONNECT_BACKOFF_MS / 1000)
            player.send(b"again")
            peer = await player.socket()
            assert (await peer.request())[2:] == (0, b"again")
            peer.answer(0, b"yes")
            assert await player.answers.get() == b"yes"

    run(main)


def test_an_idle_connection_may_be_closed() -> None:
    async def main() -> None:
        async with playing() as player:
            player.send()
            peer = await player.socket()
            await peer.request()
            peer.answer(0, b"yes")
            assert await player.answers.get() == b"yes"
            peer.writer.close()
            # Nobody says when.
            while player.peers.connected_count:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            assert player.warnings() == []

    run(main)


def test_a_peer_that_hangs_up_in_the_middle_of_an_answer() -> None:
    async def main() -> None:
        async with playing() as player:
            player.send()
            peer = await player.socket()
            await peer.request()
            peer.write(response(0, b"half of it")[:-4])
            await peer.writer.drain()
            await asyncio.sleep(0.02)
            peer.writer.close()
            await fails_with(player, "in the middle of an answer")

    run(main)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (response(0, bytes(RESPONSE_BYTES_MAX)), "allowed are 0 to 100000"),
        (struct.pack(">i", -1), "allowed are 0 to 100000"),
        (response(7, b""), "an answer to request 7 instead of 0"),
        (struct.pack(">ih", 2, 0), "an answer of 2 bytes has no header"),
        (struct.pack(">ii", 4, 0), "1 more bytes expected"),
        (response(0, b"", b"\x01\x00\x7f"), "claims length 127"),
    ],
)
def test_a_peer_that_sends_nonsense(data: bytes, reason: str) -> None:
    async def main() -> None:
        async with playing() as player:
            player.send()
            peer = await player.socket()
            await peer.request()
            peer.write(data)
            assert await player.answers.get() is None
            assert reason in player.warnings()[-1], player.warnings()
            assert await peer.is_closed_by_us()

    run(main)


def test_an_answer_that_nobody_asked_for() -> None:
    async def main() -> None:
        async with playing() as player:
            player.send()
            peer = await player.socket()
            peer.write(response(0, b"yes") + response(1, b"and more"))
            assert await player.answers.get() == b"yes"
            assert await peer.is_closed_by_us()
            assert player.warnings() == ["an answer that nobody has asked for"]
            assert player.answers.empty()

    run(main)


def test_a_peer_that_does_not_answer_in_time() -> None:
    async def main() -> None:
        async with playing(timeout_ms=150) as player:
            loop = asyncio.get_running_loop()
            player.send()
            peer = await player.socket()
            await peer.request()
            await asyncio.sleep(0.1)
            peer.answer(0, b"just in time")
            assert await player.answers.get() == b"just in time"
            started_s = loop.time()
            player.send()
            await peer.request()
            await fails_with(player, "no answer to API 1 within 150 ms")
            # The second request has its own time, not what was left of the first one's.
            assert 0.14 <= loop.time() - started_s < 1
            assert await peer.is_closed_by_us()

    run(main)


def test_a_slow_peer_that_sends_in_time_is_waited_for() -> None:
    async def main() -> None:
        async with playing(timeout_ms=1000) as player:
            player.send()
            peer = await player.socket()
            for byte in response(0, b"slowly but surely"):
                peer.write(bytes([byte]))
                await asyncio.sleep(0.01)
            assert await player.answers.get() == b"slowly but surely"

    run(main)


def test_nobody_there() -> None:
    async def main() -> None:
        async with playing() as player:
            with socket.create_server(("127.0.0.1", 0)) as unused:
                port = unused.getsockname()[1]
            player.services.image = image_with("127.0.0.1", port)
            player.send()
            player.send()
            assert await player.answers.get() is None
            assert await player.answers.get() is None
            assert len(player.warnings()) == 1, "one attempt, one line"
            player.services.image = MetadataImage("cell")
            await asyncio.sleep(peer_connections.RECONNECT_BACKOFF_MS / 1000)
            player.send()
            assert await player.answers.get() is None
            assert len(player.warnings()) == 1

    run(main)


def test_pauses_between_attempts_grow() -> None:
    async def main() -> None:
        async with playing() as player:
            with socket.create_server(("127.0.0.1", 0)) as unused:
                port = unused.getsockname()[1]
            player.services.image = image_with("127.0.0.1", port)
            loop = asyncio.get_running_loop()
            started_s = loop.time()
            while loop.time() - started_s < 0.5:
                player.send()
                await player.answers.get()
                await asyncio.sleep(0.002)
            # Attempts at 0, 50, 150 and 350 ms, the third of them without a line in the log.
            assert 2 <= len(player.warnings()) <= 3

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


def test_another_address_is_used_after_disconnect() -> None:
    async def main() -> None:
        async with playing() as player:
            player.send()
            peer = await player.socket()
            await peer.request()
            player.send()
            player.peers.disconnect(PEER)
            assert player.answers.empty()
            assert [await player.answers.get() for _ in range(2)] == [None, None]
            assert await peer.is_closed_by_us()
            player.send(b"new")
            peer = await player.socket()
            assert (await peer.request())[3] == b"new"
            assert player.warnings() == []
            player.peers.disconnect(99)

    run(main)


def test_disconnect_while_connecting() -> None:
    async def main() -> None:
        async with playing() as player:
            player.send()
            player.peers.disconnect(PEER)
            assert await player.answers.get() is None
            player.send(b"new")
            while True:
                peer = await player.socket()
                try:
                    assert (await peer.request())[3] == b"new"
                except asyncio.IncompleteReadError:
                    continue  # The first attempt had reached the peer already.
                break

    run(main)


def test_a_handler_that_fails_costs_its_connection_alone() -> None:
    async def main() -> None:
        async with playing() as player:

            def fail(answer: memoryview | None, now_ms: int) -> None:
                assert answer is not None
                raise ZeroDivisionError("oops")

            player.peers.send(PEER, FETCH, 17, [b""], fail)
            player.send()
            peer = await player.socket()
            peer.answer(0, b"x")
            await fails_with(player, "ZeroDivisionError('oops')")
            await asyncio.sleep(peer_connections.RECONNECT_BACKOFF_MS / 1000)
            player.send()
            assert await (await player.socket()).request()

    run(main)


def test_a_handler_that_fails_without_an_answer_leaves_the_others_theirs() -> None:
    async def main() -> None:
        async with playing() as player:

            def fail(answer: memoryview | None, now_ms: int) -> None:
                raise ZeroDivisionError("oops")

            player.peers.send(PEER, FETCH, 17, [b""], fail)
            player.send()
            (await player.socket()).writer.close()
            assert await player.answers.get() is None
            assert "ZeroDivisionError('oops')" in player.warnings()
            # What they have woken runs, as after an answer.
            assert player.passes_count == 1

    run(main)


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


def test_a_handler_may_send_and_disconnect() -> None:
    async def main() -> None:
        async with playing() as player:

            def again(answer: memoryview | None, now_ms: int) -> None:
                player.send(b"next")

            def enough(answer: memoryview | None, now_ms: int) -> None:
                player.peers.disconnect(PEER)

            player.peers.send(PEER, FETCH, 17, [b"first"], again)
            player.peers.send(PEER, FETCH, 17, [b"second"], enough)
            peer = await player.socket()
            for correlation_id in range(2):
                assert (await peer.request())[2] == correlation_id
            peer.write(response(0, b"a") + response(1, b"b") + response(2, b"c"))
            assert await player.answers.get() is None
            assert await peer.is_closed_by_us()
            await asyncio.sleep(0.02)
            assert player.answers.empty()

    run(main)


def test_requests_that_may_wait_are_bounded() -> None:
    async def main() -> None:
        async with playing() as player:
            for _ in range(OPEN_REQUESTS_MAX + 1):
                player.send()
            assert await player.answers.get() is None
            assert player.answers.empty()
            peer = await player.socket()
            for _ in range(OPEN_REQUESTS_MAX):
                await peer.request()
            assert player.answers.empty()

    run(main)


def test_a_connection_that_is_full_is_still_the_only_one() -> None:
    async def main() -> None:
        async with playing() as player:
            player.send()
            peer = await player.socket()
            assert (await peer.request())[2] == 0
            for _ in range(OPEN_REQUESTS_MAX - 1):
                player.send()
            player.send(b"one too many")
            assert await player.answers.get() is None
            await asyncio.sleep(0.02)
            assert player.accepted.empty()
            assert player.answers.empty()
            for number in range(1, OPEN_REQUESTS_MAX):
                assert (await peer.request())[2] == number
            # With room again it goes on as before.
            peer.answer(0, b"yes")
            assert await player.answers.get() == b"yes"
            player.send(b"next")
            assert (await peer.request())[2:] == (OPEN_REQUESTS_MAX, b"next")

    run(main)


def test_the_kernel_watches_idle_connections() -> None:
    async def main() -> None:
        sock = socket.socket()
        peer_connections._tune(sock)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 6_000
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 3
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 3
        sock.close()

    if hasattr(socket, "TCP_USER_TIMEOUT"):
        run(main)


# TLS.


needs_openssl = pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES)
Scenario = Callable[[Player], Awaitable[None]]


async def works(player: Player) -> None:
    player.send()
    peer = await player.socket()
    assert (await peer.request())[3] == b"ask"
    peer.answer(0, bytes(90_000))
    assert await player.answers.get() == bytes(90_000)


async def is_refused(player: Player) -> None:
    player.send()
    assert await player.answers.get() is None
    assert player.peers.connected_count == 0
    assert "no answer" not in player.warnings()[-1]


@needs_openssl
def test_mutual_tls(tmp_path: Path) -> None:
    cell, others = Authority(tmp_path / "cell"), Authority(tmp_path / "others")
    listener = make_contexts(cell.issue("listener", "IP:127.0.0.1")).server
    elsewhere = make_contexts(cell.issue("elsewhere", "DNS:broker-9.example")).server
    ours = make_contexts(cell.issue("ours", "DNS:broker-1.example")).client
    stranger = make_contexts(others.issue("stranger", "IP:127.0.0.1"))
    nameless, disguised = (ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) for _ in range(2))
    for context in (nameless, disguised):
        context.load_verify_locations(cell.folder / "ca.pem")
    disguised.load_cert_chain(*others.issue("disguised", "DNS:broker-1.example")[:2])
    cases: list[tuple[ssl.SSLContext, ssl.SSLContext, Scenario]] = [
        (listener, ours, works),
        # Another broker's certificate, another authority's, none at all.
        (elsewhere, ours, is_refused),
        (stranger.server, ours, is_refused),
        (listener, stranger.client, is_refused),
        (listener, disguised, is_refused),
        (listener, nameless, is_refused),
    ]

    for listener_tls, tls, scenario in cases:

        async def main(
            listener_tls: ssl.SSLContext = listener_tls,
            tls: ssl.SSLContext = tls,
            scenario: Scenario = scenario,
        ) -> None:
            async with playing(listener_tls=listener_tls, tls=tls) as player:
                asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
                await scenario(player)

        run(main)


@needs_openssl
def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    cell = Authority(tmp_path / "cell")
    one, two = cell.issue("one", "DNS:one"), cell.issue("two", "DNS:two")
    with pytest.raises(OSError, match="KEY_VALUES_MISMATCH"):
        make_contexts(TlsFiles(one.certificate, two.key, one.authority))
    with pytest.raises(OSError, match=r"none: .*No such file"):
        make_contexts(TlsFiles(one.certificate, one.key, str(tmp_path / "none")))


def test_only_loopback_goes_without_tls() -> None:
    for host in ("127.0.0.1", "127.8.0.1", "::1", "localhost"):
        assert is_loopback(host)
        assert find_problems(host, "", "", "") == []
    for host in ("10.0.0.1", "0.0.0.0", "::", "broker-1.example", ""):
        assert not is_loopback(host)
        [(name, reason)] = find_problems(host, "", "", "")
        assert name == LISTENER
        assert "mutual TLS" in reason
        assert find_problems(host, "c", "k", "a") == []
    assert [name for name, _ in find_problems("127.0.0.1", "c", "", "")] == [KEY, AUTHORITY]
    assert [name for name, _ in find_problems("10.0.0.1", "", "k", "a")] == [CERTIFICATE]
