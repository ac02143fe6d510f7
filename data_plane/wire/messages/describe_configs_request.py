"""DescribeConfigsRequest (API key 32), versions 1 to 4, flexible from 4.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import (
    EMPTY,
    Message,
    Reader,
    Writer,
    unsupported_field,
    unsupported_version,
)

_2XBOOL = Struct(">??")


class DescribeConfigsResource(Message):
    """Part of DescribeConfigsRequest."""

    __slots__ = (
        "configuration_keys",
        "resource_name",
        "resource_type",
    )

    def __init__(
        self,
        *,
        resource_type: int = 0,
        resource_name: str = "",
        configuration_keys: list[str] | None = EMPTY,
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name  # topicName or groupId
        self.configuration_keys = [] if configuration_keys is EMPTY else configuration_keys


class DescribeConfigsRequest(Message):
    """The message."""

    __slots__ = (
        "include_documentation",
        "include_synonyms",
        "resources",
    )

    def __init__(
        self,
        *,
        resources: list[DescribeConfigsResource] = EMPTY,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> None:
        self.resources = [] if resources is EMPTY else resources
        self.include_synonyms = include_synonyms
        self.include_documentation = include_documentation  # versions 3 to 4


def _decode_describe_configs_resource(reader: Reader, version: int) -> DescribeConfigsResource:
    message = object.__new__(DescribeConfigsResource)
    message.resource_type = reader.read_int8()
    if version >= 4:
        message.resource_name = reader.read_compact_string("resource_name")
        count = reader.read_nullable_compact_array_length(1, "configuration_keys")
        message.configuration_keys = (
            None
            if count < 0
            else [reader.read_compact_string("configuration_keys") for _ in range(count)]
        )
    else:
        message.resource_name = reader.read_string("resource_name")
        count = reader.read_nullable_array_length(2, "configuration_keys")
        message.configuration_keys = (
            None if count < 0 else [reader.read_string("configuration_keys") for _ in range(count)]
        )
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def decode_describe_configs_request(reader: Reader, version: int) -> DescribeConfigsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 4:
        raise unsupported_version("DescribeConfigsRequest", version)
    message = object.__new__(DescribeConfigsRequest)
    if version >= 4:
        message.resources = [
            _decode_describe_configs_resource(reader, version)
            for _ in range(reader.read_compact_array_length(4, "resources"))
        ]
    else:
        message.resources = [
            _decode_describe_configs_resource(reader, version)
            for _ in range(reader.read_array_length(7, "resources"))
        ]
    if version >= 3:
        (message.include_synonyms, message.include_documentation) = reader.unpack(_2XBOOL)
    else:
        message.include_synonyms = reader.read_bool()
        message.include_documentation = False
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def _encode_describe_configs_resource(
    writer: Writer, message: DescribeConfigsResource, version: int
) -> None:
    writer.write_int8(message.resource_type)
    if version >= 4:
        writer.write_compact_string(message.resource_name, "resource_name")
        writer.write_nullable_compact_array_length(message.configuration_keys, "configuration_keys")
        if message.configuration_keys:
            for string_item in message.configuration_keys:
                writer.write_compact_string(string_item, "configuration_keys")
        writer.buf.append(0)
    else:
        writer.write_string(message.resource_name, "resource_name")
        writer.write_nullable_array_length(message.configuration_keys, "configuration_keys")
        if message.configuration_keys:
            for string_item in message.configuration_keys:
                writer.write_string(string_item, "configuration_keys")


def encode_describe_configs_request(
    writer: Writer, message: DescribeConfigsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 4:
        raise unsupported_version("DescribeConfigsRequest", version)
    if version >= 4:
        writer.write_compact_array_length(message.resources, "resources")
        for describe_configs_resource in message.resources:
            _encode_describe_configs_resource(writer, describe_configs_resource, version)
    else:
        writer.write_array_length(message.resources, "resources")
        for describe_configs_resource in message.resources:
            _encode_describe_configs_resource(writer, describe_configs_resource, version)
    if version >= 3:
        writer.buf += _2XBOOL.pack(message.include_synonyms, message.include_documentation)
    else:
        if message.include_documentation:
            raise unsupported_field("DescribeConfigsRequest", "include_documentation", version)
        writer.write_bool(message.include_synonyms)
    if version >= 4:
        writer.buf.append(0)
