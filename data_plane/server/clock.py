"""The broker's time: milliseconds since the epoch that never run backwards.

Deadlines and record timestamps share one clock. When the wall clock is set back, this one goes on
at half speed until the wall clock has caught up, so that deadlines are late by at most as much
again as they were long, and nothing happens twice. A step forward is followed at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """Call `now_ms()`; never returns less than before."""

    __slots__ = ("_last_ms", "_last_wall_ms", "_wall_ns")

    def __init__(self, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._wall_ns = wall_ns
        self._last_ms = wall_ns() / 1e6
        self._last_wall_ms = self._last_ms

    def now_ms(self) -> int:
        wall_ms = self._wall_ns() / 1e6
        if wall_ms >= self._last_ms:
            self._last_ms = wall_ms
        else:
            elapsed_ms = max(0.0, wall_ms - self._last_wall_ms)
            self._last_ms += elapsed_ms / 2
        self._last_wall_ms = wall_ms
        return int(self._last_ms)
