"""DeleteShareGroupOffsetsResponse (API key 92), versions 0 to 0, flexible from 0.

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


class DeleteShareGroupOffsetsResponseTopic(Message):
    """Part of DeleteShareGroupOffsetsResponse."""

    __slots__ = (
        "error_code",
        "error_message",
        "topic_id",
        "topic_name",
    )

    def __init__(
        self,
        *,
        topic_name: str = "",
        topic_id: UUID = ZERO_UUID,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.topic_name = topic_name  # topicName
        self.topic_id = topic_id
        self.error_code = error_code
        self.error_message = error_message


class DeleteShareGroupOffsetsResponse(Message):
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
        responses: list[DeleteShareGroupOffsetsResponseTopic] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.responses = [] if responses is EMPTY else responses


def _decode_delete_share_group_offsets_response_topic(
    reader: Reader, version: int
) -> DeleteShareGroupOffsetsResponseTopic:
    message = object.__new__(DeleteShareGroupOffsetsResponseTopic)
    message.topic_name = reader.read_compact_string("topic_name")
    message.topic_id = reader.read_uuid()
    message.error_code = reader.read_int16()
    message.error_message = reader.read_nullable_compact_string("error_message")
    reader.skip_tagged_fields()
    return message


def decode_delete_share_group_offsets_response(
    reader: Reader, version: int
) -> DeleteShareGroupOffsetsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("DeleteShareGroupOffsetsResponse", version)
    message = object.__new__(DeleteShareGroupOffsetsResponse)
    (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    message.error_message = reader.read_nullable_compact_string("error_message")
    message.responses = [
        _decode_delete_share_group_offsets_response_topic(reader, version)
        for _ in range(reader.read_compact_array_length(21, "responses"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_delete_share_group_offsets_response_topic(
    writer: Writer, message: DeleteShareGroupOffsetsResponseTopic, version: int
) -> None:
    writer.write_compact_string(message.topic_name, "topic_name")
    writer.write_uuid(message.topic_id)
    writer.write_int16(message.error_code)
    writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.buf.append(0)


def encode_delete_share_group_offsets_response(
    writer: Writer, message: DeleteShareGroupOffsetsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("DeleteShareGroupOffsetsResponse", version)
    writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.write_compact_array_length(message.responses, "responses")
    for delete_share_group_offsets_response_topic in message.responses:
        _encode_delete_share_group_offsets_response_topic(
            writer, delete_share_group_offsets_response_topic, version
        )
    writer.buf.append(0)
