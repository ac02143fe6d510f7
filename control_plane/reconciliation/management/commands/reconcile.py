"""`python -m control_plane reconcile`: what workers do for cells, in this process and without
Celery. With `--once` until nothing is due just now."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandParser
from django.db import InterfaceError, OperationalError, connection

from control_plane.reconciliation.drift import repair_cells
from control_plane.reconciliation.following import follow_cells
from control_plane.reconciliation.lives import go_on_with_lives
from control_plane.reconciliation.looking import look_at_cells
from control_plane.reconciliation.rounds import reconcile_due

log = logging.getLogger(__name__)

ROUNDS_MAX: Final = 100
INTERVAL_S: Final = 1.0
REPAIR_INTERVAL_S: Final = 60.0


class Command(BaseCommand):
    help = "Tells cells what was declared, and takes in what they have."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="one look at everything, and end")

    def handle(self, *_: Any, **options: Any) -> None:
        if options["once"]:
            for step in EVERYTHING:
                step()
            return
        compared_s = -REPAIR_INTERVAL_S
        while True:
            if time.monotonic() - compared_s >= REPAIR_INTERVAL_S:
                for step in EVERYTHING:
                    attempt(step)
                compared_s = time.monotonic()
            attempt(reconcile_due)
            attempt(follow_cells)
            connection.close()
            time.sleep(INTERVAL_S)


def attempt(step: Callable[[], object]) -> None:
    """Whatever goes wrong in it is due still, and keeps no other step from its turn."""
    try:
        step()
    except (InterfaceError, OperationalError) as error:
        # What was begun was rolled back.
        log.warning("the database does not answer: %s", error)
        connection.close()
    except Exception:
        log.exception("%r", step)


def reconcile_all() -> None:
    """Until nothing is due just now."""
    for _ in range(ROUNDS_MAX):
        if not reconcile_due():
            break


def repair_and_tell() -> None:
    if repair_cells():
        reconcile_due()


EVERYTHING: Final[tuple[Callable[[], object], ...]] = (
    *(go_on_with_lives, look_at_cells, reconcile_all, follow_cells, repair_and_tell),
)
