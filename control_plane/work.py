"""The worker: tells cells what was declared, and does what is due. `python -m control_plane.work`.

Celery with threads, since its tasks wait for the database and for cells; the schedule (beat) is a
thread beside them. What there is to do is in Postgres: several workers, and several schedules, do
no harm, and none is the only one.

SIGTERM ends it: tasks that have begun are finished; what is not is done again by the next one.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
from importlib import import_module
from typing import Any, Final

from celery import Celery
from celery.beat import EmbeddedService
from celery.signals import setup_logging, worker_ready

from control_plane.started import say

log = logging.getLogger(__name__)

THREADS: Final = 8
IN_MEMORY_SCHEDULE: Final = "celery.beat:Scheduler"
"""What was due while nobody ran is due at once, and no file says when it was done last."""


class Ready:
    """What happens once, when the worker first hears from its broker of tasks. It does so again
    whenever that one was away."""

    def __init__(self, app: Celery, ready_fd: int | None, *, has_schedule: bool) -> None:
        self._app = app
        self._ready_fd = ready_fd
        self._has_schedule = has_schedule
        self._is_done = False

    def __call__(self, **_signal: Any) -> None:
        if self._is_done:
            return
        self._is_done = True
        log.info("ready")
        if self._has_schedule:
            schedule = EmbeddedService(self._app, thread=True, scheduler_cls=IN_MEMORY_SCHEDULE)
            assert isinstance(schedule, threading.Thread), "not a process: gRPC survives no fork"
            schedule.start()
        if not say(self._ready_fd, "ready"):
            os.kill(os.getpid(), signal.SIGTERM)


def leave_logging(**_signal: Any) -> None:
    """Celery leaves the logs to Django's settings when somebody listens to this signal."""
    logging.captureWarnings(True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m control_plane.work", allow_abbrev=False)
    parser.add_argument("--threads", type=int, default=THREADS, metavar="N")
    parser.add_argument(
        "--without-schedule", action="store_true", help="Only do what others ask for."
    )
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings.production")
    app: Celery = import_module("control_plane.celery_app").app
    ready = Ready(app, options.ready_fd, has_schedule=not options.without_schedule)
    worker_ready.connect(ready, weak=False)
    setup_logging.connect(leave_logging, weak=False)
    app.worker_main(
        [
            *("--quiet", "worker", "--pool", "threads", "--concurrency", str(options.threads)),
            # Workers have nothing to tell one another: the queue is in Postgres.
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
            *("--loglevel", "INFO"),
        ]
    )


if __name__ == "__main__":
    main()
