"""OffsetFetchResponse (API key 9), versions 1 to 10, flexible from 6.

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

_INT32_INT64 = Struct(">iq")
_INT32_INT64_INT32 = Struct(">iqi")


class OffsetFetchResponsePartition(Message):
    """Part of OffsetFetchResponse."""

    __slots__ = (
        "committed_leader_epoch",
        "committed_offset",
        "error_code",
        "metadata",
        "partition_index",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        metadata: str | None = "",
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch  # versions 5 to 7
        self.metadata = metadata
        self.error_code = error_code


class OffsetFetchResponseTopic(Message):
    """Part of OffsetFetchResponse."""

    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[OffsetFetchResponsePartition] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class OffsetFetchResponsePartitions(Message):
    """Part of OffsetFetchResponse."""

    __slots__ = (
        "committed_leader_epoch",
        "committed_offset",
        "error_code",
        "metadata",
        "partition_index",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        metadata: str | None = "",
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.metadata = metadata
        self.error_code = error_code


class OffsetFetchResponseTopics(Message):
    """Part of OffsetFetchResponse."""

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
        partitions: list[OffsetFetchResponsePartitions] = EMPTY,
    ) -> None:
        self.name = name  # versions 8 to 9, topicName
        self.topic_id = topic_id  # versions 10 to 10
        self.partitions = [] if partitions is EMPTY else partitions


class OffsetFetchResponseGroup(Message):
    """Part of OffsetFetchResponse."""

    __slots__ = (
        "error_code",
        "group_id",
        "topics",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[OffsetFetchResponseTopics] = EMPTY,
        error_code: int = 0,
    ) -> None:
        self.group_id = group_id  # groupId
        self.topics = [] if topics is EMPTY else topics
        self.error_code = error_code


class OffsetFetchResponse(Message):
    """The message."""

    __slots__ = (
        "error_code",
        "groups",
        "throttle_time_ms",
        "topics",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[OffsetFetchResponseTopic] = EMPTY,
        error_code: int = 0,
        groups: list[OffsetFetchResponseGroup] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms  # versions 3 to 10
        self.topics = [] if topics is EMPTY else topics  # versions 1 to 7
        self.error_code = error_code  # versions 2 to 7
        self.groups = [] if groups is EMPTY else groups  # versions 8 to 10


def _decode_offset_fetch_response_partition(
    reader: Reader, version: int
) -> OffsetFetchResponsePartition:
    message = object.__new__(OffsetFetchResponsePartition)
    if version >= 5:
        (message.partition_index, message.committed_offset, message.committed_leader_epoch) = (
            reader.unpack(_INT32_INT64_INT32)
        )
    else:
        (message.partition_index, message.committed_offset) = reader.unpack(_INT32_INT64)
        message.committed_leader_epoch = -1
    if version >= 6:
        message.metadata = reader.read_nullable_compact_string("metadata")
    else:
        message.metadata = reader.read_nullable_string("metadata")
    message.error_code = reader.read_int16()
    if version >= 6:
        reader.skip_tagged_fields()
    return message


def _decode_offset_fetch_response_topic(reader: Reader, version: int) -> OffsetFetchResponseTopic:
    message = object.__new__(OffsetFetchResponseTopic)
    if version >= 6:
        message.name = reader.read_compact_string("name")
        message.partitions = [
            _decode_offset_fetch_response_partition(reader, version)
            for _ in range(reader.read_compact_array_length(20, "partitions"))
        ]
    else:
        message.name = reader.read_string("name")
        message.partitions = [
            _decode_offset_fetch_response_partition(reader, version)
            for _ in range(reader.read_array_length(16, "partitions"))
        ]
    if version >= 6:
        reader.skip_tagged_fields()
    return message


def _decode_offset_fetch_response_partitions(
    reader: Reader, version: int
) -> OffsetFetchResponsePartitions:
    message = object.__new__(OffsetFetchResponsePartitions)
    (message.partition_index, message.committed_offset, message.committed_leader_epoch) = (
        reader.unpack(_INT32_INT64_INT32)
    )
    message.metadata = reader.read_nullable_compact_string("metadata")
    message.error_code = reader.read_int16()
    reader.skip_tagged_fields()
    return message


def _decode_offset_fetch_response_topics(reader: Reader, version: int) -> OffsetFetchResponseTopics:
    message = object.__new__(OffsetFetchResponseTopics)
    if version >= 10:
        message.name = ""
        message.topic_id = reader.read_uuid()
    else:
        message.name = reader.read_compact_string("name")
        message.topic_id = ZERO_UUID
    message.partitions = [
        _decode_offset_fetch_response_partitions(reader, version)
        for _ in range(reader.read_compact_array_length(20, "partitions"))
    ]
    reader.skip_tagged_fields()
    return message


def _decode_offset_fetch_response_group(reader: Reader, version: int) -> OffsetFetchResponseGroup:
    message = object.__new__(OffsetFetchResponseGroup)
    message.group_id = reader.read_compact_string("group_id")
    message.topics = [
        _decode_offset_fetch_response_topics(reader, version)
        for _ in range(reader.read_compact_array_length(3, "topics"))
    ]
    message.error_code = reader.read_int16()
    reader.skip_tagged_fields()
    return message


def decode_offset_fetch_response(reader: Reader, version: int) -> OffsetFetchResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 10:
        raise unsupported_version("OffsetFetchResponse", version)
    message = object.__new__(OffsetFetchResponse)
    if version >= 3:
        message.throttle_time_ms = reader.read_int32()
    else:
        message.throttle_time_ms = 0
    if version >= 8:
        message.topics = []
    elif version >= 6:
        message.topics = [
            _decode_offset_fetch_response_topic(reader, version)
            for _ in range(reader.read_compact_array_length(3, "topics"))
        ]
    else:
        message.topics = [
            _decode_offset_fetch_response_topic(reader, version)
            for _ in range(reader.read_array_length(6, "topics"))
        ]
    if version >= 8:
        message.error_code = 0
    elif version >= 2:
        message.error_code = reader.read_int16()
    else:
        message.error_code = 0
    if version >= 8:
        message.groups = [
            _decode_offset_fetch_response_group(reader, version)
            for _ in range(reader.read_compact_array_length(5, "groups"))
        ]
    else:
        message.groups = []
    if version >= 6:
        reader.skip_tagged_fields()
    return message


def _encode_offset_fetch_response_partition(
    writer: Writer, message: OffsetFetchResponsePartition, version: int
) -> None:
    if version >= 5:
        writer.buf += _INT32_INT64_INT32.pack(
            message.partition_index, message.committed_offset, message.committed_leader_epoch
        )
    else:
        writer.buf += _INT32_INT64.pack(message.partition_index, message.committed_offset)
    if version >= 6:
        writer.write_nullable_compact_string(message.metadata, "metadata")
    else:
        writer.write_nullable_string(message.metadata, "metadata")
    writer.write_int16(message.error_code)
    if version >= 6:
        writer.buf.append(0)


def _encode_offset_fetch_response_topic(
    writer: Writer, message: OffsetFetchResponseTopic, version: int
) -> None:
    if version >= 6:
        writer.write_compact_string(message.name, "name")
        writer.write_compact_array_length(message.partitions, "partitions")
        for offset_fetch_response_partition in message.partitions:
            _encode_offset_fetch_response_partition(
                writer, offset_fetch_response_partition, version
            )
        writer.buf.append(0)
    else:
        writer.write_string(message.name, "name")
        writer.write_array_length(message.partitions, "partitions")
        for offset_fetch_response_partition in message.partitions:
            _encode_offset_fetch_response_partition(
                writer, offset_fetch_response_partition, version
            )


def _encode_offset_fetch_response_partitions(
    writer: Writer, message: OffsetFetchResponsePartitions, version: int
) -> None:
    writer.buf += _INT32_INT64_INT32.pack(
        message.partition_index, message.committed_offset, message.committed_leader_epoch
    )
    writer.write_nullable_compact_string(message.metadata, "metadata")
    writer.write_int16(message.error_code)
    writer.buf.append(0)


def _encode_offset_fetch_response_topics(
    writer: Writer, message: OffsetFetchResponseTopics, version: int
) -> None:
    if version >= 10:
        writer.write_uuid(message.topic_id)
    else:
        writer.write_compact_string(message.name, "name")
    writer.write_compact_array_length(message.partitions, "partitions")
    for offset_fetch_response_partitions in message.partitions:
        _encode_offset_fetch_response_partitions(writer, offset_fetch_response_partitions, version)
    writer.buf.append(0)


def _encode_offset_fetch_response_group(
    writer: Writer, message: OffsetFetchResponseGroup, version: int
) -> None:
    writer.write_compact_string(message.group_id, "group_id")
    writer.write_compact_array_length(message.topics, "topics")
    for offset_fetch_response_topics in message.topics:
        _encode_offset_fetch_response_topics(writer, offset_fetch_response_topics, version)
    writer.write_int16(message.error_code)
    writer.buf.append(0)


def encode_offset_fetch_response(
    writer: Writer, message: OffsetFetchResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 10:
        raise unsupported_version("OffsetFetchResponse", version)
    if version >= 3:
        writer.write_int32(message.throttle_time_ms)
    if version <= 5:
        writer.write_array_length(message.topics, "topics")
        for offset_fetch_response_topic in message.topics:
            _encode_offset_fetch_response_topic(writer, offset_fetch_response_topic, version)
    elif version <= 7:
        writer.write_compact_array_length(message.topics, "topics")
        for offset_fetch_response_topic in message.topics:
            _encode_offset_fetch_response_topic(writer, offset_fetch_response_topic, version)
    if version <= 1:
        pass
    elif version <= 7:
        writer.write_int16(message.error_code)
    if version >= 8:
        writer.write_compact_array_length(message.groups, "groups")
        for offset_fetch_response_group in message.groups:
            _encode_offset_fetch_response_group(writer, offset_fetch_response_group, version)
    if version >= 6:
        writer.buf.append(0)
