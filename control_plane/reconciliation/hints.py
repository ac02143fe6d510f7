"""NOTIFY as a hint: a thread of each worker listens to Postgres, and has a round begun as soon as a
write is committed, instead of with the next beat. Whatever is missed comes with the beat.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

import psycopg
from celery.signals import worker_ready, worker_shutting_down
from django.db import connection
from kombu.exceptions import OperationalError

from control_plane.celery_app import app
from control_plane.operations.facade import OUTBOX_CHANNEL

log = logging.getLogger(__name__)

THREAD: Final = "outbox-hints"
RECONCILE: Final = "reconciliation.reconcile"
# A hint that no worker has taken until then is as good as the next beat.
EXPIRES_S: Final = 5.0
WAIT_S: Final = 1.0
RECONNECT_S: Final = 2.0

_stopping = threading.Event()


def connect() -> None:
    """Have workers of this process listen."""
    worker_ready.connect(start)
    worker_shutting_down.connect(stop)


def start(**_: object) -> None:
    """Listen for as long as the worker lives."""
    _stopping.clear()
    threading.Thread(target=listen, name=THREAD, daemon=True).start()


def stop(**_: object) -> None:
    _stopping.set()


def listen() -> None:
    while not _stopping.is_set():
        try:
            _listen_once()
        except (psycopg.Error, OperationalError, OSError) as error:
            # The database, or what carries tasks (kombu's OperationalError), is away.
            log.warning("hints are missed for a while: %s", error)
            _stopping.wait(RECONNECT_S)


def _listen_once() -> None:
    # Not one of the pool's: those go from task to task.
    parameters = connection.get_connection_params()
    with psycopg.connect(**parameters, autocommit=True) as listening:
        listening.execute(f"LISTEN {OUTBOX_CHANNEL}".encode())
        while not _stopping.is_set():
            # Writes of one moment are one hint.
            if list(listening.notifies(timeout=WAIT_S, stop_after=1)):
                app.send_task(RECONCILE, expires=EXPIRES_S)
