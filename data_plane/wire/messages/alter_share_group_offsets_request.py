"""AlterShareGroupOffsetsRequest (API key 91), versions 0 to 0, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_INT64 = Struct(">iq")


class AlterShareGroupOffsetsRequestPartition(Message):
    """Part of AlterShareGroupOffsetsRequest."""

    __slots__ = (
        "partition_index",
        "start_offset",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        start_offset: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.start_offset = start_offset


class AlterShareGroupOffsetsRequestTopic(Message):
    """Part of AlterShareGroupOffsetsRequest."""

    __slots__ = (
        "partitions",
        "topic_name",
    )

    def __init__(
        self,
        *,
        topic_name: str = "",
        partitions: list[AlterShareGroupOffsetsRequestPartition] = EMPTY,
    ) -> None:
        self.topic_name = topic_name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class AlterShareGroupOffsetsRequest(Message):
    """The message."""

    __slots__ = (
        "group_id",
        "topics",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[AlterShareGroupOffsetsRequestTopic] = EMPTY,
    ) -> None:
        self.group_id = group_id  # groupId
        self.topics = [] if topics is EMPTY else topics


def _decode_alter_share_group_offsets_request_partition(
    reader: Reader, version: int
) -> AlterShareGroupOffsetsRequestPartition:
    message = object.__new__(AlterShareGroupOffsetsRequestPartition)
    (message.partition_index, message.start_offset) = reader.unpack(_INT32_INT64)
    reader.skip_tagged_fields()
    return message


def _decode_alter_share_group_offsets_request_topic(
    reader: Reader, version: int
) -> AlterShareGroupOffsetsRequestTopic:
    message = object.__new__(AlterShareGroupOffsetsRequestTopic)
    message.topic_name = reader.read_compact_string("topic_name")
    message.partitions = [
        _decode_alter_share_group_offsets_request_partition(reader, version)
        for _ in range(reader.read_compact_array_length(13, "partitions"))
    ]
    reader.skip_tagged_fields()
    return message


def decode_alter_share_group_offsets_request(
    reader: Reader, version: int
) -> AlterShareGroupOffsetsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("AlterShareGroupOffsetsRequest", version)
    message = object.__new__(AlterShareGroupOffsetsRequest)
    message.group_id = reader.read_compact_string("group_id")
    message.topics = [
        _decode_alter_share_group_offsets_request_topic(reader, version)
        for _ in range(reader.read_compact_array_length(3, "topics"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_alter_share_group_offsets_request_partition(
    writer: Writer, message: AlterShareGroupOffsetsRequestPartition, version: int
) -> None:
    writer.buf += _INT32_INT64.pack(message.partition_index, message.start_offset)
    writer.buf.append(0)


def _encode_alter_share_group_offsets_request_topic(
    writer: Writer, message: AlterShareGroupOffsetsRequestTopic, version: int
) -> None:
    writer.write_compact_string(message.topic_name, "topic_name")
    writer.write_compact_array_length(message.partitions, "partitions")
    for alter_share_group_offsets_request_partition in message.partitions:
        _encode_alter_share_group_offsets_request_partition(
            writer, alter_share_group_offsets_request_partition, version
        )
    writer.buf.append(0)


def encode_alter_share_group_offsets_request(
    writer: Writer, message: AlterShareGroupOffsetsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("AlterShareGroupOffsetsRequest", version)
    writer.write_compact_string(message.group_id, "group_id")
    writer.write_compact_array_length(message.topics, "topics")
    for alter_share_group_offsets_request_topic in message.topics:
        _encode_alter_share_group_offsets_request_topic(
            writer, alter_share_group_offsets_request_topic, version
        )
    writer.buf.append(0)
