"""Slow file work in threads, its outcome back on the loop.

Implements the broker's `Executor` port. `on_done` runs as a pass of its own on the loop: after it
the server wakes what it has woken, as after a read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from data_plane.broker.request.turns import Turns, UnwatchedTurns

T = TypeVar("T")


class ThreadExecutor:
    """A pool of `threads_max` threads. `close` waits for what runs."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        threads_max: int,
        name: str,
        after_pass: Callable[[], None],
        turns: Turns | None = None,
    ) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(threads_max, thread_name_prefix=name)
        self._after_pass = after_pass
        self._turns: Turns = turns or UnwatchedTurns()
        # Submitted and not handed back yet.
        self.open_count = 0

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        self.open_count += 1
        self._pool.submit(self._run, work, on_done)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(
        self, work: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work()
        except BaseException as failure:
            error = failure
        try:
            self._loop.call_soon_threadsafe(self._done, on_done, result, error)
        except RuntimeError:
            # The loop is closed: the process is on its way out and nobody waits for this any more.
            return

    def _done(
        self,
        on_done: Callable[[T | None, BaseException | None], None],
        result: T | None,
        error: BaseException | None,
    ) -> None:
        self.open_count -= 1
        turns = self._turns
        turns.begin(on_done)
        try:
            on_done(result, error)
        finally:
            try:
                self._after_pass()
            finally:
                turns.end()
