"""DescribeProducersRequest (API key 61), versions 0 to 0, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class TopicRequest(Message):
    """Part of DescribeProducersRequest."""

    __slots__ = (
        "name",
        "partition_indexes",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partition_indexes: list[int] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.partition_indexes = [] if partition_indexes is EMPTY else partition_indexes


class DescribeProducersRequest(Message):
    """The message."""

    __slots__ = ("topics",)

    def __init__(
        self,
        *,
        topics: list[TopicRequest] = EMPTY,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics


def _decode_topic_request(reader: Reader, version: int) -> TopicRequest:
    message = object.__new__(TopicRequest)
    message.name = reader.read_compact_string("name")
    message.partition_indexes = reader.read_int32_array(
        reader.read_compact_array_length(4, "partition_indexes")
    )
    reader.skip_tagged_fields()
    return message


def decode_describe_producers_request(reader: Reader, version: int) -> DescribeProducersRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("DescribeProducersRequest", version)
    message = object.__new__(DescribeProducersRequest)
    message.topics = [
        _decode_topic_request(reader, version)
        for _ in range(reader.read_compact_array_length(3, "topics"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_topic_request(writer: Writer, message: TopicRequest, version: int) -> None:
    writer.write_compact_string(message.name, "name")
    writer.write_compact_array_length(message.partition_indexes, "partition_indexes")
    writer.write_int32_array(message.partition_indexes)
    writer.buf.append(0)


def encode_describe_producers_request(
    writer: Writer, message: DescribeProducersRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("DescribeProducersRequest", version)
    writer.write_compact_array_length(message.topics, "topics")
    for topic_request in message.topics:
        _encode_topic_request(writer, topic_request, version)
    writer.buf.append(0)
