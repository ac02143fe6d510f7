"""Connections whose clients have to wait: for how long nothing of them is read or handled."""

from __future__ import annotations

import struct

import pytest

from data_plane.broker.request.request_gate import GateState
from data_plane.server.connection import Connection
from tests.broker.broker_player import make_batch
from tests.broker.test_throttling import Throttled
from tests.server.connection_player import MemoryTransport, PlayedListener, connect, feed, frame
from tests.server.test_kept_requests import produce_frame, received
from tests.server.test_listener import Harness


class Player:
    """A broker with quotas and a listener around it, which share a clock."""

    def __init__(self) -> None:
        self.broker = Throttled()
        self.quotas = self.broker.quotas
        self.listener = PlayedListener(lambda request: None)
        self.listener.dispatcher = self.broker.dispatcher  # type: ignore[assignment]
        self.listener.timers = self.broker.services.timers
        self.listener.clock.ms = self.broker.now_ms

    def pass_time(self, ms: int) -> None:
        self.listener.clock.ms += ms
        self.broker.pass_time(ms)
        self.listener.take_turn()

    def end_offset(self) -> int:
        return self.broker.partition("orders").log.log_end_offset


def produced(number: int) -> bytes:
    return produce_frame(make_batch([b"a"]), number)


def answers(transport: MemoryTransport) -> list[tuple[int, int]]:
    """(correlation id, throttle time) of the answers to what `produced` sends."""
    found = []
    data = bytes(transport.sent)
    while data:
        size, correlation_id = struct.unpack_from(">ii", data)
        # Behind the throttle time stand tags.
        found.append((correlation_id, *struct.unpack_from(">i", data, 4 + size - 5)))
        data = data[4 + size :]
    return found


def state(connection: Connection) -> GateState:
    assert connection.info is not None
    return connection.info.gate.state


def test_what_follows_waits_for_the_time_that_the_answer_says() -> None:
    player = Player()
    connection, transport = connect(player.listener)
    other, other_transport = connect(player.listener)
    player.quotas.produce_ms = 70
    rest = received(connection, produced(1) + produced(2) + produced(3)[:20])
    # The answer leaves at once.
    assert answers(transport) == [(1, 70)]
    assert player.end_offset() == 1
    assert not transport.is_reading_now
    assert state(connection) is GateState.THROTTLED
    assert not connection.is_idle
    assert connection.is_answered
    player.quotas.produce_ms = 0
    # Others go on.
    feed(other, produced(7))
    assert answers(other_transport) == [(7, 0)]
    assert other_transport.is_reading_now
    player.pass_time(69)
    assert (player.end_offset(), transport.is_reading_now) == (2, False)
    player.pass_time(1)
    assert answers(transport) == [(1, 70), (2, 0)]
    assert transport.is_reading_now
    assert state(connection) is GateState.READY
    received(connection, rest + produced(3)[20:])
    assert [number for number, _ in answers(transport)] == [1, 2, 3]
    assert player.listener.memory.waiting_bytes == 0


def test_a_request_without_an_answer_mutes_as_well() -> None:
    handled: list[bytes] = []

    def script(request: bytes) -> None:
        handled.append(request)
        assert connection.info is not None
        connection.info.mute(50)

    listener = PlayedListener(script)
    connection, transport = connect(listener)
    received(connection, frame(b"a1") + frame(b"a2"))
    assert handled == [b"a1"]
    listener.clock.ms += 50
    listener.timers.run_due(listener.clock.ms)
    listener.take_turn()
    assert handled == [b"a1", b"a2"]
    assert transport.sent == b""


def test_of_several_times_the_longest_counts() -> None:
    player = Player()
    connection, transport = connect(player.listener)
    assert connection.info is not None
    for duration_ms in (30, 80, 10):
        connection.info.mute(duration_ms)
    for elapsed_ms, reads in ((30, False), (49, False), (1, True)):
        player.pass_time(elapsed_ms)
        assert transport.is_reading_now is reads
    connection.info.mute(20)
    assert not transport.is_reading_now
    player.pass_time(20)
    assert transport.is_reading_now
    assert player.listener.timers.next_deadline_ms() is None


def test_a_late_answer_mutes_while_others_of_the_connection_are_open() -> None:
    player = Player()
    player.broker.configure_topic("orders", durability="fsync")
    connection, transport = connect(player.listener)
    received(connection, produced(1) + produced(2))
    assert player.end_offset() == 2
    player.quotas.produce_ms = 70
    player.broker.run_jobs()
    assert answers(transport) == [(1, 70), (2, 70)]
    assert not transport.is_reading_now
    player.pass_time(70)
    assert transport.is_reading_now


def test_a_muted_client_that_goes_leaves_no_timer() -> None:
    player = Player()
    connection, transport = connect(player.listener)
    player.quotas.produce_ms = 70
    received(connection, produced(1) + produced(2))
    connection.connection_lost(None)
    assert player.listener.timers.next_deadline_ms() is None
    player.pass_time(100)
    assert player.end_offset() == 1
    assert player.listener.memory.waiting_bytes == 0
    assert not transport.is_reading_now


def test_what_was_received_is_answered_when_the_broker_stops() -> None:
    player = Player()
    connection, transport = connect(player.listener)
    player.quotas.produce_ms = 20_000
    received(connection, produced(1) + produced(2) + produced(3))
    connection.stop_reading()
    player.listener.take_turn()
    assert [number for number, _ in answers(transport)] == [1, 2, 3]
    assert not connection.has_backlog
    assert not transport.is_reading_now


@pytest.mark.parametrize("is_muted", [True, False])
def test_who_has_to_wait_is_not_idle(is_muted: bool) -> None:
    harness = Harness(connections_max_idle_ms="20000")
    connection, transport = harness.connect()
    assert connection.info is not None
    if is_muted:
        connection.info.mute(25_000)
    harness.pass_time(24_000)
    assert transport.is_closed is not is_muted
    if is_muted:
        harness.clock.ms += 1_000
        harness.broker.services.timers.run_due(harness.clock.ms)
        # It could say nothing before.
        harness.pass_time(19_000)
        assert not transport.is_closed
        harness.pass_time(7_000)
        assert transport.is_closed
