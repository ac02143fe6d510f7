"""Requests that decide what those behind them mean: nothing behind one is handled before it is
done, and nothing ever when it fails."""

from __future__ import annotations

from typing import Any

import pytest

from data_plane.broker.request.api import Buffer, CloseConnection, Deferred, HandlerTable
from data_plane.broker.request.dispatch import Dispatcher
from data_plane.broker.request.principal import ListenerSettings, Principal, SecurityProtocol
from data_plane.broker.request.request_gate import GateState
from data_plane.server.listener import AUTHENTICATION_MS_MAX, CLOSE_DEADLINE_MS, SWEEP_INTERVAL_MS
from data_plane.wire.headers import RequestHeader, encode_request_header
from data_plane.wire.messages.api_versions_request import ApiVersionsRequest
from data_plane.wire.messages.init_producer_id_request import InitProducerIdRequest
from data_plane.wire.messages.init_producer_id_response import InitProducerIdResponse
from data_plane.wire.messages.list_offsets_request import ListOffsetsRequest
from data_plane.wire.messages.list_offsets_response import ListOffsetsResponse
from data_plane.wire.primitives import Writer
from data_plane.wire.registry import API_BY_KEY, ApiKey
from tests.broker.broker_player import BrokerPlayer
from tests.server.connection_player import PlayedListener, connect, frame
from tests.server.test_kept_requests import received
from tests.server.test_listener import Harness

ALICE = Principal("User", "alice")


class Authority:
    """Requests that begin with `x` are exclusive, with `w` they wait; the others are answered at
    once."""

    def __init__(self, *, is_authenticated: bool = True) -> None:
        self.listener = PlayedListener(lambda request: [b""], is_authenticated=is_authenticated)
        self.listener.dispatcher = self  # type: ignore[assignment]
        self.handled: list[bytes] = []
        self.open: dict[bytes, Deferred[list[Buffer]]] = {}
        self.last_api_key = -1

    def dispatch(self, info: Any, buf: bytearray, position: int, end: int, now_ms: int) -> Any:
        request = bytes(buf[position : position + 2])
        self.handled.append(request)
        if request[:1] not in (b"x", b"w"):
            return [request]
        self.open[request] = Deferred(is_exclusive=request.startswith(b"x"))
        return self.open[request]

    def finish(self, request: bytes) -> None:
        self.open.pop(request).complete([request])


@pytest.mark.parametrize("size", [10, 3_000_000], ids=["in the shared buffer", "in its own"])
@pytest.mark.parametrize("cut", [1, 7, 100_000])
def test_what_follows_an_exclusive_request_waits(size: int, cut: int) -> None:
    authority = Authority()
    connection, transport = connect(authority.listener)
    behind = frame(b"a3") + frame(b"x4") + frame(b"a5")
    data = frame(b"w1") + frame(b"x2" + bytes(size)) + behind
    at = len(data) - len(behind) - cut if cut < size else 5
    assert received(connection, data[:at]) == b""
    rest = received(connection, data[at:])
    assert authority.handled == [b"w1", b"x2"]
    assert not transport.is_reading_now
    assert not connection.is_idle
    assert not connection.is_answered
    authority.finish(b"x2")
    # Not within whatever answered it; and its answer waits for the earlier one.
    assert authority.handled == [b"w1", b"x2"]
    assert transport.sent == b""
    authority.listener.take_turn()
    rest = received(connection, rest)
    assert authority.handled == [b"w1", b"x2", b"a3", b"x4"]
    authority.finish(b"w1")
    assert transport.sent == b"w1x2a3"
    authority.finish(b"x4")
    authority.listener.take_turn()
    assert received(connection, rest) == b""
    assert transport.sent == b"w1x2a3x4a5"
    assert transport.is_reading_now
    memory = authority.listener.memory
    assert (memory.half_frames_bytes, memory.waiting_bytes) == (0, 0)


@pytest.mark.parametrize("is_open_before", [False, True])
@pytest.mark.parametrize("tail", [b"", b"\0\0\0\5a"], ids=["whole", "with half a frame"])
def test_nothing_behind_a_failed_request_is_handled(is_open_before: bool, tail: bytes) -> None:
    """The answers of those before it, and its own, leave; then the connection is closed."""
    authority = Authority()
    connection, transport = connect(authority.listener)
    before = frame(b"w1") if is_open_before else b""
    received(connection, before + frame(b"x2") + frame(b"a3") + tail)
    assert connection.info is not None
    connection.info.fail("wrong password")
    assert connection.info.gate.state is GateState.FAILED
    assert authority.listener.reasons == ["wrong password"]
    authority.finish(b"x2")
    authority.listener.take_turn()
    if is_open_before:
        assert not transport.is_closed
        # Nothing more is read either.
        assert not transport.is_reading_now
        authority.finish(b"w1")
    assert transport.is_closed
    assert bytes(transport.sent) == (b"w1x2" if is_open_before else b"x2")
    authority.listener.take_turn()
    connection.connection_lost(None)
    assert b"a3" not in authority.handled
    assert authority.listener.reasons == ["wrong password"]
    memory = authority.listener.memory
    assert (memory.half_frames_bytes, memory.waiting_bytes) == (0, 0)


def test_a_request_that_fails_at_once_is_answered_and_the_connection_closed() -> None:
    listener = PlayedListener(lambda request: [b""])
    connection, transport = connect(listener)
    handled: list[bytes] = []

    def fail(request: bytes) -> list[bytes]:
        handled.append(request)
        assert connection.info is not None
        connection.info.fail("no such user")
        return [b"no"]

    listener.dispatcher._script = fail
    received(connection, frame(b"a1") + frame(b"a2"))
    assert handled == [b"a1"]
    assert transport.sent == b"no"
    assert transport.is_closed


def test_a_client_that_goes_while_it_is_authenticated_leaves_nothing() -> None:
    authority = Authority(is_authenticated=False)
    connection, transport = connect(authority.listener)
    received(connection, frame(b"w1") + frame(b"a2"))
    connection.connection_lost(None)
    assert connection.info is not None
    connection.info.authenticate(ALICE)
    authority.finish(b"w1")
    authority.listener.take_turn()
    assert authority.handled == [b"w1"]
    assert transport.sent == b""
    assert authority.listener.memory.waiting_bytes == 0


def test_each_request_of_a_stranger_is_exclusive() -> None:
    authority = Authority(is_authenticated=False)
    connection, transport = connect(authority.listener)
    received(connection, frame(b"w1") + frame(b"w2") + frame(b"w3") + frame(b"a4"))
    assert authority.handled == [b"w1"]
    authority.finish(b"w1")
    authority.listener.take_turn()
    assert authority.handled == [b"w1", b"w2"]
    assert connection.info is not None
    connection.info.authenticate(ALICE)
    authority.finish(b"w2")
    authority.listener.take_turn()
    # It is known now who speaks.
    assert authority.handled == [b"w1", b"w2", b"w3", b"a4"]
    assert transport.sent == b"w1w2"


def request_frame(api_key: ApiKey, version: int, message: Any) -> bytes:
    writer = Writer()
    header = RequestHeader(
        api_key=int(api_key), api_version=version, correlation_id=1, client_id="c"
    )
    encode_request_header(writer, header)
    API_BY_KEY[api_key].encode_request(writer, message, version)
    return frame(bytes(writer.buf))


API_VERSIONS = request_frame(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
# InitProducerId stands for an authentication, ListOffsets for what needs one.
AUTHENTICATE = request_frame(ApiKey.INIT_PRODUCER_ID, 0, InitProducerIdRequest())
ASK = request_frame(ApiKey.LIST_OFFSETS, 1, ListOffsetsRequest())


class Authenticator:
    """A broker whose clients have to say who they are."""

    def __init__(self) -> None:
        self.broker = BrokerPlayer()
        table = HandlerTable()
        api_versions = self.broker.services.handlers.get(int(ApiKey.API_VERSIONS))
        assert api_versions is not None
        assert api_versions.handler is not None
        table.register(ApiKey.API_VERSIONS, 0, 4, api_versions.handler, is_for_strangers=True)
        table.register(ApiKey.INIT_PRODUCER_ID, 0, 4, self._authenticate, is_for_strangers=True)
        table.register(ApiKey.LIST_OFFSETS, 1, 1, self._ask)
        self.broker.services.handlers = table
        self.listener = PlayedListener(lambda request: None, is_authenticated=False)
        self.listener.dispatcher = Dispatcher(self.broker.services)  # type: ignore[assignment]
        self.pending: Deferred[Any] | None = None
        self.asked_by: list[Principal] = []

    def _authenticate(self, services: Any, context: Any, request: Any, now_ms: int) -> Any:
        self.pending = Deferred(is_exclusive=True)
        return self.pending

    def _ask(self, services: Any, context: Any, request: Any, now_ms: int) -> Any:
        self.asked_by.append(context.principal)
        return ListOffsetsResponse()


def test_a_request_behind_a_pending_authentication_is_of_whom_it_finds() -> None:
    player = Authenticator()
    connection, transport = connect(player.listener)
    received(connection, API_VERSIONS + AUTHENTICATE + ASK + ASK)
    assert player.pending is not None
    assert player.asked_by == []
    assert connection.info is not None
    connection.info.authenticate(ALICE)
    player.pending.complete(InitProducerIdResponse())
    player.listener.take_turn()
    assert player.asked_by == [ALICE] * 2
    assert not transport.is_closed


def test_a_request_behind_an_authentication_that_fails_is_of_nobody() -> None:
    player = Authenticator()
    connection, transport = connect(player.listener)
    received(connection, AUTHENTICATE + ASK)
    assert connection.info is not None
    assert player.pending is not None
    connection.info.fail("wrong password")
    player.pending.complete(InitProducerIdResponse(error_code=58))
    player.listener.take_turn()
    assert player.asked_by == []
    assert transport.is_closed
    # It has been told why.
    assert transport.sent[12:14] == b"\0\x3a"


@pytest.mark.parametrize("before", [b"", AUTHENTICATE], ids=["at once", "after a first attempt"])
def test_a_stranger_gets_no_further(before: bytes) -> None:
    player = Authenticator()
    connection, transport = connect(player.listener)
    received(connection, before + ASK)
    if player.pending is not None:
        # An exchange of several steps: it is not known yet who speaks.
        player.pending.complete(InitProducerIdResponse())
        player.listener.take_turn()
    assert player.asked_by == []
    assert transport.is_closed
    assert player.listener.reasons == ["ListOffsets before authentication"]


def test_who_may_wait_for_an_answer_is_still_a_stranger() -> None:
    """A handler that does not say that it is exclusive changes nothing for strangers."""
    player = Authenticator()
    connection, _ = connect(player.listener)
    received(connection, AUTHENTICATE)
    assert connection.info is not None
    assert connection.info.gate.state is GateState.AUTHENTICATING
    data = bytearray(ASK[4:])
    with pytest.raises(CloseConnection, match="before authentication"):
        player.listener.dispatcher.dispatch(connection.info, data, 0, len(data), 0)


def test_a_stranger_has_a_deadline() -> None:
    harness = Harness()
    _, known_transport = harness.connect()
    harness.settings = ListenerSettings("SECRET", SecurityProtocol.PLAINTEXT, lambda peer: None)
    stranger, transport = harness.connect()
    assert stranger.info is not None
    assert stranger.info.gate.state is GateState.UNAUTHENTICATED
    harness.pass_time(AUTHENTICATION_MS_MAX)
    assert not transport.is_closed
    harness.pass_time(2 * SWEEP_INTERVAL_MS)
    assert transport.is_closed
    assert not known_transport.is_closed
    assert harness.reasons()[0].startswith("not authenticated after")


def test_a_failed_connection_does_not_wait_for_ever_for_its_answers() -> None:
    harness = Harness()
    connection, transport = harness.connect()
    connection._take(Deferred())
    assert connection.info is not None
    connection.info.fail("wrong password")
    harness.pass_time(CLOSE_DEADLINE_MS)
    assert not transport.is_aborted
    harness.pass_time(2 * SWEEP_INTERVAL_MS)
    assert transport.is_aborted
