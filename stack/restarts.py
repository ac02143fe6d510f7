"""When a stack whose brokers have all ended starts them again.

One broker that ends among others is left to the person: a crash should be seen, and the cell goes
on without it. A stack without any broker serves nobody. It starts those again that ended by
themselves, first after a second, then after pauses that double up to half a minute, until some
broker has served for a minute. What the person has stopped stays stopped.

Pure: it is told what happens and when, and says what to do.
"""

from __future__ import annotations

from typing import Final

FIRST_PAUSE_S: Final = 1.0
PAUSE_S_MAX: Final = 30.0
STEADY_S: Final = 60.0
"""A broker that has served for so long came up well: the next end begins with a short pause."""


class Restarts:
    """The brokers that have ended by themselves, and when they are started again."""

    def __init__(self) -> None:
        self._ended: set[int] = set()
        self._pause_s = FIRST_PAUSE_S
        self._due_s: float | None = None
        self._serving_since_s: float | None = None

    def ended(self, broker_id: int) -> None:
        """It ended by itself, whether it had served or not."""
        self._ended.add(broker_id)

    def forget(self, broker_id: int) -> None:
        """It was started or stopped on request."""
        self._ended.discard(broker_id)

    def plan(self, now_s: float, *, lives: bool, serves: bool) -> tuple[list[int], float] | None:
        """Which brokers will be started again, and in how many seconds; told once for each time.

        `lives`: some broker runs or is starting; `serves`: some broker serves.
        """
        if not serves:
            self._serving_since_s = None
        elif self._serving_since_s is None:
            self._serving_since_s = now_s
        elif now_s - self._serving_since_s >= STEADY_S:
            self._pause_s = FIRST_PAUSE_S
        if lives:
            self._due_s = None
            return None
        if self._due_s is not None or not self._ended:
            return None
        pause_s = self._pause_s
        self._due_s = now_s + pause_s
        self._pause_s = min(2 * pause_s, PAUSE_S_MAX)
        return sorted(self._ended), pause_s

    def due(self, now_s: float) -> list[int]:
        """The brokers to start now."""
        if self._due_s is None or now_s < self._due_s:
            return []
        self._due_s = None
        return sorted(self._ended)
