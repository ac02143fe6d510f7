"""Damaged logs that are cut: where bit rot struck, and when nobody counts on them (bit_rot.py).

    struck at 30 ─► noted ─► given up ─► cut at 30 ─► filled again
                      └─► retention: the log begins at 38 ─► sound again, in the process that knows
                            └─ killed ─► the next one has the note alone, and drops what is left

To note too much does no harm (data_plane/log/damage.py): the copy is given up before it is cut,
here as there. What it drops it has lost until it has got it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from data_plane.log.damage import NOT_DAMAGED
from tests.simulation.committed import CommittedLogs
from tests.simulation.partition_history import LostRange, PartitionHistory
from tests.simulation.replicas import DiskView

if TYPE_CHECKING:
    from data_plane.log.log import Log
    from tests.simulation.cell import Cell
    from tests.simulation.node import Node


class RepairWatch:
    """See the module."""

    def __init__(self, cell: Cell, committed: CommittedLogs) -> None:
        self._world = cell.world
        self._committed = committed

    def is_cut(self, node: Node, partition: PartitionHistory, view: DiskView, log: Log) -> bool:
        """Whether a log whose ends have just changed was cut for its damage."""
        if node.name in partition.rotten:
            return self._is_repaired(node, partition, view, log)
        if node.name in partition.rotten_below:
            return self._is_begun_anew(node, partition, view, log)
        return node.name in partition.outlived and self._is_dropped(node, partition, view, log)

    def _is_repaired(
        self, node: Node, partition: PartitionHistory, view: DiskView, log: Log
    ) -> bool:
        struck = partition.rotten[node.name]
        if view.start_offset > struck.last_offset:
            del partition.rotten[node.name]
            if log.is_loaded and log.disk_start_offset <= struck.last_offset:
                partition.rotten_below[node.name] = struck
            elif log.damaged_from != NOT_DAMAGED:
                partition.outlived[node.name] = None
            return False
        if view.end_offset > struck.base_offset:
            return False
        del partition.rotten[node.name]
        self._repaired(node, partition, view)
        return True

    def _is_begun_anew(
        self, node: Node, partition: PartitionHistory, view: DiskView, log: Log
    ) -> bool:
        struck = partition.rotten_below[node.name]
        if view.cut and not view.batches:
            del partition.rotten_below[node.name]
            self._world.count("repairs below a log start")
            self._repaired(node, partition, view)
            return True
        if log.is_loaded and log.disk_start_offset > struck.last_offset:
            del partition.rotten_below[node.name]
            if log.damaged_from != NOT_DAMAGED:
                partition.outlived[node.name] = None
        return False

    def _is_dropped(
        self, node: Node, partition: PartitionHistory, view: DiskView, log: Log
    ) -> bool:
        if log.damaged_from != NOT_DAMAGED:
            return False
        del partition.outlived[node.name]
        if view.batches or not view.cut:
            return False
        self._world.count("repairs of what was sound again")
        self._repaired(node, partition, view)
        return True

    def _repaired(self, node: Node, partition: PartitionHistory, view: DiskView) -> None:
        self._world.count("repairs")
        self._committed.check_cut(partition, node)
        end = max([partition.end_offset, *(batch.last_offset + 1 for batch in view.cut)])
        partition.dropped[node.name] = LostRange(view.end_offset, end, is_registered=True)
        if view.end_offset < partition.end_offset:
            lost = LostRange(view.end_offset, partition.end_offset, is_registered=True)
            partition.lost[node.name] = lost
