"""A broker tells its starter that it serves; without a starter before that, it is told so."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest

from data_plane.server import ready_pipe
from data_plane.server.ready_pipe import ReadyPipe

Body = Callable[[ReadyPipe, int, list[str], asyncio.Event], Awaitable[None]]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_pipe, "LOOK_INTERVAL_S", 0.01)


def play(body: Body) -> list[str]:
    """Run `body` with a pipe, and its other end; what it was told about being abandoned."""
    told: list[str] = []

    async def main() -> None:
        reader, writer = os.pipe()
        event = asyncio.Event()

        def on_abandoned() -> None:
            told.append("abandoned")
            event.set()

        pipe = ReadyPipe(writer, asyncio.get_running_loop(), on_abandoned)
        await body(pipe, reader, told, event)
        pipe.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(writer)

    asyncio.run(main())
    return told


def test_the_line_arrives_and_the_end_of_it() -> None:
    async def body(pipe: ReadyPipe, reader: int, told: list[str], event: asyncio.Event) -> None:
        await asyncio.sleep(0.05)
        pipe.say("ready", {"port": 1, "metrics_port": 2})
        pipe.say("ready", {"port": 3})
        assert os.read(reader, 1000) == b'{"event": "ready", "port": 1, "metrics_port": 2}\n'
        assert os.read(reader, 1000) == b""
        # Who has been told may go.
        await asyncio.sleep(0.05)

    assert play(body) == []


def test_a_starter_that_goes_before_is_missed() -> None:
    async def body(pipe: ReadyPipe, reader: int, told: list[str], event: asyncio.Event) -> None:
        await asyncio.sleep(0.05)
        assert told == []
        os.close(reader)
        await asyncio.wait_for(event.wait(), 10)
        pipe.say("ready", {"port": 1})
        await asyncio.sleep(0.05)

    assert play(body) == ["abandoned"]


def test_a_starter_that_goes_meanwhile_is_missed() -> None:
    async def body(pipe: ReadyPipe, reader: int, told: list[str], event: asyncio.Event) -> None:
        os.close(reader)
        pipe.say("ready", {"port": 1})
        assert told == ["abandoned"]

    assert play(body) == ["abandoned"]


def test_nobody_is_missed_once_it_is_closed() -> None:
    async def body(pipe: ReadyPipe, reader: int, told: list[str], event: asyncio.Event) -> None:
        pipe.close()
        os.close(reader)
        await asyncio.sleep(0.05)

    assert play(body) == []
