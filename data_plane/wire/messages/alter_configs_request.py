"""AlterConfigsRequest (API key 33), versions 0 to 2, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class AlterableConfig(Message):
    """Part of AlterConfigsRequest."""

    __slots__ = (
        "name",
        "value",
    )

    def __init__(
        self,
        *,
        name: str = "",
        value: str | None = "",
    ) -> None:
        self.name = name
        self.value = value


class AlterConfigsResource(Message):
    """Part of AlterConfigsRequest."""

    __slots__ = (
        "configs",
        "resource_name",
        "resource_type",
    )

    def __init__(
        self,
        *,
        resource_type: int = 0,
        resource_name: str = "",
        configs: list[AlterableConfig] = EMPTY,
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name  # topicName or groupId
        self.configs = [] if configs is EMPTY else configs


class AlterConfigsRequest(Message):
    """The message."""

    __slots__ = (
        "resources",
        "validate_only",
    )

    def __init__(
        self,
        *,
        resources: list[AlterConfigsResource] = EMPTY,
        validate_only: bool = False,
    ) -> None:
        self.resources = [] if resources is EMPTY else resources
        self.validate_only = validate_only


def _decode_alterable_config(reader: Reader, version: int) -> AlterableConfig:
    message = object.__new__(AlterableConfig)
    if version >= 2:
        message.name = reader.read_compact_string("name")
        message.value = reader.read_nullable_compact_string("value")
    else:
        message.name = reader.read_string("name")
        message.value = reader.read_nullable_string("value")
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _decode_alter_configs_resource(reader: Reader, version: int) -> AlterConfigsResource:
    message = object.__new__(AlterConfigsResource)
    message.resource_type = reader.read_int8()
    if version >= 2:
        message.resource_name = reader.read_compact_string("resource_name")
        message.configs = [
            _decode_alterable_config(reader, version)
            for _ in range(reader.read_compact_array_length(3, "configs"))
        ]
    else:
        message.resource_name = reader.read_string("resource_name")
        message.configs = [
            _decode_alterable_config(reader, version)
            for _ in range(reader.read_array_length(4, "configs"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def decode_alter_configs_request(reader: Reader, version: int) -> AlterConfigsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 2:
        raise unsupported_version("AlterConfigsRequest", version)
    message = object.__new__(AlterConfigsRequest)
    if version >= 2:
        message.resources = [
            _decode_alter_configs_resource(reader, version)
            for _ in range(reader.read_compact_array_length(4, "resources"))
        ]
    else:
        message.resources = [
            _decode_alter_configs_resource(reader, version)
            for _ in range(reader.read_array_length(7, "resources"))
        ]
    message.validate_only = reader.read_bool()
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _encode_alterable_config(writer: Writer, message: AlterableConfig, version: int) -> None:
    if version >= 2:
        writer.write_compact_string(message.name, "name")
        writer.write_nullable_compact_string(message.value, "value")
        writer.buf.append(0)
    else:
        writer.write_string(message.name, "name")
        writer.write_nullable_string(message.value, "value")


def _encode_alter_configs_resource(
    writer: Writer, message: AlterConfigsResource, version: int
) -> None:
    writer.write_int8(message.resource_type)
    if version >= 2:
        writer.write_compact_string(message.resource_name, "resource_name")
        writer.write_compact_array_length(message.configs, "configs")
        for alterable_config in message.configs:
            _encode_alterable_config(writer, alterable_config, version)
        writer.buf.append(0)
    else:
        writer.write_string(message.resource_name, "resource_name")
        writer.write_array_length(message.configs, "configs")
        for alterable_config in message.configs:
            _encode_alterable_config(writer, alterable_config, version)


def encode_alter_configs_request(
    writer: Writer, message: AlterConfigsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 2:
        raise unsupported_version("AlterConfigsRequest", version)
    if version >= 2:
        writer.write_compact_array_length(message.resources, "resources")
        for alter_configs_resource in message.resources:
            _encode_alter_configs_resource(writer, alter_configs_resource, version)
    else:
        writer.write_array_length(message.resources, "resources")
        for alter_configs_resource in message.resources:
            _encode_alter_configs_resource(writer, alter_configs_resource, version)
    writer.write_bool(message.validate_only)
    if version >= 2:
        writer.buf.append(0)
