"""What cells say of themselves: their brokers, and that they answer."""

from __future__ import annotations

from functools import partial
from typing import Final

from django.db import transaction
from django.utils import timezone

from control_plane.cells.connections import cell_admin
from control_plane.cells.models import BrokerStatus, Cell
from control_plane.reconciliation.back_offs import READING, ask, cells_that_answer
from data_plane.contract import cell_admin_pb2 as messages

LOOK_TIMEOUT_S: Final = 5.0


def look_at_cells() -> None:
    """Ask all that answer."""
    for cell in cells_that_answer(READING):
        ask(cell, partial(look_at, cell))


def look_at(cell: Cell) -> bool:
    """Write down what the cell says. Raises CellError."""
    with cell_admin(cell) as admin:
        described = admin.DescribeCell(messages.DescribeCellRequest(), timeout=LOOK_TIMEOUT_S)
    now = timezone.now()
    with transaction.atomic():
        Cell.objects.filter(id=cell.id).update(
            cluster_id=described.cluster_id, metadata_version=described.version, last_seen_at=now
        )
        for broker in described.brokers:
            BrokerStatus.objects.update_or_create(
                cell=cell,
                node_id=broker.node_id,
                defaults={
                    "host": broker.host,
                    "port": broker.port,
                    "rack": broker.rack,
                    "is_fenced": broker.is_fenced,
                    "is_draining": broker.is_draining,
                    "partitions": broker.partitions,
                    "leaders": broker.leaders,
                    "seen_at": now,
                },
            )
        there = [broker.node_id for broker in described.brokers]
        BrokerStatus.objects.filter(cell=cell).exclude(node_id__in=there).delete()
    return True
