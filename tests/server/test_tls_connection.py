"""TLS between a socket and a connection: the same bytes in the same order, in the same bounds."""

from __future__ import annotations

import random
import ssl
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.broker.authentication.handshake_budget import BURST, TLS_COST
from data_plane.broker.request.api import Deferred
from data_plane.broker.request.principal import ANONYMOUS
from data_plane.server.client_tls import ListenerTls, make_context
from data_plane.server.connection import Connection
from data_plane.server.outgoing import UNSENT_BYTES_MAX
from data_plane.server.receive_buffers import SEALED_BYTES, SMALL_READ_BYTES
from data_plane.server.tls_connection import (
    CHUNK_BYTES_MAX,
    FEED_BYTES_MAX,
    SEALED_BYTES_MAX,
    STRANGERS_READ_BYTES_MAX,
    TURN_BYTES_MAX,
)
from data_plane.server.tls_records import DATA_RECORDS_PER_FRUITLESS, FRUITLESS_RECORDS_MAX
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.server.connection_player import PlayedListener, frame
from tests.server.tls_player import KEY_UPDATE, TlsPlayer

pytestmark = pytest.mark.skipif(
    bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES or "available"
)
needs_key_updates = pytest.mark.skipif(KEY_UPDATE is None, reason="OpenSSL cannot be called")
Contexts = tuple[ssl.SSLContext, ssl.SSLContext]
RECORD_OVERHEAD_BYTES_MAX = 64


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    authority = Authority(tmp_path_factory.mktemp("tls") / "authority")
    server = make_context(ListenerTls(keystore=str(authority.keystore("broker"))), ())
    return server, ssl.create_default_context(cafile=authority.certificate)


def echo(body: bytes) -> list[bytes]:
    return [frame(body)]


class StrangersListener(PlayedListener):
    """Nobody is authenticated by TLS alone."""

    def secured(self, connection: Connection, tls: Any) -> None:
        pass


def open_player(contexts: Contexts, listener: PlayedListener | None = None) -> TlsPlayer:
    player = TlsPlayer(listener or PlayedListener(echo), *contexts)
    player.shake_hands()
    return player


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_what_is_sent_arrives_once_and_in_order(contexts: Contexts, seed: int) -> None:
    """However it is cut up, whenever the socket is full, and however large the answers are."""
    rng = random.Random(seed)
    answers: list[bytes] = []

    def answer(body: bytes) -> list[bytes | memoryview] | Deferred[list[bytes | memoryview]]:
        parts: list[bytes | memoryview] = [
            memoryview(rng.randbytes(rng.choice((1, 100, 16_384, CHUNK_BYTES_MAX, 300_000))))
            for _ in range(rng.randrange(1, 4))
        ]
        answers.extend(bytes(part) for part in parts)
        if rng.random() < 0.3:
            deferred: Deferred[list[bytes | memoryview]] = Deferred(is_exclusive=True)
            listener.soon.append(lambda: deferred.complete(parts))
            return deferred
        return parts

    listener = PlayedListener(answer)
    sizes = rng.choice(((1, 200), (1, 5_000), (60_000, 100_000)))
    player = TlsPlayer(listener, *contexts, next_size=lambda: rng.randint(*sizes))
    player.shake_hands()
    player.transport.room = rng.choice((0, 50_000, 1 << 40))
    bodies = [rng.randbytes(rng.choice((1, 50, 20_000, 200_000))) for _ in range(rng.randrange(8))]
    for body in bodies:
        player.send(frame(body))
        player.transport.give_room(rng.choice((0, 10_000, 1_000_000)))
    for _ in range(10_000):
        if len(listener.dispatcher.frames) == len(bodies) and not player.tls._backlog_bytes:
            break
        player.transport.give_room(100_000)
        player.exchange()
    player.transport.give_room(1 << 40)
    player.exchange()
    assert listener.dispatcher.frames == bodies
    assert bytes(player.received) == b"".join(answers)
    assert player.transport.most_waiting <= SEALED_BYTES_MAX + CHUNK_BYTES_MAX + 1_000
    assert player.tls.get_write_buffer_size() == 0
    assert listener.reasons == []


def test_what_a_client_leaves_unread_is_counted_and_not_sealed(contexts: Contexts) -> None:
    answer = memoryview(bytes(8 << 20))
    player = open_player(contexts, PlayedListener(lambda body: [answer]))
    player.transport.room = 0
    player.send(frame(b"1"))
    assert player.tls.get_write_buffer_size() >= len(answer)
    assert player.transport.most_waiting <= SEALED_BYTES_MAX + CHUNK_BYTES_MAX + 1_000
    assert player.connection._outgoing.is_paused
    player.send(frame(b"2"))
    assert len(player.listener.dispatcher.frames) == 1, "who does not read is not served further"
    player.transport.give_room(1 << 40)
    player.exchange()
    assert len(player.received) == 2 * len(answer)
    assert player.tls.get_write_buffer_size() <= UNSENT_BYTES_MAX


def test_others_have_a_turn_while_a_large_answer_is_sealed(contexts: Contexts) -> None:
    player = open_player(contexts, PlayedListener(lambda body: [bytes(3 * TURN_BYTES_MAX)]))
    player._client.write(frame(b"1"))
    player._to_send += player._outgoing.read()
    player._arrive()
    sealed = len(player.transport.sent)
    assert TURN_BYTES_MAX <= sealed <= TURN_BYTES_MAX + 2 * CHUNK_BYTES_MAX
    player.listener.take_turn()
    assert len(player.transport.sent) >= 2 * TURN_BYTES_MAX
    player.exchange()
    assert len(player.received) == 3 * TURN_BYTES_MAX


def test_a_close_sends_what_was_written_and_says_so(contexts: Contexts) -> None:
    player = open_player(contexts, PlayedListener(lambda body: [bytes(1 << 20)]))
    player.transport.room = 1_000
    player.send(frame(b"1"))
    player.connection.close("enough")
    assert not player.transport.is_closed
    player.transport.give_room(1 << 40)
    player.exchange()
    assert len(player.received) == 1 << 20
    assert player.has_ended, "it can tell the end from a cut cable"
    assert player.transport.is_closed


def test_a_client_that_says_goodbye_is_let_go(contexts: Contexts) -> None:
    player = open_player(contexts)
    with pytest.raises(ssl.SSLWantReadError):
        player._client.unwrap()
    player.exchange()
    assert player.transport.is_closed
    assert player.listener.reasons == []


def test_handshakes_wait_for_their_turn_before_any_work(contexts: Contexts) -> None:
    listener = PlayedListener(echo, is_authenticated=False)
    for _ in range(BURST // TLS_COST * TLS_COST):
        listener.handshakes.begin("peer", lambda: True, lambda: None, listener.clock.ms)
    player = open_player(contexts, listener)
    assert not player.transport.is_reading_now
    assert player.tls.waiting_since_ms is None, "it waits for us"
    assert listener.handshakes_count == 0
    listener.clock.ms += 1
    listener.timers.run_due(listener.clock.ms)
    assert listener.handshakes_count == 0, "it costs more than one unit"
    listener.clock.ms += TLS_COST
    listener.timers.run_due(listener.clock.ms)
    player.shake_hands()
    assert listener.handshakes_count == 1
    player.send(frame(b"hello"))
    assert bytes(player.received) == frame(b"hello")


def test_a_stranger_remains_one_until_the_handshake_is_done(contexts: Contexts) -> None:
    listener = PlayedListener(echo, is_authenticated=False)
    player = TlsPlayer(listener, *contexts)
    assert player.tls.waiting_since_ms == listener.clock.ms
    assert player.connection.info is not None
    assert not player.connection.info.gate.is_authenticated
    player.shake_hands()
    assert player.tls.waiting_since_ms is None
    assert player.connection.info.gate.is_authenticated


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.1\r\n\r\n", frame(b"\0" * 20), b"\xff" * 4000])
def test_who_does_not_speak_tls_is_closed_with_a_reason(contexts: Contexts, noise: bytes) -> None:
    player = TlsPlayer(PlayedListener(echo), *contexts)
    player._to_send += noise
    player.exchange()
    assert player.transport.is_closed
    (reason,) = player.listener.reasons
    assert reason.startswith("the TLS handshake failed: ")
    assert player.listener.failed_handshakes_count == 1


def test_a_broken_stream_closes_the_connection(contexts: Contexts) -> None:
    player = open_player(contexts)
    player._client.write(frame(b"hello"))
    sealed = bytearray(player._outgoing.read())
    sealed[-1] ^= 1
    player._to_send += sealed
    with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
        player.exchange()
    assert player.transport.is_closed
    assert player.listener.reasons[0].startswith("TLS: ")
    assert player.listener.dispatcher.frames == []


def test_nothing_is_left_of_a_connection_that_is_lost(contexts: Contexts) -> None:
    listener = PlayedListener(lambda body: [bytes(1 << 20)])
    player = open_player(contexts, listener)
    player.transport.room = 0
    player.send(frame(b"1"))
    player.tls.connection_lost(None)
    assert player.tls._backlog_bytes == 0
    assert listener.unsent.of("default").used == 0
    assert listener.closed == [player.connection]


@needs_key_updates
@pytest.mark.parametrize("is_stranger", [True, False])
def test_who_only_changes_keys_is_closed(contexts: Contexts, is_stranger: bool) -> None:
    """It costs its sender nothing, and the loop as much as a request."""
    if is_stranger:
        player = open_player(contexts, StrangersListener(echo, is_authenticated=False))
        read_bytes_max = STRANGERS_READ_BYTES_MAX
    else:
        player = open_player(contexts)
        read_bytes_max = SEALED_BYTES
    player.change_keys(6_000)
    player.exchange()
    assert player.listener.reasons == ["TLS: too many records without data"]
    assert len(player._to_send) >= 6_000 * 27 - 2 * read_bytes_max, "the rest is not looked at"
    assert player.transport.is_closed


@needs_key_updates
def test_a_little_data_does_not_pay_for_changes_of_keys(contexts: Contexts) -> None:
    player = open_player(contexts)
    for _ in range(FRUITLESS_RECORDS_MAX + 2):
        player.change_keys(1)
        player._client.write(frame(b"x"))
    player.exchange()
    assert player.listener.reasons == ["TLS: too many records without data"]


@needs_key_updates
def test_keys_may_change_now_and_then(contexts: Contexts) -> None:
    """As the standard wants it, if by far more often than clients do."""
    player = open_player(contexts)
    for _ in range(FRUITLESS_RECORDS_MAX + 4):
        player.change_keys(1)
        for _ in range(DATA_RECORDS_PER_FRUITLESS):
            player._client.write(frame(b""))
        player.exchange()
    assert player.listener.reasons == []


class TurnNames:
    """Turns that remember what they were."""

    busy_ns = 0

    def __init__(self) -> None:
        self.outermost: list[str] = []
        self._depth = 0

    def begin(self, what: object) -> None:
        self._depth += 1
        if self._depth == 1:
            self.outermost.append(what if isinstance(what, str) else "requests")

    def step(self, what: object) -> None:
        pass

    def end(self) -> None:
        self._depth -= 1


def test_reading_tls_is_a_turn_like_requests(contexts: Contexts) -> None:
    """So it counts towards what requests may take of the loop."""
    listener = PlayedListener(echo)
    player = open_player(contexts, listener)
    listener.turns = turns = TurnNames()
    player.send(frame(b"x"))
    assert turns.outermost == ["reading TLS", "requests"]


def test_little_is_received_of_strangers_and_while_others_wait(contexts: Contexts) -> None:
    listener = StrangersListener(echo, is_authenticated=False)
    player = open_player(contexts, listener)
    assert len(player.tls.get_buffer(-1)) == STRANGERS_READ_BYTES_MAX
    assert player.connection.info is not None
    player.connection.info.authenticate(ANONYMOUS)
    assert len(player.tls.get_buffer(-1)) == SEALED_BYTES
    listener.share.is_over = True
    assert len(player.tls.get_buffer(-1)) == SMALL_READ_BYTES


class MeasuredMemory:
    """OpenSSL's, of what has been received; remembers the most that it held."""

    def __init__(self, memory: ssl.MemoryBIO) -> None:
        self._memory = memory
        self.most_bytes = 0
        self.written_bytes = 0

    @property
    def pending(self) -> int:
        return self._memory.pending

    def write(self, data: memoryview) -> None:
        self._memory.write(data)
        self.written_bytes += len(data)
        self.most_bytes = max(self.most_bytes, self._memory.pending)


def test_openssl_keeps_no_more_than_a_record_each_way(contexts: Contexts) -> None:
    """Its buffers never shrink again, and nobody counts them."""
    player = open_player(contexts, PlayedListener(lambda body: [body[:10]] * 50 + [body]))
    measured: Any = MeasuredMemory(player.tls._incoming)
    player.tls._incoming = measured
    for size in (10, 1_000, 1_000_000):
        player.send(frame(bytes(size)))
    assert 0 < measured.most_bytes <= 16 << 10
    assert player.transport.most_at_once <= (16 << 10) + RECORD_OVERHEAD_BYTES_MAX
    assert len(player.received) == sum(size + 500 for size in (10, 1_000, 1_000_000))


@needs_key_updates
def test_changes_of_keys_are_noticed_before_all_that_was_received_is_read(
    contexts: Contexts,
) -> None:
    player = open_player(contexts)
    measured: Any = MeasuredMemory(player.tls._incoming)
    player.tls._incoming = measured
    player.change_keys(2_000)
    player.exchange()
    assert player.transport.is_closed
    assert measured.written_bytes <= FEED_BYTES_MAX, "the rest is not looked at"


def test_who_is_refused_after_the_handshake_is_never_open(contexts: Contexts) -> None:
    class RefusingListener(PlayedListener):
        def secured(self, connection: Connection, tls: Any) -> None:
            connection.close("nobody knows it")

    player = open_player(contexts, RefusingListener(echo, is_authenticated=False))
    assert player.transport.is_closed
    assert player.listener.reasons == ["nobody knows it"]
    player._client.write(frame(b"hello"))
    player.exchange()
    assert player.listener.dispatcher.frames == []
    assert not player.has_ended, "OpenSSL keeps the session of a client that is told goodbye"
