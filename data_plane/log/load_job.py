"""Bringing a log into memory in a worker thread: what `Log.load` does, where that takes long.

A log that a clean stop or the checkpoint vouches for is opened from its summary and loaded at its
first use. Where the checkpoint has seen it grow, but no stop has left index files, that means
walking its last segment: two seconds for 100 MB.

    on the loop: log.load_job()      thread: run()      on the loop: finish(), the log is loaded

Nobody uses the log meanwhile: who needs it at once calls `Log.load`, which waits for a thread that
is at it, and does it itself where none has begun. `Log.needs_long_load` tells whether to ask for a
job at all.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

from data_plane.log import loading
from data_plane.log.lanes import Lane
from data_plane.log.log_state import LogState


class LoadJob:
    """See the module. One for a log at a time; several may run it."""

    __slots__ = ("_loaded", "_take_loaded", "_token", "is_taken_over", "log")

    lane = Lane.CLEANER

    def __init__(self, log: LogState, take_loaded: Callable[[loading.LoadedLog], None]) -> None:
        """`take_loaded` is told what was loaded, on the loop."""
        self.log = log
        self._take_loaded = take_loaded
        self._loaded: loading.LoadedLog | None = None
        # Whether it is over, also without anything loaded; changed on the loop.
        self.is_taken_over = False
        self._token: SimpleQueue[None] = SimpleQueue()
        self._token.put(None)

    def run(self) -> None:
        """Raises LogDirFailure, and what a fold raises."""
        log = self.log
        directory = log.log_directory
        self._token.get()
        try:
            if self._loaded is None and not self.is_taken_over:
                directory.check_online()
                self._loaded = loading.load(log, log.opened_from)
        except OSError as error:
            if not log.is_deleted_meanwhile(error):
                raise directory.fail(error) from error
        finally:
            self._token.put(None)

    def finish(self) -> None:
        """Hand over what was loaded, if it is still wanted; on the loop, also after a failed
        `run`."""
        loaded = self.take_over()
        if loaded is not None:
            self._take_loaded(loaded)

    def take_over(self) -> loading.LoadedLog | None:
        """What was loaded, if anything was; no thread loads any more. Waits for one that does."""
        self._token.get()
        self.is_taken_over = True
        loaded, self._loaded = self._loaded, None
        self._token.put(None)
        return loaded
