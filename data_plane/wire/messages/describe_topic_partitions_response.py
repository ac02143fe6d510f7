"""DescribeTopicPartitionsResponse (API key 75), versions 0 to 0, flexible from 0.

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

_INT16_3XINT32 = Struct(">hiii")


class DescribeTopicPartitionsResponsePartition(Message):
    """Part of DescribeTopicPartitionsResponse."""

    __slots__ = (
        "eligible_leader_replicas",
        "error_code",
        "isr_nodes",
        "last_known_elr",
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
        eligible_leader_replicas: list[int] | None = None,
        last_known_elr: list[int] | None = None,
        offline_replicas: list[int] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.partition_index = partition_index
        self.leader_id = leader_id  # brokerId
        self.leader_epoch = leader_epoch
        self.replica_nodes = [] if replica_nodes is EMPTY else replica_nodes  # brokerId
        self.isr_nodes = [] if isr_nodes is EMPTY else isr_nodes  # brokerId
        self.eligible_leader_replicas = eligible_leader_replicas  # brokerId
        self.last_known_elr = last_known_elr  # brokerId
        self.offline_replicas = [] if offline_replicas is EMPTY else offline_replicas  # brokerId


class DescribeTopicPartitionsResponseTopic(Message):
    """Part of DescribeTopicPartitionsResponse."""

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
        partitions: list[DescribeTopicPartitionsResponsePartition] = EMPTY,
        topic_authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.name = name  # topicName
        self.topic_id = topic_id
        self.is_internal = is_internal
        self.partitions = [] if partitions is EMPTY else partitions
        self.topic_authorized_operations = topic_authorized_operations


class Cursor(Message):
    """Part of DescribeTopicPartitionsResponse."""

    __slots__ = (
        "partition_index",
        "topic_name",
    )

    def __init__(
        self,
        *,
        topic_name: str = "",
        partition_index: int = 0,
    ) -> None:
        self.topic_name = topic_name  # topicName
        self.partition_index = partition_index


class DescribeTopicPartitionsResponse(Message):
    """The message."""

    __slots__ = (
        "next_cursor",
        "throttle_time_ms",
        "topics",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[DescribeTopicPartitionsResponseTopic] = EMPTY,
        next_cursor: Cursor | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics
        self.next_cursor = next_cursor


def _decode_describe_topic_partitions_response_partition(
    reader: Reader, version: int
) -> DescribeTopicPartitionsResponsePartition:
    message = object.__new__(DescribeTopicPartitionsResponsePartition)
    (message.error_code, message.partition_index, message.leader_id, message.leader_epoch) = (
        reader.unpack(_INT16_3XINT32)
    )
    message.replica_nodes = reader.read_int32_array(
        reader.read_compact_array_length(4, "replica_nodes")
    )
    message.isr_nodes = reader.read_int32_array(reader.read_compact_array_length(4, "isr_nodes"))
    count = reader.read_nullable_compact_array_length(4, "eligible_leader_replicas")
    message.eligible_leader_replicas = None if count < 0 else reader.read_int32_array(count)
    count = reader.read_nullable_compact_array_length(4, "last_known_elr")
    message.last_known_elr = None if count < 0 else reader.read_int32_array(count)
    message.offline_replicas = reader.read_int32_array(
        reader.read_compact_array_length(4, "offline_replicas")
    )
    reader.skip_tagged_fields()
    return message


def _decode_describe_topic_partitions_response_topic(
    reader: Reader, version: int
) -> DescribeTopicPartitionsResponseTopic:
    message = object.__new__(DescribeTopicPartitionsResponseTopic)
    message.error_code = reader.read_int16()
    message.name = reader.read_nullable_compact_string("name")
    message.topic_id = reader.read_uuid()
    message.is_internal = reader.read_bool()
    message.partitions = [
        _decode_describe_topic_partitions_response_partition(reader, version)
        for _ in range(reader.read_compact_array_length(20, "partitions"))
    ]
    message.topic_authorized_operations = reader.read_int32()
    reader.skip_tagged_fields()
    return message


def _decode_cursor(reader: Reader, version: int) -> Cursor:
    message = object.__new__(Cursor)
    message.topic_name = reader.read_compact_string("topic_name")
    message.partition_index = reader.read_int32()
    reader.skip_tagged_fields()
    return message


def decode_describe_topic_partitions_response(
    reader: Reader, version: int
) -> DescribeTopicPartitionsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("DescribeTopicPartitionsResponse", version)
    message = object.__new__(DescribeTopicPartitionsResponse)
    message.throttle_time_ms = reader.read_int32()
    message.topics = [
        _decode_describe_topic_partitions_response_topic(reader, version)
        for _ in range(reader.read_compact_array_length(26, "topics"))
    ]
    message.next_cursor = (
        _decode_cursor(reader, version) if reader.read_present("next_cursor") else None
    )
    reader.skip_tagged_fields()
    return message


def _encode_describe_topic_partitions_response_partition(
    writer: Writer, message: DescribeTopicPartitionsResponsePartition, version: int
) -> None:
    writer.buf += _INT16_3XINT32.pack(
        message.error_code, message.partition_index, message.leader_id, message.leader_epoch
    )
    writer.write_compact_array_length(message.replica_nodes, "replica_nodes")
    writer.write_int32_array(message.replica_nodes)
    writer.write_compact_array_length(message.isr_nodes, "isr_nodes")
    writer.write_int32_array(message.isr_nodes)
    writer.write_nullable_compact_array_length(
        message.eligible_leader_replicas, "eligible_leader_replicas"
    )
    if message.eligible_leader_replicas:
        writer.write_int32_array(message.eligible_leader_replicas)
    writer.write_nullable_compact_array_length(message.last_known_elr, "last_known_elr")
    if message.last_known_elr:
        writer.write_int32_array(message.last_known_elr)
    writer.write_compact_array_length(message.offline_replicas, "offline_replicas")
    writer.write_int32_array(message.offline_replicas)
    writer.buf.append(0)


def _encode_describe_topic_partitions_response_topic(
    writer: Writer, message: DescribeTopicPartitionsResponseTopic, version: int
) -> None:
    writer.write_int16(message.error_code)
    writer.write_nullable_compact_string(message.name, "name")
    writer.write_uuid(message.topic_id)
    writer.write_bool(message.is_internal)
    writer.write_compact_array_length(message.partitions, "partitions")
    for describe_topic_partitions_response_partition in message.partitions:
        _encode_describe_topic_partitions_response_partition(
            writer, describe_topic_partitions_response_partition, version
        )
    writer.write_int32(message.topic_authorized_operations)
    writer.buf.append(0)


def _encode_cursor(writer: Writer, message: Cursor, version: int) -> None:
    writer.write_compact_string(message.topic_name, "topic_name")
    writer.write_int32(message.partition_index)
    writer.buf.append(0)


def encode_describe_topic_partitions_response(
    writer: Writer, message: DescribeTopicPartitionsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("DescribeTopicPartitionsResponse", version)
    writer.write_int32(message.throttle_time_ms)
    writer.write_compact_array_length(message.topics, "topics")
    for describe_topic_partitions_response_topic in message.topics:
        _encode_describe_topic_partitions_response_topic(
            writer, describe_topic_partitions_response_topic, version
        )
    if message.next_cursor is None:
        writer.write_int8(-1)
    else:
        writer.write_int8(1)
        _encode_cursor(writer, message.next_cursor, version)
    writer.buf.append(0)
