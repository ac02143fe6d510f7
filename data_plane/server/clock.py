"""The broker's two times, in milliseconds since the epoch.

`now_ms` is steady: it began as the wall clock's time and goes on by elapsed time, which nobody can
set. Deadlines, sessions, leases and timers go by it, and a clock that is set moves none of them;
time that passed while the process was stopped or the machine asleep has passed. `wall_ms` is what
the wall clock shows, wherever it jumps; what is made of that is broker/request/wall_clock.py's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

# Time that passes also while the machine sleeps, where the system has such a clock.
_elapsed_ns: Callable[[], int] = time.monotonic_ns
if hasattr(time, "CLOCK_BOOTTIME"):
    _elapsed_ns = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)


class Clock:
    """Call `now_ms()`; never returns less than before."""

    __slots__ = ("_begun_ns", "_elapsed_ns", "_wall_ns")

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        elapsed_ns: Callable[[], int] = _elapsed_ns,
    ) -> None:
        """`elapsed_ns` counts from anywhere, and is never set."""
        self._wall_ns = wall_ns
        self._elapsed_ns = elapsed_ns
        # What to add to elapsed time.
        self._begun_ns = wall_ns() - elapsed_ns()

    def now_ms(self) -> int:
        return (self._elapsed_ns() + self._begun_ns) // 1_000_000

    def wall_ms(self) -> int:
        return self._wall_ns() // 1_000_000
