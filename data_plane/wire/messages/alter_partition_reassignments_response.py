"""AlterPartitionReassignmentsResponse (API key 45), versions 0 to 1, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_BOOL_INT16 = Struct(">i?h")
_INT32_INT16 = Struct(">ih")


class ReassignablePartitionResponse(Message):
    """Part of AlterPartitionReassignmentsResponse."""

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
        error_message: str | None = "",
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message


class ReassignableTopicResponse(Message):
    """Part of AlterPartitionReassignmentsResponse."""

    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[ReassignablePartitionResponse] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class AlterPartitionReassignmentsResponse(Message):
    """The message."""

    __slots__ = (
        "allow_replication_factor_change",
        "error_code",
        "error_message",
        "responses",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        allow_replication_factor_change: bool = True,
        error_code: int = 0,
        error_message: str | None = "",
        responses: list[ReassignableTopicResponse] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.allow_replication_factor_change = allow_replication_factor_change  # versions 1 to 1
        self.error_code = error_code
        self.error_message = error_message
        self.responses = [] if responses is EMPTY else responses


def _decode_reassignable_partition_response(
    reader: Reader, version: int
) -> ReassignablePartitionResponse:
    message = object.__new__(ReassignablePartitionResponse)
    (message.partition_index, message.error_code) = reader.unpack(_INT32_INT16)
    message.error_message = reader.read_nullable_compact_string("error_message")
    reader.skip_tagged_fields()
    return message


def _decode_reassignable_topic_response(reader: Reader, version: int) -> ReassignableTopicResponse:
    message = object.__new__(ReassignableTopicResponse)
    message.name = reader.read_compact_string("name")
    message.partitions = [
        _decode_reassignable_partition_response(reader, version)
        for _ in range(reader.read_compact_array_length(8, "partitions"))
    ]
    reader.skip_tagged_fields()
    return message


def decode_alter_partition_reassignments_response(
    reader: Reader, version: int
) -> AlterPartitionReassignmentsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 1:
        raise unsupported_version("AlterPartitionReassignmentsResponse", version)
    message = object.__new__(AlterPartitionReassignmentsResponse)
    if version >= 1:
        (message.throttle_time_ms, message.allow_replication_factor_change, message.error_code) = (
            reader.unpack(_INT32_BOOL_INT16)
        )
    else:
        (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
        message.allow_replication_factor_change = True
    message.error_message = reader.read_nullable_compact_string("error_message")
    message.responses = [
        _decode_reassignable_topic_response(reader, version)
        for _ in range(reader.read_compact_array_length(3, "responses"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_reassignable_partition_response(
    writer: Writer, message: ReassignablePartitionResponse, version: int
) -> None:
    writer.buf += _INT32_INT16.pack(message.partition_index, message.error_code)
    writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.buf.append(0)


def _encode_reassignable_topic_response(
    writer: Writer, message: ReassignableTopicResponse, version: int
) -> None:
    writer.write_compact_string(message.name, "name")
    writer.write_compact_array_length(message.partitions, "partitions")
    for reassignable_partition_response in message.partitions:
        _encode_reassignable_partition_response(writer, reassignable_partition_response, version)
    writer.buf.append(0)


def encode_alter_partition_reassignments_response(
    writer: Writer, message: AlterPartitionReassignmentsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 1:
        raise unsupported_version("AlterPartitionReassignmentsResponse", version)
    if version >= 1:
        writer.buf += _INT32_BOOL_INT16.pack(
            message.throttle_time_ms, message.allow_replication_factor_change, message.error_code
        )
    else:
        writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.write_compact_array_length(message.responses, "responses")
    for reassignable_topic_response in message.responses:
        _encode_reassignable_topic_response(writer, reassignable_topic_response, version)
    writer.buf.append(0)
