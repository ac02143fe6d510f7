"""A broker to which resources are declared, and whose clients change the same things."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from data_plane.broker.admin.declarations import decide_declarations, decide_deletions
from data_plane.broker.admin.declared import Outcome, Removal, Resource, Result
from data_plane.cell.changes import Change, UpdateFeature
from data_plane.cell.features import METADATA_VERSION, TENANCY_LEVEL
from data_plane.cell.metadata import MetadataImage
from data_plane.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from data_plane.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from data_plane.wire.registry import ApiKey
from tests.broker.admin_player import AdminPlayer


class DeclaringPlayer(AdminPlayer):
    """A broker to which topics are declared."""

    def __init__(self, level: int = TENANCY_LEVEL) -> None:
        super().__init__()
        self.commit(lambda image: [UpdateFeature(METADATA_VERSION, level)])

    def commit(self, decide: Callable[[MetadataImage], Sequence[Change]]) -> None:
        errors: list[BaseException | None] = []
        self.services.metadata.write(decide, errors.append)
        self.run_jobs()
        (error,) = errors
        if error is not None:
            raise error

    def declare(self, *wanted: Resource) -> list[Result]:
        results: list[Result] = []

        def decide(image: MetadataImage) -> Sequence[Change]:
            results.clear()
            return decide_declarations(self.services, image, wanted, results)

        self.commit(decide)
        return results

    def declare_one(self, wanted: Resource) -> Outcome:
        (result,) = self.declare(wanted)
        assert result.resource_id == wanted.resource_id
        return result.outcome

    def delete(
        self, resource_id: str, generation: int, *, keeps_topic: bool = False
    ) -> list[Result]:
        return self.delete_all([Removal(resource_id, generation, keeps_topic)])

    def delete_all(self, removals: Sequence[Removal]) -> list[Result]:
        results: list[Result] = []

        def decide(image: MetadataImage) -> Sequence[Change]:
            results.clear()
            return decide_deletions(self.services, image, removals, results)

        self.commit(decide)
        return results

    def topic_id(self, name: str) -> UUID:
        topic = self.services.image.topic("default", name)
        assert topic is not None
        return topic.topic_id

    def configs(self, topic: str) -> Mapping[str, str]:
        return self.services.image.topics_of("default")[topic].configs

    def partitions(self, topic: str) -> int:
        return len(self.services.image.topics_of("default")[topic].partitions)

    def delete_as_client(self, name: str) -> tuple[int, str | None]:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
        (result,) = self.ask(ApiKey.DELETE_TOPICS, 6, request).responses
        return result.error_code, result.error_message

    def grow_as_client(self, name: str, count: int) -> tuple[int, str | None]:
        request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=count)])
        (result,) = self.ask(ApiKey.CREATE_PARTITIONS, 3, request).results
        return result.error_code, result.error_message
