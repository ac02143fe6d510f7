"""When a broker looks at its deadlines again: one timer of the event loop, never two.

Two would never become one again: each tick sets a timer, so each of them would go on for ever, and
all but one of their ticks would find nothing to do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class MillisecondClock(Protocol):
    def now_ms(self) -> int: ...


class TickTimer:
    """Calls `on_due` in the loop at the earliest deadline that it was told since it was last due or
    cancelled, or up to two milliseconds later. `on_due` tells the next one by `wake_at`.
    `on_late` is told before, by how many nanoseconds the loop has kept it waiting."""

    __slots__ = ("_clock", "_deadline_ms", "_due_ns", "_handle", "_loop", "_on_due", "_on_late")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: MillisecondClock,
        on_due: Callable[[], None],
        on_late: Callable[[int], None] | None = None,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._on_due = on_due
        self._on_late = on_late
        self._handle: asyncio.TimerHandle | None = None
        self._deadline_ms = 0
        # By the monotonic clock, as the loop counts.
        self._due_ns = 0

    def wake_at(self, deadline_ms: int) -> None:
        """Be due at `deadline_ms`, if not sooner anyway."""
        if self._handle is not None and self._deadline_ms <= deadline_ms:
            return
        self.cancel()
        self._deadline_ms = deadline_ms
        # The loop counts from the beginning of a millisecond, and may be in its end: without one
        # more it would often come too early, find nothing to do, and come again.
        delay_ms = max(0, deadline_ms - self._clock.now_ms()) + 1
        self._due_ns = time.monotonic_ns() + delay_ms * 1_000_000
        self._handle = self._loop.call_later(delay_ms / 1000, self._is_due)

    def _is_due(self) -> None:
        if self._on_late is not None:
            self._on_late(time.monotonic_ns() - self._due_ns)
        self.tick()

    def tick(self) -> None:
        """Be due now. Who looks at all deadlines says anew when the next one is."""
        self.cancel()
        self._on_due()

    def cancel(self) -> None:
        """Forget what it was told."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
