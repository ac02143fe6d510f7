"""Logs that take long to load are loaded by worker threads, at the first request for them.

Until a log is loaded there is no partition: a Produce waits for it, and its connection with it, so
that no later one overtakes it; so does the coordinator that is to read it; all else gets an error
upon which clients and followers ask again soon. A load that fails is tried once more on the loop,
when somebody asks, so that what opens partitions hears why.

Deliberately absent: what loading is (data_plane/log/load_job.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from data_plane.broker.request.api import Executor

if TYPE_CHECKING:
    from data_plane.log.load_job import LoadJob
    from data_plane.log.log import Log

PartitionKey = tuple[bytes, int]


class LogLoads:
    """See the module. `on_ended` is called with each partition whose load has ended, before those
    that have waited for it."""

    def __init__(self, executor: Executor, on_ended: Callable[[PartitionKey], None]) -> None:
        self._executor = executor
        self._on_ended = on_ended
        # What waits for each load.
        self._waiting: dict[PartitionKey, list[Callable[[], None]]] = {}
        self._failed: set[PartitionKey] = set()

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self._waiting

    def must_wait(self, key: PartitionKey, log: Log) -> bool:
        """Whether a thread loads the log, from now on if not yet."""
        if key in self._waiting:
            return True
        if key in self._failed:
            self._failed.discard(key)
            return False
        if not log.needs_long_load or log.log_directory.failure is not None:
            return False
        self.load(key, log)
        return True

    def load(self, key: PartitionKey, log: Log) -> None:
        """Have a thread load the log, however little that takes, if none does."""
        if key not in self._waiting:
            self._waiting[key] = []
            job = log.load_job()
            self._executor.submit(job.run, partial(self._ended, key, job))

    def when_ended(self, key: PartitionKey, callback: Callable[[], None]) -> bool:
        """Call `callback` when the load has ended, whatever has come of it; False without one."""
        waiting = self._waiting.get(key)
        if waiting is None:
            return False
        waiting.append(callback)
        return True

    def _ended(
        self, key: PartitionKey, job: LoadJob, result: object, error: BaseException | None
    ) -> None:
        job.finish()
        if error is not None:
            self._failed.add(key)
        callbacks = self._waiting.pop(key)
        self._on_ended(key)
        for callback in callbacks:
            callback()
