"""What workers do for use. A task is a hint: what was read is in Postgres, what was not is with the
brokers."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from control_plane.cells.models import Cell
from control_plane.usage.logic import do_forget_old_levels
from control_plane.usage.partitions import do_keep_partitions
from control_plane.usage.reading import read_cell

READ_EVERY_S = 10.0


@shared_task(name="usage.read")
def read_usage() -> None:
    """Of all cells, each by itself: one that hangs keeps no other waiting."""
    for cell_id in Cell.objects.order_by("id").values_list("id", flat=True):
        read_usage_of_cell.apply_async((cell_id,), expires=READ_EVERY_S)


@shared_task(name="usage.read_cell")
def read_usage_of_cell(cell_id: str) -> None:
    """Of one cell."""
    cell = Cell.objects.filter(id=cell_id).first()
    if cell is not None:
        read_cell(cell)


@shared_task(name="usage.keep_partitions")
def keep_partitions() -> None:
    """Those to come are made, those that are over dropped."""
    now = timezone.now()
    do_keep_partitions(now)
    do_forget_old_levels(now)
