"""A broker without server that also answers the administrative APIs.

Answers marked "as Apache Kafka" in the tests were taken from Apache Kafka 4.3.1 (one KRaft node)
with the same raw requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from data_plane.broker.admin import handlers
from data_plane.broker.config.topic_properties import KAFKA_TOPIC_PROPERTIES, TopicProperties
from data_plane.cell.metadata import MetadataImage
from data_plane.log.fold import FoldFactory
from data_plane.log.sim_file_system import SimFileSystem
from data_plane.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from data_plane.wire.messages.create_topics_response import CreatableTopicResult
from data_plane.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from data_plane.wire.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from data_plane.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from data_plane.wire.registry import ApiKey
from tests.broker.broker_player import NODE_ID, BrokerPlayer

TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

Outcome = tuple[int, str | None]


class AdminPlayer(BrokerPlayer):
    """Adds short forms of the requests that many tests make."""

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        seed: int = 1,
        topics: TopicProperties = KAFKA_TOPIC_PROPERTIES,
        fold_factories: Sequence[FoldFactory] = (),
        disk: SimFileSystem | None = None,
        image: MetadataImage | None = None,
    ) -> None:
        super().__init__(
            properties,
            seed=seed,
            topics=topics,
            fold_factories=fold_factories,
            disk=disk,
            image=image,
        )
        handlers.register_admin(self.services.handlers)

    def create(
        self, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
    ) -> list[CreatableTopicResult]:
        request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
        response = self.ask(ApiKey.CREATE_TOPICS, version, request)
        results: list[CreatableTopicResult] = response.topics
        return results

    def create_outcome(self, topic: CreatableTopic) -> Outcome:
        (result,) = self.create(topic, validate_only=True)
        return result.error_code, result.error_message

    def alter(
        self,
        resource_type: int,
        name: str,
        *changes: tuple[str, int, str | None],
        version: int = 1,
        validate_only: bool = False,
    ) -> Outcome:
        configs = [
            AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ]
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=resource_type, resource_name=name, configs=configs
                )
            ],
            validate_only=validate_only,
        )
        response = self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, request)
        (result,) = response.responses
        assert (result.resource_type, result.resource_name) == (resource_type, name)
        return result.error_code, result.error_message

    def describe(
        self,
        resource_type: int,
        name: str,
        keys: Sequence[str] | None = None,
        version: int = 4,
        documentation: bool = False,
    ) -> DescribeConfigsResult:
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource_type,
                    resource_name=name,
                    configuration_keys=None if keys is None else list(keys),
                )
            ],
            include_synonyms=True,
            include_documentation=documentation,
        )
        response = self.ask(ApiKey.DESCRIBE_CONFIGS, version, request)
        (result,) = response.results
        assert isinstance(result, DescribeConfigsResult)
        return result

    def config(self, resource_type: int, name: str, key: str) -> DescribeConfigsResourceResult:
        result = self.describe(resource_type, name, [key])
        assert result.error_code == 0, result.error_message
        (config,) = result.configs
        return config

    def value(self, resource_type: int, name: str, key: str) -> str | None:
        return self.config(resource_type, name, key).value


def new_topic(
    name: str,
    partitions: int = 1,
    replication: int = 1,
    assignments: Sequence[tuple[int, Sequence[int]]] = (),
    configs: Mapping[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in assignments
        ],
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ],
    )


def synonyms(config: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms]


ZERO_ID = UUID(int=0)
NODE = str(NODE_ID)
