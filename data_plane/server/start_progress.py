"""Tells how far a start is that opens many logs, and looks through them after a crash.

    opening_logs  directory=/data opened=120 of=2000 recovered=118

`recovered` were not closed in order and have been looked through. One line every INTERVAL_MS, none
for a start that is quick.
"""

from __future__ import annotations

from collections.abc import Callable

from data_plane.broker.services import Logger

INTERVAL_MS = 5_000


class StartProgress:
    """Made when the opening begins."""

    def __init__(self, log: Logger, now_ms: Callable[[], int]) -> None:
        self._log = log
        self._now_ms = now_ms
        self._told_ms = now_ms()

    def opened(self, directory: str, opened: int, total: int, recovered: int) -> None:
        """One more of the `total` logs of `directory` is open; `recovered` count all of them."""
        now_ms = self._now_ms()
        if now_ms - self._told_ms < INTERVAL_MS:
            return
        self._told_ms = now_ms
        self._log.info(
            "opening_logs", directory=directory, opened=opened, of=total, recovered=recovered
        )
