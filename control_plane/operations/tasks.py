"""What workers do for operations."""

from __future__ import annotations

from celery import shared_task

from control_plane.operations.settling import do_settle_operations


@shared_task(name="operations.settle")
def settle_operations() -> None:
    """Close what is done."""
    do_settle_operations()
