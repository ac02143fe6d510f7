"""DescribeShareGroupOffsetsResponse (API key 90), versions 0 to 1, flexible from 0.

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

_INT32_INT64_INT32_INT16 = Struct(">iqih")
_INT32_INT64_INT32_INT64_INT16 = Struct(">iqiqh")


class DescribeShareGroupOffsetsResponsePartition(Message):
    """Part of DescribeShareGroupOffsetsResponse."""

    __slots__ = (
        "error_code",
        "error_message",
        "lag",
        "leader_epoch",
        "partition_index",
        "start_offset",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        start_offset: int = 0,
        leader_epoch: int = 0,
        lag: int = -1,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.start_offset = start_offset
        self.leader_epoch = leader_epoch
        self.lag = lag  # versions 1 to 1
        self.error_code = error_code
        self.error_message = error_message


class DescribeShareGroupOffsetsResponseTopic(Message):
    """Part of DescribeShareGroupOffsetsResponse."""

    __slots__ = (
        "partitions",
        "topic_id",
        "topic_name",
    )

    def __init__(
        self,
        *,
        topic_name: str = "",
        topic_id: UUID = ZERO_UUID,
        partitions: list[DescribeShareGroupOffsetsResponsePartition] = EMPTY,
    ) -> None:
        self.topic_name = topic_name  # topicName
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class DescribeShareGroupOffsetsResponseGroup(Message):
    """Part of DescribeShareGroupOffsetsResponse."""

    __slots__ = (
        "error_code",
        "error_message",
        "group_id",
        "topics",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[DescribeShareGroupOffsetsResponseTopic] = EMPTY,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.group_id = group_id  # groupId
        self.topics = [] if topics is EMPTY else topics
        self.error_code = error_code
        self.error_message = error_message


class DescribeShareGroupOffsetsResponse(Message):
    """The message."""

    __slots__ = (
        "groups",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        groups: list[DescribeShareGroupOffsetsResponseGroup] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.groups = [] if groups is EMPTY else groups


def _decode_describe_share_group_offsets_response_partition(
    reader: Reader, version: int
) -> DescribeShareGroupOffsetsResponsePartition:
    message = object.__new__(DescribeShareGroupOffsetsResponsePartition)
    if version >= 1:
        (
            message.partition_index,
            message.start_offset,
            message.leader_epoch,
            message.lag,
            message.error_code,
        ) = reader.unpack(_INT32_INT64_INT32_INT64_INT16)
    else:
        (
            message.partition_index,
            message.start_offset,
            message.leader_epoch,
            message.error_code,
        ) = reader.unpack(_INT32_INT64_INT32_INT16)
        message.lag = -1
    message.error_message = reader.read_nullable_compact_string("error_message")
    reader.skip_tagged_fields()
    return message


def _decode_describe_share_group_offsets_response_topic(
    reader: Reader, version: int
) -> DescribeShareGroupOffsetsResponseTopic:
    message = object.__new__(DescribeShareGroupOffsetsResponseTopic)
    message.topic_name = reader.read_compact_string("topic_name")
    message.topic_id = reader.read_uuid()
    message.partitions = [
        _decode_describe_share_group_offsets_response_partition(reader, version)
        for _ in range(reader.read_compact_array_length(20, "partitions"))
    ]
    reader.skip_tagged_fields()
    return message


def _decode_describe_share_group_offsets_response_group(
    reader: Reader, version: int
) -> DescribeShareGroupOffsetsResponseGroup:
    message = object.__new__(DescribeShareGroupOffsetsResponseGroup)
    message.group_id = reader.read_compact_string("group_id")
    message.topics = [
        _decode_describe_share_group_offsets_response_topic(reader, version)
        for _ in range(reader.read_compact_array_length(19, "topics"))
    ]
    message.error_code = reader.read_int16()
    message.error_message = reader.read_nullable_compact_string("error_message")
    reader.skip_tagged_fields()
    return message


def decode_describe_share_group_offsets_response(
    reader: Reader, version: int
) -> DescribeShareGroupOffsetsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 1:
        raise unsupported_version("DescribeShareGroupOffsetsResponse", version)
    message = object.__new__(DescribeShareGroupOffsetsResponse)
    message.throttle_time_ms = reader.read_int32()
    message.groups = [
        _decode_describe_share_group_offsets_response_group(reader, version)
        for _ in range(reader.read_compact_array_length(6, "groups"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_describe_share_group_offsets_response_partition(
    writer: Writer, message: DescribeShareGroupOffsetsResponsePartition, version: int
) -> None:
    if version >= 1:
        writer.buf += _INT32_INT64_INT32_INT64_INT16.pack(
            message.partition_index,
            message.start_offset,
            message.leader_epoch,
            message.lag,
            message.error_code,
        )
    else:
        writer.buf += _INT32_INT64_INT32_INT16.pack(
            message.partition_index, message.start_offset, message.leader_epoch, message.error_code
        )
    writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.buf.append(0)


def _encode_describe_share_group_offsets_response_topic(
    writer: Writer, message: DescribeShareGroupOffsetsResponseTopic, version: int
) -> None:
    writer.write_compact_string(message.topic_name, "topic_name")
    writer.write_uuid(message.topic_id)
    writer.write_compact_array_length(message.partitions, "partitions")
    for describe_share_group_offsets_response_partition in message.partitions:
        _encode_describe_share_group_offsets_response_partition(
            writer, describe_share_group_offsets_response_partition, version
        )
    writer.buf.append(0)


def _encode_describe_share_group_offsets_response_group(
    writer: Writer, message: DescribeShareGroupOffsetsResponseGroup, version: int
) -> None:
    writer.write_compact_string(message.group_id, "group_id")
    writer.write_compact_array_length(message.topics, "topics")
    for describe_share_group_offsets_response_topic in message.topics:
        _encode_describe_share_group_offsets_response_topic(
            writer, describe_share_group_offsets_response_topic, version
        )
    writer.write_int16(message.error_code)
    writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.buf.append(0)


def encode_describe_share_group_offsets_response(
    writer: Writer, message: DescribeShareGroupOffsetsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 1:
        raise unsupported_version("DescribeShareGroupOffsetsResponse", version)
    writer.write_int32(message.throttle_time_ms)
    writer.write_compact_array_length(message.groups, "groups")
    for describe_share_group_offsets_response_group in message.groups:
        _encode_describe_share_group_offsets_response_group(
            writer, describe_share_group_offsets_response_group, version
        )
    writer.buf.append(0)
