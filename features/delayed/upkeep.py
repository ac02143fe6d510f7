"""Upkeep of what is pending: runs are loaded and merged by threads, on leaders and followers alike.

Invariants
- One job at a time works on the files of a folder, also when its log has been cut meanwhile and has
  another fold.

Deliberately absent: what is to be done (pending_set.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from data_plane.broker.services import Services
from data_plane.log.errors import LogDirFailure
from data_plane.log.log import Log
from features.delayed.fold import DelayedMessages

JOBS_AT_ONCE_MAX: Final = 2


class Upkeep:
    """One per broker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._folders: set[str] = set()

    def look(self, log: Log, fold: DelayedMessages, on_done: Callable[[], None]) -> None:
        """Have done what the log's fold wants; `on_done` is called when that is done. Where too
        much is under way nothing begins: look again later."""
        wants_upkeep = fold.pending.wants_upkeep or fold.names.wants_upkeep
        if not wants_upkeep or log.folder in self._folders:
            return
        if len(self._folders) >= JOBS_AT_ONCE_MAX or log.log_directory.failure is not None:
            return
        found = fold.upkeep_job()
        assert found is not None
        job, finish = found
        self._folders.add(log.folder)

        def work() -> None:
            try:
                job.run()
            except OSError as error:
                if not log.is_deleted_meanwhile(error):
                    raise log.log_directory.fail(error) from error

        def done(_: None, error: BaseException | None) -> None:
            self._folders.discard(log.folder)
            finish()
            if error is None:
                on_done()
            elif not isinstance(error, LogDirFailure):
                raise error

        self._services.executor.submit(work, done)
