"""DescribeQuorumRequest (API key 55), versions 0 to 2, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class PartitionData(Message):
    """Part of DescribeQuorumRequest."""

    __slots__ = ("partition_index",)

    def __init__(
        self,
        *,
        partition_index: int = 0,
    ) -> None:
        self.partition_index = partition_index


class TopicData(Message):
    """Part of DescribeQuorumRequest."""

    __slots__ = (
        "partitions",
        "topic_name",
    )

    def __init__(
        self,
        *,
        topic_name: str = "",
        partitions: list[PartitionData] = EMPTY,
    ) -> None:
        self.topic_name = topic_name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class DescribeQuorumRequest(Message):
    """The message."""

    __slots__ = ("topics",)

    def __init__(
        self,
        *,
        topics: list[TopicData] = EMPTY,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics


def _decode_partition_data(reader: Reader, version: int) -> PartitionData:
    message = object.__new__(PartitionData)
    message.partition_index = reader.read_int32()
    reader.skip_tagged_fields()
    return message


def _decode_topic_data(reader: Reader, version: int) -> TopicData:
    message = object.__new__(TopicData)
    message.topic_name = reader.read_compact_string("topic_name")
    message.partitions = [
        _decode_partition_data(reader, version)
        for _ in range(reader.read_compact_array_length(5, "partitions"))
    ]
    reader.skip_tagged_fields()
    return message


def decode_describe_quorum_request(reader: Reader, version: int) -> DescribeQuorumRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 2:
        raise unsupported_version("DescribeQuorumRequest", version)
    message = object.__new__(DescribeQuorumRequest)
    message.topics = [
        _decode_topic_data(reader, version)
        for _ in range(reader.read_compact_array_length(3, "topics"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_partition_data(writer: Writer, message: PartitionData, version: int) -> None:
    writer.write_int32(message.partition_index)
    writer.buf.append(0)


def _encode_topic_data(writer: Writer, message: TopicData, version: int) -> None:
    writer.write_compact_string(message.topic_name, "topic_name")
    writer.write_compact_array_length(message.partitions, "partitions")
    for partition_data in message.partitions:
        _encode_partition_data(writer, partition_data, version)
    writer.buf.append(0)


def encode_describe_quorum_request(
    writer: Writer, message: DescribeQuorumRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 2:
        raise unsupported_version("DescribeQuorumRequest", version)
    writer.write_compact_array_length(message.topics, "topics")
    for topic_data in message.topics:
        _encode_topic_data(writer, topic_data, version)
    writer.buf.append(0)
