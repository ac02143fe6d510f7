"""OffsetCommitResponse (API key 8), versions 2 to 10, flexible from 8.

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

_INT32_INT16 = Struct(">ih")


class OffsetCommitResponsePartition(Message):
    """Part of OffsetCommitResponse."""

    __slots__ = (
        "error_code",
        "partition_index",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class OffsetCommitResponseTopic(Message):
    """Part of OffsetCommitResponse."""

    __slots__ = (
        "name",
        "partitions",
        "topic_id",
    )

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: UUID = ZERO_UUID,
        partitions: list[OffsetCommitResponsePartition] = EMPTY,
    ) -> None:
        self.name = name  # versions 2 to 9, topicName
        self.topic_id = topic_id  # versions 10 to 10
        self.partitions = [] if partitions is EMPTY else partitions


class OffsetCommitResponse(Message):
    """The message."""

    __slots__ = (
        "throttle_time_ms",
        "topics",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[OffsetCommitResponseTopic] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms  # versions 3 to 10
        self.topics = [] if topics is EMPTY else topics


def _decode_offset_commit_response_partition(
    reader: Reader, version: int
) -> OffsetCommitResponsePartition:
    message = object.__new__(OffsetCommitResponsePartition)
    (message.partition_index, message.error_code) = reader.unpack(_INT32_INT16)
    if version >= 8:
        reader.skip_tagged_fields()
    return message


def _decode_offset_commit_response_topic(reader: Reader, version: int) -> OffsetCommitResponseTopic:
    message = object.__new__(OffsetCommitResponseTopic)
    if version >= 10:
        message.name = ""
    elif version >= 8:
        message.name = reader.read_compact_string("name")
    else:
        message.name = reader.read_string("name")
    if version >= 10:
        message.topic_id = reader.read_uuid()
    else:
        message.topic_id = ZERO_UUID
    if version >= 8:
        message.partitions = [
            _decode_offset_commit_response_partition(reader, version)
            for _ in range(reader.read_compact_array_length(7, "partitions"))
        ]
    else:
        message.partitions = [
            _decode_offset_commit_response_partition(reader, version)
            for _ in range(reader.read_array_length(6, "partitions"))
        ]
    if version >= 8:
        reader.skip_tagged_fields()
    return message


def decode_offset_commit_response(reader: Reader, version: int) -> OffsetCommitResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 2 <= version <= 10:
        raise unsupported_version("OffsetCommitResponse", version)
    message = object.__new__(OffsetCommitResponse)
    if version >= 3:
        message.throttle_time_ms = reader.read_int32()
    else:
        message.throttle_time_ms = 0
    if version >= 8:
        message.topics = [
            _decode_offset_commit_response_topic(reader, version)
            for _ in range(reader.read_compact_array_length(3, "topics"))
        ]
    else:
        message.topics = [
            _decode_offset_commit_response_topic(reader, version)
            for _ in range(reader.read_array_length(6, "topics"))
        ]
    if version >= 8:
        reader.skip_tagged_fields()
    return message


def _encode_offset_commit_response_partition(
    writer: Writer, message: OffsetCommitResponsePartition, version: int
) -> None:
    writer.buf += _INT32_INT16.pack(message.partition_index, message.error_code)
    if version >= 8:
        writer.buf.append(0)


def _encode_offset_commit_response_topic(
    writer: Writer, message: OffsetCommitResponseTopic, version: int
) -> None:
    if version <= 7:
        writer.write_string(message.name, "name")
    elif version <= 9:
        writer.write_compact_string(message.name, "name")
    if version >= 10:
        writer.write_uuid(message.topic_id)
    if version >= 8:
        writer.write_compact_array_length(message.partitions, "partitions")
        for offset_commit_response_partition in message.partitions:
            _encode_offset_commit_response_partition(
                writer, offset_commit_response_partition, version
            )
        writer.buf.append(0)
    else:
        writer.write_array_length(message.partitions, "partitions")
        for offset_commit_response_partition in message.partitions:
            _encode_offset_commit_response_partition(
                writer, offset_commit_response_partition, version
            )


def encode_offset_commit_response(
    writer: Writer, message: OffsetCommitResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 2 <= version <= 10:
        raise unsupported_version("OffsetCommitResponse", version)
    if version >= 3:
        writer.write_int32(message.throttle_time_ms)
    if version >= 8:
        writer.write_compact_array_length(message.topics, "topics")
        for offset_commit_response_topic in message.topics:
            _encode_offset_commit_response_topic(writer, offset_commit_response_topic, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.topics, "topics")
        for offset_commit_response_topic in message.topics:
            _encode_offset_commit_response_topic(writer, offset_commit_response_topic, version)
