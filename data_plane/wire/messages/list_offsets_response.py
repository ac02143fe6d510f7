"""ListOffsetsResponse (API key 2), versions 1 to 11, flexible from 6.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_INT16_2XINT64 = Struct(">ihqq")
_INT32_INT16_2XINT64_INT32 = Struct(">ihqqi")


class ListOffsetsPartitionResponse(Message):
    """Part of ListOffsetsResponse."""

    __slots__ = (
        "error_code",
        "leader_epoch",
        "offset",
        "partition_index",
        "timestamp",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        timestamp: int = -1,
        offset: int = -1,
        leader_epoch: int = -1,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.timestamp = timestamp
        self.offset = offset
        self.leader_epoch = leader_epoch  # versions 4 to 11


class ListOffsetsTopicResponse(Message):
    """Part of ListOffsetsResponse."""

    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[ListOffsetsPartitionResponse] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class ListOffsetsResponse(Message):
    """The message."""

    __slots__ = (
        "throttle_time_ms",
        "topics",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[ListOffsetsTopicResponse] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms  # versions 2 to 11
        self.topics = [] if topics is EMPTY else topics


def _decode_list_offsets_partition_response(
    reader: Reader, version: int
) -> ListOffsetsPartitionResponse:
    message = object.__new__(ListOffsetsPartitionResponse)
    if version >= 4:
        (
            message.partition_index,
            message.error_code,
            message.timestamp,
            message.offset,
            message.leader_epoch,
        ) = reader.unpack(_INT32_INT16_2XINT64_INT32)
    else:
        (message.partition_index, message.error_code, message.timestamp, message.offset) = (
            reader.unpack(_INT32_INT16_2XINT64)
        )
        message.leader_epoch = -1
    if version >= 6:
        reader.skip_tagged_fields()
    return message


def _decode_list_offsets_topic_response(reader: Reader, version: int) -> ListOffsetsTopicResponse:
    message = object.__new__(ListOffsetsTopicResponse)
    if version >= 6:
        message.name = reader.read_compact_string("name")
        message.partitions = [
            _decode_list_offsets_partition_response(reader, version)
            for _ in range(reader.read_compact_array_length(27, "partitions"))
        ]
    else:
        message.name = reader.read_string("name")
        message.partitions = [
            _decode_list_offsets_partition_response(reader, version)
            for _ in range(reader.read_array_length(22, "partitions"))
        ]
    if version >= 6:
        reader.skip_tagged_fields()
    return message


def decode_list_offsets_response(reader: Reader, version: int) -> ListOffsetsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 11:
        raise unsupported_version("ListOffsetsResponse", version)
    message = object.__new__(ListOffsetsResponse)
    if version >= 2:
        message.throttle_time_ms = reader.read_int32()
    else:
        message.throttle_time_ms = 0
    if version >= 6:
        message.topics = [
            _decode_list_offsets_topic_response(reader, version)
            for _ in range(reader.read_compact_array_length(3, "topics"))
        ]
    else:
        message.topics = [
            _decode_list_offsets_topic_response(reader, version)
            for _ in range(reader.read_array_length(6, "topics"))
        ]
    if version >= 6:
        reader.skip_tagged_fields()
    return message


def _encode_list_offsets_partition_response(
    writer: Writer, message: ListOffsetsPartitionResponse, version: int
) -> None:
    if version >= 4:
        writer.buf += _INT32_INT16_2XINT64_INT32.pack(
            message.partition_index,
            message.error_code,
            message.timestamp,
            message.offset,
            message.leader_epoch,
        )
    else:
        writer.buf += _INT32_INT16_2XINT64.pack(
            message.partition_index, message.error_code, message.timestamp, message.offset
        )
    if version >= 6:
        writer.buf.append(0)


def _encode_list_offsets_topic_response(
    writer: Writer, message: ListOffsetsTopicResponse, version: int
) -> None:
    if version >= 6:
        writer.write_compact_string(message.name, "name")
        writer.write_compact_array_length(message.partitions, "partitions")
        for list_offsets_partition_response in message.partitions:
            _encode_list_offsets_partition_response(
                writer, list_offsets_partition_response, version
            )
        writer.buf.append(0)
    else:
        writer.write_string(message.name, "name")
        writer.write_array_length(message.partitions, "partitions")
        for list_offsets_partition_response in message.partitions:
            _encode_list_offsets_partition_response(
                writer, list_offsets_partition_response, version
            )


def encode_list_offsets_response(
    writer: Writer, message: ListOffsetsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 11:
        raise unsupported_version("ListOffsetsResponse", version)
    if version >= 2:
        writer.write_int32(message.throttle_time_ms)
    if version >= 6:
        writer.write_compact_array_length(message.topics, "topics")
        for list_offsets_topic_response in message.topics:
            _encode_list_offsets_topic_response(writer, list_offsets_topic_response, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.topics, "topics")
        for list_offsets_topic_response in message.topics:
            _encode_list_offsets_topic_response(writer, list_offsets_topic_response, version)
