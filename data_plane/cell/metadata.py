"""The metadata image: everything that all brokers of a cell must agree on, as one frozen value.

An image is never changed. `changes.apply_changes` makes the next one, whose `version` is one
higher; unchanged parts are shared between the two. Readers keep a reference for as long as they
like and see one consistent state.

Invariants
- `topics_by_name` and `topics_by_id` hold the same topics.
- Equal images have equal digests, however they were reached.
- Topic configurations stand in their topic and nowhere else; `configs` has all other resources.

Deliberately absent: who is controller and who is alive (leases, which the store keeps beside the
image), offsets, high watermarks, all that changes with every produce.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})

NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


class ResourceType(IntEnum):
    """What a configuration belongs to; the numbers are those of the Kafka protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A configuration's owner. The broker named "" stands for all brokers."""

    type: int
    name: str


NO_LEADER = -1


class LogEnd(NamedTuple):
    """Where a replica's log ends: the leader epoch of its last batch (-1 without one) and the
    offset after it. `end_offset` -1 says that nobody knows, because the disk has failed."""

    node_id: int
    leader_epoch: int
    end_offset: int

    @property
    def length(self) -> tuple[int, int]:
        """Of two logs the one with the greater length has all that is committed in the other."""
        return self.leader_epoch, self.end_offset

    @property
    def is_readable(self) -> bool:
        return self.end_offset >= 0


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition's replicas and leadership. Broker ids; leader -1 means that there is none.

    - `replicas`: in order of preference, the first is the preferred leader; the temporary extra
      ones of a reassignment are in it and in `adding_replicas`.
    - `isr`: the in-sync replicas that the store has confirmed.
    - `elr`: eligible leader replicas (KIP-966): out of the ISR, which is below
      min.insync.replicas, but with everything that was committed. Disjoint from `isr`.
    - `last_known_elr`: had everything that was committed, but may have lost some of it since: taken
      out of ISR and ELR after an unclean stop. Empty when the ISR is large enough again.
    - `log_ends`: what members of it have reported while `isr` and `elr` are empty, each for the
      incarnation that is registered. The longest of these logs leads next.
    - `last_known_leader`: who led last, kept while there is no leader, else -1.
    - `leader_epoch` grows with each leader, `partition_epoch` with each change of this value.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    elr: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    log_ends: tuple[LogEnd, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic: partition p is `partitions[p]`; `configs` are its overrides, as text; `id_bytes` are
    those of its id, for look-ups on the path of every request."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    id_bytes: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id_bytes", self.topic_id.bytes)

    @property
    def internal(self) -> bool:
        """Whether it is one of the broker's own topics, which clients may only read."""
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A registered broker, where clients and where other brokers reach it.

    - `broker_epoch`: the version of the commit that registered this incarnation; a request that
      names another one comes from a broker that has been started again since.
    - `incarnation_id`: made anew at each start of the process, 32 hexadecimal digits.
    - `host_id`: brokers with equal ones fail together (one machine); "" stands for `host`.
    - `is_fenced`: it neither leads nor joins an ISR, and clients are not told of it.
    - `in_controlled_shutdown`: it is about to stop, its leaders move away.
    - `is_draining`: it gets no new replicas and its old ones move away, for good.
    - `dead_ms`: for how long controllers have seen this incarnation dead, as last noted.
    """

    node_id: int
    host: str
    port: int
    rack: str | None = None
    inter_broker_host: str = ""
    inter_broker_port: int = 0
    host_id: str = ""
    incarnation_id: str = ""
    broker_epoch: int = 0
    is_fenced: bool = False
    in_controlled_shutdown: bool = False
    is_draining: bool = False
    dead_ms: int = 0


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The state of a cell after `version` committed changes."""

    cluster_id: str
    version: int = 0
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics_by_name: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[UUID, TopicImage] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0

    def topic(self, name: str) -> TopicImage | None:
        return self.topics_by_name.get(name)

    def config_of(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The overrides of one resource; empty when it has none."""
        if resource_type == ResourceType.TOPIC:
            topic = self.topics_by_name.get(name)
            return NO_CONFIGS if topic is None else topic.configs
        return self.configs.get(ConfigResource(resource_type, name), NO_CONFIGS)

    def digest(self) -> str:
        """SHA-256 over the canonical form, in hexadecimal."""
        return hashlib.sha256(encode_image(self)).hexdigest()


def encode_image(image: MetadataImage) -> bytes:
    """The canonical form: JSON with sorted keys. Equal images give equal bytes."""
    document = {
        "cluster_id": image.cluster_id,
        "version": image.version,
        "next_producer_id": image.next_producer_id,
        "brokers": [list(astuple(broker)) for _, broker in sorted(image.brokers.items())],
        "topics": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id.hex,
                "partitions": [encode_partition(partition) for partition in topic.partitions],
                "configs": dict(topic.configs),
            }
            for _, topic in sorted(image.topics_by_name.items())
        ],
        "configs": [
            [int(resource.type), resource.name, dict(values)]
            for resource, values in sorted(image.configs.items())
        ],
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def decode_image(data: bytes) -> MetadataImage:
    """The inverse of `encode_image`. Raises ValueError, KeyError or TypeError on other input."""
    document: dict[str, Any] = json.loads(data)
    shared: dict[PartitionImage, PartitionImage] = {}
    topics = [
        TopicImage(
            entry["name"],
            UUID(entry["topic_id"]),
            tuple(_share(decode_partition(item), shared) for item in entry["partitions"]),
            dict(entry["configs"]),
        )
        for entry in document["topics"]
    ]
    return MetadataImage(
        cluster_id=document["cluster_id"],
        version=document["version"],
        brokers={item[0]: BrokerImage(*item) for item in document["brokers"]},
        topics_by_name={topic.name: topic for topic in topics},
        topics_by_id={topic.topic_id: topic for topic in topics},
        configs={
            ConfigResource(resource_type, name): dict(values)
            for resource_type, name, values in document["configs"]
        },
        next_producer_id=document["next_producer_id"],
    )


def encode_partition(partition: PartitionImage) -> list[Any]:
    """JSON-ready."""
    fields = [
        list(partition.replicas),
        list(partition.isr),
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        list(partition.elr),
        partition.last_known_leader,
        list(partition.adding_replicas),
        list(partition.removing_replicas),
    ]
    if partition.last_known_elr or partition.log_ends:
        ends = [list(end) for end in partition.log_ends]
        return [*fields, list(partition.last_known_elr), ends]
    # Most partitions have nothing to say in the last four either.
    return fields[:5] if fields[5:] == [[], NO_LEADER, [], []] else fields


def decode_partition(item: Sequence[Any]) -> PartitionImage:
    """The inverse of `encode_partition`."""
    replicas, isr, leader, leader_epoch, partition_epoch, *rest = item
    elr, last_known_leader, adding, removing, *recovery = rest or ((), NO_LEADER, (), ())
    last_known_elr, log_ends = recovery or ((), ())
    return PartitionImage(
        tuple(replicas),
        tuple(isr),
        leader,
        leader_epoch,
        partition_epoch,
        tuple(elr),
        last_known_leader,
        tuple(adding),
        tuple(removing),
        tuple(last_known_elr),
        tuple(LogEnd(*end) for end in log_ends),
    )


def _share(
    partition: PartitionImage, shared: dict[PartitionImage, PartitionImage]
) -> PartitionImage:
    # Most partitions of a cell are equal; one object for all keeps 10,000 of them small.
    return shared.setdefault(partition, partition)
