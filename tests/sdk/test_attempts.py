"""Asking again: what is repeated, how long, and what an attempt is told of those before it."""

from __future__ import annotations

import asyncio

import pytest
from tidewheel import ClientSettings
from tidewheel.access import Access
from tidewheel.errors import (
    BrokerError,
    BrokerUnreachable,
    RequestTimedOut,
    TidewheelError,
    TopicExists,
)
from tidewheel.transport.librdkafka.attempts import FIRST_ATTEMPT_S, until_answered
from tidewheel.transport.librdkafka.connection import Connection


class Answers:
    """Gives these one after the other, and keeps what it was told."""

    def __init__(self, *answers: str | TidewheelError) -> None:
        self._answers = list(answers)
        self.times: list[float] = []
        self.unsure: list[bool] = []

    async def __call__(self, timeout_s: float, is_unsure: bool) -> str:
        self.times.append(timeout_s)
        self.unsure.append(is_unsure)
        answer = self._answers.pop(0)
        if isinstance(answer, TidewheelError):
            raise answer
        return answer


def leader_moved() -> BrokerError:
    error = BrokerError("not the leader")
    error.retriable = True
    return error


async def test_each_attempt_has_twice_the_time_within_what_is_left() -> None:
    ask = Answers(*(RequestTimedOut("no answer") for _ in range(3)), "at last")
    assert await until_answered(ask, 10.0) == "at last"
    assert ask.times[:2] == [FIRST_ATTEMPT_S, 2 * FIRST_ATTEMPT_S]
    assert 9 < ask.times[2] < 10
    assert 9 < ask.times[3] < ask.times[2]


async def test_an_attempt_knows_whether_one_before_it_may_have_been_carried_out() -> None:
    ask = Answers(leader_moved(), BrokerUnreachable("gone"), leader_moved(), "done")
    assert await until_answered(ask, 10.0) == "done"
    assert ask.unsure == [False, False, True, True]


async def test_what_trying_again_cannot_mend_is_raised_at_once() -> None:
    ask = Answers(TopicExists("there"), "never asked for")
    with pytest.raises(TopicExists):
        await until_answered(ask, 10.0)


async def test_time_is_up_with_the_last_error() -> None:
    waits: list[float] = []

    async def between(left_s: float) -> None:
        waits.append(left_s)

    async def ask(_timeout_s: float, _is_unsure: bool) -> str:
        raise RequestTimedOut(f"number {len(waits) + 1}")

    with pytest.raises(RequestTimedOut) as caught:
        await until_answered(ask, 0.35, between)
    assert 1 <= len(waits) <= 4
    assert caught.value.message == f"number {len(waits) + 1}"
    assert waits == sorted(waits, reverse=True)


async def test_the_error_is_that_of_what_was_asked_for() -> None:
    async def between(_left_s: float) -> None:
        raise BrokerUnreachable("nobody told who leads")

    ask = Answers(RequestTimedOut("the request itself"))
    with pytest.raises(RequestTimedOut, match="the request itself"):
        await until_answered(ask, 10.0, between)


async def test_cancelling_ends_it() -> None:
    started = asyncio.Event()

    async def ask(_timeout_s: float, _is_unsure: bool) -> str:
        started.set()
        raise RequestTimedOut("no answer")

    task = asyncio.create_task(until_answered(ask, 60.0))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_librdkafka_names_of_the_application_are_the_strongest() -> None:
    settings = ClientSettings(librdkafka={"socket.timeout.ms": 7_000})
    connection = Connection(Access("127.0.0.1:1"), settings)
    found = connection.properties({"socket.timeout.ms": 5_000, "acks": 1})
    assert (found["socket.timeout.ms"], found["acks"]) == (7_000, 1)
