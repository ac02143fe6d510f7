"""OffsetCommitRequest (API key 8), versions 2 to 10, flexible from 8.

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
    unsupported_field,
    unsupported_version,
)

_INT32_INT64 = Struct(">iq")
_INT32_INT64_INT32 = Struct(">iqi")


class OffsetCommitRequestPartition(Message):
    """Part of OffsetCommitRequest."""

    __slots__ = (
        "committed_leader_epoch",
        "committed_metadata",
        "committed_offset",
        "partition_index",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        committed_metadata: str | None = "",
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch  # versions 6 to 10
        self.committed_metadata = committed_metadata


class OffsetCommitRequestTopic(Message):
    """Part of OffsetCommitRequest."""

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
        partitions: list[OffsetCommitRequestPartition] = EMPTY,
    ) -> None:
        self.name = name  # versions 2 to 9, topicName
        self.topic_id = topic_id  # versions 10 to 10
        self.partitions = [] if partitions is EMPTY else partitions


class OffsetCommitRequest(Message):
    """The message."""

    __slots__ = (
        "generation_id_or_member_epoch",
        "group_id",
        "group_instance_id",
        "member_id",
        "retention_time_ms",
        "topics",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        generation_id_or_member_epoch: int = -1,
        member_id: str = "",
        retention_time_ms: int = -1,
        group_instance_id: str | None = None,
        topics: list[OffsetCommitRequestTopic] = EMPTY,
    ) -> None:
        self.group_id = group_id  # groupId
        self.generation_id_or_member_epoch = generation_id_or_member_epoch
        self.member_id = member_id
        self.retention_time_ms = retention_time_ms  # versions 2 to 4
        self.group_instance_id = group_instance_id  # versions 7 to 10
        self.topics = [] if topics is EMPTY else topics


def _decode_offset_commit_request_partition(
    reader: Reader, version: int
) -> OffsetCommitRequestPartition:
    message = object.__new__(OffsetCommitRequestPartition)
    if version >= 6:
        (message.partition_index, message.committed_offset, message.committed_leader_epoch) = (
            reader.unpack(_INT32_INT64_INT32)
        )
    else:
        (message.partition_index, message.committed_offset) = reader.unpack(_INT32_INT64)
        message.committed_leader_epoch = -1
    if version >= 8:
        message.committed_metadata = reader.read_nullable_compact_string("committed_metadata")
    else:
        message.committed_metadata = reader.read_nullable_string("committed_metadata")
    if version >= 8:
        reader.skip_tagged_fields()
    return message


def _decode_offset_commit_request_topic(reader: Reader, version: int) -> OffsetCommitRequestTopic:
    message = object.__new__(OffsetCommitRequestTopic)
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
            _decode_offset_commit_request_partition(reader, version)
            for _ in range(reader.read_compact_array_length(18, "partitions"))
        ]
    else:
        message.partitions = [
            _decode_offset_commit_request_partition(reader, version)
            for _ in range(reader.read_array_length(14, "partitions"))
        ]
    if version >= 8:
        reader.skip_tagged_fields()
    return message


def decode_offset_commit_request(reader: Reader, version: int) -> OffsetCommitRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 2 <= version <= 10:
        raise unsupported_version("OffsetCommitRequest", version)
    message = object.__new__(OffsetCommitRequest)
    if version >= 8:
        message.group_id = reader.read_compact_string("group_id")
    else:
        message.group_id = reader.read_string("group_id")
    message.generation_id_or_member_epoch = reader.read_int32()
    if version >= 8:
        message.member_id = reader.read_compact_string("member_id")
    else:
        message.member_id = reader.read_string("member_id")
    if version >= 5:
        message.retention_time_ms = -1
    else:
        message.retention_time_ms = reader.read_int64()
    if version >= 8:
        message.group_instance_id = reader.read_nullable_compact_string("group_instance_id")
    elif version >= 7:
        message.group_instance_id = reader.read_nullable_string("group_instance_id")
    else:
        message.group_instance_id = None
    if version >= 8:
        message.topics = [
            _decode_offset_commit_request_topic(reader, version)
            for _ in range(reader.read_compact_array_length(3, "topics"))
        ]
    else:
        message.topics = [
            _decode_offset_commit_request_topic(reader, version)
            for _ in range(reader.read_array_length(6, "topics"))
        ]
    if version >= 8:
        reader.skip_tagged_fields()
    return message


def _encode_offset_commit_request_partition(
    writer: Writer, message: OffsetCommitRequestPartition, version: int
) -> None:
    if version >= 6:
        writer.buf += _INT32_INT64_INT32.pack(
            message.partition_index, message.committed_offset, message.committed_leader_epoch
        )
    else:
        writer.buf += _INT32_INT64.pack(message.partition_index, message.committed_offset)
    if version >= 8:
        writer.write_nullable_compact_string(message.committed_metadata, "committed_metadata")
        writer.buf.append(0)
    else:
        writer.write_nullable_string(message.committed_metadata, "committed_metadata")


def _encode_offset_commit_request_topic(
    writer: Writer, message: OffsetCommitRequestTopic, version: int
) -> None:
    if version <= 7:
        writer.write_string(message.name, "name")
    elif version <= 9:
        writer.write_compact_string(message.name, "name")
    if version >= 10:
        writer.write_uuid(message.topic_id)
    if version >= 8:
        writer.write_compact_array_length(message.partitions, "partitions")
        for offset_commit_request_partition in message.partitions:
            _encode_offset_commit_request_partition(
                writer, offset_commit_request_partition, version
            )
        writer.buf.append(0)
    else:
        writer.write_array_length(message.partitions, "partitions")
        for offset_commit_request_partition in message.partitions:
            _encode_offset_commit_request_partition(
                writer, offset_commit_request_partition, version
            )


def encode_offset_commit_request(
    writer: Writer, message: OffsetCommitRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 2 <= version <= 10:
        raise unsupported_version("OffsetCommitRequest", version)
    if version >= 8:
        writer.write_compact_string(message.group_id, "group_id")
    else:
        writer.write_string(message.group_id, "group_id")
    writer.write_int32(message.generation_id_or_member_epoch)
    if version >= 8:
        writer.write_compact_string(message.member_id, "member_id")
    else:
        writer.write_string(message.member_id, "member_id")
    if version <= 4:
        writer.write_int64(message.retention_time_ms)
    if version >= 8:
        writer.write_nullable_compact_string(message.group_instance_id, "group_instance_id")
    elif version >= 7:
        writer.write_nullable_string(message.group_instance_id, "group_instance_id")
    else:
        if message.group_instance_id is not None:
            raise unsupported_field("OffsetCommitRequest", "group_instance_id", version)
    if version >= 8:
        writer.write_compact_array_length(message.topics, "topics")
        for offset_commit_request_topic in message.topics:
            _encode_offset_commit_request_topic(writer, offset_commit_request_topic, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.topics, "topics")
        for offset_commit_request_topic in message.topics:
            _encode_offset_commit_request_topic(writer, offset_commit_request_topic, version)
