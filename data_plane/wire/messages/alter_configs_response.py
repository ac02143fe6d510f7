"""AlterConfigsResponse (API key 33), versions 0 to 2, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class AlterConfigsResourceResponse(Message):
    """Part of AlterConfigsResponse."""

    __slots__ = (
        "error_code",
        "error_message",
        "resource_name",
        "resource_type",
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        resource_type: int = 0,
        resource_name: str = "",
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.resource_type = resource_type
        self.resource_name = resource_name  # topicName or groupId


class AlterConfigsResponse(Message):
    """The message."""

    __slots__ = (
        "responses",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        responses: list[AlterConfigsResourceResponse] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.responses = [] if responses is EMPTY else responses


def _decode_alter_configs_resource_response(
    reader: Reader, version: int
) -> AlterConfigsResourceResponse:
    message = object.__new__(AlterConfigsResourceResponse)
    message.error_code = reader.read_int16()
    if version >= 2:
        message.error_message = reader.read_nullable_compact_string("error_message")
    else:
        message.error_message = reader.read_nullable_string("error_message")
    message.resource_type = reader.read_int8()
    if version >= 2:
        message.resource_name = reader.read_compact_string("resource_name")
    else:
        message.resource_name = reader.read_string("resource_name")
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def decode_alter_configs_response(reader: Reader, version: int) -> AlterConfigsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 2:
        raise unsupported_version("AlterConfigsResponse", version)
    message = object.__new__(AlterConfigsResponse)
    message.throttle_time_ms = reader.read_int32()
    if version >= 2:
        message.responses = [
            _decode_alter_configs_resource_response(reader, version)
            for _ in range(reader.read_compact_array_length(6, "responses"))
        ]
    else:
        message.responses = [
            _decode_alter_configs_resource_response(reader, version)
            for _ in range(reader.read_array_length(7, "responses"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _encode_alter_configs_resource_response(
    writer: Writer, message: AlterConfigsResourceResponse, version: int
) -> None:
    writer.write_int16(message.error_code)
    if version >= 2:
        writer.write_nullable_compact_string(message.error_message, "error_message")
    else:
        writer.write_nullable_string(message.error_message, "error_message")
    writer.write_int8(message.resource_type)
    if version >= 2:
        writer.write_compact_string(message.resource_name, "resource_name")
        writer.buf.append(0)
    else:
        writer.write_string(message.resource_name, "resource_name")


def encode_alter_configs_response(
    writer: Writer, message: AlterConfigsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 2:
        raise unsupported_version("AlterConfigsResponse", version)
    writer.write_int32(message.throttle_time_ms)
    if version >= 2:
        writer.write_compact_array_length(message.responses, "responses")
        for alter_configs_resource_response in message.responses:
            _encode_alter_configs_resource_response(
                writer, alter_configs_resource_response, version
            )
        writer.buf.append(0)
    else:
        writer.write_array_length(message.responses, "responses")
        for alter_configs_resource_response in message.responses:
            _encode_alter_configs_resource_response(
                writer, alter_configs_resource_response, version
            )
