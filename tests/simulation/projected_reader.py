"""A consumer that reads every partition through a projection, which drops odd offsets.

Brokers of such a cell have it plugged in. The virtual topic is in no image: its id is the source's
with one bit turned, and it is asked for at whoever leads the source, in sessions. What the reader
gets must be exactly the records with even offsets of the committed log between where it was and
where the answer takes it, no further than what is committed; and in the end it is where all others
are, also when the last records are odd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from data_plane.broker.fetch.projection import ProjectedPartition
from data_plane.broker.services import Services
from data_plane.wire.records import Record
from data_plane.wire.registry import ApiKey
from tests.projections import EvenOffsets
from tests.simulation.client import OnResponse
from tests.simulation.partition_history import PartitionHistory
from tests.simulation.reader import Target
from tests.simulation.session_reader import SessionReader
from tests.simulation.shown_reader import ShownReader

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


class ProjectedReader(ShownReader, SessionReader):
    """See the module."""

    way = "projection"

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

    def look_at(self, partition: PartitionHistory, records: Sequence[Record]) -> None:
        """All of a batch are of one producer, who has numbered them."""
        numbers = {
            one.offset - int((one.value or b"").split(b"/")[1])
            for one in records
            if (one.value or b"").count(b"/") >= 2
        }
        if len(numbers) > 1:
            self.world.violate(f"{self.name} got records of {partition} out of place")

    def compare(
        self, target: Target, topic_id: UUID, begin: int, end: int, got: Sequence[Record]
    ) -> None:
        """Every other record of the committed log."""
        if self.cell.history.partitions[topic_id, target[1]].compacted is not None:
            return
        wanted = [offset for offset in range(begin, end) if offset % 2 == 0]
        found = [one.offset for one in got]
        if found != wanted:
            self.world.violate(
                f"{self.name} got {found} of {target} between {begin} and {end}, not {wanted}"
            )
