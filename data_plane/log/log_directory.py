"""What the logs of one data directory share: the port, the LRU of open files, and its failure.

A disk error takes the whole directory offline, in this one place: `fail` remembers the reason and
returns the exception that every log of the directory raises from then on. Nothing is retried; a
restart after repair is the way back, as in Kafka. Corrupt batches, which harm only themselves, are
collected here for whoever writes the broker's log and metrics.
"""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path

from data_plane.log.errors import CorruptSegment, LogDirFailure
from data_plane.log.file_system import FileSystem
from data_plane.log.open_files import OpenFiles

TOPICS_FOLDER = "topics"
# Reports wait for the next tick; more than this at once are only counted.
REPORTS_MAX = 1000


class LogDirectory:
    """One data directory."""

    __slots__ = (
        "corrupt_batches",
        "failure",
        "fs",
        "open_files",
        "path",
        "reports",
        "sync_lock",
    )

    def __init__(self, path: Path | str, fs: FileSystem, open_files: OpenFiles) -> None:
        self.path = str(path)
        self.fs = fs
        self.open_files = open_files
        self.failure: str | None = None
        # One sync in flight per disk: jobs take it in worker threads.
        self.sync_lock = threading.Lock()
        self.reports: deque[CorruptSegment] = deque(maxlen=REPORTS_MAX)
        self.corrupt_batches = 0

    @property
    def topics_path(self) -> str:
        return f"{self.path}/{TOPICS_FOLDER}"

    def fail(self, error: OSError) -> LogDirFailure:
        """Take the directory offline because of `error`; returns what to raise."""
        if self.failure is None:
            self.failure = str(error)
        return LogDirFailure(self.path, self.failure)

    def check_online(self) -> None:
        """Raises LogDirFailure when the directory is offline."""
        if self.failure is not None:
            raise LogDirFailure(self.path, self.failure)

    def report_corruption(self, found: CorruptSegment) -> None:
        """Note a corrupt batch for the next tick's report; from any thread."""
        self.corrupt_batches += 1
        self.reports.append(found)

    def take_reports(self) -> list[CorruptSegment]:
        """The corrupt batches found since the last call."""
        found = []
        while self.reports:
            found.append(self.reports.popleft())
        return found
