"""The scrubber: checks the CRCs of sealed segments in the background, at a bounded rate.

A round over a directory begins with its first tick after the start and again after each interval.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from data_plane.log.batch_walk import BadRange
from data_plane.log.log_directory import LogDirectory
from data_plane.log.reads import Retired, cold_file
from data_plane.log.segment import Segment

if TYPE_CHECKING:
    from data_plane.log.log import Log
    from data_plane.log.manager import LogManager


class ScrubJob:
    """Checks some segments of one log. `run` in a worker thread, `finish` on the loop."""

    def __init__(self, log: Log, segments: list[Segment]) -> None:
        self.log = log
        self._segments = segments
        self._found: list[tuple[Segment, list[BadRange]]] = []

    def run(self) -> None:
        """Raises LogDirFailure."""
        for segment in self._segments:
            try:
                with cold_file(segment) as file:
                    segment.load_indexes(file)
                    found = segment.verify(file)
            except Retired:
                continue
            except OSError as error:
                raise self.log.log_directory.fail(error) from error
            if found:
                self._found.append((segment, found))

    def finish(self) -> None:
        for segment, found in self._found:
            self.log.report_bad_ranges(segment, found)


class Scrubber:
    """Goes round the logs of each directory."""

    def __init__(self, interval_ms: int, bytes_per_second: int) -> None:
        self._interval_ms = interval_ms
        self._bytes_per_second = bytes_per_second
        # When the next step may come, so that scrubbing takes a small share of the disk.
        self._next_step_ms: dict[str, int] = {}
        self._queues: dict[str, deque[tuple[Log, Segment]]] = {}
        self._pending_logs: dict[str, deque[Log]] = {}
        self._due_ms: dict[str, int] = {}

    def next_job(
        self, manager: LogManager, directory: LogDirectory, now_ms: int
    ) -> ScrubJob | None:
        """The next step of a directory's round; None between rounds."""
        if self._interval_ms < 0:
            return None
        path = directory.path
        if now_ms < self._next_step_ms.get(path, now_ms):
            return None
        logs = self._pending_logs.get(path)
        if not logs:
            if now_ms < self._due_ms.setdefault(path, now_ms):
                return None
            self._due_ms[path] = now_ms + self._interval_ms
            logs = self._pending_logs[path] = deque(
                log for log in manager.logs() if log.log_directory is directory
            )
        queue = self._queues.setdefault(path, deque())
        while not queue and logs:
            log = logs.popleft()
            if not log.is_closed and log.has_sealed_segments:
                queue.extend((log, segment) for segment in log.segments if segment.sealed)
        if not queue:
            return None
        log, segment = queue.popleft()
        chosen = [segment]
        size = segment.size
        while queue and queue[0][0] is log and size + queue[0][1].size <= self._bytes_per_second:
            chosen.append(queue.popleft()[1])
            size += chosen[-1].size
        self._next_step_ms[path] = now_ms + 1000 * size // self._bytes_per_second
        return None if log.is_closed else ScrubJob(log, chosen)
