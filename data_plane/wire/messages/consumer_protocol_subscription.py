"""ConsumerProtocolSubscription, versions 0 to 3, never flexible.

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


class TopicPartition(Message):
    """Part of ConsumerProtocolSubscription."""

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


class ConsumerProtocolSubscription(Message):
    """The message."""

    __slots__ = (
        "generation_id",
        "owned_partitions",
        "rack_id",
        "topics",
        "user_data",
    )

    def __init__(
        self,
        *,
        topics: list[str] = EMPTY,
        user_data: bytes | None = None,
        owned_partitions: list[TopicPartition] = EMPTY,
        generation_id: int = -1,
        rack_id: str | None = None,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.user_data = user_data
        self.owned_partitions = (
            [] if owned_partitions is EMPTY else owned_partitions
        )  # versions 1 to 3
        self.generation_id = generation_id  # versions 2 to 3
        self.rack_id = rack_id  # versions 3 to 3


def _decode_topic_partition(reader: Reader, version: int) -> TopicPartition:
    message = object.__new__(TopicPartition)
    message.topic = reader.read_string("topic")
    message.partitions = reader.read_int32_array(reader.read_array_length(4, "partitions"))
    return message


def decode_consumer_protocol_subscription(
    reader: Reader, version: int
) -> ConsumerProtocolSubscription:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 3:
        raise unsupported_version("ConsumerProtocolSubscription", version)
    message = object.__new__(ConsumerProtocolSubscription)
    message.topics = [
        reader.read_string("topics") for _ in range(reader.read_array_length(2, "topics"))
    ]
    message.user_data = reader.read_nullable_bytes("user_data")
    if version >= 1:
        message.owned_partitions = [
            _decode_topic_partition(reader, version)
            for _ in range(reader.read_array_length(6, "owned_partitions"))
        ]
    else:
        message.owned_partitions = []
    if version >= 2:
        message.generation_id = reader.read_int32()
    else:
        message.generation_id = -1
    if version >= 3:
        message.rack_id = reader.read_nullable_string("rack_id")
    else:
        message.rack_id = None
    return message


def _encode_topic_partition(writer: Writer, message: TopicPartition, version: int) -> None:
    writer.write_string(message.topic, "topic")
    writer.write_array_length(message.partitions, "partitions")
    writer.write_int32_array(message.partitions)


def encode_consumer_protocol_subscription(
    writer: Writer, message: ConsumerProtocolSubscription, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 3:
        raise unsupported_version("ConsumerProtocolSubscription", version)
    writer.write_array_length(message.topics, "topics")
    for string_item in message.topics:
        writer.write_string(string_item, "topics")
    writer.write_nullable_bytes(message.user_data, "user_data")
    if version >= 1:
        writer.write_array_length(message.owned_partitions, "owned_partitions")
        for topic_partition in message.owned_partitions:
            _encode_topic_partition(writer, topic_partition, version)
    else:
        if message.owned_partitions:
            raise unsupported_field("ConsumerProtocolSubscription", "owned_partitions", version)
    if version >= 2:
        writer.write_int32(message.generation_id)
    else:
        if message.generation_id != -1:
            raise unsupported_field("ConsumerProtocolSubscription", "generation_id", version)
    if version >= 3:
        writer.write_nullable_string(message.rack_id, "rack_id")
    else:
        if message.rack_id is not None:
            raise unsupported_field("ConsumerProtocolSubscription", "rack_id", version)
