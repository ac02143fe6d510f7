"""Whoever may lead has what folds hold on to, also below the log start that readers see.

    committed    p1/0 pinned   p1/16 pinned   …   DeleteRecords up to here
    each disk    has both, whenever its broker leads or joins the ISR, and while it is in it

What is pinned (pin_fold.py) is known by what was committed, record by record, from the first
leader's log that showed it. Where so many disks have lost something since that the cell may have
lost a committed record nobody keeps count any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from data_plane.log.errors import LogError
from data_plane.wire.records import BatchHeader, Record, decode_batch, iter_batch_headers
from tests.simulation.pin_fold import Pins
from tests.simulation.replicas import DiskView, TopicPartition, looking_from_outside

if TYPE_CHECKING:
    from data_plane.log.log import Log
    from tests.simulation.cell import Cell
    from tests.simulation.partition_history import PartitionHistory
    from tests.simulation.replicas import Batch


class HeldWatch:
    """See the module."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._world = cell.world
        # Who has lost something of a partition, and was not seen to have all again.
        self._losers: dict[TopicPartition, set[str]] = {}

    def begin(self, partition: PartitionHistory) -> None:
        """It is new."""
        if "pins" in self._cell.extras and partition.compacted is None:
            partition.pins = Pins()

    def committed(self, partition: PartitionHistory, log: Log, batch: Batch) -> None:
        """`log` has the batch, which is committed now."""
        if partition.pins is None or batch.is_control:
            return
        records = read_records(log, batch.base_offset)
        if not records:
            # Retention was as quick as the commit.
            partition.pins = None
            return
        for record in records:
            key, value = record.key, record.value
            partition.pins.add(
                record.offset,
                None if key is None else bytes(key),
                None if value is None else bytes(value),
            )

    def lost(self, node_name: str, view: DiskView) -> None:
        """That disk has lost its power, or all that it had."""
        self._losers.setdefault(view.topic_partition, set()).add(node_name)

    def losers_of(self, key: TopicPartition) -> set[str]:
        """Whose disks have lost something of it."""
        return self._losers.get(key, set())

    def check_isr(self, partition: PartitionHistory, node_ids: Iterable[int]) -> None:
        """These are in the ISR."""
        for node_id in node_ids:
            view = self._cell.history.disks.get(f"b{node_id}", {}).get(partition.key)
            self.check(f"b{node_id}", partition, view)

    def check(self, node_name: str, partition: PartitionHistory, view: DiskView | None) -> None:
        """A broker leads, or is in the ISR."""
        losers = self._losers.get(partition.key, set())
        if partition.pins is None or view is None or not self._is_readable(view):
            return
        if node_name in partition.rotten_below:
            # Until it is found, and filled again.
            self.lost(node_name, view)
            return
        key = partition.key
        may_be_lost = partition.is_lossy or self._cell.commits.allows_unclean(key[0])
        may_be_lost = may_be_lost or len(losers) >= partition.isr_min
        if may_be_lost or node_name in partition.rotten:
            partition.pins = None
        else:
            self._look_for(partition.pins, view)
            losers.discard(node_name)

    @staticmethod
    def _is_readable(view: DiskView) -> bool:
        log = view.log
        return (
            log is not None
            and log.is_loaded
            and not log.is_closed
            and log.log_directory.failure is None
        )

    def _look_for(self, pins: Pins, view: DiskView) -> None:
        log = view.log
        assert log is not None
        for key, offset in pins.offsets.items():
            # What readers see is looked for elsewhere (committed.py).
            if offset >= log.log_start_offset:
                continue
            if not any(record.offset == offset for record in read_records(log, offset)):
                self._world.violate(
                    f"{view} begins at {log.disk_start_offset} on the disk, at "
                    f"{log.log_start_offset} for readers, and lacks {offset}, pinned as {key!r}"
                )
            self._world.count("held records found below a log start")


def read_records(log: Log, offset: int) -> list[Record]:
    """The records of the batch that holds `offset`, as the disk has them; none if it has not."""
    found = stored_batch(log, offset)
    return [] if found is None else found[1]


def stored_batch(log: Log, offset: int) -> tuple[BatchHeader, list[Record]] | None:
    """The batch that holds `offset`, as the disk has it; None if it has not."""
    if not log.disk_start_offset <= offset < log.log_end_offset:
        return None
    with looking_from_outside(log):
        try:
            result = log.read_cold(
                offset, 1, max_offset=log.log_end_offset, at_least_one_batch=True, of_disk=True
            )
        except LogError:
            return None
        for buffer in result.buffers:
            for header in iter_batch_headers(buffer, 0, len(buffer)):
                if header.base_offset <= offset < header.next_offset:
                    return header, decode_batch(buffer, header.position)
    return None
