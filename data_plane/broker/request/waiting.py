"""Waking what waits: each parked request is looked at once per pass, however often it was woken.

One read pass of the server may append to many partitions that one long poll waits for, and many
long polls may wait for one partition. Wakes are noted while the pass runs and acted upon at its
end, so a poll over 1,000 partitions is evaluated once and its answer carries all of them.

Deliberately absent: deadlines (timers.py) and what the parked request does when it runs.
"""

from __future__ import annotations

from typing import Protocol


class Parked(Protocol):
    """A request that waits for something to change."""

    def run(self, now_ms: int) -> None:
        """Look again; answer, or go on waiting."""


class WakeQueue:
    """What to look at when the current pass ends, in the order of the first wake."""

    def __init__(self) -> None:
        # Empty unless there is something to run.
        self.woken: dict[Parked, None] = {}

    def wake(self, parked: Parked) -> None:
        self.woken[parked] = None

    def forget(self, parked: Parked) -> None:
        self.woken.pop(parked, None)

    def run(self, now_ms: int) -> None:
        """Run everything woken, and whatever that wakes in turn. When one raises the others are
        run all the same, since nobody will wake them again, and then the first error is raised."""
        failure: Exception | None = None
        while self.woken:
            woken, self.woken = self.woken, {}
            for parked in woken:
                try:
                    parked.run(now_ms)
                except Exception as error:
                    failure = failure or error
        if failure is not None:
            raise failure
