"""ConsumerGroupHeartbeatRequest (API key 68), versions 0 to 1, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

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


class TopicPartitions(Message):
    """Part of ConsumerGroupHeartbeatRequest."""

    __slots__ = (
        "partitions",
        "topic_id",
    )

    def __init__(
        self,
        *,
        topic_id: UUID = ZERO_UUID,
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class ConsumerGroupHeartbeatRequest(Message):
    """The message."""

    __slots__ = (
        "group_id",
        "instance_id",
        "member_epoch",
        "member_id",
        "rack_id",
        "rebalance_timeout_ms",
        "server_assignor",
        "subscribed_topic_names",
        "subscribed_topic_regex",
        "topic_partitions",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        member_epoch: int = 0,
        instance_id: str | None = None,
        rack_id: str | None = None,
        rebalance_timeout_ms: int = -1,
        subscribed_topic_names: list[str] | None = None,
        subscribed_topic_regex: str | None = None,
        server_assignor: str | None = None,
        topic_partitions: list[TopicPartitions] | None = None,
    ) -> None:
        self.group_id = group_id  # groupId
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.subscribed_topic_names = subscribed_topic_names  # topicName
        self.subscribed_topic_regex = subscribed_topic_regex  # versions 1 to 1, pattern
        self.server_assignor = server_assignor
        self.topic_partitions = topic_partitions


def _decode_topic_partitions(reader: Reader, version: int) -> TopicPartitions:
    message = object.__new__(TopicPartitions)
    message.topic_id = reader.read_uuid()
    message.partitions = reader.read_int32_array(reader.read_compact_array_length(4, "partitions"))
    reader.skip_tagged_fields()
    return message


def decode_consumer_group_heartbeat_request(
    reader: Reader, version: int
) -> ConsumerGroupHeartbeatRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 1:
        raise unsupported_version("ConsumerGroupHeartbeatRequest", version)
    message = object.__new__(ConsumerGroupHeartbeatRequest)
    message.group_id = reader.read_compact_string("group_id")
    message.member_id = reader.read_compact_string("member_id")
    message.member_epoch = reader.read_int32()
    message.instance_id = reader.read_nullable_compact_string("instance_id")
    message.rack_id = reader.read_nullable_compact_string("rack_id")
    message.rebalance_timeout_ms = reader.read_int32()
    count = reader.read_nullable_compact_array_length(1, "subscribed_topic_names")
    message.subscribed_topic_names = (
        None
        if count < 0
        else [reader.read_compact_string("subscribed_topic_names") for _ in range(count)]
    )
    if version >= 1:
        message.subscribed_topic_regex = reader.read_nullable_compact_string(
            "subscribed_topic_regex"
        )
    else:
        message.subscribed_topic_regex = None
    message.server_assignor = reader.read_nullable_compact_string("server_assignor")
    count = reader.read_nullable_compact_array_length(18, "topic_partitions")
    message.topic_partitions = (
        None if count < 0 else [_decode_topic_partitions(reader, version) for _ in range(count)]
    )
    reader.skip_tagged_fields()
    return message


def _encode_topic_partitions(writer: Writer, message: TopicPartitions, version: int) -> None:
    writer.write_uuid(message.topic_id)
    writer.write_compact_array_length(message.partitions, "partitions")
    writer.write_int32_array(message.partitions)
    writer.buf.append(0)


def encode_consumer_group_heartbeat_request(
    writer: Writer, message: ConsumerGroupHeartbeatRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 1:
        raise unsupported_version("ConsumerGroupHeartbeatRequest", version)
    writer.write_compact_string(message.group_id, "group_id")
    writer.write_compact_string(message.member_id, "member_id")
    writer.write_int32(message.member_epoch)
    writer.write_nullable_compact_string(message.instance_id, "instance_id")
    writer.write_nullable_compact_string(message.rack_id, "rack_id")
    writer.write_int32(message.rebalance_timeout_ms)
    writer.write_nullable_compact_array_length(
        message.subscribed_topic_names, "subscribed_topic_names"
    )
    if message.subscribed_topic_names:
        for string_item in message.subscribed_topic_names:
            writer.write_compact_string(string_item, "subscribed_topic_names")
    if version >= 1:
        writer.write_nullable_compact_string(
            message.subscribed_topic_regex, "subscribed_topic_regex"
        )
    else:
        if message.subscribed_topic_regex is not None:
            raise unsupported_field(
                "ConsumerGroupHeartbeatRequest", "subscribed_topic_regex", version
            )
    writer.write_nullable_compact_string(message.server_assignor, "server_assignor")
    writer.write_nullable_compact_array_length(message.topic_partitions, "topic_partitions")
    if message.topic_partitions:
        for topic_partitions in message.topic_partitions:
            _encode_topic_partitions(writer, topic_partitions, version)
    writer.buf.append(0)
