"""What a broker's process does at the end of a pass, with a tick, and when it stops: in which
order, and what it waits for. All parts of the broker are played."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import uvloop

from data_plane.log.lanes import Lane
from data_plane.server.broker_process import TICK_INTERVAL_MS_MAX, BrokerProcess
from tests.broker.doubles import RememberingLog
from tests.server.connection_player import FixedClock

DRAIN_MS = 20_000
# How a stop ends, whoever was waited for.
ENDS = [
    "timer cancelled",
    "work ends",
    "file reading ends",
    "maintenance ends",
    "last outcome of work",
    "last outcome of file reading",
    "last outcome of maintenance",
    "logs close",
    "store closes",
]


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), 30))


class Events(list[str]):
    """What has happened. `following` says what happens a little after something else."""

    def __init__(self) -> None:
        super().__init__()
        self.following: dict[str, Callable[[], None]] = {}

    def append(self, event: str) -> None:
        super().append(event)
        follow = self.following.pop(event, None)
        if follow is not None:
            asyncio.get_running_loop().call_later(0.02, follow)


class PlayedConnection:
    """A client's connection at the stop."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self.has_backlog = False
        self.is_answered = True
        self.transport = SimpleNamespace(abort=lambda: self._lost("aborted"))

    def stop_reading(self) -> None:
        self._player.events.append("reading stops")

    def drop_backlog(self) -> None:
        self._player.events.append("backlog dropped")

    def close(self, reason: str, *, is_expected: bool) -> None:
        self._player.events.append("closed" if self.is_answered else "closed unanswered")
        if self.is_answered:
            self._player.loop.call_later(0.02, self._lost, "gone")

    def _lost(self, event: str) -> None:
        self._player.events.append(event)
        self._player.listener.connections.discard(self)


class Player:
    """A process whose parts note what is asked of them."""

    def __init__(self, drain_ms: int = DRAIN_MS) -> None:
        self.loop = asyncio.get_running_loop()
        self.log = RememberingLog()
        self.events = Events()
        self.deadline_ms: int | None = None
        self.wakes: list[int] = []
        self.failures: list[Exception] = []
        self.process = BrokerProcess(SimpleNamespace(), None, self.log)  # type: ignore[arg-type]
        self.clock = FixedClock()
        self.dispatcher = SimpleNamespace(has_called_handlers=False)
        self.listener = self._listener()
        self.other_listener = self._listener()
        self.executor = self._executor("work")
        self.readers = self._executor("file reading")
        note = self.events.append
        self.services: Any = SimpleNamespace(
            wakes=SimpleNamespace(woken=True, run=lambda now_ms: self._do("wakes")),
            next_deadline_ms=lambda: self.deadline_ms,
            tick=lambda now_ms: self._do("tick"),
            stop=lambda now_ms: note("services stop"),
            config=SimpleNamespace(get_int=lambda name: drain_ms),
            fetches=SimpleNamespace(stop=lambda now_ms: note("polls end")),
            membership=None,
            kept_at_stop=[],
            logs=SimpleNamespace(close=lambda now_ms, broker_epoch: note("logs close")),
            store=SimpleNamespace(close=lambda: note("store closes")),
            log=self.log,
        )
        parts = {
            "_loop": self.loop,
            "_clock": self.clock,
            "_services": self.services,
            "_listener": self.listener,
            "_listeners": [self.listener, self.other_listener],
            "_timer": SimpleNamespace(
                wake_at=self.wakes.append, cancel=lambda: note("timer cancelled")
            ),
            "_executor": self.executor,
            "_readers": self.readers,
            "_clients": SimpleNamespace(look_for_new_files=lambda now_ms: note("files")),
            "_lanes": {Lane.CLEANER: self._executor("maintenance")},
        }
        for name, part in parts.items():
            setattr(self.process, name, part)

    def _do(self, event: str) -> None:
        self.events.append(event)
        if self.failures:
            raise self.failures.pop()

    def _listener(self) -> Any:
        return SimpleNamespace(
            connections=set(),
            dispatcher=self.dispatcher,
            stop_accepting=lambda: self.events.append("accepts no more"),
            sweep=lambda now_ms: self.events.append("sweep"),
        )

    def _executor(self, name: str) -> Any:
        def close() -> None:
            self.events.append(f"{name} ends")
            # What ran until now reports back, as from a thread.
            self.loop.call_soon_threadsafe(self.events.append, f"last outcome of {name}")

        return SimpleNamespace(open_count=0, close=close)

    def connect(self) -> PlayedConnection:
        connection = PlayedConnection(self)
        self.listener.connections.add(connection)
        return connection


def test_a_pass_in_which_handlers_ran_sets_the_timer() -> None:
    async def main() -> None:
        player = Player()
        player.deadline_ms = 5_000
        player.process._end_pass(1_000)
        assert (player.events, player.wakes) == (["wakes"], [])
        player.dispatcher.has_called_handlers = True
        player.process._end_pass(1_000)
        assert player.wakes == [5_000]
        player.process._end_pass(1_000)
        assert player.wakes == [5_000]
        # File work, too, may have moved a deadline, without a handler.
        player.process._end_pass_now()
        assert player.wakes == [5_000, 5_000]
        player.deadline_ms = None
        player.process._end_pass_now()
        assert player.wakes == [5_000, 5_000]
        player.failures.append(ZeroDivisionError("a bug"))
        player.deadline_ms = 6_000
        player.process._end_pass_now()
        assert player.wakes[2:] == [6_000]
        assert [event for _, event, _ in player.log.events] == ["wake_failed"]

    run(main)


def test_passes_that_end_soon_end_once_and_then_again() -> None:
    async def main() -> None:
        player = Player()
        for _ in range(2):
            player.events.clear()
            player.process._end_pass_soon()
            player.process._end_pass_soon()
            assert player.events == []
            await asyncio.sleep(0.01)
            assert player.events == ["wakes"]

    run(main)


def test_a_tick_sweeps_all_listeners_and_is_never_the_last() -> None:
    async def main() -> None:
        player = Player()
        now_ms = player.clock.ms
        player.process._tick()
        assert player.events == ["tick", "sweep", "sweep", "files"]
        assert player.wakes == [now_ms + TICK_INTERVAL_MS_MAX]
        for deadline_ms in (now_ms + 7, now_ms + 10 * TICK_INTERVAL_MS_MAX):
            player.deadline_ms = deadline_ms
            player.failures.append(ZeroDivisionError("a bug"))
            player.process._tick()
        assert player.wakes[1:] == [now_ms + 7, now_ms + TICK_INTERVAL_MS_MAX]
        assert [event for _, event, _ in player.log.events] == ["tick_failed"] * 2

    run(main)


def test_a_stop_waits_for_what_was_received_and_for_its_answers() -> None:
    async def main() -> None:
        player = Player()
        connection = player.connect()
        connection.has_backlog = True
        connection.is_answered = False
        player.executor.open_count = 1
        player.readers.open_count = 1

        def after(cause: str, event: str, part: Any, name: str, value: Any) -> None:
            def happen() -> None:
                setattr(part, name, value)
                player.events.append(event)

            player.events.following[cause] = happen

        after("polls end", "backlog handled", connection, "has_backlog", False)
        after("wakes", "answered", connection, "is_answered", True)
        after("answered", "synced", player.executor, "open_count", 0)
        after("synced", "read", player.readers, "open_count", 0)
        await player.process._stop()
        assert player.events == [
            "accepts no more",
            "accepts no more",
            "reading stops",
            "polls end",
            "backlog handled",
            "backlog dropped",
            "services stop",
            "wakes",
            "answered",
            "synced",
            "read",
            "closed",
            "gone",
            *ENDS,
        ]

    run(main)


def test_a_stop_waits_for_no_longer_than_it_may() -> None:
    async def main() -> None:
        player = Player(drain_ms=100)
        connection = player.connect()
        connection.has_backlog = True
        connection.is_answered = False
        started_s = player.loop.time()
        await player.process._stop()
        assert 0.09 <= player.loop.time() - started_s < 10
        assert player.events[4:] == [
            "backlog dropped",
            "services stop",
            "wakes",
            "closed unanswered",
            "aborted",
            *ENDS,
        ]

    run(main)
