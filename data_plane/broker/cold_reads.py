"""A fetch's read of records that are not in memory, which must leave the loop.

Deliberately absent: what is done with what was read (fetch_poll.py).
"""

from __future__ import annotations

from data_plane.broker.fetch_response import PartitionResult
from data_plane.replica.partition import Partition


class ColdRead:
    """Where it goes, and the result it completes."""

    __slots__ = ("at_least_one_batch", "bytes_max", "limit", "offset", "partition", "result")

    def __init__(
        self,
        partition: Partition,
        result: PartitionResult,
        bytes_max: int,
        limit: int,
        at_least_one_batch: bool,
    ) -> None:
        self.partition = partition
        self.result = result
        # The target may be asked for something else before the read is done.
        self.offset = result.target.wanted.fetch_offset
        self.bytes_max = bytes_max
        self.limit = limit
        self.at_least_one_batch = at_least_one_batch

    def run(self) -> object:
        """In a worker thread: (buffers, size in bytes, next offset), or the error."""
        try:
            cold = self.partition.log.read_cold(
                self.offset,
                self.bytes_max,
                max_offset=self.limit,
                at_least_one_batch=self.at_least_one_batch,
            )
        except Exception as error:
            return error
        return cold.buffers, cold.size, cold.next_offset
