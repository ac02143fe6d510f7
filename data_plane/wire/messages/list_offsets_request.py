"""ListOffsetsRequest (API key 2), versions 1 to 11, flexible from 6.

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

_2XINT32_INT64 = Struct(">iiq")
_INT32_INT64 = Struct(">iq")
_INT32_INT8 = Struct(">ib")


class ListOffsetsPartition(Message):
    """Part of ListOffsetsRequest."""

    __slots__ = (
        "current_leader_epoch",
        "partition_index",
        "timestamp",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        current_leader_epoch: int = -1,
        timestamp: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.current_leader_epoch = current_leader_epoch  # versions 4 to 11
        self.timestamp = timestamp


class ListOffsetsTopic(Message):
    """Part of ListOffsetsRequest."""

    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[ListOffsetsPartition] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class ListOffsetsRequest(Message):
    """The message."""

    __slots__ = (
        "isolation_level",
        "replica_id",
        "timeout_ms",
        "topics",
    )

    def __init__(
        self,
        *,
        replica_id: int = 0,
        isolation_level: int = 0,
        topics: list[ListOffsetsTopic] = EMPTY,
        timeout_ms: int = 0,
    ) -> None:
        self.replica_id = replica_id  # brokerId
        self.isolation_level = isolation_level  # versions 2 to 11
        self.topics = [] if topics is EMPTY else topics
        self.timeout_ms = timeout_ms  # versions 10 to 11


def _decode_list_offsets_partition(reader: Reader, version: int) -> ListOffsetsPartition:
    message = object.__new__(ListOffsetsPartition)
    if version >= 4:
        (message.partition_index, message.current_leader_epoch, message.timestamp) = reader.unpack(
            _2XINT32_INT64
        )
    else:
        (message.partition_index, message.timestamp) = reader.unpack(_INT32_INT64)
        message.current_leader_epoch = -1
    if version >= 6:
        reader.skip_tagged_fields()
    return message


def _decode_list_offsets_topic(reader: Reader, version: int) -> ListOffsetsTopic:
    message = object.__new__(ListOffsetsTopic)
    if version >= 6:
        message.name = reader.read_compact_string("name")
        message.partitions = [
            _decode_list_offsets_partition(reader, version)
            for _ in range(reader.read_compact_array_length(17, "partitions"))
        ]
    else:
        message.name = reader.read_string("name")
        message.partitions = [
            _decode_list_offsets_partition(reader, version)
            for _ in range(reader.read_array_length(12, "partitions"))
        ]
    if version >= 6:
        reader.skip_tagged_fields()
    return message


def decode_list_offsets_request(reader: Reader, version: int) -> ListOffsetsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 11:
        raise unsupported_version("ListOffsetsRequest", version)
    message = object.__new__(ListOffsetsRequest)
    if version >= 2:
        (message.replica_id, message.isolation_level) = reader.unpack(_INT32_INT8)
    else:
        message.replica_id = reader.read_int32()
        message.isolation_level = 0
    if version >= 6:
        message.topics = [
            _decode_list_offsets_topic(reader, version)
            for _ in range(reader.read_compact_array_length(3, "topics"))
        ]
    else:
        message.topics = [
            _decode_list_offsets_topic(reader, version)
            for _ in range(reader.read_array_length(6, "topics"))
        ]
    if version >= 10:
        message.timeout_ms = reader.read_int32()
    else:
        message.timeout_ms = 0
    if version >= 6:
        reader.skip_tagged_fields()
    return message


def _encode_list_offsets_partition(
    writer: Writer, message: ListOffsetsPartition, version: int
) -> None:
    if version >= 4:
        writer.buf += _2XINT32_INT64.pack(
            message.partition_index, message.current_leader_epoch, message.timestamp
        )
    else:
        writer.buf += _INT32_INT64.pack(message.partition_index, message.timestamp)
    if version >= 6:
        writer.buf.append(0)


def _encode_list_offsets_topic(writer: Writer, message: ListOffsetsTopic, version: int) -> None:
    if version >= 6:
        writer.write_compact_string(message.name, "name")
        writer.write_compact_array_length(message.partitions, "partitions")
        for list_offsets_partition in message.partitions:
            _encode_list_offsets_partition(writer, list_offsets_partition, version)
        writer.buf.append(0)
    else:
        writer.write_string(message.name, "name")
        writer.write_array_length(message.partitions, "partitions")
        for list_offsets_partition in message.partitions:
            _encode_list_offsets_partition(writer, list_offsets_partition, version)


def encode_list_offsets_request(writer: Writer, message: ListOffsetsRequest, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 11:
        raise unsupported_version("ListOffsetsRequest", version)
    if version >= 2:
        writer.buf += _INT32_INT8.pack(message.replica_id, message.isolation_level)
    else:
        if message.isolation_level != 0:
            raise unsupported_field("ListOffsetsRequest", "isolation_level", version)
        writer.write_int32(message.replica_id)
    if version >= 6:
        writer.write_compact_array_length(message.topics, "topics")
        for list_offsets_topic in message.topics:
            _encode_list_offsets_topic(writer, list_offsets_topic, version)
    else:
        writer.write_array_length(message.topics, "topics")
        for list_offsets_topic in message.topics:
            _encode_list_offsets_topic(writer, list_offsets_topic, version)
    if version >= 10:
        writer.write_int32(message.timeout_ms)
    if version >= 6:
        writer.buf.append(0)
