"""ConsumerGroupHeartbeatResponse (API key 68), versions 0 to 1, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct
from uuid import UUID

from data_plane.wire.primitives import (
    EMPTY,
    ZERO_UUID,
    Message,
    Reader,
    Writer,
    unsupported_version,
)

_2XINT32 = Struct(">ii")
_INT32_INT16 = Struct(">ih")


class TopicPartitions(Message):
    """Part of ConsumerGroupHeartbeatResponse."""

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


class Assignment(Message):
    """Part of ConsumerGroupHeartbeatResponse."""

    __slots__ = ("topic_partitions",)

    def __init__(
        self,
        *,
        topic_partitions: list[TopicPartitions] = EMPTY,
    ) -> None:
        self.topic_partitions = [] if topic_partitions is EMPTY else topic_partitions


class ConsumerGroupHeartbeatResponse(Message):
    """The message."""

    __slots__ = (
        "assignment",
        "error_code",
        "error_message",
        "heartbeat_interval_ms",
        "member_epoch",
        "member_id",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        member_id: str | None = None,
        member_epoch: int = 0,
        heartbeat_interval_ms: int = 0,
        assignment: Assignment | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.heartbeat_interval_ms = heartbeat_interval_ms
        self.assignment = assignment


def _decode_topic_partitions(reader: Reader, version: int) -> TopicPartitions:
    message = object.__new__(TopicPartitions)
    message.topic_id = reader.read_uuid()
    message.partitions = reader.read_int32_array(reader.read_compact_array_length(4, "partitions"))
    reader.skip_tagged_fields()
    return message


def _decode_assignment(reader: Reader, version: int) -> Assignment:
    message = object.__new__(Assignment)
    message.topic_partitions = [
        _decode_topic_partitions(reader, version)
        for _ in range(reader.read_compact_array_length(18, "topic_partitions"))
    ]
    reader.skip_tagged_fields()
    return message


def decode_consumer_group_heartbeat_response(
    reader: Reader, version: int
) -> ConsumerGroupHeartbeatResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 1:
        raise unsupported_version("ConsumerGroupHeartbeatResponse", version)
    message = object.__new__(ConsumerGroupHeartbeatResponse)
    (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    message.error_message = reader.read_nullable_compact_string("error_message")
    message.member_id = reader.read_nullable_compact_string("member_id")
    (message.member_epoch, message.heartbeat_interval_ms) = reader.unpack(_2XINT32)
    message.assignment = (
        _decode_assignment(reader, version) if reader.read_present("assignment") else None
    )
    reader.skip_tagged_fields()
    return message


def _encode_topic_partitions(writer: Writer, message: TopicPartitions, version: int) -> None:
    writer.write_uuid(message.topic_id)
    writer.write_compact_array_length(message.partitions, "partitions")
    writer.write_int32_array(message.partitions)
    writer.buf.append(0)


def _encode_assignment(writer: Writer, message: Assignment, version: int) -> None:
    writer.write_compact_array_length(message.topic_partitions, "topic_partitions")
    for topic_partitions in message.topic_partitions:
        _encode_topic_partitions(writer, topic_partitions, version)
    writer.buf.append(0)


def encode_consumer_group_heartbeat_response(
    writer: Writer, message: ConsumerGroupHeartbeatResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 1:
        raise unsupported_version("ConsumerGroupHeartbeatResponse", version)
    writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.write_nullable_compact_string(message.member_id, "member_id")
    writer.buf += _2XINT32.pack(message.member_epoch, message.heartbeat_interval_ms)
    if message.assignment is None:
        writer.write_int8(-1)
    else:
        writer.write_int8(1)
        _encode_assignment(writer, message.assignment, version)
    writer.buf.append(0)
