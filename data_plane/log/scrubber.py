"""The scrubber: checks the CRCs of sealed segments in the background, at a bounded rate.

A round over a directory begins with its first tick after the start and again after each interval.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable

from data_plane.log.batch_walk import BadRange
from data_plane.log.cold_files import Retired, cold_file
from data_plane.log.lanes import JobStopped, Lane
from data_plane.log.log import Log
from data_plane.log.log_directory import LogDirectory
from data_plane.log.segment import Segment
from data_plane.log.segment_checks import verify

# Logs that one step begins with: each may have to be loaded.
LOGS_PER_STEP_MAX = 20


class ScrubJob:
    """Checks some segments of a directory. `run` in a worker thread, `finish` on the loop."""

    lane = Lane.CLEANER

    def __init__(
        self,
        chosen: list[tuple[Log, Segment]],
        queue: deque[tuple[Log, Segment]] | None = None,
    ) -> None:
        """What it has not checked in the end, for want of descriptors, say, goes back to the front
        of `queue`. All is of one directory."""
        self._chosen = chosen
        self._queue: deque[tuple[Log, Segment]] = deque() if queue is None else queue
        self._checked_count = 0
        self._found: list[tuple[Log, Segment, list[BadRange]]] = []

    def run(self) -> None:
        """Raises LogDirFailure."""
        with contextlib.suppress(JobStopped):
            for log, segment in self._chosen:
                self._check(log, segment)
                self._checked_count += 1

    def _check(self, log: Log, segment: Segment) -> None:
        stop_sign = log.log_directory.stop_sign
        stop_sign.look()
        try:
            with cold_file(segment) as file:
                found = verify(segment, file, stop_sign.look)
        except Retired:
            return
        except OSError as error:
            if log.is_deleted_meanwhile(error):
                return
            raise log.log_directory.fail(error) from error
        if found:
            self._found.append((log, segment, found))

    def finish(self) -> None:
        self._queue.extendleft(reversed(self._chosen[self._checked_count :]))
        for _, segment in self._chosen:
            if segment.file is None:
                # Nobody reads it, and the indexes of all segments would fill the memory in time.
                segment.close_file()
        for log, segment, found in self._found:
            log.report_bad_ranges(segment, found)


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
        self, logs_of_all: Callable[[], Iterable[Log]], directory: LogDirectory, now_ms: int
    ) -> ScrubJob | None:
        """The next step of a directory's round; None between rounds."""
        if self._interval_ms < 0:
            return None
        path = directory.path
        if now_ms < self._next_step_ms.get(path, now_ms):
            return None
        logs = self._pending_logs.get(path)
        queue = self._queues.setdefault(path, deque())
        if not logs and not queue:
            if now_ms < self._due_ms.setdefault(path, now_ms):
                return None
            self._due_ms[path] = now_ms + self._interval_ms
            logs = self._pending_logs[path] = deque(
                log for log in logs_of_all() if log.log_directory is directory
            )
        chosen: list[tuple[Log, Segment]] = []
        size = logs_count = 0
        while size < self._bytes_per_second:
            while not queue and logs and logs_count < LOGS_PER_STEP_MAX:
                log = logs.popleft()
                if not log.is_closed and log.has_sealed_segments:
                    logs_count += 1
                    queue.extend((log, segment) for segment in log.segments if segment.sealed)
            if not queue:
                break
            log, segment = queue.popleft()
            if not log.is_closed and not segment.retired:
                chosen.append((log, segment))
                size += segment.size
        self._next_step_ms[path] = now_ms + 1000 * size // self._bytes_per_second
        return ScrubJob(chosen, queue) if chosen else None
