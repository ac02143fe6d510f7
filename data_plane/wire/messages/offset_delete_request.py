"""OffsetDeleteRequest (API key 47), versions 0 to 0, never flexible.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class OffsetDeleteRequestPartition(Message):
    """Part of OffsetDeleteRequest."""

    __slots__ = ("partition_index",)

    def __init__(
        self,
        *,
        partition_index: int = 0,
    ) -> None:
        self.partition_index = partition_index


class OffsetDeleteRequestTopic(Message):
    """Part of OffsetDeleteRequest."""

    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[OffsetDeleteRequestPartition] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class OffsetDeleteRequest(Message):
    """The message."""

    __slots__ = (
        "group_id",
        "topics",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[OffsetDeleteRequestTopic] = EMPTY,
    ) -> None:
        self.group_id = group_id  # groupId
        self.topics = [] if topics is EMPTY else topics


def _decode_offset_delete_request_partition(
    reader: Reader, version: int
) -> OffsetDeleteRequestPartition:
    message = object.__new__(OffsetDeleteRequestPartition)
    message.partition_index = reader.read_int32()
    return message


def _decode_offset_delete_request_topic(reader: Reader, version: int) -> OffsetDeleteRequestTopic:
    message = object.__new__(OffsetDeleteRequestTopic)
    message.name = reader.read_string("name")
    message.partitions = [
        _decode_offset_delete_request_partition(reader, version)
        for _ in range(reader.read_array_length(4, "partitions"))
    ]
    return message


def decode_offset_delete_request(reader: Reader, version: int) -> OffsetDeleteRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("OffsetDeleteRequest", version)
    message = object.__new__(OffsetDeleteRequest)
    message.group_id = reader.read_string("group_id")
    message.topics = [
        _decode_offset_delete_request_topic(reader, version)
        for _ in range(reader.read_array_length(6, "topics"))
    ]
    return message


def _encode_offset_delete_request_partition(
    writer: Writer, message: OffsetDeleteRequestPartition, version: int
) -> None:
    writer.write_int32(message.partition_index)


def _encode_offset_delete_request_topic(
    writer: Writer, message: OffsetDeleteRequestTopic, version: int
) -> None:
    writer.write_string(message.name, "name")
    writer.write_array_length(message.partitions, "partitions")
    for offset_delete_request_partition in message.partitions:
        _encode_offset_delete_request_partition(writer, offset_delete_request_partition, version)


def encode_offset_delete_request(
    writer: Writer, message: OffsetDeleteRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("OffsetDeleteRequest", version)
    writer.write_string(message.group_id, "group_id")
    writer.write_array_length(message.topics, "topics")
    for offset_delete_request_topic in message.topics:
        _encode_offset_delete_request_topic(writer, offset_delete_request_topic, version)
