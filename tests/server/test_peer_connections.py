"""Connections to peers over real sockets: a peer that answers, lies, sleeps, hangs up, or is gone;
on uvloop, as in the broker. TLS with certificates made by openssl on the spot."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from data_plane.cell.metadata import MetadataImage
from data_plane.server import peer_connections
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
from data_plane.server.peer_connections import OPEN_REQUESTS_MAX
from data_plane.server.peer_metrics import PeerCollector, PeerCounts
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.server.peer_player import (
    FETCH,
    LIST_OFFSETS,
    OLD_VERSION,
    PEER,
    RESPONSE_BYTES_MAX,
    Player,
    image_with,
    playing,
    response,
    run,
)


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


def test_a_peer_that_hangs_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # Longer than a busy machine may take to be "at once".
    monkeypatch.setattr(peer_connections, "RECONNECT_BACKOFF_MS_MAX", 60_000)
    monkeypatch.setattr(peer_connections, "RECONNECT_BACKOFF_MS", 60_000)

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
            player.end_pause()
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
        async with playing(timeout_ms=20_000) as player:
            loop = asyncio.get_running_loop()
            player.send()
            peer = await player.socket()
            await peer.request()
            peer.answer(0, b"in time")
            assert await player.answers.get() == b"in time"
            player.set_timeout(0.15)
            started_s = loop.time()
            player.send()
            await peer.request()
            await fails_with(player, "no answer to API 1 within 150 ms")
            assert 0.14 <= loop.time() - started_s < 10
            assert await peer.is_closed_by_us()

    run(main)


def test_a_slow_peer_that_sends_in_time_is_waited_for() -> None:
    async def main() -> None:
        async with playing(timeout_ms=20_000) as player:
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
            with socket.socket() as silent:
                # Taken, so that nobody else gets it, and without a listener.
                silent.bind(("127.0.0.1", 0))
                player.services.image = image_with(*silent.getsockname())
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
            loop = asyncio.get_running_loop()
            started_s = loop.time()
            with socket.socket() as silent:
                silent.bind(("127.0.0.1", 0))
                player.services.image = image_with(*silent.getsockname())
                player.send()
                while player.peers.counts[PEER].failures_count < 4:
                    await player.answers.get()
                    await asyncio.sleep(0.002)
                    player.send()
            # Attempts at 0, 50, 150 and 350 ms, the third of them without a line in the log.
            assert loop.time() - started_s >= 0.34
            assert len(player.warnings()) == 3

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
