"""Requests about the cluster, its topics and configurations."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from confluent_kafka.admin import ConfigEntry as KafkaConfigEntry

from tidewheel.errors import InvalidRequest, TidewheelError, TopicExists, TopicNotFound
from tidewheel.transport.librdkafka.admin_requests import AdminRequests, only
from tidewheel.transport.librdkafka.attempts import FIRST_ATTEMPT_S
from tidewheel.transport.librdkafka.connection import answered, faults
from tidewheel.transport.port import (
    BrokerInfo,
    ClusterInfo,
    ConfigEntry,
    PartitionInfo,
    TopicInfo,
)


def _topics_in(metadata: Any) -> list[TopicInfo]:
    """What an answer to Metadata tells of topics, by name; it has no topic ids."""
    return [
        TopicInfo(
            name,
            tuple(
                PartitionInfo(p.id, p.leader, tuple(p.replicas), tuple(p.isrs))
                for p in sorted(found.partitions.values(), key=lambda p: p.id)
            ),
            internal=name.startswith("__"),
        )
        for name, found in sorted(metadata.topics.items())
        if found.error is None
    ]


def _topics_among(names: Sequence[str], metadata: Any) -> list[TopicInfo]:
    """These topics, in this order. Raises TopicNotFound."""
    found = {topic.name: topic for topic in _topics_in(metadata)}
    for name in names:
        if name not in found:
            raise TopicNotFound(f'Topic "{name}" does not exist')
    return [found[name] for name in names]


class TopicRequests(AdminRequests):
    """The part of an `AdminTransport` that is about topics."""

    async def cluster(self) -> ClusterInfo:
        """Brokers and the cluster's id."""
        metadata = await self._metadata("asking for the cluster", self._timeout_s)
        brokers = sorted(metadata.brokers.values(), key=lambda broker: broker.id)
        return ClusterInfo(
            metadata.cluster_id or "",
            metadata.controller_id,
            tuple(BrokerInfo(b.id, b.host or "", b.port or 0) for b in brokers),
        )

    async def topics(self) -> list[TopicInfo]:
        """All topics, by name."""
        return _topics_in(await self._metadata("listing topics", self._timeout_s))

    async def leaders(self, name: str) -> dict[int, tuple[int, str, int]]:
        """Id, host and port of each partition's leader; partitions without one are missing. Raises
        TopicNotFound."""
        metadata = await self._metadata("asking which brokers lead", self._timeout_s)
        (topic,) = _topics_among([name], metadata)
        return {
            one.partition: (one.leader, leader.host, leader.port)
            for one in topic.partitions
            if (leader := metadata.brokers.get(one.leader)) is not None
        }

    async def describe_topics(self, names: Sequence[str]) -> list[TopicInfo]:
        """These topics, in this order.

        librdkafka asks the controller. Where there is none (the metadata store is away), any broker
        tells the same, but for topic ids.
        """
        if not names:
            return []
        deadline = time.monotonic() + self._timeout_s

        async def attempt(timeout_s: float, is_unsure: bool) -> list[TopicInfo]:
            if is_unsure:
                left_s = deadline - time.monotonic()
                metadata = await self._metadata("describing topics", left_s)
                if metadata.controller_id < 0:
                    return _topics_among(names, metadata)
            return await self._describe_topics(names, timeout_s)

        return await self._until_answered(attempt)

    async def _describe_topics(self, names: Sequence[str], timeout_s: float) -> list[TopicInfo]:
        with faults("describing topics"):
            futures = self._client.describe_topics(
                ck.TopicCollection(list(names)), request_timeout=timeout_s
            )
        described = []
        for name in names:
            try:
                found = await answered(f'describing topic "{name}"', futures[name])
            except TopicNotFound as error:
                raise TopicNotFound(f'Topic "{name}" does not exist') from error
            partitions = tuple(
                PartitionInfo(
                    p.id,
                    p.leader.id if p.leader is not None else -1,
                    tuple(node.id for node in p.replicas),
                    tuple(node.id for node in p.isr),
                )
                for p in found.partitions
            )
            topic_id = str(found.topic_id)
            described.append(TopicInfo(name, partitions, found.is_internal, topic_id))
        return described

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        """Create one topic; -1 leaves a count to the broker's default."""
        what = f'creating topic "{name}"'

        async def attempt(timeout_s: float, is_unsure: bool) -> None:
            with faults(what):
                topic = NewTopic(name, partitions, replication_factor, config=dict(configs))
                futures = self._client.create_topics(
                    [topic], operation_timeout=timeout_s, request_timeout=timeout_s
                )
            try:
                await answered(what, only(futures))
            except TopicExists:
                if not is_unsure:
                    raise

        await self._learn_leaders(self._timeout_s)
        await self._until_answered(attempt)

    async def delete_topic(self, name: str) -> None:
        """Delete one topic with its messages."""
        what = f'deleting topic "{name}"'

        async def attempt(timeout_s: float, is_unsure: bool) -> None:
            with faults(what):
                futures = self._client.delete_topics(
                    [name], operation_timeout=timeout_s, request_timeout=timeout_s
                )
            try:
                await answered(what, only(futures))
            except TopicNotFound:
                if not is_unsure:
                    raise

        await self._learn_leaders(self._timeout_s)
        await self._until_answered(attempt)

    async def create_partitions(self, name: str, total_count: int) -> None:
        """Grow a topic."""
        what = f'adding partitions to "{name}"'

        async def attempt(timeout_s: float, is_unsure: bool) -> None:
            with faults(what):
                wanted = [NewPartitions(name, total_count)]
                futures = self._client.create_partitions(
                    wanted, operation_timeout=timeout_s, request_timeout=timeout_s
                )
            try:
                await answered(what, only(futures))
            except InvalidRequest:
                if not is_unsure:
                    raise
                (topic,) = await self._describe_topics([name], timeout_s)
                if len(topic.partitions) != total_count:
                    raise

        await self._learn_leaders(self._timeout_s)
        await self._until_answered(attempt)

    async def configs(self, name: str) -> list[ConfigEntry]:
        """All properties of a topic, by name.

        librdkafka asks the controller unless told whom. Every broker knows them, also while there
        is no controller.
        """
        metadata = await self._metadata("asking for the controller", self._timeout_s)
        # The controller first, so that the brokers' own properties are one broker's if possible.
        controller = metadata.controller_id
        asked = sorted(metadata.brokers, key=lambda broker_id: broker_id != controller)
        asked = asked or [controller]
        for broker_id in asked[:-1]:
            try:
                timeout_s = min(FIRST_ATTEMPT_S, self._timeout_s)
                return await self._configs_at(broker_id, ResourceType.TOPIC, name, timeout_s)
            except TidewheelError as error:
                if not error.retriable:
                    raise
        return await self._configs_at(asked[-1], ResourceType.TOPIC, name, self._timeout_s)

    async def broker_configs(self, broker_id: int) -> list[ConfigEntry]:
        """All properties of a broker, by name; it knows them itself."""
        await self._learn_leaders(self._timeout_s)
        kind, name = ResourceType.BROKER, str(broker_id)
        return await self._configs_at(broker_id, kind, name, self._timeout_s)

    async def _configs_at(
        self, broker_id: int, kind: ResourceType, name: str, timeout_s: float
    ) -> list[ConfigEntry]:
        what = f'reading the configuration of "{name}"'
        resource = ConfigResource(kind, name)
        with faults(what):
            futures = self._client.describe_configs(
                [resource], request_timeout=timeout_s, broker=broker_id
            )
        found = await answered(what, only(futures))
        return [
            ConfigEntry(
                entry.name,
                entry.value,
                bool(entry.is_default),
                ConfigSource(entry.source).name,
                bool(entry.is_read_only),
                bool(entry.is_sensitive),
            )
            for entry in sorted(found.values(), key=lambda entry: entry.name)
        ]

    async def alter_configs(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Set properties, or with None delete them back to their defaults."""
        what = f'changing the configuration of "{name}"'
        await self._alter_configs(ResourceType.TOPIC, name, changes, what)

    async def alter_broker_configs(self, broker_id: int, changes: Mapping[str, str | None]) -> None:
        """As above; the request goes to this very broker."""
        what = f"changing the configuration of broker {broker_id}"
        await self._alter_configs(ResourceType.BROKER, str(broker_id), changes, what)

    async def _alter_configs(
        self, kind: ResourceType, name: str, changes: Mapping[str, str | None], what: str
    ) -> None:
        operations = [
            KafkaConfigEntry(
                key,
                value,
                incremental_operation=(
                    AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
                ),
            )
            for key, value in changes.items()
        ]

        async def attempt(timeout_s: float, _is_unsure: bool) -> None:
            resource = ConfigResource(kind, name, incremental_configs=operations)
            futures = self._client.incremental_alter_configs([resource], request_timeout=timeout_s)
            await answered(what, only(futures))

        await self._until_answered(attempt)
