"""DescribeLogDirsRequest (API key 35), versions 1 to 5, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class DescribableLogDirTopic(Message):
    """Part of DescribeLogDirsRequest."""

    __slots__ = (
        "partitions",
        "topic",
    )

    def __init__(
        self,
        *,
        topic: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic = topic  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class DescribeLogDirsRequest(Message):
    """The message."""

    __slots__ = ("topics",)

    def __init__(
        self,
        *,
        topics: list[DescribableLogDirTopic] | None = EMPTY,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics


def _decode_describable_log_dir_topic(reader: Reader, version: int) -> DescribableLogDirTopic:
    message = object.__new__(DescribableLogDirTopic)
    if version >= 2:
        message.topic = reader.read_compact_string("topic")
        message.partitions = reader.read_int32_array(
            reader.read_compact_array_length(4, "partitions")
        )
    else:
        message.topic = reader.read_string("topic")
        message.partitions = reader.read_int32_array(reader.read_array_length(4, "partitions"))
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def decode_describe_log_dirs_request(reader: Reader, version: int) -> DescribeLogDirsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 5:
        raise unsupported_version("DescribeLogDirsRequest", version)
    message = object.__new__(DescribeLogDirsRequest)
    if version >= 2:
        count = reader.read_nullable_compact_array_length(3, "topics")
        message.topics = (
            None
            if count < 0
            else [_decode_describable_log_dir_topic(reader, version) for _ in range(count)]
        )
    else:
        count = reader.read_nullable_array_length(6, "topics")
        message.topics = (
            None
            if count < 0
            else [_decode_describable_log_dir_topic(reader, version) for _ in range(count)]
        )
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _encode_describable_log_dir_topic(
    writer: Writer, message: DescribableLogDirTopic, version: int
) -> None:
    if version >= 2:
        writer.write_compact_string(message.topic, "topic")
        writer.write_compact_array_length(message.partitions, "partitions")
        writer.write_int32_array(message.partitions)
        writer.buf.append(0)
    else:
        writer.write_string(message.topic, "topic")
        writer.write_array_length(message.partitions, "partitions")
        writer.write_int32_array(message.partitions)


def encode_describe_log_dirs_request(
    writer: Writer, message: DescribeLogDirsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 5:
        raise unsupported_version("DescribeLogDirsRequest", version)
    if version >= 2:
        writer.write_nullable_compact_array_length(message.topics, "topics")
        if message.topics:
            for describable_log_dir_topic in message.topics:
                _encode_describable_log_dir_topic(writer, describable_log_dir_topic, version)
        writer.buf.append(0)
    else:
        writer.write_nullable_array_length(message.topics, "topics")
        if message.topics:
            for describable_log_dir_topic in message.topics:
                _encode_describable_log_dir_topic(writer, describable_log_dir_topic, version)
