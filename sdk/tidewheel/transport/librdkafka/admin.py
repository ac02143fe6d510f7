"""Administrative requests through librdkafka's admin client, which polls in its own thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.admin import ConfigEntry as KafkaConfigEntry

from tidewheel.errors import GroupNotFound, TidewheelError, TopicNotFound, from_kafka
from tidewheel.message import TopicPartition
from tidewheel.transport.librdkafka.connection import Connection, answered, blocking, faults
from tidewheel.transport.librdkafka.consumer import NO_GROUP_ID
from tidewheel.transport.port import (
    BrokerInfo,
    ClusterInfo,
    ConfigEntry,
    GroupInfo,
    MemberInfo,
    PartitionInfo,
    TopicInfo,
)

RETRY_PAUSE_S = 0.1
# A request to a broker that may be gone, before it is asked for anew.
ATTEMPT_S = 3.0


def _offset_spec(at: str | int) -> Any:
    specs: Any = OffsetSpec  # Its methods are not typed.
    if isinstance(at, int):
        return specs.for_timestamp(at)
    return specs.earliest() if at == "earliest" else specs.latest()


def _only(futures: Mapping[Any, Future[Any]]) -> Future[Any]:
    (future,) = futures.values()
    return future


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


class LibrdkafkaAdmin:
    """An `AdminTransport` over one librdkafka admin client."""

    def __init__(self, connection: Connection, client: AdminClient) -> None:
        self._connection = connection
        self._client = client
        self._timeout_s = connection.request_timeout_s

    async def cluster(self) -> ClusterInfo:
        """Brokers and the cluster's id."""
        metadata = await blocking(
            "asking for the cluster", self._client.list_topics, timeout=self._timeout_s
        )
        brokers = sorted(metadata.brokers.values(), key=lambda broker: broker.id)
        return ClusterInfo(
            metadata.cluster_id or "",
            metadata.controller_id,
            tuple(BrokerInfo(b.id, b.host or "", b.port or 0) for b in brokers),
        )

    async def topics(self) -> list[TopicInfo]:
        """All topics, by name."""
        metadata = await blocking(
            "listing topics", self._client.list_topics, timeout=self._timeout_s
        )
        return _topics_in(metadata)

    async def describe_topics(self, names: Sequence[str]) -> list[TopicInfo]:
        """These topics, in this order. No longer than the request time-out, whoever has died.

        librdkafka asks the controller. Where there is none (the metadata store is away), any broker
        tells the same, but for topic ids.
        """
        if not names:
            return []
        deadline = time.monotonic() + self._timeout_s
        while True:
            left_s = deadline - time.monotonic()
            try:
                return await self._describe_topics(names, max(0.1, min(ATTEMPT_S, left_s)))
            except TidewheelError as error:
                if not error.retriable or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(RETRY_PAUSE_S)
            metadata = await self._learn_controller(deadline - time.monotonic())
            if metadata.controller_id < 0:
                return _topics_among(names, metadata)

    async def _learn_controller(self, timeout_s: float) -> Any:
        """librdkafka asks the controller that it knew, for minutes after that one has died. Any
        other broker tells who it is now. What that broker says."""
        what = "asking which broker is the controller"
        return await blocking(what, self._client.list_topics, timeout=max(0.1, timeout_s))

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
        await self._learn_controller(self._timeout_s)
        with faults(f'creating topic "{name}"'):
            topic = NewTopic(name, partitions, replication_factor, config=dict(configs))
            futures = self._client.create_topics([topic], operation_timeout=self._timeout_s)
        await answered(f'creating topic "{name}"', _only(futures))

    async def delete_topic(self, name: str) -> None:
        """Delete one topic with its messages."""
        await self._learn_controller(self._timeout_s)
        with faults(f'deleting topic "{name}"'):
            futures = self._client.delete_topics([name], operation_timeout=self._timeout_s)
        await answered(f'deleting topic "{name}"', _only(futures))

    async def create_partitions(self, name: str, total_count: int) -> None:
        """Grow a topic."""
        await self._learn_controller(self._timeout_s)
        with faults(f'adding partitions to "{name}"'):
            wanted = [NewPartitions(name, total_count)]
            futures = self._client.create_partitions(wanted, operation_timeout=self._timeout_s)
        await answered(f'adding partitions to "{name}"', _only(futures))

    async def configs(self, name: str) -> list[ConfigEntry]:
        """All properties of a topic, by name.

        librdkafka asks the controller unless told whom. Every broker knows them, also while there
        is no controller.
        """
        metadata = await self._learn_controller(self._timeout_s)
        # The controller first, so that the brokers' own properties are one broker's if possible.
        controller = metadata.controller_id
        asked = sorted(metadata.brokers, key=lambda broker_id: broker_id != controller)
        asked = asked or [controller]
        for broker_id in asked[:-1]:
            try:
                return await self._configs_at(broker_id, name, min(ATTEMPT_S, self._timeout_s))
            except TidewheelError as error:
                if not error.retriable:
                    raise
        return await self._configs_at(asked[-1], name, self._timeout_s)

    async def _configs_at(self, broker_id: int, name: str, timeout_s: float) -> list[ConfigEntry]:
        what = f'reading the configuration of "{name}"'
        resource = ConfigResource(ResourceType.TOPIC, name)
        with faults(what):
            futures = self._client.describe_configs(
                [resource], request_timeout=timeout_s, broker=broker_id
            )
        found = await answered(what, _only(futures))
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
        resource = ConfigResource(kind, name, incremental_configs=operations)
        futures = self._client.incremental_alter_configs(
            [resource], request_timeout=self._timeout_s
        )
        await answered(what, _only(futures))

    async def groups(self) -> list[str]:
        """Names of all consumer groups."""
        future = self._client.list_consumer_groups(request_timeout=self._timeout_s)
        found = await answered("listing groups", future)
        return sorted(group.group_id for group in found.valid)

    async def describe_group(self, group: str) -> GroupInfo:
        """State and members."""
        futures = self._client.describe_consumer_groups([group], request_timeout=self._timeout_s)
        found = await answered(f'describing group "{group}"', _only(futures))
        if found.state.name == "DEAD" and not found.members:
            raise GroupNotFound(f'Group "{group}" does not exist')
        members = tuple(
            MemberInfo(
                member.member_id,
                member.client_id,
                member.host,
                member.group_instance_id or None,
                tuple(
                    sorted(
                        TopicPartition(p.topic, p.partition)
                        for p in (member.assignment.topic_partitions if member.assignment else ())
                    )
                ),
            )
            for member in sorted(found.members, key=lambda member: member.member_id)
        )
        state = "".join(word.title() for word in found.state.name.split("_"))
        coordinator = found.coordinator.id if found.coordinator is not None else -1
        return GroupInfo(group, state, found.partition_assignor or "", coordinator, members)

    async def delete_group(self, group: str) -> None:
        """Delete an empty group with its offsets."""
        futures = self._client.delete_consumer_groups([group], request_timeout=self._timeout_s)
        await answered(f'deleting group "{group}"', _only(futures))

    async def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """The group's committed offsets."""
        what = f'reading offsets of group "{group}"'
        futures = self._client.list_consumer_group_offsets(
            [ck.ConsumerGroupTopicPartitions(group)], request_timeout=self._timeout_s
        )
        found = await answered(what, _only(futures))
        offsets = {}
        for p in found.topic_partitions or ():
            if p.error is not None:
                raise from_kafka(p.error, what)
            if p.offset >= 0:
                offsets[TopicPartition(p.topic, p.partition)] = p.offset
        return offsets

    async def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set committed offsets of a group without members."""
        what = f'setting offsets of group "{group}"'
        wanted = [ck.TopicPartition(tp.topic, tp.partition, o) for tp, o in offsets.items()]
        futures = self._client.alter_consumer_group_offsets(
            [ck.ConsumerGroupTopicPartitions(group, wanted)], request_timeout=self._timeout_s
        )
        answer = await answered(what, _only(futures))
        for p in answer.topic_partitions or ():
            if p.error is not None:
                raise from_kafka(p.error, what)

    async def offsets(
        self, partitions: Iterable[TopicPartition], at: str | int
    ) -> dict[TopicPartition, int]:
        """Offsets by name or time."""
        wanted = list(partitions)
        if not wanted:
            return {}
        found: dict[TopicPartition, int] = {}
        deadline = time.monotonic() + self._timeout_s
        while left := [partition for partition in wanted if partition not in found]:
            futures = self._client.list_offsets(
                {ck.TopicPartition(*tp): _offset_spec(at) for tp in left},
                request_timeout=self._timeout_s,
            )
            for p, future in futures.items():
                partition = TopicPartition(p.topic, p.partition)
                try:
                    answer = await answered(f"reading offsets of {partition}", future)
                except TidewheelError as error:
                    # A new partition has no leader for some milliseconds.
                    if not error.retriable or time.monotonic() > deadline:
                        raise
                else:
                    found[partition] = answer.offset
            if len(found) < len(wanted):
                await asyncio.sleep(RETRY_PAUSE_S)
        missing = [partition for partition in wanted if found[partition] < 0]
        if missing:
            found.update(await self.offsets(missing, "latest"))
        return found

    async def record_timestamps(
        self, positions: Mapping[TopicPartition, int], timeout_s: float
    ) -> dict[TopicPartition, int]:
        """Read one record of each partition with a consumer of its own."""
        if not positions:
            return {}
        return await asyncio.to_thread(self._read_timestamps, positions, timeout_s)

    def _read_timestamps(
        self, positions: Mapping[TopicPartition, int], timeout_s: float
    ) -> dict[TopicPartition, int]:
        properties = {
            **self._connection.properties(),
            "group.id": NO_GROUP_ID,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": 16_384,
            "queued.min.messages": 1,
            "fetch.wait.max.ms": 100,
        }
        found: dict[TopicPartition, int] = {}
        consumer = ck.Consumer(properties)
        try:
            wanted = [ck.TopicPartition(tp.topic, tp.partition, o) for tp, o in positions.items()]
            consumer.assign(wanted)
            deadline = time.monotonic() + timeout_s
            while len(found) < len(positions) and time.monotonic() < deadline:
                message = consumer.poll(0.1)
                if message is None or message.error() is not None:
                    continue
                topic, number = message.topic(), message.partition()
                assert topic is not None, "every record has a place"
                assert number is not None, "every record has a place"
                if (partition := TopicPartition(topic, number)) not in found:
                    found[partition] = message.timestamp()[1]
                    consumer.pause([ck.TopicPartition(*partition)])
        finally:
            consumer.close()
        return found

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Move the first offset of partitions up."""
        wanted = [ck.TopicPartition(tp.topic, tp.partition, o) for tp, o in before.items()]
        futures = self._client.delete_records(wanted, operation_timeout=self._timeout_s)
        result = {}
        for p, future in futures.items():
            partition = TopicPartition(p.topic, p.partition)
            answer = await answered(f"deleting records of {partition}", future)
            result[partition] = answer.low_watermark
        return result
