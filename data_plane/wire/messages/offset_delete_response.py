"""OffsetDeleteResponse (API key 47), versions 0 to 0, never flexible.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT16_INT32 = Struct(">hi")
_INT32_INT16 = Struct(">ih")


class OffsetDeleteResponsePartition(Message):
    """Part of OffsetDeleteResponse."""

    __slots__ = (
        "error_code",
        "partition_index",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class OffsetDeleteResponseTopic(Message):
    """Part of OffsetDeleteResponse."""

    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[OffsetDeleteResponsePartition] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class OffsetDeleteResponse(Message):
    """The message."""

    __slots__ = (
        "error_code",
        "throttle_time_ms",
        "topics",
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        throttle_time_ms: int = 0,
        topics: list[OffsetDeleteResponseTopic] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics


def _decode_offset_delete_response_partition(
    reader: Reader, version: int
) -> OffsetDeleteResponsePartition:
    message = object.__new__(OffsetDeleteResponsePartition)
    (message.partition_index, message.error_code) = reader.unpack(_INT32_INT16)
    return message


def _decode_offset_delete_response_topic(reader: Reader, version: int) -> OffsetDeleteResponseTopic:
    message = object.__new__(OffsetDeleteResponseTopic)
    message.name = reader.read_string("name")
    message.partitions = [
        _decode_offset_delete_response_partition(reader, version)
        for _ in range(reader.read_array_length(6, "partitions"))
    ]
    return message


def decode_offset_delete_response(reader: Reader, version: int) -> OffsetDeleteResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("OffsetDeleteResponse", version)
    message = object.__new__(OffsetDeleteResponse)
    (message.error_code, message.throttle_time_ms) = reader.unpack(_INT16_INT32)
    message.topics = [
        _decode_offset_delete_response_topic(reader, version)
        for _ in range(reader.read_array_length(6, "topics"))
    ]
    return message


def _encode_offset_delete_response_partition(
    writer: Writer, message: OffsetDeleteResponsePartition, version: int
) -> None:
    writer.buf += _INT32_INT16.pack(message.partition_index, message.error_code)


def _encode_offset_delete_response_topic(
    writer: Writer, message: OffsetDeleteResponseTopic, version: int
) -> None:
    writer.write_string(message.name, "name")
    writer.write_array_length(message.partitions, "partitions")
    for offset_delete_response_partition in message.partitions:
        _encode_offset_delete_response_partition(writer, offset_delete_response_partition, version)


def encode_offset_delete_response(
    writer: Writer, message: OffsetDeleteResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("OffsetDeleteResponse", version)
    writer.buf += _INT16_INT32.pack(message.error_code, message.throttle_time_ms)
    writer.write_array_length(message.topics, "topics")
    for offset_delete_response_topic in message.topics:
        _encode_offset_delete_response_topic(writer, offset_delete_response_topic, version)
