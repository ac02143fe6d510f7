"""What workers do for cells. A task is a hint: what is due is in Postgres, so any task may be lost,
repeated, and go on twice at once. CELERY_BEAT_SCHEDULE has how often each is begun.

A worker has few threads, and a call of a cell that hangs holds one for as long as its time is: so
each kind of task that reads from cells has a number of places in a process, and one that finds none
leaves it to the next. rounds.py has those of rounds, by cell.
"""

from __future__ import annotations

from typing import Final

from celery import shared_task

from control_plane.places import places
from control_plane.reconciliation.drift import repair_cells
from control_plane.reconciliation.following import follow_cells
from control_plane.reconciliation.lives import go_on_with_lives
from control_plane.reconciliation.looking import look_at_cells
from control_plane.reconciliation.rounds import reconcile_due

FOLLOWERS_MAX: Final = 2


@shared_task(name="reconciliation.reconcile")
def reconcile() -> None:
    """Tell cells what was declared."""
    reconcile_due()


@shared_task(name="reconciliation.follow")
def follow() -> None:
    """Take in what Kafka clients have made and changed."""
    with places.take("follow", FOLLOWERS_MAX) as has_place:
        if has_place:
            follow_cells()


@shared_task(name="reconciliation.repair")
def repair() -> None:
    """Compare what cells have with what was declared."""
    with places.take("repair", 1) as has_place:
        if has_place:
            repair_cells()


@shared_task(name="reconciliation.lives")
def lives() -> None:
    """Place who waits, and purge what is over."""
    go_on_with_lives()


@shared_task(name="reconciliation.look")
def look() -> None:
    """Ask cells how they are."""
    with places.take("look", 1) as has_place:
        if has_place:
            look_at_cells()
