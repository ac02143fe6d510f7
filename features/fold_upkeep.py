"""Upkeep of folds with files of their own, by threads: on leaders and followers alike.

Invariants
- One job at a time works on the files of a folder, also when its log has been cut meanwhile and has
  another fold.

Deliberately absent: what is to be done (each fold's), and when it is looked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from data_plane.broker.services import Services
from data_plane.log.errors import LogDirFailure
from data_plane.log.log import Log

JOBS_AT_ONCE_MAX: Final = 2


class Job(Protocol):
    """What a thread does. Raises OSError."""

    def run(self) -> None: ...


class UpkeptFold(Protocol):
    """A fold with files of its own."""

    @property
    def wants_upkeep(self) -> bool: ...

    def upkeep_job(self) -> tuple[Job, Callable[[], None]] | None:
        """What is to be done now, to be run in a thread, and what to call on the loop after that,
        whatever came of it; None for nothing. One of a kind at a time."""


class Upkeep:
    """One per broker, for each kind of fold."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._folders: set[str] = set()

    def look(self, log: Log, fold: UpkeptFold, on_done: Callable[[], None]) -> None:
        """Have done what the log's fold wants; `on_done` is called when that is done. Where too
        much is under way nothing begins: look again later."""
        if not fold.wants_upkeep or log.folder in self._folders:
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
