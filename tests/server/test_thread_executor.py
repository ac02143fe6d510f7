"""Work in threads, its outcome as a pass on the loop; on uvloop, as in the broker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from data_plane.server.thread_executor import ThreadExecutor


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), 30))


class Player:
    """An executor whose outcomes and ends of passes are noted, in their order."""

    def __init__(self, threads_max: int = 1) -> None:
        self.loop = asyncio.get_running_loop()
        self.events: list[Any] = []
        self.executor = ThreadExecutor(
            self.loop, threads_max, "test", lambda: self.events.append("end of pass")
        )

    def on_done(self, result: Any, error: BaseException | None) -> None:
        assert threading.current_thread() is threading.main_thread()
        self.events.append((result, error))

    async def until_idle(self) -> None:
        while self.executor.open_count:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def test_an_outcome_is_a_pass_of_the_loop() -> None:
    async def main() -> None:
        player = Player()
        fault, interrupt = OSError("the disk"), KeyboardInterrupt()

        def fail(error: BaseException) -> None:
            raise error

        player.executor.submit(lambda: threading.current_thread().name, player.on_done)
        player.executor.submit(lambda: fail(fault), player.on_done)
        # Whoever waits for this would wait for ever otherwise.
        player.executor.submit(lambda: fail(interrupt), player.on_done)
        assert player.executor.open_count == 3
        assert player.events == []
        await player.until_idle()
        assert player.events == [
            ("test_0", None),
            "end of pass",
            (None, fault),
            "end of pass",
            (None, interrupt),
            "end of pass",
        ]
        player.executor.close()

    run(main)


def test_an_idle_loop_is_woken() -> None:
    async def main() -> None:
        player = Player()
        done = asyncio.Event()
        started_s = player.loop.time()
        # The loop sleeps by then.
        player.executor.submit(lambda: time.sleep(0.05), lambda result, error: done.set())
        await asyncio.wait_for(done.wait(), 20)
        assert player.loop.time() - started_s < 10
        player.executor.close()

    run(main)


def test_a_bug_in_what_is_done_with_an_outcome_ends_its_pass_all_the_same() -> None:
    async def main() -> None:
        player = Player()
        told: list[Any] = []
        player.loop.set_exception_handler(lambda loop, context: told.append(context["exception"]))

        def oops(result: Any, error: BaseException | None) -> None:
            raise ZeroDivisionError("oops")

        player.executor.submit(lambda: 1, oops)
        await player.until_idle()
        player.executor.submit(lambda: 2, player.on_done)
        await player.until_idle()
        assert player.events == ["end of pass", (2, None), "end of pass"]
        assert [str(error) for error in told] == ["oops"]
        player.executor.close()

    run(main)


def test_closing_waits_for_what_runs_and_drops_what_does_not_yet() -> None:
    async def main() -> None:
        player = Player()
        is_running, may_end = threading.Event(), threading.Event()

        def work() -> str:
            is_running.set()
            may_end.wait(20)
            return "done"

        player.executor.submit(work, player.on_done)
        player.executor.submit(lambda: "never", player.on_done)
        assert is_running.wait(20)
        timer = threading.Timer(0.05, may_end.set)
        timer.start()
        player.executor.close()
        assert may_end.is_set()
        # The outcome of what ran is on the loop by now.
        await asyncio.sleep(0)
        assert player.events == [("done", None), "end of pass"]
        timer.join()

    run(main)
