"""Names that are used again: topics are deleted, and made anew under the same name within moments.

    again1   id 7   records 0..40   deleted     id 9   records 0..3
    a broker         hears of both at once, or of neither for a while, or was down in between

What is written and read goes by ids, so nobody may get a record, an offset or an error of the topic
that had the name before. Readers begin anew when they hear of another id under a name; what they
read is held against the partition that they named (reader.py). Their producers promise nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data_plane.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from data_plane.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from data_plane.wire.registry import ApiKey
from tests.simulation.administrator import Administrator

if TYPE_CHECKING:
    from uuid import UUID

    from tests.simulation.cell import Cell

NAMES = ("again1", "again2")


class Namesakes(Administrator):
    """See the module."""

    names: tuple[str, ...] = NAMES
    partitions = 2
    replicas = 3
    interval_ms = 150

    def __init__(self, cell: Cell, name: str) -> None:
        super().__init__(cell, name)
        self._seen: dict[str, UUID] = {}

    def change(self) -> None:
        name = self.random.choice(self.names)
        topic = self.cell.store.image.topics_of("default").get(name)
        if topic is not None:
            known = self._seen.get(name)
            if known is not None and known != topic.topic_id:
                self.world.count("names used again")
            self._seen[name] = topic.topic_id
            self._delete(name)
            if self.random.random() < 0.5:
                return
        plan = CreatableTopic(
            name=name, num_partitions=self.partitions, replication_factor=self.replicas
        )
        self._send(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=[plan]))

    def _delete(self, name: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
        self._send(ApiKey.DELETE_TOPICS, request)

    def _send(self, api_key: ApiKey, request: Any) -> None:
        self.ask(self.any_node(), api_key, request, lambda response: None)
