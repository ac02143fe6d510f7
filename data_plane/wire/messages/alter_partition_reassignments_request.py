"""AlterPartitionReassignmentsRequest (API key 45), versions 0 to 1, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import (
    EMPTY,
    Message,
    Reader,
    Writer,
    unsupported_field,
    unsupported_version,
)

_INT32_BOOL = Struct(">i?")


class ReassignablePartition(Message):
    """Part of AlterPartitionReassignmentsRequest."""

    __slots__ = (
        "partition_index",
        "replicas",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        replicas: list[int] | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.replicas = replicas  # brokerId


class ReassignableTopic(Message):
    """Part of AlterPartitionReassignmentsRequest."""

    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[ReassignablePartition] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class AlterPartitionReassignmentsRequest(Message):
    """The message."""

    __slots__ = (
        "allow_replication_factor_change",
        "timeout_ms",
        "topics",
    )

    def __init__(
        self,
        *,
        timeout_ms: int = 60000,
        allow_replication_factor_change: bool = True,
        topics: list[ReassignableTopic] = EMPTY,
    ) -> None:
        self.timeout_ms = timeout_ms
        self.allow_replication_factor_change = allow_replication_factor_change  # versions 1 to 1
        self.topics = [] if topics is EMPTY else topics


def _decode_reassignable_partition(reader: Reader, version: int) -> ReassignablePartition:
    message = object.__new__(ReassignablePartition)
    message.partition_index = reader.read_int32()
    count = reader.read_nullable_compact_array_length(4, "replicas")
    message.replicas = None if count < 0 else reader.read_int32_array(count)
    reader.skip_tagged_fields()
    return message


def _decode_reassignable_topic(reader: Reader, version: int) -> ReassignableTopic:
    message = object.__new__(ReassignableTopic)
    message.name = reader.read_compact_string("name")
    message.partitions = [
        _decode_reassignable_partition(reader, version)
        for _ in range(reader.read_compact_array_length(6, "partitions"))
    ]
    reader.skip_tagged_fields()
    return message


def decode_alter_partition_reassignments_request(
    reader: Reader, version: int
) -> AlterPartitionReassignmentsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 1:
        raise unsupported_version("AlterPartitionReassignmentsRequest", version)
    message = object.__new__(AlterPartitionReassignmentsRequest)
    if version >= 1:
        (message.timeout_ms, message.allow_replication_factor_change) = reader.unpack(_INT32_BOOL)
    else:
        message.timeout_ms = reader.read_int32()
        message.allow_replication_factor_change = True
    message.topics = [
        _decode_reassignable_topic(reader, version)
        for _ in range(reader.read_compact_array_length(3, "topics"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_reassignable_partition(
    writer: Writer, message: ReassignablePartition, version: int
) -> None:
    writer.write_int32(message.partition_index)
    writer.write_nullable_compact_array_length(message.replicas, "replicas")
    if message.replicas:
        writer.write_int32_array(message.replicas)
    writer.buf.append(0)


def _encode_reassignable_topic(writer: Writer, message: ReassignableTopic, version: int) -> None:
    writer.write_compact_string(message.name, "name")
    writer.write_compact_array_length(message.partitions, "partitions")
    for reassignable_partition in message.partitions:
        _encode_reassignable_partition(writer, reassignable_partition, version)
    writer.buf.append(0)


def encode_alter_partition_reassignments_request(
    writer: Writer, message: AlterPartitionReassignmentsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 1:
        raise unsupported_version("AlterPartitionReassignmentsRequest", version)
    if version >= 1:
        writer.buf += _INT32_BOOL.pack(message.timeout_ms, message.allow_replication_factor_change)
    else:
        if not message.allow_replication_factor_change:
            raise unsupported_field(
                "AlterPartitionReassignmentsRequest", "allow_replication_factor_change", version
            )
        writer.write_int32(message.timeout_ms)
    writer.write_compact_array_length(message.topics, "topics")
    for reassignable_topic in message.topics:
        _encode_reassignable_topic(writer, reassignable_topic, version)
    writer.buf.append(0)
