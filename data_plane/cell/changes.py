"""Changes of the metadata image, and the pure function that applies them.

A change says what is, not what is wished: placement, ids and merged values were decided before,
so that applying it on any broker gives the same image. `apply_changes` refuses a change that does
not fit (a topic made twice, a producer id block out of order) with `InvalidChange`; whoever
decides against the current image never sees it.

Invariants
- All changes of one commit apply, or none: the version grows by one per commit.
- No randomness, no clock: replaying the same commits gives an equal image.
- Nothing is applied that the finalized metadata.version does not have, no level is finalized that
  a registered broker does not support, and no broker registered that does not support them all
  (features.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from data_plane.cell.credentials import (
    Credential,
    Credentials,
)
from data_plane.cell.declarations import Declarations, DeclarationsDraft
from data_plane.cell.features import (
    CLOSED_LEVEL,
    METADATA_VERSION,
    NEVER_LOWERED,
    NEWEST_LEVEL,
    OPEN_LEVEL,
    TENANCY_LEVEL,
    VIRTUAL_TOPICS,
    level_of,
    range_of,
    why_unsupported,
)
from data_plane.cell.invalid_change import InvalidChange as InvalidChange
from data_plane.cell.metadata import (
    ACTIVE,
    BrokerImage,
    ConfigResource,
    MetadataImage,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from data_plane.cell.partition_changes import check_partition_change
from data_plane.cell.tenancy_changes import TenancyChange, apply_tenancy_change
from data_plane.cell.tenant_quotas import capacity
from data_plane.cell.tenants import DEFAULT_TENANT, tenant_of
from data_plane.cell.topic_deletions import ChangeDeletion, with_deletion
from data_plane.cell.topics_draft import TopicsDraft

Assignment = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """A tenant's new topic; `assignments[p]` are the replicas of partition p, the leader first. A
    virtual one has the `source_id` of the topic that it reads."""

    tenant: str
    name: str
    topic_id: UUID
    assignments: tuple[Assignment, ...]
    configs: tuple[tuple[str, str], ...] = ()
    unknown_fields: str = ""
    source_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """A topic is gone. The names are for those who follow the feed, and have no image with it."""

    topic_id: UUID
    tenant: str = ""
    name: str = ""

    @classmethod
    def of(cls, topic: TopicImage) -> DeleteTopic:
        return cls(topic.topic_id, topic.tenant, topic.name)


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """More partitions, numbered on from the last one."""

    topic_id: UUID
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """Overrides of one resource: text sets a value, None takes the override away. Brokers are the
    default tenant's."""

    tenant: str
    resource_type: int
    resource_name: str
    values: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A broker's process started. The version of this commit becomes its broker epoch."""

    broker: BrokerImage


@dataclass(frozen=True, slots=True)
class ChangeBroker:
    """A registered broker's state; `broker.broker_epoch` must be the one that is registered."""

    broker: BrokerImage


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """A broker is gone for good. It must not hold replicas any more."""

    node_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ChangePartition:
    """A partition's new state; `partition.partition_epoch` must be the old one plus one, and
    `partition.leader_epoch` the old one, or with a new leader the old one plus one."""

    topic_id: UUID
    index: int
    partition: PartitionImage


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """Producer ids first_producer_id … + count - 1 now belong to one broker."""

    first_producer_id: int
    count: int


@dataclass(frozen=True, slots=True)
class UpdateFeature:
    """A feature's finalized level from now on; 0 takes it out of use."""

    name: str
    level: int


Change = (
    CreateTopic
    | DeleteTopic
    | ChangeDeletion
    | AddPartitions
    | AlterConfigs
    | RegisterBroker
    | ChangeBroker
    | UnregisterBroker
    | ChangePartition
    | AllocateProducerIds
    | UpdateFeature
    | TenancyChange
)


class _Draft:
    """An image while one commit is applied: copies a mapping when it is first written to."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._topics = TopicsDraft(image)
        self._configs: dict[ConfigResource, Mapping[str, str]] | None = None
        self._declarations: DeclarationsDraft | None = None
        # Partitions of topics of which single ones are being changed: a failover changes
        # thousands of one topic, and a new tuple for each would be quadratic.
        self._partitions: dict[UUID, list[PartitionImage]] = {}
        self.version = image.version + 1
        self.next_producer_id = image.next_producer_id
        self.brokers = image.brokers
        self.features = image.features
        self.tenants = image.tenants
        self._credentials: dict[str, Credential] | None = None
        self.decoy_key = image.decoy_key
        self.acls = image.acls
        self.client_quotas = image.client_quotas
        self.cluster_id = image.cluster_id
        self.metadata_level = image.metadata_level

    def topics(self) -> TopicsDraft:
        """As they are now, single partitions that were changed included."""
        changed, self._partitions = self._partitions, {}
        for topic_id, partitions in changed.items():
            topic = self._topics.by_id[topic_id]
            self._topics.put(replace(topic, partitions=tuple(partitions)))
        return self._topics

    def partitions_of(self, topic_id: UUID) -> list[PartitionImage] | None:
        """The partitions of a topic, to be changed in place; None when there is no such topic."""
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            topic = self._topics.by_id.get(topic_id)
            if topic is None:
                return None
            partitions = self._partitions[topic_id] = list(topic.partitions)
        return partitions

    def configs(self) -> dict[ConfigResource, Mapping[str, str]]:
        if self._configs is None:
            self._configs = dict(self._image.configs)
        return self._configs

    def credentials(self) -> Credentials:
        return self._image.credentials if self._credentials is None else self._credentials

    def writable_credentials(self) -> dict[str, Credential]:
        if self._credentials is None:
            self._credentials = dict(self._image.credentials)
        return self._credentials

    def declarations(self) -> DeclarationsDraft:
        if self._declarations is None:
            self._declarations = DeclarationsDraft(self._image.declarations)
        return self._declarations

    def _finished_declarations(self) -> Declarations:
        if self._declarations is None:
            return self._image.declarations
        return self._declarations.finish()

    def forget_what_was_deleted(self) -> None:
        """What `metadata_level_needed` calls memory; there is nothing else of its kind."""
        self.decoy_key = b""
        self._declarations = DeclarationsDraft(Declarations())

    def remove_configs_of(self, tenant: str) -> None:
        gone = [resource for resource in self.configs() if resource.tenant == tenant]
        for resource in gone:
            del self.configs()[resource]

    def capacity(self, name: str) -> int:
        """What all registered brokers together have of it, by their properties."""
        configs = self._image.configs if self._configs is None else self._configs
        return _capacity(self.brokers, configs, name)

    def finish(self) -> MetadataImage:
        topics = self.topics()
        return replace(
            self._image,
            version=self.version,
            brokers=self.brokers,
            topics_by_tenant=topics.by_tenant,
            topics_by_id=topics.by_id,
            configs=self._image.configs if self._configs is None else self._configs,
            next_producer_id=self.next_producer_id,
            features=self.features,
            tenants=self.tenants,
            credentials=self.credentials(),
            decoy_key=self.decoy_key,
            declarations=self._finished_declarations(),
            acls=self.acls,
            client_quotas=self.client_quotas,
        )


def _capacity(
    brokers: Iterable[int], configs: Mapping[ConfigResource, Mapping[str, str]], name: str
) -> int:
    def of(broker: str) -> Mapping[str, str]:
        return configs.get(ConfigResource(DEFAULT_TENANT, ResourceType.BROKER, broker), {})

    # A broker that is alone is registered nowhere; only it can have properties of its own.
    ids = [str(node_id) for node_id in brokers] or [
        resource.name
        for resource in configs
        if resource.type == ResourceType.BROKER and resource.name
    ]
    return capacity([of(node_id) for node_id in ids or [""]], of(""), name)


def capacity_of(image: MetadataImage, name: str) -> int:
    """What all registered brokers together have of it, by their properties."""
    return _capacity(image.brokers, image.configs, name)


def apply_changes(image: MetadataImage, changes: Iterable[Change]) -> MetadataImage:
    """The image after one commit. Raises InvalidChange; `image` is untouched either way."""
    draft = _Draft(image)
    for change in changes:
        _apply(draft, change)
    return draft.finish()


def apply_change(image: MetadataImage, change: Change) -> MetadataImage:
    """The image after a commit of one change."""
    return apply_changes(image, (change,))


def _apply(draft: _Draft, change: Change) -> None:
    if draft.metadata_level < NEWEST_LEVEL and draft.metadata_level < _level_needed(change):
        raise InvalidChange(
            f"{METADATA_VERSION} {draft.metadata_level} has no {type(change).__name__} like this"
        )
    match change:
        case CreateTopic():
            _existing_tenant(draft, change.tenant)
            is_known = draft.topics().get(change.tenant, change.name) is not None
            if is_known or change.topic_id in draft.topics().by_id:
                raise InvalidChange(f"topic {change.name} exists")
            if not change.assignments:
                raise InvalidChange(f"topic {change.name} has no partition")
            if change.source_id is not None and not level_of(draft.features, VIRTUAL_TOPICS):
                raise InvalidChange(f"topic {change.name} is virtual: {VIRTUAL_TOPICS} is at 0")
            partitions = _new_partitions(change.assignments)
            draft.topics().put(
                TopicImage(
                    change.tenant,
                    change.name,
                    change.topic_id,
                    partitions,
                    dict(change.configs),
                    change.unknown_fields,
                    source_id=change.source_id,
                )
            )
        case DeleteTopic():
            draft.topics().remove(_existing_topic(draft, change.topic_id))
        case ChangeDeletion():
            draft.topics().put(with_deletion(_existing_topic(draft, change.topic_id), change))
        case AddPartitions():
            topic = _existing_topic(draft, change.topic_id)
            partitions = topic.partitions + _new_partitions(change.assignments)
            draft.topics().put(replace(topic, partitions=partitions))
        case AlterConfigs():
            _alter_configs(draft, change)
        case RegisterBroker():
            reason = why_unsupported(change.broker.features, draft.features)
            if reason:
                raise InvalidChange(f"broker {change.broker.node_id} registers: {reason}")
            broker = replace(change.broker, broker_epoch=draft.version)
            draft.brokers = {**draft.brokers, broker.node_id: broker}
        case ChangeBroker():
            _existing_broker(draft, change.broker.node_id, change.broker.broker_epoch)
            draft.brokers = {**draft.brokers, change.broker.node_id: change.broker}
        case UnregisterBroker():
            _existing_broker(draft, change.node_id, change.broker_epoch)
            _refuse_replicas_on(draft, change.node_id)
            draft.brokers = {
                node_id: broker
                for node_id, broker in draft.brokers.items()
                if node_id != change.node_id
            }
        case ChangePartition():
            _change_partition(draft, change)
        case AllocateProducerIds():
            if change.first_producer_id != draft.next_producer_id or change.count <= 0:
                raise InvalidChange(
                    f"producer ids from {change.first_producer_id}, expected from "
                    f"{draft.next_producer_id}"
                )
            draft.next_producer_id += change.count
        case UpdateFeature():
            _update_feature(draft, change)
        case _:
            apply_tenancy_change(draft, change)


def _level_needed(change: Change) -> int:
    """The lowest metadata.version that has such a change."""
    # A failover has thousands of these.
    if isinstance(change, ChangePartition):
        partition = change.partition
        is_open = partition.state != ACTIVE or partition.unknown_fields != ""
        return OPEN_LEVEL if is_open else CLOSED_LEVEL
    match change:
        case RegisterBroker(broker=broker) | ChangeBroker(broker=broker):
            return OPEN_LEVEL if broker.unknown_fields or broker.listeners else CLOSED_LEVEL
        case CreateTopic():
            if change.tenant != DEFAULT_TENANT:
                return TENANCY_LEVEL
            is_open = change.unknown_fields != "" or change.source_id is not None
            return OPEN_LEVEL if is_open else CLOSED_LEVEL
        case AlterConfigs():
            return CLOSED_LEVEL if change.tenant == DEFAULT_TENANT else TENANCY_LEVEL
    is_new = isinstance(change, TenancyChange | ChangeDeletion)
    return TENANCY_LEVEL if is_new else CLOSED_LEVEL


def _update_feature(draft: _Draft, change: UpdateFeature) -> None:
    name, level = change.name, change.level
    if level == level_of(draft.features, name):
        # At the first level nobody would know what this is.
        raise InvalidChange(f"{name} is at {level}")
    for broker in draft.brokers.values():
        if level and not range_of(broker.features, name).has(level):
            raise InvalidChange(f"broker {broker.node_id} does not support {name} {level}")
    features = dict(draft.features)
    if name == METADATA_VERSION:
        if not CLOSED_LEVEL <= level <= NEWEST_LEVEL:
            raise InvalidChange(f"{name} {level} is not known here")
        is_lower = level < draft.metadata_level
        if is_lower and level < draft.finish().metadata_level_needed(with_memory=False):
            raise InvalidChange(f"{name} {level} has no room for what is there")
        features[name] = level
        if level == CLOSED_LEVEL:
            del features[name]
            draft.forget_what_was_deleted()
    elif draft.metadata_level < OPEN_LEVEL:
        raise InvalidChange(f"{METADATA_VERSION} {draft.metadata_level} has no feature {name}")
    elif level:
        features[name] = level
    else:
        topics = draft.topics().by_id.values()
        if name == VIRTUAL_TOPICS and any(topic.is_virtual for topic in topics):
            raise InvalidChange(f"{name} 0 has no room for what is there")
        if name in NEVER_LOWERED:
            raise InvalidChange(f"{name} is never lowered")
        features.pop(name, None)
    draft.features = features
    draft.metadata_level = level_of(features, METADATA_VERSION)


def _existing_tenant(draft: _Draft, name: str) -> None:
    if tenant_of(draft.tenants, draft.cluster_id, name) is None:
        raise InvalidChange(f"there is no tenant {name}")


def _existing_topic(draft: _Draft, topic_id: UUID) -> TopicImage:
    topic = draft.topics().by_id.get(topic_id)
    if topic is None:
        raise InvalidChange(f"there is no topic with id {topic_id}")
    return topic


def _existing_broker(draft: _Draft, node_id: int, broker_epoch: int) -> BrokerImage:
    broker = draft.brokers.get(node_id)
    if broker is None or broker.broker_epoch != broker_epoch:
        raise InvalidChange(f"broker {node_id} is not registered with epoch {broker_epoch}")
    return broker


def _refuse_replicas_on(draft: _Draft, node_id: int) -> None:
    for topic in draft.topics().by_id.values():
        for index, partition in enumerate(topic.partitions):
            if node_id in partition.replicas:
                raise InvalidChange(f"broker {node_id} has a replica of {topic}-{index}")


def _change_partition(draft: _Draft, change: ChangePartition) -> None:
    partitions = draft.partitions_of(change.topic_id)
    name = f"{change.topic_id}-{change.index}"
    if partitions is None or not 0 <= change.index < len(partitions):
        raise InvalidChange(f"there is no partition {name}")
    check_partition_change(name, partitions[change.index], change.partition)
    partitions[change.index] = change.partition


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
    _existing_tenant(draft, change.tenant)
    if change.resource_type == ResourceType.TOPIC:
        topic = draft.topics().get(change.tenant, change.resource_name)
        if topic is None:
            raise InvalidChange(f"there is no topic {change.resource_name}")
        draft.topics().put(replace(topic, configs=_merged(topic.configs, change)))
        return
    resource = ConfigResource(change.tenant, change.resource_type, change.resource_name)
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
