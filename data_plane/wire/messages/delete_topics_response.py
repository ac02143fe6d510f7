"""DeleteTopicsResponse (API key 20), versions 1 to 6, flexible from 4.

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
    unsupported_version,
)


class DeletableTopicResult(Message):
    """Part of DeleteTopicsResponse."""

    __slots__ = (
        "error_code",
        "error_message",
        "name",
        "topic_id",
    )

    def __init__(
        self,
        *,
        name: str | None = "",
        topic_id: UUID = ZERO_UUID,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.name = name  # nullable in 6 to 6, topicName
        self.topic_id = topic_id  # versions 6 to 6
        self.error_code = error_code
        self.error_message = error_message  # versions 5 to 6


class DeleteTopicsResponse(Message):
    """The message."""

    __slots__ = (
        "responses",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        responses: list[DeletableTopicResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.responses = [] if responses is EMPTY else responses


def _decode_deletable_topic_result(reader: Reader, version: int) -> DeletableTopicResult:
    message = object.__new__(DeletableTopicResult)
    if version >= 6:
        message.name = reader.read_nullable_compact_string("name")
    elif version >= 4:
        message.name = reader.read_compact_string("name")
    else:
        message.name = reader.read_string("name")
    if version >= 6:
        message.topic_id = reader.read_uuid()
    else:
        message.topic_id = ZERO_UUID
    message.error_code = reader.read_int16()
    if version >= 5:
        message.error_message = reader.read_nullable_compact_string("error_message")
    else:
        message.error_message = None
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def decode_delete_topics_response(reader: Reader, version: int) -> DeleteTopicsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 6:
        raise unsupported_version("DeleteTopicsResponse", version)
    message = object.__new__(DeleteTopicsResponse)
    message.throttle_time_ms = reader.read_int32()
    if version >= 4:
        message.responses = [
            _decode_deletable_topic_result(reader, version)
            for _ in range(reader.read_compact_array_length(4, "responses"))
        ]
    else:
        message.responses = [
            _decode_deletable_topic_result(reader, version)
            for _ in range(reader.read_array_length(4, "responses"))
        ]
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def _encode_deletable_topic_result(
    writer: Writer, message: DeletableTopicResult, version: int
) -> None:
    if version >= 6:
        writer.write_nullable_compact_string(message.name, "name")
    elif version >= 4:
        writer.write_compact_string(message.name, "name")
    else:
        writer.write_string(message.name, "name")
    if version >= 6:
        writer.write_uuid(message.topic_id)
    writer.write_int16(message.error_code)
    if version >= 5:
        writer.write_nullable_compact_string(message.error_message, "error_message")
    if version >= 4:
        writer.buf.append(0)


def encode_delete_topics_response(
    writer: Writer, message: DeleteTopicsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 6:
        raise unsupported_version("DeleteTopicsResponse", version)
    writer.write_int32(message.throttle_time_ms)
    if version >= 4:
        writer.write_compact_array_length(message.responses, "responses")
        for deletable_topic_result in message.responses:
            _encode_deletable_topic_result(writer, deletable_topic_result, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.responses, "responses")
        for deletable_topic_result in message.responses:
            _encode_deletable_topic_result(writer, deletable_topic_result, version)
