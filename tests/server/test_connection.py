"""Connections: frames in pieces, answers in order, back-pressure, malformed input."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.broker.request.api import Buffer, CloseConnection, Deferred
from data_plane.server.outgoing import OPEN_SLOTS_MAX, PASS_BYTES_MAX
from data_plane.server.receive_buffers import POOLED_BUFFER_BYTES, ReceiveMemory
from data_plane.wire.errors import MalformedFrame
from tests.broker.doubles import RememberingLog
from tests.server.connection_player import PlayedListener, connect, feed, frame


def echo(request: bytes) -> Sequence[Buffer]:
    return [frame(request)]


@given(
    st.lists(st.binary(max_size=300), max_size=20),
    st.lists(st.integers(1, 700), max_size=40),
)
def test_frames_in_any_pieces_are_answered_in_order(
    bodies: list[bytes], piece_sizes: list[int]
) -> None:
    listener = PlayedListener(echo)
    connection, transport = connect(listener)
    data = b"".join(map(frame, bodies))
    position = 0
    for size in piece_sizes:
        feed(connection, data[position : position + size])
        position += size
    feed(connection, data[position:])
    assert listener.dispatcher.frames == bodies
    assert transport.sent == data
    assert listener.memory.half_frames_bytes == 0
    assert connection.is_idle


def test_a_large_frame_arrives_through_its_own_buffer() -> None:
    listener = PlayedListener(echo)
    connection, transport = connect(listener)
    body = bytes(range(256)) * 20_000
    data = frame(body) + frame(b"next")
    for start in range(0, len(data), 65_536):
        feed(connection, data[start : start + 65_536])
    assert listener.dispatcher.frames == [body, b"next"]
    assert transport.sent == data


def test_who_has_sent_a_large_frame_reserves_no_more_than_a_pooled_buffer_for_the_next() -> None:
    listener = PlayedListener(lambda request: None)
    connection, _ = connect(listener)
    large = frame(bytes(5_000_000))
    for start in range(0, len(large), 1_000_000):
        feed(connection, large[start : start + 1_000_000])
    assert listener.memory.half_frames_bytes == 0
    # One small frame between them makes it no client of small frames.
    for piece in (frame(b"small")[:6], frame(b"small")[6:]):
        feed(connection, piece)
    feed(connection, large[:10])
    assert listener.memory.half_frames_bytes == POOLED_BUFFER_BYTES


def test_later_answers_wait_for_earlier_ones() -> None:
    pending: dict[bytes, Deferred[Any]] = {}

    def script(request: bytes) -> Sequence[Buffer] | Deferred[Any] | None:
        if request == b"B":
            return echo(request)
        if request == b"silent":
            return None
        pending[request] = Deferred()
        return pending[request]

    connection, transport = connect(PlayedListener(script))
    feed(connection, b"".join(map(frame, (b"A", b"B", b"silent", b"C"))))
    assert transport.sent == b""
    pending[b"C"].complete(echo(b"C"))
    assert transport.sent == b""
    pending[b"A"].complete(echo(b"A"))
    assert transport.sent == frame(b"A") + frame(b"B") + frame(b"C")
    assert connection.is_idle


def test_reading_stops_at_the_maximum_of_open_answers_and_goes_on_below() -> None:
    pending: list[Deferred[Any]] = []

    def script(request: bytes) -> Deferred[Any]:
        pending.append(Deferred())
        return pending[-1]

    listener = PlayedListener(script)
    connection, transport = connect(listener)
    feed(connection, frame(b"x") * (OPEN_SLOTS_MAX - 1))
    assert transport.is_reading_now
    feed(connection, frame(b"x") * 3)
    assert not transport.is_reading_now
    assert len(listener.dispatcher.frames) == OPEN_SLOTS_MAX
    pending[0].complete(echo(b"1"))
    listener.take_turn()
    assert len(listener.dispatcher.frames) == OPEN_SLOTS_MAX + 1
    assert not transport.is_reading_now
    for deferred in list(pending[1:]):
        deferred.complete(echo(b"1"))
    listener.take_turn()
    assert len(listener.dispatcher.frames) == OPEN_SLOTS_MAX + 2
    assert transport.is_reading_now


def test_no_request_is_handled_in_the_middle_of_another_one() -> None:
    """An answer may become ready deep within the handling of somebody else's request, which is not
    prepared for others to change what it works on."""
    pending: list[Deferred[Any]] = []
    handling: list[bytes] = []

    def script(request: bytes) -> Any:
        assert handling == []
        handling.append(request)
        answer: Any = echo(request)
        if request == b"commit":
            pending[0].complete(echo(b"1"))
        else:
            answer = Deferred()
            pending.append(answer)
        handling.pop()
        return answer

    listener = PlayedListener(script)
    full, _ = connect(listener)
    feed(full, frame(b"x") * (OPEN_SLOTS_MAX + 1))
    other, transport = connect(listener)
    feed(other, frame(b"commit"))
    assert transport.sent == frame(b"commit")
    assert len(pending) == OPEN_SLOTS_MAX
    listener.take_turn()
    assert len(pending) == OPEN_SLOTS_MAX + 1


def test_requests_of_one_read_stop_when_the_answers_get_too_many() -> None:
    answer = bytes(PASS_BYTES_MAX // 2 + 1)
    listener = PlayedListener(lambda request: [answer])
    connection, transport = connect(listener)
    feed(connection, frame(b"x") * 5)
    assert len(listener.dispatcher.frames) == 2
    # The socket took everything at once: there is no pause, and nobody says that it is over.
    for handled in (4, 5):
        assert not transport.is_reading_now
        assert len(listener.soon) == 1
        listener.take_turn()
        assert len(listener.dispatcher.frames) == handled
    assert transport.is_reading_now
    listener.take_turn()
    assert listener.soon == []


def test_requests_of_one_read_wait_for_a_client_that_does_not_read() -> None:
    answer = bytes(PASS_BYTES_MAX // 2 + 1)
    listener = PlayedListener(lambda request: [answer])
    connection, transport = connect(listener)
    transport.on_write = connection.pause_writing
    feed(connection, frame(b"x") * 5)
    for handled in (2, 4):
        listener.take_turn()
        assert len(listener.dispatcher.frames) == handled
        connection.resume_writing()
    assert len(listener.dispatcher.frames) == 5
    connection.resume_writing()
    assert transport.is_reading_now


def test_a_client_that_does_not_read_is_not_read() -> None:
    listener = PlayedListener(echo)
    connection, transport = connect(listener)
    connection.pause_writing()
    assert not transport.is_reading_now
    connection.resume_writing()
    assert transport.is_reading_now


def test_what_slow_clients_leave_unread_is_counted() -> None:
    deferred: list[Deferred[Any]] = []

    def script(request: bytes) -> Deferred[Any]:
        deferred.append(Deferred())
        return deferred[-1]

    listener = PlayedListener(script)
    connection, transport = connect(listener)
    other, other_transport = connect(listener)
    feed(connection, frame(b"x") * 2)
    transport.unsent = 300_000
    connection.pause_writing()
    other_transport.unsent = 100_000
    other.pause_writing()
    assert listener.unsent.used == 400_000
    deferred[0].complete([bytes(50_000)])
    assert listener.unsent.used == 450_000
    connection.resume_writing()
    assert listener.unsent.used == 100_000
    other.connection_lost(None)
    assert listener.unsent.used == 0


def test_answers_held_behind_one_that_is_not_ready_count_as_unsent() -> None:
    pending: dict[bytes, Deferred[Any]] = {}

    def script(request: bytes) -> Sequence[Buffer] | Deferred[Any]:
        if request == b"ready":
            return [bytes(PASS_BYTES_MAX // 2), bytes(1)]
        pending[request] = Deferred()
        return pending[request]

    listener = PlayedListener(script)
    connection, transport = connect(listener)
    feed(connection, frame(b"A") + frame(b"B") + frame(b"ready"))
    assert listener.unsent.used == PASS_BYTES_MAX // 2 + 1
    assert transport.is_reading_now
    pending[b"B"].complete([bytes(PASS_BYTES_MAX // 2)])
    assert listener.unsent.used == PASS_BYTES_MAX + 1
    feed(connection, frame(b"C") + frame(b"ready"))
    # More answers would only be kept, too.
    assert b"C" not in pending
    assert not transport.is_reading_now
    pending[b"A"].complete(echo(b"A"))
    listener.take_turn()
    assert listener.unsent.used == PASS_BYTES_MAX // 2 + 1
    assert transport.is_reading_now
    assert len(transport.sent) == len(frame(b"A")) + PASS_BYTES_MAX + 1
    connection.connection_lost(None)
    assert listener.unsent.used == 0
    pending[b"C"].complete([bytes(1_000)])
    assert listener.unsent.used == 0


def test_answers_held_by_a_connection_that_is_closed_are_let_go() -> None:
    answers: list[Any] = [Deferred(), [bytes(1_000)]]
    listener = PlayedListener(lambda request: answers.pop(0))
    connection, _ = connect(listener)
    feed(connection, frame(b"x") * 2)
    assert listener.unsent.used == 1_000
    connection.close("a test")
    assert listener.unsent.used == 0


def test_requests_that_take_long_leave_the_others_a_turn() -> None:
    def script(request: bytes) -> Sequence[Buffer]:
        listener.clock.ms += 30
        return echo(request)

    listener = PlayedListener(script)
    connection, transport = connect(listener)
    feed(connection, frame(b"x") * 5 + b"\0")
    for handled in (4, 5):
        assert not transport.is_reading_now
        listener.take_turn()
        assert len(listener.dispatcher.frames) == handled
    listener.take_turn()
    assert listener.soon == []
    assert transport.is_reading_now
    feed(connection, frame(b"y")[1:])
    assert transport.sent == frame(b"x") * 5 + frame(b"y")


def test_requests_that_were_received_are_answered_before_the_end() -> None:
    answer = bytes(PASS_BYTES_MAX // 2 + 1)
    listener = PlayedListener(lambda request: [answer])
    connection, transport = connect(listener)
    feed(connection, frame(b"x") * 5 + frame(b"half")[:6])
    assert len(listener.dispatcher.frames) == 2
    connection.stop_reading()
    for handled in (4, 5):
        assert connection.has_backlog
        listener.take_turn()
        assert len(listener.dispatcher.frames) == handled
    assert not connection.has_backlog
    assert not transport.is_reading_now
    listener.take_turn()
    assert not transport.is_reading_now


def test_requests_that_nobody_got_to_in_time_are_dropped() -> None:
    listener = PlayedListener(lambda request: [bytes(PASS_BYTES_MAX + 1)])
    connection, transport = connect(listener)
    feed(connection, frame(b"x") * 2)
    connection.drop_backlog()
    listener.take_turn()
    assert len(listener.dispatcher.frames) == 1
    # What comes next is not handled either, or it would get the answer of what was dropped.
    assert not transport.is_reading_now


def test_a_bug_in_what_was_left_for_later_closes_the_connection() -> None:
    def script(request: bytes) -> Sequence[Buffer]:
        if request == b"bad":
            raise ZeroDivisionError("a bug")
        return [bytes(PASS_BYTES_MAX + 1)]

    listener = PlayedListener(script)
    listener.log = RememberingLog()
    connection, transport = connect(listener)
    feed(connection, frame(b"x") + frame(b"bad"))
    assert not transport.is_closed
    listener.take_turn()
    assert transport.is_closed
    assert listener.reasons == ["internal error: ZeroDivisionError('a bug')"]
    assert [event for _, event, _ in listener.log.events] == ["connection_failed"]


@pytest.mark.parametrize("size", [-1, -(2**31), 10_001, 2**31 - 1])
@pytest.mark.parametrize("in_pieces", [False, True])
def test_a_frame_beyond_the_bounds_closes_the_connection(size: int, in_pieces: bool) -> None:
    listener = PlayedListener(echo, frame_bytes_max=10_000)
    connection, transport = connect(listener)
    data = struct.pack(">i", size)
    for piece in (data[:2], data[2:]) if in_pieces else (data,):
        feed(connection, piece)
    assert transport.is_closed
    assert str(size) in listener.reasons[0]
    connection.connection_lost(None)
    assert listener.memory.half_frames_bytes == 0


def test_the_largest_allowed_frame_is_served() -> None:
    listener = PlayedListener(echo, frame_bytes_max=10_000)
    connection, transport = connect(listener)
    feed(connection, frame(bytes(10_000)))
    assert not transport.is_closed
    assert len(listener.dispatcher.frames) == 1


@pytest.mark.parametrize("error", [MalformedFrame("no such thing"), CloseConnection("refused")])
def test_answers_before_a_malformed_frame_still_leave(error: Exception) -> None:
    def script(request: bytes) -> Sequence[Buffer]:
        if request == b"bad":
            raise error
        return echo(request)

    listener = PlayedListener(script)
    connection, transport = connect(listener)
    feed(connection, frame(b"good") + frame(b"bad") + frame(b"never"))
    assert transport.sent == frame(b"good")
    assert transport.is_closed
    assert listener.reasons == [str(error)]
    assert listener.dispatcher.frames == [b"good", b"bad"]


def test_nothing_is_handled_behind_a_request_that_has_closed_its_connection() -> None:
    def script(request: bytes) -> Sequence[Buffer]:
        if request == b"last":
            assert connection.info is not None
            connection.info.close("a handler says so")
        return echo(request)

    listener = PlayedListener(script)
    connection, transport = connect(listener)
    feed(connection, frame(b"good") + frame(b"last") + frame(b"never"))
    assert transport.is_closed
    assert transport.sent == frame(b"good")
    # What the socket had received by then comes nevertheless.
    data = frame(b"never either")
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))
    assert listener.dispatcher.frames == [b"good", b"last"]
    assert listener.reasons == ["a handler says so"]


def test_what_waits_of_all_connections_is_bounded_together_with_half_frames() -> None:
    listener = PlayedListener(lambda request: [bytes(PASS_BYTES_MAX + 1)])
    data = frame(bytes(996))
    listener.memory = ReceiveMemory(half_frames_bytes_max=5_000)
    connections = [connect(listener) for _ in range(4)]
    for number, (connection, transport) in enumerate(connections[:2], 1):
        transport.on_write = connection.pause_writing
        feed(connection, data * 3)
        assert listener.memory.waiting_bytes == number * 2_000
    third, third_transport = connections[2]
    feed(third, data * 3)
    assert third_transport.is_closed
    assert third_transport.sent == bytes(PASS_BYTES_MAX + 1)
    assert listener.reasons == ["no memory left for requests that wait"]
    # Half frames have what is left.
    fourth, fourth_transport = connections[3]
    feed(fourth, frame(bytes(1_100))[:8])
    assert fourth_transport.is_closed
    assert listener.reasons[1:] == ["no memory left for half frames"]
    # Handled, or given up: nothing waits any more.
    first, second = connections[0][0], connections[1][0]
    first.resume_writing()
    assert listener.memory.waiting_bytes == 1_000 + 2_000
    second.drop_backlog()
    assert listener.memory.waiting_bytes == 1_000
    first.close("a test")
    assert listener.memory.waiting_bytes == 0
    for connection, _ in connections:
        connection.connection_lost(None)
    assert listener.memory.waiting_bytes == listener.memory.half_frames_bytes == 0


def test_what_waits_goes_with_its_connection() -> None:
    listener = PlayedListener(lambda request: [bytes(PASS_BYTES_MAX + 1)])
    connection, _ = connect(listener)
    feed(connection, frame(b"x") * 2)
    assert listener.memory.waiting_bytes == 5
    connection.connection_lost(None)
    assert listener.memory.waiting_bytes == 0


def test_a_connection_that_is_closed_has_nothing_left_for_later() -> None:
    listener = PlayedListener(lambda request: [bytes(PASS_BYTES_MAX + 1)])
    connection, _ = connect(listener)
    feed(connection, frame(b"x") * 2)
    assert connection.has_backlog
    connection.close("a test")
    # A stop waits for backlogs.
    assert not connection.has_backlog
    listener.take_turn()
    assert len(listener.dispatcher.frames) == 1


def test_who_waits_is_woken_before_the_answers_leave_and_also_when_the_rest_is_handled() -> None:
    sent_bytes: list[int] = []

    class Listener(PlayedListener):
        def end_pass(self, now_ms: int) -> None:
            sent_bytes.append(len(transport.sent))

        def end_pass_soon(self) -> None:
            self.passes += 1

    listener = Listener(lambda request: [bytes(PASS_BYTES_MAX + 1)])
    connection, transport = connect(listener)
    feed(connection, frame(b"x") * 2)
    assert sent_bytes == [0]
    assert listener.passes == 0
    listener.take_turn()
    assert len(listener.dispatcher.frames) == 2
    assert listener.passes == 1


@pytest.mark.parametrize("error", [MalformedFrame("no such thing"), ZeroDivisionError("a bug")])
def test_a_frame_in_pieces_that_cannot_be_handled_gives_its_memory_back(error: Exception) -> None:
    def script(request: bytes) -> Sequence[Buffer]:
        raise error

    listener = PlayedListener(script)
    listener.log = RememberingLog()
    connection, transport = connect(listener)
    feed(connection, frame(bytes(10_000))[:5_000])
    assert listener.memory.half_frames_bytes > 0
    feed(connection, frame(bytes(10_000))[5_000:])
    assert transport.is_closed
    connection.connection_lost(None)
    assert listener.memory.half_frames_bytes == 0


def test_an_answer_for_a_closed_connection_is_dropped() -> None:
    deferred: Deferred[Any] = Deferred()
    listener = PlayedListener(lambda request: deferred)
    connection, transport = connect(listener)
    closed: list[bool] = []
    assert connection.info is not None
    connection.info.on_close[lambda: closed.append(True)] = None
    feed(connection, frame(b"x"))
    connection.connection_lost(ConnectionResetError())
    assert closed == [True]
    deferred.complete(echo(b"late"))
    assert transport.sent == b""
    assert listener.closed == [connection]


def test_a_bug_in_what_is_done_about_a_lost_connection_leaves_no_trace_of_it() -> None:
    """It would count for ever, and the stop would wait for it."""

    def oops() -> None:
        raise ZeroDivisionError("a bug")

    listener = PlayedListener(echo)
    listener.log = RememberingLog()
    connection, _ = connect(listener)
    closed: list[bool] = []
    assert connection.info is not None
    connection.info.on_close = dict.fromkeys([oops, lambda: closed.append(True)])
    connection.connection_lost(None)
    assert closed == [True]
    assert listener.closed == [connection]
    assert [event for _, event, _ in listener.log.events] == ["connection_failed"]
