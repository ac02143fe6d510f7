"""A consumer that is shown a part of what is in a partition, by what a broker has plugged in.

Whatever it is shown, batches have a valid checksum, none takes it back to
where it was, and it gets no further than what is committed. Which records these have to be between
two offsets, subclasses say (`compare`): all that are shown there, and no others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from data_plane.wire.records import Record, decode_batch, is_crc_valid, iter_batch_headers
from tests.simulation.partition_history import PartitionHistory
from tests.simulation.reader import Position, Reader, Target


class ShownReader(Reader, ABC):
    """See the module. `way`: what it reads through, in the words of counters."""

    way: str

    def _check(
        self, node_id: int, target: Target, position: Position, data: bytes, topic_id: Any
    ) -> None:
        partition = self.cell.history.partitions.get(self.place(topic_id, target[1]))
        if partition is None:
            self.world.violate(f"{self.name} got records of {target}, where nothing is committed")
        begin = position.offset
        got: list[Record] = []
        for header in iter_batch_headers(data, 0, len(data), incomplete_tail=True):
            if not is_crc_valid(data, header):
                if f"b{node_id}" in partition.rotten:
                    self.world.count("rotten batches refused")
                    return
                self.world.violate(f"{self.name} got a batch of {partition} with a wrong CRC")
            if header.next_offset <= position.offset and not partition.is_lossy:
                self.world.violate(
                    f"{self.name} is at {position.offset} of {partition} and is taken back to "
                    f"{header.next_offset}"
                )
            if header.is_control:
                self.world.count(f"fetches through a {self.way} that showed nothing")
            else:
                records = decode_batch(data, header.position)
                self.look_at(partition, records)
                got += [one for one in records if one.offset >= begin]
            position.offset = max(position.offset, header.next_offset)
        if not partition.is_lossy:
            if position.offset > partition.end_offset:
                self.world.violate(
                    f"{self.name} is taken to {position.offset} of {partition}, committed is "
                    f"{partition.end_offset}"
                )
            self.compare(target, topic_id, begin, position.offset, got)
        self.world.count(f"records read through a {self.way}", len(got))
        self.consumed(target, position.offset)

    def look_at(self, partition: PartitionHistory, records: Sequence[Record]) -> None:
        """Of one batch, with what lies below the offset that was asked for."""

    @abstractmethod
    def compare(
        self, target: Target, topic_id: UUID, begin: int, end: int, got: Sequence[Record]
    ) -> None:
        """Check that these are all that is to be seen from `begin` to `end`."""
