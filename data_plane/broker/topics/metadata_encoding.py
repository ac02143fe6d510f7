"""Metadata responses as bytes, with the bytes of unchanged topics kept.

Every client asks for metadata when it starts, when a leader moves and every few minutes; with
10,000 partitions the message objects and the generated encoder would hold up the loop for 100 ms
each time. A topic's bytes depend on its image (which is replaced when anything changes), the
version and the asked-for operations, so they are kept beside it; and on which brokers are live and
which of this broker's disks have failed, so all are made anew when that changes. The fields around
the topics come from the generated encoder (see splicing.py). The same is done inside a topic:
partitions with equal images differ in their index alone.
tests/broker/test_metadata_encoding.py compares with the generated encoder, version by version.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from data_plane.broker.cell.cell_view import (
    NOBODY,
    NOBODY_IS_LIVE,
    View,
    leader_shown,
    offline_replicas,
)
from data_plane.broker.request.splicing import ArrayPlace
from data_plane.cell.metadata import BrokerImage, PartitionImage, TopicImage
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
    encode_metadata_response,
)
from data_plane.wire.primitives import Writer

# The last version whose answers name no replicas but those on live brokers.
LIVE_REPLICAS_VERSION = 0
FLEXIBLE_VERSION = 9
# Some 300 bytes each, besides their partitions' bytes; beyond, all are dropped and made again.
TOPICS_KEPT_MAX = 50_000
PARTITIONS_KEPT_MAX = 200_000
TEMPLATES_KEPT_MAX = 10_000

_INT32 = struct.Struct(">i")
# A partition's index stands behind its error code.
_INDEX_START, _INDEX_END = 2, 6


class ItemWithOperations(NamedTuple):
    """A topic, and what who asks may do to it, where that is not the same for all topics."""

    topic: TopicImage
    operations: int


Item = TopicImage | ItemWithOperations | MetadataResponseTopic
_TemplateKey = tuple[PartitionImage, frozenset[int], int]


class EncodedTopics:
    """The bytes of topics, by what they depend on."""

    def __init__(self, view: View = NOBODY_IS_LIVE) -> None:
        self.view = view
        # The brokers that `view` was made of, to see that they have changed.
        self.brokers: Mapping[int, BrokerImage] | None = None
        self._kept: dict[tuple[str, str, int, int], tuple[TopicImage, bytes]] = {}
        self._partitions_count = 0
        # Most partitions of a cell have equal images, of different topics too.
        self._templates: dict[_TemplateKey, tuple[bytes, bytes]] = {}

    def show(self, brokers: Mapping[int, BrokerImage], view: View) -> None:
        """Go by these brokers, as seen in `view`, from now on."""
        self.brokers = brokers
        if view != self.view:
            self.view = view
            self._kept.clear()
            self._partitions_count = 0
            self._templates.clear()

    def encode(self, topic: TopicImage, version: int, operations: int) -> bytes:
        """One element of the array of topics."""
        key = (topic.tenant, topic.name, version, operations)
        kept = self._kept.get(key)
        if kept is not None:
            if kept[0] is topic:
                return kept[1]
            self._partitions_count -= len(kept[0].partitions)
        data = self._encode(topic, version, operations)
        self._partitions_count += len(topic.partitions)
        if len(self._kept) >= TOPICS_KEPT_MAX or self._partitions_count > PARTITIONS_KEPT_MAX:
            self._kept.clear()
            self._partitions_count = len(topic.partitions)
        self._kept[key] = (topic, data)
        return data

    def _encode(self, topic: TopicImage, version: int, operations: int) -> bytes:
        around = _encode_described(describe_topic(topic, operations), version)
        chunks = []
        previous: tuple[PartitionImage, frozenset[int]] | None = None
        for index, partition in enumerate(topic.partitions):
            live = self.view.live_for(topic.topic_id, index)
            if previous is None or partition is not previous[0] or live is not previous[1]:
                previous = partition, live
                start, end = self._template(partition, live, version)
            chunks.append(start)
            chunks.append(_INT32.pack(index))
            chunks.append(end)
        return bytes(_partitions_place(version).splice(around, len(topic.partitions), chunks))

    def _template(
        self, partition: PartitionImage, live: frozenset[int], version: int
    ) -> tuple[bytes, bytes]:
        """A partition's bytes before and behind its index."""
        key = (partition, live, version)
        template = self._templates.get(key)
        if template is None:
            data = _encode_partition(partition, live, version)
            template = (data[:_INDEX_START], data[_INDEX_END:])
            if len(self._templates) >= TEMPLATES_KEPT_MAX:
                self._templates.clear()
            self._templates[key] = template
        return template


def describe_topic(topic: TopicImage, operations: int) -> MetadataResponseTopic:
    """A topic as the generated codec knows it, without its partitions."""
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        topic_authorized_operations=operations,
    )


def describe_partition(
    index: int, partition: PartitionImage, live: frozenset[int], version: int
) -> MetadataResponsePartition:
    """A partition as the generated codec knows it.

    Clients of version 0 do not expect to hear of brokers that the answer does not list: as in
    Apache Kafka, those are left out, and that some are missing is said by an error code."""
    replicas, isr = list(partition.replicas), list(partition.isr)
    error = ErrorCode.NONE
    if version <= LIVE_REPLICAS_VERSION:
        if not live.issuperset((*replicas, *isr)):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
        replicas = [node_id for node_id in replicas if node_id in live]
        isr = [node_id for node_id in isr if node_id in live]
    leader = leader_shown(partition, live)
    if leader == NOBODY:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=int(error),
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline_replicas(partition, live),
    )


def encode_response(
    writer: Writer,
    response: MetadataResponse,
    items: Sequence[Item],
    version: int,
    operations: int,
    encoded: EncodedTopics,
) -> None:
    """`response` has everything but topics; those are `items`, in their order."""
    assert not response.topics
    around = Writer()
    encode_metadata_response(around, response, version)
    chunks = (
        encoded.encode(item, version, operations)
        if isinstance(item, TopicImage)
        else encoded.encode(item.topic, version, item.operations)
        if isinstance(item, ItemWithOperations)
        else _encode_described(item, version)
        for item in items
    )
    writer.buf += _topics_place(version).splice(around.buf, len(items), chunks)


def _encode_partition(partition: PartitionImage, live: frozenset[int], version: int) -> bytes:
    """One element of the array of partitions."""
    described = describe_partition(0, partition, live, version)
    topic = MetadataResponseTopic(name="", partitions=[described])
    empty = _encode_described(MetadataResponseTopic(name=""), version)
    return _partitions_place(version).elements(_encode_described(topic, version), empty, 1)


def _encode_described(topic: MetadataResponseTopic, version: int) -> bytes:
    """One element of the array of topics, by the generated encoder."""
    writer = Writer()
    encode_metadata_response(writer, MetadataResponse(topics=[topic]), version)
    return _topics_place(version).elements(writer.buf, _empty_response(version), 1)


@cache
def _empty_response(version: int) -> bytes:
    writer = Writer()
    encode_metadata_response(writer, MetadataResponse(), version)
    return bytes(writer.buf)


@cache
def _topics_place(version: int) -> ArrayPlace:
    """Behind the topics stand an error code, the cluster's operations, tags."""
    is_flexible = version >= FLEXIBLE_VERSION
    error_bytes = 2 if version >= 13 else 0
    operations_bytes = 4 if version in (8, 9, 10) else 0
    return ArrayPlace(is_flexible, error_bytes + operations_bytes + is_flexible)


@cache
def _partitions_place(version: int) -> ArrayPlace:
    """Behind a topic's partitions stand its operations and tags."""
    is_flexible = version >= FLEXIBLE_VERSION
    return ArrayPlace(is_flexible, (4 if version >= 8 else 0) + is_flexible)
