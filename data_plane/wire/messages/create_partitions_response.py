"""CreatePartitionsResponse (API key 37), versions 0 to 3, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class CreatePartitionsTopicResult(Message):
    """Part of CreatePartitionsResponse."""

    __slots__ = (
        "error_code",
        "error_message",
        "name",
    )

    def __init__(
        self,
        *,
        name: str = "",
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.name = name  # topicName
        self.error_code = error_code
        self.error_message = error_message


class CreatePartitionsResponse(Message):
    """The message."""

    __slots__ = (
        "results",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[CreatePartitionsTopicResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results = [] if results is EMPTY else results


def _decode_create_partitions_topic_result(
    reader: Reader, version: int
) -> CreatePartitionsTopicResult:
    message = object.__new__(CreatePartitionsTopicResult)
    if version >= 2:
        message.name = reader.read_compact_string("name")
    else:
        message.name = reader.read_string("name")
    message.error_code = reader.read_int16()
    if version >= 2:
        message.error_message = reader.read_nullable_compact_string("error_message")
    else:
        message.error_message = reader.read_nullable_string("error_message")
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def decode_create_partitions_response(reader: Reader, version: int) -> CreatePartitionsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 3:
        raise unsupported_version("CreatePartitionsResponse", version)
    message = object.__new__(CreatePartitionsResponse)
    message.throttle_time_ms = reader.read_int32()
    if version >= 2:
        message.results = [
            _decode_create_partitions_topic_result(reader, version)
            for _ in range(reader.read_compact_array_length(5, "results"))
        ]
    else:
        message.results = [
            _decode_create_partitions_topic_result(reader, version)
            for _ in range(reader.read_array_length(6, "results"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _encode_create_partitions_topic_result(
    writer: Writer, message: CreatePartitionsTopicResult, version: int
) -> None:
    if version >= 2:
        writer.write_compact_string(message.name, "name")
    else:
        writer.write_string(message.name, "name")
    writer.write_int16(message.error_code)
    if version >= 2:
        writer.write_nullable_compact_string(message.error_message, "error_message")
        writer.buf.append(0)
    else:
        writer.write_nullable_string(message.error_message, "error_message")


def encode_create_partitions_response(
    writer: Writer, message: CreatePartitionsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 3:
        raise unsupported_version("CreatePartitionsResponse", version)
    writer.write_int32(message.throttle_time_ms)
    if version >= 2:
        writer.write_compact_array_length(message.results, "results")
        for create_partitions_topic_result in message.results:
            _encode_create_partitions_topic_result(writer, create_partitions_topic_result, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.results, "results")
        for create_partitions_topic_result in message.results:
            _encode_create_partitions_topic_result(writer, create_partitions_topic_result, version)
