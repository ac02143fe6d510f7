"""Changes of the metadata image, and the pure function that applies them.

A change says what is, not what is wished: placement, ids and merged values were decided before,
so that applying it on any broker gives the same image. `apply_changes` refuses a change that does
not fit (a topic made twice, a producer id block out of order) with `InvalidChange`; whoever
decides against the current image never sees it.

Invariants
- All changes of one commit apply, or none: the version grows by one per commit.
- No randomness, no clock: replaying the same commits gives an equal image.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never
from uuid import UUID

from data_plane.cell.metadata import (
    BrokerImage,
    ConfigResource,
    MetadataImage,
    PartitionImage,
    ResourceType,
    TopicImage,
)

Assignment = tuple[int, ...]


class InvalidChange(Exception):
    """The change does not fit the image that it is applied to."""


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """A new topic; `assignments[p]` are the replicas of partition p, the leader first."""

    name: str
    topic_id: UUID
    assignments: tuple[Assignment, ...]
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """More partitions, numbered on from the last one."""

    topic_id: UUID
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """Overrides of one resource: text sets a value, None takes the override away."""

    resource_type: int
    resource_name: str
    values: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A broker joined, or changed its address."""

    broker: BrokerImage


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """Producer ids first_producer_id … + count - 1 now belong to one broker."""

    first_producer_id: int
    count: int


Change = (
    CreateTopic | DeleteTopic | AddPartitions | AlterConfigs | RegisterBroker | AllocateProducerIds
)


class _Draft:
    """An image while one commit is applied: copies a mapping when it is first written to."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._by_name: dict[str, TopicImage] | None = None
        self._by_id: dict[UUID, TopicImage] | None = None
        self._configs: dict[ConfigResource, Mapping[str, str]] | None = None
        self.next_producer_id = image.next_producer_id
        self.brokers = image.brokers

    def topics_by_name(self) -> Mapping[str, TopicImage]:
        return self._image.topics_by_name if self._by_name is None else self._by_name

    def topics_by_id(self) -> Mapping[UUID, TopicImage]:
        return self._image.topics_by_id if self._by_id is None else self._by_id

    def put_topic(self, topic: TopicImage) -> None:
        by_name, by_id = self._writable_topics()
        by_name[topic.name] = topic
        by_id[topic.topic_id] = topic

    def remove_topic(self, topic: TopicImage) -> None:
        by_name, by_id = self._writable_topics()
        del by_name[topic.name]
        del by_id[topic.topic_id]

    def configs(self) -> dict[ConfigResource, Mapping[str, str]]:
        if self._configs is None:
            self._configs = dict(self._image.configs)
        return self._configs

    def _writable_topics(self) -> tuple[dict[str, TopicImage], dict[UUID, TopicImage]]:
        if self._by_name is None or self._by_id is None:
            self._by_name = dict(self._image.topics_by_name)
            self._by_id = dict(self._image.topics_by_id)
        return self._by_name, self._by_id

    def finish(self, version: int) -> MetadataImage:
        return replace(
            self._image,
            version=version,
            brokers=self.brokers,
            topics_by_name=self.topics_by_name(),
            topics_by_id=self.topics_by_id(),
            configs=self._image.configs if self._configs is None else self._configs,
            next_producer_id=self.next_producer_id,
        )


def apply_changes(image: MetadataImage, changes: Iterable[Change]) -> MetadataImage:
    """The image after one commit. Raises InvalidChange; `image` is untouched either way."""
    draft = _Draft(image)
    for change in changes:
        _apply(draft, change)
    return draft.finish(image.version + 1)


def apply_change(image: MetadataImage, change: Change) -> MetadataImage:
    """The image after a commit of one change."""
    return apply_changes(image, (change,))


def decide_registration(image: MetadataImage, broker: BrokerImage) -> tuple[Change, ...]:
    """What a starting broker commits: nothing when it is registered as it is."""
    return () if image.brokers.get(broker.node_id) == broker else (RegisterBroker(broker),)


def _apply(draft: _Draft, change: Change) -> None:
    match change:
        case CreateTopic():
            if change.name in draft.topics_by_name() or change.topic_id in draft.topics_by_id():
                raise InvalidChange(f"topic {change.name} exists")
            if not change.assignments:
                raise InvalidChange(f"topic {change.name} has no partition")
            partitions = _new_partitions(change.assignments)
            draft.put_topic(
                TopicImage(change.name, change.topic_id, partitions, dict(change.configs))
            )
        case DeleteTopic():
            draft.remove_topic(_existing_topic(draft, change.topic_id))
        case AddPartitions():
            topic = _existing_topic(draft, change.topic_id)
            partitions = topic.partitions + _new_partitions(change.assignments)
            draft.put_topic(replace(topic, partitions=partitions))
        case AlterConfigs():
            _alter_configs(draft, change)
        case RegisterBroker():
            draft.brokers = {**draft.brokers, change.broker.node_id: change.broker}
        case AllocateProducerIds():
            if change.first_producer_id != draft.next_producer_id or change.count <= 0:
                raise InvalidChange(
                    f"producer ids from {change.first_producer_id}, expected from "
                    f"{draft.next_producer_id}"
                )
            draft.next_producer_id += change.count
        case _:
            assert_never(change)


def _existing_topic(draft: _Draft, topic_id: UUID) -> TopicImage:
    topic = draft.topics_by_id().get(topic_id)
    if topic is None:
        raise InvalidChange(f"there is no topic with id {topic_id}")
    return topic


def _new_partitions(assignments: Sequence[Assignment]) -> tuple[PartitionImage, ...]:
    shared: dict[Assignment, PartitionImage] = {}
    partitions = []
    for replicas in assignments:
        if not replicas:
            raise InvalidChange("a partition without replicas")
        partition = shared.get(replicas)
        if partition is None:
            partition = PartitionImage(replicas, isr=replicas, leader=replicas[0])
            shared[replicas] = partition
        partitions.append(partition)
    return tuple(partitions)


def _alter_configs(draft: _Draft, change: AlterConfigs) -> None:
    if change.resource_type == ResourceType.TOPIC:
        topic = draft.topics_by_name().get(change.resource_name)
        if topic is None:
            raise InvalidChange(f"there is no topic {change.resource_name}")
        draft.put_topic(replace(topic, configs=_merged(topic.configs, change)))
        return
    resource = ConfigResource(change.resource_type, change.resource_name)
    configs = draft.configs()
    merged = _merged(configs.get(resource, {}), change)
    if merged:
        configs[resource] = merged
    else:
        configs.pop(resource, None)


def _merged(values: Mapping[str, str], change: AlterConfigs) -> dict[str, str]:
    merged = dict(values)
    for key, value in change.values:
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged


def encode_change(change: Change) -> list[Any]:
    """A JSON-ready form, used by journals and feeds."""
    match change:
        case CreateTopic():
            return [
                "create_topic",
                change.name,
                change.topic_id.hex,
                _encode_assignments(change.assignments),
                [list(pair) for pair in change.configs],
            ]
        case DeleteTopic():
            return ["delete_topic", change.topic_id.hex]
        case AddPartitions():
            assignments = _encode_assignments(change.assignments)
            return ["add_partitions", change.topic_id.hex, assignments]
        case AlterConfigs():
            values = [list(pair) for pair in change.values]
            return ["alter_configs", int(change.resource_type), change.resource_name, values]
        case RegisterBroker():
            broker = change.broker
            return ["register_broker", broker.node_id, broker.host, broker.port, broker.rack]
        case AllocateProducerIds():
            return ["allocate_producer_ids", change.first_producer_id, change.count]
        case _:
            assert_never(change)


def decode_change(item: Sequence[Any]) -> Change:
    """The inverse of `encode_change`. Raises ValueError for a kind that it does not know."""
    kind, *fields = item
    match kind:
        case "create_topic":
            name, topic_id, assignments, configs = fields
            pairs = tuple((key, value) for key, value in configs)
            return CreateTopic(name, UUID(topic_id), _decode_assignments(assignments), pairs)
        case "delete_topic":
            return DeleteTopic(UUID(fields[0]))
        case "add_partitions":
            return AddPartitions(UUID(fields[0]), _decode_assignments(fields[1]))
        case "alter_configs":
            resource_type, name, values = fields
            return AlterConfigs(resource_type, name, tuple((key, value) for key, value in values))
        case "register_broker":
            return RegisterBroker(BrokerImage(*fields))
        case "allocate_producer_ids":
            return AllocateProducerIds(fields[0], fields[1])
        case _:
            raise ValueError(f"a change of unknown kind {kind!r}: written by a newer version?")


def _encode_assignments(assignments: Sequence[Assignment]) -> list[list[Any]]:
    """Runs of equal assignments as [count, replicas]: most partitions share theirs."""
    runs: list[list[Any]] = []
    for replicas in assignments:
        if runs and runs[-1][1] == list(replicas):
            runs[-1][0] += 1
        else:
            runs.append([1, list(replicas)])
    return runs


def _decode_assignments(runs: Sequence[Sequence[Any]]) -> tuple[Assignment, ...]:
    assignments: list[Assignment] = []
    for count, replicas in runs:
        assignments.extend([tuple(replicas)] * count)
    return tuple(assignments)
