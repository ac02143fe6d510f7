"""MetadataResponse (API key 3), versions 0 to 13, flexible from 9.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct
from uuid import UUID

from data_plane.wire.primitives import (
    EMPTY,
    ZERO_UUID,
    Message,
    Reader,
    Writer,
    unsupported_version,
)

_INT16_2XINT32 = Struct(">hii")
_INT16_3XINT32 = Struct(">hiii")


class MetadataResponseBroker(Message):
    """Part of MetadataResponse."""

    __slots__ = (
        "host",
        "node_id",
        "port",
        "rack",
    )

    def __init__(
        self,
        *,
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        rack: str | None = None,
    ) -> None:
        self.node_id = node_id  # brokerId
        self.host = host
        self.port = port
        self.rack = rack  # versions 1 to 13


class MetadataResponsePartition(Message):
    """Part of MetadataResponse."""

    __slots__ = (
        "error_code",
        "isr_nodes",
        "leader_epoch",
        "leader_id",
        "offline_replicas",
        "partition_index",
        "replica_nodes",
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        partition_index: int = 0,
        leader_id: int = 0,
        leader_epoch: int = -1,
        replica_nodes: list[int] = EMPTY,
        isr_nodes: list[int] = EMPTY,
        offline_replicas: list[int] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.partition_index = partition_index
        self.leader_id = leader_id  # brokerId
        self.leader_epoch = leader_epoch  # versions 7 to 13
        self.replica_nodes = [] if replica_nodes is EMPTY else replica_nodes  # brokerId
        self.isr_nodes = [] if isr_nodes is EMPTY else isr_nodes  # brokerId
        self.offline_replicas = (
            [] if offline_replicas is EMPTY else offline_replicas
        )  # versions 5 to 13, brokerId


class MetadataResponseTopic(Message):
    """Part of MetadataResponse."""

    __slots__ = (
        "error_code",
        "is_internal",
        "name",
        "partitions",
        "topic_authorized_operations",
        "topic_id",
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        name: str | None = "",
        topic_id: UUID = ZERO_UUID,
        is_internal: bool = False,
        partitions: list[MetadataResponsePartition] = EMPTY,
        topic_authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.name = name  # nullable in 12 to 13, topicName
        self.topic_id = topic_id  # versions 10 to 13
        self.is_internal = is_internal  # versions 1 to 13
        self.partitions = [] if partitions is EMPTY else partitions
        self.topic_authorized_operations = topic_authorized_operations  # versions 8 to 13


class MetadataResponse(Message):
    """The message."""

    __slots__ = (
        "brokers",
        "cluster_authorized_operations",
        "cluster_id",
        "controller_id",
        "error_code",
        "throttle_time_ms",
        "topics",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        brokers: list[MetadataResponseBroker] = EMPTY,
        cluster_id: str | None = None,
        controller_id: int = -1,
        topics: list[MetadataResponseTopic] = EMPTY,
        cluster_authorized_operations: int = -2147483648,
        error_code: int = 0,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms  # versions 3 to 13
        self.brokers = [] if brokers is EMPTY else brokers
        self.cluster_id = cluster_id  # versions 2 to 13
        self.controller_id = controller_id  # versions 1 to 13, brokerId
        self.topics = [] if topics is EMPTY else topics
        self.cluster_authorized_operations = cluster_authorized_operations  # versions 8 to 10
        self.error_code = error_code  # versions 13 to 13


def _decode_metadata_response_broker(reader: Reader, version: int) -> MetadataResponseBroker:
    message = object.__new__(MetadataResponseBroker)
    message.node_id = reader.read_int32()
    if version >= 9:
        message.host = reader.read_compact_string("host")
    else:
        message.host = reader.read_string("host")
    message.port = reader.read_int32()
    if version >= 9:
        message.rack = reader.read_nullable_compact_string("rack")
    elif version >= 1:
        message.rack = reader.read_nullable_string("rack")
    else:
        message.rack = None
    if version >= 9:
        reader.skip_tagged_fields()
    return message


def _decode_metadata_response_partition(reader: Reader, version: int) -> MetadataResponsePartition:
    message = object.__new__(MetadataResponsePartition)
    if version >= 7:
        (message.error_code, message.partition_index, message.leader_id, message.leader_epoch) = (
            reader.unpack(_INT16_3XINT32)
        )
    else:
        (message.error_code, message.partition_index, message.leader_id) = reader.unpack(
            _INT16_2XINT32
        )
        message.leader_epoch = -1
    if version >= 9:
        message.replica_nodes = reader.read_int32_array(
            reader.read_compact_array_length(4, "replica_nodes")
        )
        message.isr_nodes = reader.read_int32_array(
            reader.read_compact_array_length(4, "isr_nodes")
        )
    else:
        message.replica_nodes = reader.read_int32_array(
            reader.read_array_length(4, "replica_nodes")
        )
        message.isr_nodes = reader.read_int32_array(reader.read_array_length(4, "isr_nodes"))
    if version >= 9:
        message.offline_replicas = reader.read_int32_array(
            reader.read_compact_array_length(4, "offline_replicas")
        )
    elif version >= 5:
        message.offline_replicas = reader.read_int32_array(
            reader.read_array_length(4, "offline_replicas")
        )
    else:
        message.offline_replicas = []
    if version >= 9:
        reader.skip_tagged_fields()
    return message


def _decode_metadata_response_topic(reader: Reader, version: int) -> MetadataResponseTopic:
    message = object.__new__(MetadataResponseTopic)
    message.error_code = reader.read_int16()
    if version >= 12:
        message.name = reader.read_nullable_compact_string("name")
    elif version >= 9:
        message.name = reader.read_compact_string("name")
    else:
        message.name = reader.read_string("name")
    if version >= 10:
        message.topic_id = reader.read_uuid()
    else:
        message.topic_id = ZERO_UUID
    if version >= 1:
        message.is_internal = reader.read_bool()
    else:
        message.is_internal = False
    if version >= 9:
        message.partitions = [
            _decode_metadata_response_partition(reader, version)
            for _ in range(reader.read_compact_array_length(18, "partitions"))
        ]
    else:
        message.partitions = [
            _decode_metadata_response_partition(reader, version)
            for _ in range(reader.read_array_length(18, "partitions"))
        ]
    if version >= 8:
        message.topic_authorized_operations = reader.read_int32()
    else:
        message.topic_authorized_operations = -2147483648
    if version >= 9:
        reader.skip_tagged_fields()
    return message


def decode_metadata_response(reader: Reader, version: int) -> MetadataResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 13:
        raise unsupported_version("MetadataResponse", version)
    message = object.__new__(MetadataResponse)
    if version >= 3:
        message.throttle_time_ms = reader.read_int32()
    else:
        message.throttle_time_ms = 0
    if version >= 9:
        message.brokers = [
            _decode_metadata_response_broker(reader, version)
            for _ in range(reader.read_compact_array_length(11, "brokers"))
        ]
    else:
        message.brokers = [
            _decode_metadata_response_broker(reader, version)
            for _ in range(reader.read_array_length(10, "brokers"))
        ]
    if version >= 9:
        message.cluster_id = reader.read_nullable_compact_string("cluster_id")
    elif version >= 2:
        message.cluster_id = reader.read_nullable_string("cluster_id")
    else:
        message.cluster_id = None
    if version >= 1:
        message.controller_id = reader.read_int32()
    else:
        message.controller_id = -1
    if version >= 9:
        message.topics = [
            _decode_metadata_response_topic(reader, version)
            for _ in range(reader.read_compact_array_length(10, "topics"))
        ]
    else:
        message.topics = [
            _decode_metadata_response_topic(reader, version)
            for _ in range(reader.read_array_length(8, "topics"))
        ]
    if version >= 13:
        message.error_code = reader.read_int16()
        message.cluster_authorized_operations = -2147483648
    elif version >= 11:
        message.cluster_authorized_operations = -2147483648
        message.error_code = 0
    elif version >= 8:
        message.cluster_authorized_operations = reader.read_int32()
        message.error_code = 0
    else:
        message.cluster_authorized_operations = -2147483648
        message.error_code = 0
    if version >= 9:
        reader.skip_tagged_fields()
    return message


def _encode_metadata_response_broker(
    writer: Writer, message: MetadataResponseBroker, version: int
) -> None:
    writer.write_int32(message.node_id)
    if version >= 9:
        writer.write_compact_string(message.host, "host")
    else:
        writer.write_string(message.host, "host")
    writer.write_int32(message.port)
    if version >= 9:
        writer.write_nullable_compact_string(message.rack, "rack")
    elif version >= 1:
        writer.write_nullable_string(message.rack, "rack")
    if version >= 9:
        writer.buf.append(0)


def _encode_metadata_response_partition(
    writer: Writer, message: MetadataResponsePartition, version: int
) -> None:
    if version >= 7:
        writer.buf += _INT16_3XINT32.pack(
            message.error_code, message.partition_index, message.leader_id, message.leader_epoch
        )
    else:
        writer.buf += _INT16_2XINT32.pack(
            message.error_code, message.partition_index, message.leader_id
        )
    if version >= 9:
        writer.write_compact_array_length(message.replica_nodes, "replica_nodes")
        writer.write_int32_array(message.replica_nodes)
        writer.write_compact_array_length(message.isr_nodes, "isr_nodes")
        writer.write_int32_array(message.isr_nodes)
    else:
        writer.write_array_length(message.replica_nodes, "replica_nodes")
        writer.write_int32_array(message.replica_nodes)
        writer.write_array_length(message.isr_nodes, "isr_nodes")
        writer.write_int32_array(message.isr_nodes)
    if version >= 9:
        writer.write_compact_array_length(message.offline_replicas, "offline_replicas")
        writer.write_int32_array(message.offline_replicas)
    elif version >= 5:
        writer.write_array_length(message.offline_replicas, "offline_replicas")
        writer.write_int32_array(message.offline_replicas)
    if version >= 9:
        writer.buf.append(0)


def _encode_metadata_response_topic(
    writer: Writer, message: MetadataResponseTopic, version: int
) -> None:
    writer.write_int16(message.error_code)
    if version >= 12:
        writer.write_nullable_compact_string(message.name, "name")
    elif version >= 9:
        writer.write_compact_string(message.name, "name")
    else:
        writer.write_string(message.name, "name")
    if version >= 10:
        writer.write_uuid(message.topic_id)
    if version >= 1:
        writer.write_bool(message.is_internal)
    if version >= 9:
        writer.write_compact_array_length(message.partitions, "partitions")
        for metadata_response_partition in message.partitions:
            _encode_metadata_response_partition(writer, metadata_response_partition, version)
    else:
        writer.write_array_length(message.partitions, "partitions")
        for metadata_response_partition in message.partitions:
            _encode_metadata_response_partition(writer, metadata_response_partition, version)
    if version >= 8:
        writer.write_int32(message.topic_authorized_operations)
    if version >= 9:
        writer.buf.append(0)


def encode_metadata_response(writer: Writer, message: MetadataResponse, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 13:
        raise unsupported_version("MetadataResponse", version)
    if version >= 3:
        writer.write_int32(message.throttle_time_ms)
    if version >= 9:
        writer.write_compact_array_length(message.brokers, "brokers")
        for metadata_response_broker in message.brokers:
            _encode_metadata_response_broker(writer, metadata_response_broker, version)
    else:
        writer.write_array_length(message.brokers, "brokers")
        for metadata_response_broker in message.brokers:
            _encode_metadata_response_broker(writer, metadata_response_broker, version)
    if version >= 9:
        writer.write_nullable_compact_string(message.cluster_id, "cluster_id")
    elif version >= 2:
        writer.write_nullable_string(message.cluster_id, "cluster_id")
    if version >= 1:
        writer.write_int32(message.controller_id)
    if version >= 9:
        writer.write_compact_array_length(message.topics, "topics")
        for metadata_response_topic in message.topics:
            _encode_metadata_response_topic(writer, metadata_response_topic, version)
    else:
        writer.write_array_length(message.topics, "topics")
        for metadata_response_topic in message.topics:
            _encode_metadata_response_topic(writer, metadata_response_topic, version)
    if version >= 13:
        writer.write_int16(message.error_code)
    elif version >= 11:
        pass
    elif version >= 8:
        writer.write_int32(message.cluster_authorized_operations)
    if version >= 9:
        writer.buf.append(0)
