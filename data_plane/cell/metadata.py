"""The metadata image: everything that all brokers of a cell must agree on, as one frozen value.

An image is never changed. `changes.apply_changes` makes the next one, whose `version` is one
higher; unchanged parts are shared between the two. Readers keep a reference for as long as they
like and see one consistent state.

Invariants
- A topic is found by its tenant and its name (`topics_of`), or by its id. `topics_by_tenant` and
  `topics_by_id` hold the same topics; a tenant without topics is not among the former.
- Equal images have equal digests, however they were reached.
- A topic that was deleted and can come back (topic_deletions.py) is among them, under its name.
- Topic configurations stand in their topic and nowhere else; `configs` has all other resources.
- What a newer version has written by name and this one does not know (`unknown_fields`) stays with
  its broker, topic, partition or image through every change and is written again.

The encoded form follows the image's own `metadata.version` (features.py). At level 1 it is what
was written before there were levels, byte for byte: a broker is a list of 13 fields, a partition
one of up to 11. From level 2 on their last item may be an object with further fields by name, as
topics and the image have them anyway. So whatever is added later is added by name: with a level of
its own when it must be understood, without one when who does not know it may ignore it.

Deliberately absent: who is controller and who is alive (leases, which the store keeps beside the
image), offsets, high watermarks, all that changes with every produce.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from data_plane.cell.acls import Acls, decode_all_acls, encode_all_acls
from data_plane.cell.broker_image import BrokerImage as BrokerImage
from data_plane.cell.broker_image import Endpoint as Endpoint
from data_plane.cell.broker_image import decode_broker as decode_broker
from data_plane.cell.broker_image import encode_broker as encode_broker
from data_plane.cell.client_quotas import (
    ClientQuotas,
    decode_client_quotas,
    encode_client_quotas,
)
from data_plane.cell.credentials import (
    Credentials,
    decode_credential,
    decode_key,
    encode_credential,
    encode_key,
)
from data_plane.cell.declarations import (
    Declarations,
    decode_declaration,
    encode_declaration,
)
from data_plane.cell.features import (
    CLOSED_LEVEL,
    METADATA_VERSION,
    NEWEST_LEVEL,
    OPEN_LEVEL,
    TENANCY_LEVEL,
    TooNew,
    level_of,
)
from data_plane.cell.named_fields import split_named, unknown_in, unknown_named
from data_plane.cell.tenants import (
    DEFAULT_TENANT,
    TENANT_FIELD,
    TenantImage,
    Tenants,
    decode_tenant,
    encode_tenant,
    named_tenant,
    tenant_in,
    tenant_of,
    with_named,
)
from data_plane.cell.topic_deletions import (
    DELETION_FIELD,
    PAUSE_FIELD,
    Deletion,
    Pause,
    deletion_in,
    named_deletion,
)
from data_plane.cell.topic_sources import SOURCE_FIELD, named_source, source_in
from data_plane.cell.topics_draft import by_tenant

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})

NO_CONFIGS: Mapping[str, str] = MappingProxyType({})
NO_TOPICS: Mapping[str, TopicImage] = MappingProxyType({})


class ResourceType(IntEnum):
    """What a configuration belongs to; the numbers are those of the Kafka protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A configuration's owner, and whose name it is. The broker named "" stands for all brokers;
    brokers are the default tenant's."""

    tenant: str
    type: int
    name: str


NO_LEADER = -1

# The state of a partition that serves. Another one that this version does not know means: change
# nothing of what is there, take nothing in.
ACTIVE = "active"


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
    - `state`: ACTIVE, or what somebody has made of it.
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
    state: str = ACTIVE
    unknown_fields: str = ""

    @property
    def is_active(self) -> bool:
        return self.state == ACTIVE


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A tenant's topic: partition p is `partitions[p]`; `configs` are its overrides, as text;
    `id_bytes` are those of its id, for look-ups on the path of every request. With a `deletion` it
    does not exist for clients; `pause` is of one that has come back. A virtual topic has the
    `source_id` of the topic that it reads."""

    tenant: str
    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    unknown_fields: str = ""
    deletion: Deletion | None = None
    pause: Pause | None = None
    source_id: UUID | None = None
    id_bytes: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id_bytes", self.topic_id.bytes)

    @property
    def internal(self) -> bool:
        """Whether it is one of the broker's own topics, which clients may only read."""
        return is_internal_topic(self.tenant, self.name)

    @property
    def is_virtual(self) -> bool:
        """Whether its consumers read another topic's records (virtual_topics.py)."""
        return self.source_id is not None

    @property
    def is_kept_whole(self) -> bool:
        """Whether nothing of it may go by age or size, since it is deleted, or since nobody knows
        yet for how long it was."""
        return self.deletion is not None or (self.pause is not None and not self.pause.is_over)

    def __str__(self) -> str:
        """For people, who know of no tenant where there is only the default one."""
        return self.name if self.tenant == DEFAULT_TENANT else f"{self.tenant}/{self.name}"


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The state of a cell after `version` committed changes. `features`: the finalized levels of
    those that are in use; metadata.version is not among them while it is 1."""

    cluster_id: str
    version: int = 0
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics_by_tenant: Mapping[str, Mapping[str, TopicImage]] = field(default_factory=dict)
    topics_by_id: Mapping[UUID, TopicImage] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    features: Mapping[str, int] = field(default_factory=dict)
    unknown_fields: str = ""
    tenants: Tenants = field(default_factory=dict)
    credentials: Credentials = field(default_factory=dict)
    # Empty until there is the first credential.
    decoy_key: bytes = field(default=b"", repr=False)
    declarations: Declarations = field(default_factory=Declarations)
    acls: Acls = field(default_factory=dict)
    client_quotas: ClientQuotas = field(default_factory=dict)

    @property
    def metadata_level(self) -> int:
        """What all brokers of the cell understand: the finalized metadata.version."""
        return level_of(self.features, METADATA_VERSION)

    def metadata_level_needed(self, *, with_memory: bool = True) -> int:
        """The lowest metadata.version at which nothing of this image would be lost. Without
        `with_memory` what is only remembered of what was deleted may be: which resources there
        were, and the key by which users look alike that do not exist."""
        if self.tenants or self.acls or self.credentials or self.declarations.by_tenant:
            return TENANCY_LEVEL
        if self.client_quotas:
            return TENANCY_LEVEL
        if any(one.deletion or one.pause for one in self.topics_by_id.values()):
            return TENANCY_LEVEL
        if self.unknown_fields or any(name != METADATA_VERSION for name in self.features):
            return OPEN_LEVEL
        if with_memory and (self.decoy_key or self.declarations):
            # By name: a version that does not know them keeps them all the same.
            return OPEN_LEVEL
        if any(one.unknown_fields or one.listeners for one in self.brokers.values()):
            return OPEN_LEVEL
        for topic in self.topics_by_id.values():
            if topic.unknown_fields or topic.is_virtual:
                return OPEN_LEVEL
            if any(not item.is_active or item.unknown_fields for item in topic.partitions):
                return OPEN_LEVEL
        return CLOSED_LEVEL

    def tenant(self, name: str) -> TenantImage | None:
        """The tenant of this name; `default` always exists."""
        return tenant_of(self.tenants, self.cluster_id, name)

    def topics_of(self, tenant: str) -> Mapping[str, TopicImage]:
        """A tenant's topics by their names."""
        return self.topics_by_tenant.get(tenant, NO_TOPICS)

    def topic(self, tenant: str, name: str) -> TopicImage | None:
        return self.topics_of(tenant).get(name)

    def topics_in_order(self) -> list[TopicImage]:
        """All of them, by tenant and name."""
        return [
            topic
            for _, topics in sorted(self.topics_by_tenant.items())
            for _, topic in sorted(topics.items())
        ]

    def config_of(self, tenant: str, resource_type: int, name: str) -> Mapping[str, str]:
        """The overrides of one resource; empty when it has none."""
        if resource_type == ResourceType.TOPIC:
            topic = self.topic(tenant, name)
            return NO_CONFIGS if topic is None else topic.configs
        return self.configs.get(ConfigResource(tenant, resource_type, name), NO_CONFIGS)

    def config_of_broker(self, name: str) -> Mapping[str, str]:
        """The overrides of a broker, "" for all brokers."""
        return self.config_of(DEFAULT_TENANT, ResourceType.BROKER, name)

    def configures_alike(self, other: MetadataImage, node_id: int) -> bool:
        """Whether a broker has the same overrides in both. Those of groups are no broker's."""
        return self.configs is other.configs or all(
            self.config_of_broker(name) == other.config_of_broker(name)
            for name in ("", str(node_id))
        )

    def digest(self) -> str:
        """SHA-256 over the canonical form, in hexadecimal."""
        return hashlib.sha256(encode_image(self)).hexdigest()


def encode_image(image: MetadataImage) -> bytes:
    """The canonical form: JSON with sorted keys. Equal images give equal bytes."""
    level = image.metadata_level
    document: dict[str, Any] = {
        "cluster_id": image.cluster_id,
        "version": image.version,
        "next_producer_id": image.next_producer_id,
        "brokers": [encode_broker(broker, level) for _, broker in sorted(image.brokers.items())],
        "topics": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id.hex,
                "partitions": [encode_partition(item, level) for item in topic.partitions],
                "configs": dict(topic.configs),
                **named_tenant(topic.tenant),
                **named_deletion(topic.deletion, topic.pause),
                **named_source(topic.source_id),
                **unknown_named(topic.unknown_fields),
            }
            for topic in image.topics_in_order()
        ],
        "configs": [
            with_named([int(resource.type), resource.name, dict(values)], resource.tenant)
            for resource, values in sorted(image.configs.items())
        ],
    }
    if level >= OPEN_LEVEL:
        # One level deeper, so that a version from before there were levels cannot take it for its
        # own: it would find no broker in a new cell that it does not know.
        if image.tenants:
            tenants = [encode_tenant(tenant) for _, tenant in sorted(image.tenants.items())]
            document["tenants"] = tenants
        if image.credentials:
            document["credentials"] = [
                encode_credential(credential) for _, credential in sorted(image.credentials.items())
            ]
        if image.decoy_key:
            document["decoy_key"] = encode_key(image.decoy_key)
        if image.declarations:
            by_id = sorted(image.declarations.by_id.items())
            document["declarations"] = [encode_declaration(item) for _, item in by_id]
        if image.acls:
            document["acls"] = encode_all_acls(image.acls)
        if image.client_quotas:
            document["client_quotas"] = encode_client_quotas(image.client_quotas)
        document.update(unknown_named(image.unknown_fields))
        document = {"features": dict(image.features), "image": document}
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def decode_image(data: bytes) -> MetadataImage:
    """The inverse of `encode_image`. Raises TooNew for a level that this version does not know,
    and ValueError, KeyError or TypeError on other input."""
    document: dict[str, Any] = json.loads(data)
    features: dict[str, int] = document.get("features", {})
    level = level_of(features, METADATA_VERSION)
    if level > NEWEST_LEVEL:
        raise TooNew(f"an image of {METADATA_VERSION} {level}")
    if level >= OPEN_LEVEL:
        document = document["image"]
    known = ("cluster_id", "version", "next_producer_id", "brokers", "topics", "configs")
    cluster_id, version, next_producer_id, brokers, topic_entries, configs = (
        document[name] for name in known
    )
    shared: dict[PartitionImage, PartitionImage] = {}
    topics = [_decode_topic(entry, shared) for entry in topic_entries]
    later = ("tenants", "credentials", "decoy_key", "declarations", "acls", "client_quotas")
    return MetadataImage(
        cluster_id=cluster_id,
        version=version,
        brokers={item[0]: decode_broker(item) for item in brokers},
        topics_by_tenant=by_tenant(topics),
        topics_by_id={topic.topic_id: topic for topic in topics},
        configs={
            ConfigResource(tenant_in(more), resource_type, name): dict(values)
            for resource_type, name, values, *more in configs
        },
        next_producer_id=next_producer_id,
        features=features,
        unknown_fields=unknown_in(document, *known, *later) if level >= OPEN_LEVEL else "",
        tenants={item["name"]: decode_tenant(item) for item in document.get("tenants", ())},
        credentials={
            item["login"]: decode_credential(item) for item in document.get("credentials", ())
        },
        decoy_key=decode_key(document.get("decoy_key", "")),
        declarations=Declarations(map(decode_declaration, document.get("declarations", ()))),
        acls=decode_all_acls(document.get("acls", {})),
        client_quotas=decode_client_quotas(document.get("client_quotas", {})),
    )


def is_internal_topic(tenant: str, name: str) -> bool:
    """Whether it is one of the broker's own topics, or would be. Tenants have no such topics."""
    return tenant == DEFAULT_TENANT and name in INTERNAL_TOPICS


def _decode_topic(
    entry: Mapping[str, Any], shared: dict[PartitionImage, PartitionImage]
) -> TopicImage:
    known = ("name", "topic_id", "partitions", "configs")
    return TopicImage(
        entry.get(TENANT_FIELD, DEFAULT_TENANT),
        entry["name"],
        UUID(entry["topic_id"]),
        tuple(_share(decode_partition(item), shared) for item in entry["partitions"]),
        dict(entry["configs"]),
        unknown_in(entry, *known, TENANT_FIELD, DELETION_FIELD, PAUSE_FIELD, SOURCE_FIELD),
        *deletion_in(entry),
        source_id=source_in(entry),
    )


def encode_partition(partition: PartitionImage, level: int) -> list[Any]:
    """JSON-ready, in the form of that metadata.version."""
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
        fields += [list(partition.last_known_elr), ends]
    elif fields[5:] == [[], NO_LEADER, [], []]:
        # Most partitions have nothing to say in these four either.
        del fields[5:]
    if level >= OPEN_LEVEL and (partition.unknown_fields or not partition.is_active):
        fields.append({**unknown_named(partition.unknown_fields), "state": partition.state})
    return fields


def decode_partition(item: Sequence[Any]) -> PartitionImage:
    """The inverse of `encode_partition`, for all levels."""
    fields, named = item, None
    if isinstance(item[-1], dict):
        fields, named = split_named(item)
    replicas, isr, leader, leader_epoch, partition_epoch, *rest = fields
    elr, last_known_leader, adding, removing, *recovery = rest or ((), NO_LEADER, (), ())
    last_known_elr, log_ends = recovery or ((), ())
    partition = PartitionImage(
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
        tuple(LogEnd(*end) for end in log_ends) if log_ends else (),
    )
    if named is None:
        return partition
    state = named.get("state", ACTIVE)
    return replace(partition, state=state, unknown_fields=unknown_in(named, "state"))


def _share(
    partition: PartitionImage, shared: dict[PartitionImage, PartitionImage]
) -> PartitionImage:
    # Most partitions of a cell are equal; one object for all keeps 10,000 of them small.
    return shared.setdefault(partition, partition)
