"""What workers do for use. A task is a hint: what was read is in Postgres, what was not is with the
brokers."""

from __future__ import annotations

from typing import Final

from celery import shared_task
from django.utils import timezone

from control_plane.places import places
from control_plane.usage.logic import do_forget_old_levels
from control_plane.usage.partitions import do_keep_partitions
from control_plane.usage.reading import read_cells

READERS_MAX: Final = 2


@shared_task(name="usage.read")
def read_usage() -> None:
    """Of the cells that are due. While one hangs, another reader of this process goes on."""
    with places.take("usage", READERS_MAX) as has_place:
        if has_place:
            read_cells()


@shared_task(name="usage.keep_partitions")
def keep_partitions() -> None:
    """Those to come are made, those that are over dropped."""
    now = timezone.now()
    do_keep_partitions(now)
    do_forget_old_levels(now)
