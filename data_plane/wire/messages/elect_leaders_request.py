"""ElectLeadersRequest (API key 43), versions 0 to 2, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import (
    EMPTY,
    Message,
    Reader,
    Writer,
    unsupported_field,
    unsupported_version,
)


class TopicPartitions(Message):
    """Part of ElectLeadersRequest."""

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


class ElectLeadersRequest(Message):
    """The message."""

    __slots__ = (
        "election_type",
        "timeout_ms",
        "topic_partitions",
    )

    def __init__(
        self,
        *,
        election_type: int = 0,
        topic_partitions: list[TopicPartitions] | None = EMPTY,
        timeout_ms: int = 60000,
    ) -> None:
        self.election_type = election_type  # versions 1 to 2
        self.topic_partitions = [] if topic_partitions is EMPTY else topic_partitions
        self.timeout_ms = timeout_ms


def _decode_topic_partitions(reader: Reader, version: int) -> TopicPartitions:
    message = object.__new__(TopicPartitions)
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


def decode_elect_leaders_request(reader: Reader, version: int) -> ElectLeadersRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 2:
        raise unsupported_version("ElectLeadersRequest", version)
    message = object.__new__(ElectLeadersRequest)
    if version >= 1:
        message.election_type = reader.read_int8()
    else:
        message.election_type = 0
    if version >= 2:
        count = reader.read_nullable_compact_array_length(3, "topic_partitions")
        message.topic_partitions = (
            None if count < 0 else [_decode_topic_partitions(reader, version) for _ in range(count)]
        )
    else:
        count = reader.read_nullable_array_length(6, "topic_partitions")
        message.topic_partitions = (
            None if count < 0 else [_decode_topic_partitions(reader, version) for _ in range(count)]
        )
    message.timeout_ms = reader.read_int32()
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _encode_topic_partitions(writer: Writer, message: TopicPartitions, version: int) -> None:
    if version >= 2:
        writer.write_compact_string(message.topic, "topic")
        writer.write_compact_array_length(message.partitions, "partitions")
        writer.write_int32_array(message.partitions)
        writer.buf.append(0)
    else:
        writer.write_string(message.topic, "topic")
        writer.write_array_length(message.partitions, "partitions")
        writer.write_int32_array(message.partitions)


def encode_elect_leaders_request(
    writer: Writer, message: ElectLeadersRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 2:
        raise unsupported_version("ElectLeadersRequest", version)
    if version >= 1:
        writer.write_int8(message.election_type)
    else:
        if message.election_type != 0:
            raise unsupported_field("ElectLeadersRequest", "election_type", version)
    if version >= 2:
        writer.write_nullable_compact_array_length(message.topic_partitions, "topic_partitions")
        if message.topic_partitions:
            for topic_partitions in message.topic_partitions:
                _encode_topic_partitions(writer, topic_partitions, version)
    else:
        writer.write_nullable_array_length(message.topic_partitions, "topic_partitions")
        if message.topic_partitions:
            for topic_partitions in message.topic_partitions:
                _encode_topic_partitions(writer, topic_partitions, version)
    writer.write_int32(message.timeout_ms)
    if version >= 2:
        writer.buf.append(0)
