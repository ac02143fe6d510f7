"""A consumer that reads every partition through a projection, which drops odd offsets.

Brokers of such a cell have it plugged in. The virtual topic is in no image: its id is the source's
with one bit turned, and it is asked for at whoever leads the source, in sessions. What the reader
gets must be exactly the records with even offsets of the committed log between where it was and
where the answer takes it, no further than what is committed; and in the end it is where all others
are, also when the last records are odd.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from data_plane.broker.fetch.projection import ProjectedPartition
from data_plane.broker.services import Services
from data_plane.wire.records import decode_batch, is_crc_valid, iter_batch_headers
from data_plane.wire.registry import ApiKey
from tests.projections import EvenOffsets
from tests.simulation.client import OnResponse
from tests.simulation.partition_history import PartitionHistory
from tests.simulation.reader import Position, Target
from tests.simulation.session_reader import SessionReader

TURNED_BIT = 1 << 100


def turned(topic_id: UUID) -> UUID:
    """The virtual topic's id, and back."""
    return UUID(int=topic_id.int ^ TURNED_BIT)


class TurnedIds:
    """The provider of the simulated brokers' projections."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._projection = EvenOffsets()
        self._found: dict[tuple[bytes, int], ProjectedPartition] = {}

    def find(
        self, tenant: str, topic: str, topic_id: bytes, index: int
    ) -> ProjectedPartition | None:
        if topic:
            return None
        source_id = turned(UUID(bytes=topic_id))
        if source_id not in self._services.image.topics_by_id:
            return None
        found = self._found.get((topic_id, index))
        if found is None:
            found = ProjectedPartition(source_id.bytes, index, self._projection)
            self._found[topic_id, index] = found
        return found


def plug_in(services: Services) -> None:
    services.projections.register(TurnedIds(services))


class ProjectedReader(SessionReader):
    """See the module."""

    def ask(
        self,
        node_id: int,
        api_key: ApiKey,
        message: Any,
        on_response: OnResponse,
        purpose: str = "",
        version: int | None = None,
    ) -> None:
        if api_key is not ApiKey.FETCH:
            super().ask(node_id, api_key, message, on_response, purpose, version)
            return
        for topic in (*message.topics, *message.forgotten_topics_data):
            topic.topic_id = turned(topic.topic_id)

        def turn_back(response: Any) -> None:
            if response is not None:
                for topic in response.responses:
                    topic.topic_id = turned(topic.topic_id)
            on_response(response)

        super().ask(node_id, api_key, message, turn_back, purpose, version)

    def _check(
        self, node_id: int, target: Target, position: Position, data: bytes, topic_id: Any
    ) -> None:
        partition = self.cell.history.partitions.get((topic_id, target[1]))
        if partition is None:
            self.world.violate(f"{self.name} got records of {target}, where nothing is committed")
            return
        begin, got = position.offset, []
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
                self.world.count("projected fetches that showed nothing")
            else:
                records = decode_batch(data, header.position)
                got += [one.offset for one in records if one.offset >= begin]
                numbers = {
                    one.offset - int((one.value or b"").split(b"/")[1])
                    for one in records
                    if (one.value or b"").count(b"/") >= 2
                }
                if len(numbers) > 1:
                    self.world.violate(f"{self.name} got records of {partition} out of place")
            position.offset = max(position.offset, header.next_offset)
        self._compare(partition, begin, position.offset, got)
        self.world.count("records read through a projection", len(got))
        self.consumed(target, position.offset)

    def _compare(self, partition: PartitionHistory, begin: int, end: int, got: list[int]) -> None:
        if partition.is_lossy or partition.compacted is not None:
            return
        if end > partition.end_offset:
            self.world.violate(
                f"{self.name} is taken to {end} of {partition}, committed is {partition.end_offset}"
            )
        wanted = [offset for offset in range(begin, end) if offset % 2 == 0]
        if got != wanted:
            self.world.violate(
                f"{self.name} got {got} of {partition} between {begin} and {end}, not {wanted}"
            )
