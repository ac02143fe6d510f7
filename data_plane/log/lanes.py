"""Where background jobs wait for their turn, and how a long one learns that the broker stops.

Each lane has a thread of its own, so that a cleaner at work for minutes holds up no flush, and
thousands of files that go hold up neither.

Deliberately absent: threads (the server's), and what is due when (maintenance.py).
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol


class Lane(Enum):
    """What a job waits behind: others of its kind."""

    # Flushes and checkpoints: what acknowledged records and a quick next start wait for.
    FLUSH = "flush"
    # Files of deleted partitions, and of segments that retention dropped.
    DELETION = "deletion"
    # Compaction and scrubbing: long, and in no hurry.
    CLEANER = "cleaner"


class Job(Protocol):
    """Slow file work: `run` in a worker thread, then `finish` on the loop, whatever came of it."""

    @property
    def lane(self) -> Lane: ...
    def run(self) -> None: ...
    def finish(self) -> None: ...


class JobStopped(Exception):
    """The broker stops: what the job has not done is left to the next start."""


class StopSign:
    """Put up by the loop, once, when the broker stops. Jobs look at it between two steps."""

    __slots__ = ("is_up",)

    def __init__(self) -> None:
        self.is_up = False

    def look(self) -> None:
        """Raises JobStopped when it is up."""
        if self.is_up:
            raise JobStopped
