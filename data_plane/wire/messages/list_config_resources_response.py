"""ListConfigResourcesResponse (API key 74), versions 0 to 1, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_INT16 = Struct(">ih")


class ConfigResource(Message):
    """Part of ListConfigResourcesResponse."""

    __slots__ = (
        "resource_name",
        "resource_type",
    )

    def __init__(
        self,
        *,
        resource_name: str = "",
        resource_type: int = 16,
    ) -> None:
        self.resource_name = resource_name  # topicName or groupId
        self.resource_type = resource_type  # versions 1 to 1


class ListConfigResourcesResponse(Message):
    """The message."""

    __slots__ = (
        "config_resources",
        "error_code",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        config_resources: list[ConfigResource] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.config_resources = [] if config_resources is EMPTY else config_resources


def _decode_config_resource(reader: Reader, version: int) -> ConfigResource:
    message = object.__new__(ConfigResource)
    message.resource_name = reader.read_compact_string("resource_name")
    if version >= 1:
        message.resource_type = reader.read_int8()
    else:
        message.resource_type = 16
    reader.skip_tagged_fields()
    return message


def decode_list_config_resources_response(
    reader: Reader, version: int
) -> ListConfigResourcesResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 1:
        raise unsupported_version("ListConfigResourcesResponse", version)
    message = object.__new__(ListConfigResourcesResponse)
    (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    message.config_resources = [
        _decode_config_resource(reader, version)
        for _ in range(reader.read_compact_array_length(2, "config_resources"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_config_resource(writer: Writer, message: ConfigResource, version: int) -> None:
    writer.write_compact_string(message.resource_name, "resource_name")
    if version >= 1:
        writer.write_int8(message.resource_type)
    writer.buf.append(0)


def encode_list_config_resources_response(
    writer: Writer, message: ListConfigResourcesResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 1:
        raise unsupported_version("ListConfigResourcesResponse", version)
    writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    writer.write_compact_array_length(message.config_resources, "config_resources")
    for config_resource in message.config_resources:
        _encode_config_resource(writer, config_resource, version)
    writer.buf.append(0)
