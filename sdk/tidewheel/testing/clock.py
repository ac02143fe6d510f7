"""A clock that stands still until a test moves it.

`advance` goes from one sleeper's due time to the next, in order, and lets the event loop settle
after each, so that what a sleeper starts on waking (another sleep, a send) happens at its own
time and not at the end of the jump. With `autojump` the clock moves to the next due time by
itself once the loop has been idle for a few real milliseconds, however far that is, unless
`jump_s_max` says otherwise: a test with short waits is not carried off to what is due tomorrow.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from typing import Final

SETTLE_ROUNDS: Final = 20
"""Loop iterations given to tasks after each step; a chain of awaits longer than that goes on
with the next step."""

AUTOJUMP_IDLE_S: Final = 0.005
START_MS_DEFAULT: Final = 1_750_000_000_000


class VirtualClock:
    """Time for tests; see the module."""

    def __init__(
        self,
        start_ms: int = START_MS_DEFAULT,
        *,
        autojump: bool = False,
        jump_s_max: float | None = None,
    ) -> None:
        self._now_ms = start_ms
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._autojump = autojump
        self._jump_ms_max = None if jump_s_max is None else jump_s_max * 1000
        self._jump: asyncio.TimerHandle | None = None

    def now_ms(self) -> int:
        """Epoch milliseconds of this clock."""
        return self._now_ms

    async def sleep(self, seconds: float) -> None:
        """Return when the clock has been moved that far."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        due_ms = self._now_ms + max(1, round(seconds * 1000))
        heapq.heappush(self._sleepers, (due_ms, next(self._numbers), waiter))
        if self._autojump:
            self._schedule_jump(loop)
        await waiter

    def call_at(self, when_ms: int, callback: Callable[[], None]) -> None:
        """Call this when it is that late; soon if it is already."""
        loop = asyncio.get_running_loop()
        if when_ms <= self._now_ms:
            loop.call_soon(callback)
            return
        waiter: asyncio.Future[None] = loop.create_future()
        waiter.add_done_callback(lambda _: callback())
        heapq.heappush(self._sleepers, (when_ms, next(self._numbers), waiter))
        if self._autojump:
            self._schedule_jump(loop)

    async def advance(self, seconds: float) -> None:
        """Move the clock, waking sleepers at their own times."""
        end_ms = self._now_ms + round(seconds * 1000)
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= end_ms:
            if self._wake_next():
                await self._settle()
        self._now_ms = end_ms
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(SETTLE_ROUNDS):
            await asyncio.sleep(0)

    def _wake_next(self) -> bool:
        """False for a sleeper that was cancelled meanwhile."""
        due_ms, _, waiter = heapq.heappop(self._sleepers)
        if waiter.done():
            return False
        self._now_ms = max(self._now_ms, due_ms)
        waiter.set_result(None)
        return True

    def _schedule_jump(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._jump is not None:
            self._jump.cancel()
        self._jump = loop.call_later(AUTOJUMP_IDLE_S, self._jump_now, loop)

    def _jump_now(self, loop: asyncio.AbstractEventLoop) -> None:
        self._jump = None
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        if not self._sleepers:
            return
        ahead_ms = self._sleepers[0][0] - self._now_ms
        if self._jump_ms_max is None or ahead_ms <= self._jump_ms_max:
            self._wake_next()
            self._schedule_jump(loop)
