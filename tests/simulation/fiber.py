"""Code that blocks, in a world with one thread at a time.

A broker's start blocks: it asks the store, sleeps, asks again. A `Fiber` runs such code in a thread
of its own, in lockstep with the simulation: either the one or the other runs, never both, and
`sleep` hands over until virtual time has passed. What comes out is as if there were one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

STACK_LIMIT_S = 60


class FiberKilled(BaseException):
    """The process that the blocked code belongs to is gone."""


class Fiber:
    """Runs `work()`; `resume` lets it go on until it sleeps or ends.

    `on_sleep(us)` is called, in the simulation's turn, to have `resume` called later; then
    `on_done(result, error)` at the end."""

    def __init__(
        self,
        work: Callable[[], Any],
        on_sleep: Callable[[int], None],
        on_done: Callable[[Any, BaseException | None], None],
    ) -> None:
        self._work = work
        self._on_sleep = on_sleep
        self._on_done = on_done
        self._its_turn = threading.Semaphore(0)
        self._our_turn = threading.Semaphore(0)
        self._slept_us = 0
        self._is_killed = False
        self._is_done = False
        self._outcome: tuple[Any, BaseException | None] = (None, None)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._its_turn.acquire()
        try:
            if not self._is_killed:
                self._outcome = (self._work(), None)
        except BaseException as error:
            self._outcome = (None, error)
        self._is_done = True
        self._our_turn.release()

    def is_running_here(self) -> bool:
        """Whether the caller is the fiber's code."""
        return threading.current_thread() is self._thread

    def sleep(self, us: int) -> None:
        """Called by the fiber's code: let so much virtual time pass."""
        self._slept_us = us
        self._our_turn.release()
        self._its_turn.acquire()
        if self._is_killed:
            raise FiberKilled

    def resume(self) -> None:
        """Let the code run on."""
        if self._is_done:
            return
        self._its_turn.release()
        assert self._our_turn.acquire(timeout=STACK_LIMIT_S), "a fiber hangs"
        if self._is_killed:
            return
        if self._is_done:
            self._thread.join()
            self._on_done(*self._outcome)
        else:
            self._on_sleep(self._slept_us)

    def kill(self) -> None:
        """The code gets FiberKilled where it sleeps, and its clean-up runs now."""
        if not self._is_done:
            self._is_killed = True
            self.resume()
            self._thread.join()
