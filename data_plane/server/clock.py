"""The broker's time: milliseconds since the epoch that never run backwards.

Deadlines and record timestamps share one clock. When the wall clock is set back, this one goes on
at three quarters of its speed until the wall clock has caught up: nothing happens twice, and
deadlines, leases among them, are late by at most a third of their length. How much time has passed
is the monotonic clock's to say, so that a process which was stopped while somebody set the clock
back knows that it was. A step forward is followed at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

SPEED_WHEN_AHEAD = 0.75


# Time that passes also while the machine sleeps, where the system has such a clock.
_elapsed_ns: Callable[[], int] = time.monotonic_ns
if hasattr(time, "CLOCK_BOOTTIME"):
    _elapsed_ns = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)


class Clock:
    """Call `now_ms()`; never returns less than before."""

    __slots__ = ("_elapsed_ns", "_last_elapsed_ns", "_last_ms", "_wall_ns")

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        elapsed_ns: Callable[[], int] = _elapsed_ns,
    ) -> None:
        """`elapsed_ns` counts from anywhere, and is never set."""
        self._wall_ns = wall_ns
        self._elapsed_ns = elapsed_ns
        self._last_ms = wall_ns() / 1e6
        self._last_elapsed_ns = elapsed_ns()

    def now_ms(self) -> int:
        elapsed_ns = self._elapsed_ns()
        passed_ms = (elapsed_ns - self._last_elapsed_ns) / 1e6
        self._last_elapsed_ns = elapsed_ns
        self._last_ms = max(self._wall_ns() / 1e6, self._last_ms + SPEED_WHEN_AHEAD * passed_ms)
        return int(self._last_ms)
