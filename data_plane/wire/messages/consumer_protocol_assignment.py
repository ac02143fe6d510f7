"""ConsumerProtocolAssignment, versions 0 to 3, never flexible.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class TopicPartition(Message):
    """Part of ConsumerProtocolAssignment."""

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


class ConsumerProtocolAssignment(Message):
    """The message."""

    __slots__ = (
        "assigned_partitions",
        "user_data",
    )

    def __init__(
        self,
        *,
        assigned_partitions: list[TopicPartition] = EMPTY,
        user_data: bytes | None = None,
    ) -> None:
        self.assigned_partitions = [] if assigned_partitions is EMPTY else assigned_partitions
        self.user_data = user_data


def _decode_topic_partition(reader: Reader, version: int) -> TopicPartition:
    message = object.__new__(TopicPartition)
    message.topic = reader.read_string("topic")
    message.partitions = reader.read_int32_array(reader.read_array_length(4, "partitions"))
    return message


def decode_consumer_protocol_assignment(reader: Reader, version: int) -> ConsumerProtocolAssignment:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 3:
        raise unsupported_version("ConsumerProtocolAssignment", version)
    message = object.__new__(ConsumerProtocolAssignment)
    message.assigned_partitions = [
        _decode_topic_partition(reader, version)
        for _ in range(reader.read_array_length(6, "assigned_partitions"))
    ]
    message.user_data = reader.read_nullable_bytes("user_data")
    return message


def _encode_topic_partition(writer: Writer, message: TopicPartition, version: int) -> None:
    writer.write_string(message.topic, "topic")
    writer.write_array_length(message.partitions, "partitions")
    writer.write_int32_array(message.partitions)


def encode_consumer_protocol_assignment(
    writer: Writer, message: ConsumerProtocolAssignment, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 3:
        raise unsupported_version("ConsumerProtocolAssignment", version)
    writer.write_array_length(message.assigned_partitions, "assigned_partitions")
    for topic_partition in message.assigned_partitions:
        _encode_topic_partition(writer, topic_partition, version)
    writer.write_nullable_bytes(message.user_data, "user_data")
