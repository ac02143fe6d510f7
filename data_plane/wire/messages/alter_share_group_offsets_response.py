"""AlterShareGroupOffsetsResponse (API key 91), versions 0 to 0, flexible from 0.

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

_INT32_INT16 = Struct(">ih")


class AlterShareGroupOffsetsResponsePartition(Message):
    """Part of AlterShareGroupOffsetsResponse."""

    __slots__ = (
        "error_code",
        "error_message",
        "partition_index",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message


class AlterShareGroupOffsetsResponseTopic(Message):
    """Part of AlterShareGroupOffsetsResponse."""

    __slots__ = (
        "partitions",
        "topic_id",
        "topic_name",
    )

    def __init__(
        self,
        *,
        topic_name: str = "",
        topic_id: UUID = ZERO_UUID,
        partitions: list[AlterShareGroupOffsetsResponsePartition] = EMPTY,
    ) -> None:
        self.topic_name = topic_name  # topicName
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class AlterShareGroupOffsetsResponse(Message):
    """The message."""

    __slots__ = (
        "error_code",
        "error_message",
        "responses",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        responses: list[AlterShareGroupOffsetsResponseTopic] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.responses = [] if responses is EMPTY else responses


def _decode_alter_share_group_offsets_response_partition(
    reader: Reader, version: int
) -> AlterShareGroupOffsetsResponsePartition:
    message = object.__new__(AlterShareGroupOffsetsResponsePartition)
    (message.partition_index, message.error_code) = reader.unpack(_INT32_INT16)
    message.error_message = reader.read_nullable_compact_string("error_message")
    reader.skip_tagged_fields()
    return message


def _decode_alter_share_group_offsets_response_topic(
    reader: Reader, version: int
) -> AlterShareGroupOffsetsResponseTopic:
    message = object.__new__(AlterShareGroupOffsetsResponseTopic)
    message.topic_name = reader.read_compact_string("topic_name")
    message.topic_id = reader.read_uuid()
    message.partitions = [
        _decode_alter_share_group_offsets_response_partition(reader, version)
        for _ in range(reader.read_compact_array_length(8, "partitions"))
    ]
    reader.skip_tagged_fields()
    return message


def decode_alter_share_group_offsets_response(
    reader: Reader, version: int
) -> AlterShareGroupOffsetsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("AlterShareGroupOffsetsResponse", version)
    message = object.__new__(AlterShareGroupOffsetsResponse)
    (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    message.error_message = reader.read_nullable_compact_string("error_message")
    message.responses = [
        _decode_alter_share_group_offsets_response_topic(reader, version)
        for _ in range(reader.read_compact_array_length(19, "responses"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_alter_share_group_offsets_response_partition(
    writer: Writer, message: AlterShareGroupOffsetsResponsePartition, version: int
) -> None:
    writer.buf += _INT32_INT16.pack(message.partition_index, message.error_code)
    writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.buf.append(0)


def _encode_alter_share_group_offsets_response_topic(
    writer: Writer, message: AlterShareGroupOffsetsResponseTopic, version: int
) -> None:
    writer.write_compact_string(message.topic_name, "topic_name")
    writer.write_uuid(message.topic_id)
    writer.write_compact_array_length(message.partitions, "partitions")
    for alter_share_group_offsets_response_partition in message.partitions:
        _encode_alter_share_group_offsets_response_partition(
            writer, alter_share_group_offsets_response_partition, version
        )
    writer.buf.append(0)


def encode_alter_share_group_offsets_response(
    writer: Writer, message: AlterShareGroupOffsetsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("AlterShareGroupOffsetsResponse", version)
    writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.write_compact_array_length(message.responses, "responses")
    for alter_share_group_offsets_response_topic in message.responses:
        _encode_alter_share_group_offsets_response_topic(
            writer, alter_share_group_offsets_response_topic, version
        )
    writer.buf.append(0)
