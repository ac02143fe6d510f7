"""Who may run: many at once, or one alone in the whole process.

First come, first served: one that waits to run alone lets those end that run, and those behind it
wait for it, so neither kind waits for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gate:
    """Of one event loop."""

    def __init__(self) -> None:
        self._running = 0
        self._is_alone = False
        self._queue: deque[tuple[bool, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def entered(self, *, alone: bool) -> AsyncIterator[None]:
        """Run in here."""
        if self._queue or not self._admits(alone):
            await self._wait(alone)
        else:
            self._enter(alone)
        try:
            yield
        finally:
            self._leave()

    def _admits(self, alone: bool) -> bool:
        return not self._is_alone and not (alone and self._running)

    def _enter(self, alone: bool) -> None:
        self._running += 1
        self._is_alone = alone

    def _leave(self) -> None:
        self._running -= 1
        self._is_alone = False
        self._admit()

    def _admit(self) -> None:
        while self._queue:
            alone, waiter = self._queue[0]
            if not waiter.cancelled():
                if not self._admits(alone):
                    return
                self._enter(alone)
                waiter.set_result(None)
            self._queue.popleft()

    async def _wait(self, alone: bool) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((alone, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._leave()  # It was let in just before.
            else:
                waiter.cancel()
                self._admit()
            raise
