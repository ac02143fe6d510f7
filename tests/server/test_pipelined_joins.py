"""Thousands of JoinGroups that one connection sends at once: no turn of the loop is about all.

Time passes with the work that is done, as a count of functions, so the machine does not matter."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from data_plane.server.connection import PASS_MS_MAX
from data_plane.wire.errors import ErrorCode
from data_plane.wire.headers import RequestHeader, encode_request_header
from data_plane.wire.primitives import Reader, Writer
from data_plane.wire.registry import API_BY_KEY, ApiKey
from tests.groups.requests import join
from tests.groups.test_on_disk import GroupsOnDisk, new_broker
from tests.server.connection_player import FixedClock, PlayedListener, connect, frame

COUNT = 5_000
# About what CPython does.
CALLS_PER_MS = 5_000
# What a pass does beyond its time: the request that it is in, and its end.
CALLS_BEYOND_MAX = 10 * CALLS_PER_MS
NEW_ID_VERSION = 4
PARKED_VERSION = 3


class WorkClock(FixedClock):
    """Counts the functions that are called in each turn."""

    def __init__(self) -> None:
        super().__init__()
        self.calls_counts: list[int] = [0]

    def now_ms(self) -> int:
        return 1_700_000_000_000 + sum(self.calls_counts) // CALLS_PER_MS

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self.calls_counts[-1] += 1

    def turn(self, what: Any, *given: Any) -> None:
        self.calls_counts.append(0)
        sys.setprofile(self._count)
        try:
            what(*given)
        finally:
            sys.setprofile(None)


class Joining:
    """A connection to a broker with groups."""

    def __init__(self, broker: GroupsOnDisk) -> None:
        self.broker = broker
        self.clock = WorkClock()
        self.listener = PlayedListener(lambda request: None, clock=self.clock)
        self.listener.dispatcher = broker.dispatcher  # type: ignore[assignment]
        self.listener.end_pass = self._end_pass  # type: ignore[method-assign]
        self.connection, self.transport = connect(self.listener)

    def _end_pass(self, now_ms: int) -> None:
        self.broker.services.wakes.run(now_ms)

    def send(self, data: bytes) -> None:
        """As the loop does: one read a turn, while the connection reads; and what is due between
        them."""
        position = 0
        while position < len(data) or self.listener.soon:
            if self.listener.soon:
                self.clock.turn(self.listener.take_turn)
                self.clock.turn(self._end_pass, self.clock.now_ms())
            elif self.transport.is_reading_now:
                view = self.connection.get_buffer(-1)
                count = min(len(view), len(data) - position)
                view[:count] = data[position : position + count]
                position += count
                self.clock.turn(self.connection.buffer_updated, count)
            else:
                return

    def responses(self, version: int) -> list[Any]:
        found, data, position = [], bytes(self.transport.sent), 0
        while position < len(data):
            size = int.from_bytes(data[position : position + 4], "big")
            reader = Reader(data, position + 8, position + 4 + size)
            found.append(API_BY_KEY[ApiKey.JOIN_GROUP].decode_response(reader, version))
            position += 4 + size
        return found


def joins(version: int) -> bytes:
    writer = Writer()
    header = RequestHeader(
        api_key=int(ApiKey.JOIN_GROUP), api_version=version, correlation_id=1, client_id="c"
    )
    encode_request_header(writer, header)
    API_BY_KEY[ApiKey.JOIN_GROUP].encode_request(writer, join("g"), version)
    return frame(bytes(writer.buf)) * COUNT


@pytest.fixture
def joining() -> Joining:
    return Joining(new_broker())


def check(joining: Joining) -> None:
    assert max(joining.clock.calls_counts) <= PASS_MS_MAX * CALLS_PER_MS + CALLS_BEYOND_MAX


def test_each_is_given_an_id_over_many_turns(joining: Joining) -> None:
    joining.send(joins(NEW_ID_VERSION))
    responses = joining.responses(NEW_ID_VERSION)
    assert len(responses) == COUNT
    assert {each.error_code for each in responses} == {int(ErrorCode.MEMBER_ID_REQUIRED)}
    assert len({each.member_id for each in responses}) == COUNT
    check(joining)
    whole = sum(joining.clock.calls_counts)
    assert whole > PASS_MS_MAX * CALLS_PER_MS + CALLS_BEYOND_MAX, "it does not fit one turn"


def test_members_are_taken_and_answered_over_many_turns(joining: Joining) -> None:
    """No more wait at a time than a connection may have open answers."""
    joining.send(joins(PARKED_VERSION))
    broker = joining.broker
    for _ in range(100):
        deadline_ms = broker.services.next_deadline_ms()
        if deadline_ms is not None:
            broker.now_ms = max(broker.now_ms, deadline_ms, joining.clock.now_ms())
            joining.clock.turn(broker.services.tick, broker.now_ms)
        joining.send(b"")
        if len(joining.responses(PARKED_VERSION)) >= 256:
            break
    assert len(joining.responses(PARKED_VERSION)) >= 256
    check(joining)
