"""DescribeTopicPartitionsRequest (API key 75), versions 0 to 0, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class TopicRequest(Message):
    """Part of DescribeTopicPartitionsRequest."""

    __slots__ = ("name",)

    def __init__(
        self,
        *,
        name: str = "",
    ) -> None:
        self.name = name  # topicName


class Cursor(Message):
    """Part of DescribeTopicPartitionsRequest."""

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


class DescribeTopicPartitionsRequest(Message):
    """The message."""

    __slots__ = (
        "cursor",
        "response_partition_limit",
        "topics",
    )

    def __init__(
        self,
        *,
        topics: list[TopicRequest] = EMPTY,
        response_partition_limit: int = 2000,
        cursor: Cursor | None = None,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.response_partition_limit = response_partition_limit
        self.cursor = cursor


def _decode_topic_request(reader: Reader, version: int) -> TopicRequest:
    message = object.__new__(TopicRequest)
    message.name = reader.read_compact_string("name")
    reader.skip_tagged_fields()
    return message


def _decode_cursor(reader: Reader, version: int) -> Cursor:
    message = object.__new__(Cursor)
    message.topic_name = reader.read_compact_string("topic_name")
    message.partition_index = reader.read_int32()
    reader.skip_tagged_fields()
    return message


def decode_describe_topic_partitions_request(
    reader: Reader, version: int
) -> DescribeTopicPartitionsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("DescribeTopicPartitionsRequest", version)
    message = object.__new__(DescribeTopicPartitionsRequest)
    message.topics = [
        _decode_topic_request(reader, version)
        for _ in range(reader.read_compact_array_length(2, "topics"))
    ]
    message.response_partition_limit = reader.read_int32()
    message.cursor = _decode_cursor(reader, version) if reader.read_present("cursor") else None
    reader.skip_tagged_fields()
    return message


def _encode_topic_request(writer: Writer, message: TopicRequest, version: int) -> None:
    writer.write_compact_string(message.name, "name")
    writer.buf.append(0)


def _encode_cursor(writer: Writer, message: Cursor, version: int) -> None:
    writer.write_compact_string(message.topic_name, "topic_name")
    writer.write_int32(message.partition_index)
    writer.buf.append(0)


def encode_describe_topic_partitions_request(
    writer: Writer, message: DescribeTopicPartitionsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("DescribeTopicPartitionsRequest", version)
    writer.write_compact_array_length(message.topics, "topics")
    for topic_request in message.topics:
        _encode_topic_request(writer, topic_request, version)
    writer.write_int32(message.response_partition_limit)
    if message.cursor is None:
        writer.write_int8(-1)
    else:
        writer.write_int8(1)
        _encode_cursor(writer, message.cursor, version)
    writer.buf.append(0)
