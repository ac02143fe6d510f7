"""The broker's two times, in milliseconds since the epoch.

`now_ms` is steady: it began as the wall clock's time and goes on by elapsed time, which nobody can
set. Deadlines, sessions, leases and timers go by it, and a clock that is set moves none of them;
time that passed while the process was stopped or the machine asleep has passed. `ahead_ms` is how
far the wall clock is ahead of it, wherever that jumps; what is made of that is
broker/request/wall_clock.py's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

# Time that passes also while the machine sleeps, where the system has such a clock.
_elapsed_ns: Callable[[], int] = time.monotonic_ns
if hasattr(time, "CLOCK_BOOTTIME"):
    _elapsed_ns = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)


# Of both clocks, to compare them.
READINGS: Final = 3


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

    @property
    def booted_ms(self) -> int:
        """What `now_ms` would have returned when elapsed time began: by default, at the machine's
        boot."""
        return self._begun_ns // 1_000_000

    def now_ms(self) -> int:
        return (self._elapsed_ns() + self._begun_ns) // 1_000_000

    def ahead_ms(self) -> int:
        """How far the wall clock is ahead of the steady one, in whole ms, rounded down.

        The steady clock is read last, so that what holds this thread up in between makes it less:
        by steady time and this, it is never later than the wall clock shows. Of several readings
        the best one counts."""
        wall_ns, elapsed_ns = self._wall_ns, self._elapsed_ns
        ahead_ns = max(wall_ns() - elapsed_ns() for _ in range(READINGS))
        return (ahead_ns - self._begun_ns) // 1_000_000
