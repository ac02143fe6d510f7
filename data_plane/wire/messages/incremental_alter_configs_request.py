"""IncrementalAlterConfigsRequest (API key 44), versions 0 to 1, flexible from 1.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class AlterableConfig(Message):
    """Part of IncrementalAlterConfigsRequest."""

    __slots__ = (
        "config_operation",
        "name",
        "value",
    )

    def __init__(
        self,
        *,
        name: str = "",
        config_operation: int = 0,
        value: str | None = "",
    ) -> None:
        self.name = name
        self.config_operation = config_operation
        self.value = value


class AlterConfigsResource(Message):
    """Part of IncrementalAlterConfigsRequest."""

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


class IncrementalAlterConfigsRequest(Message):
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
    if version >= 1:
        message.name = reader.read_compact_string("name")
    else:
        message.name = reader.read_string("name")
    message.config_operation = reader.read_int8()
    if version >= 1:
        message.value = reader.read_nullable_compact_string("value")
    else:
        message.value = reader.read_nullable_string("value")
    if version >= 1:
        reader.skip_tagged_fields()
    return message


def _decode_alter_configs_resource(reader: Reader, version: int) -> AlterConfigsResource:
    message = object.__new__(AlterConfigsResource)
    message.resource_type = reader.read_int8()
    if version >= 1:
        message.resource_name = reader.read_compact_string("resource_name")
        message.configs = [
            _decode_alterable_config(reader, version)
            for _ in range(reader.read_compact_array_length(4, "configs"))
        ]
    else:
        message.resource_name = reader.read_string("resource_name")
        message.configs = [
            _decode_alterable_config(reader, version)
            for _ in range(reader.read_array_length(5, "configs"))
        ]
    if version >= 1:
        reader.skip_tagged_fields()
    return message


def decode_incremental_alter_configs_request(
    reader: Reader, version: int
) -> IncrementalAlterConfigsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 1:
        raise unsupported_version("IncrementalAlterConfigsRequest", version)
    message = object.__new__(IncrementalAlterConfigsRequest)
    if version >= 1:
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
    if version >= 1:
        reader.skip_tagged_fields()
    return message


def _encode_alterable_config(writer: Writer, message: AlterableConfig, version: int) -> None:
    if version >= 1:
        writer.write_compact_string(message.name, "name")
    else:
        writer.write_string(message.name, "name")
    writer.write_int8(message.config_operation)
    if version >= 1:
        writer.write_nullable_compact_string(message.value, "value")
        writer.buf.append(0)
    else:
        writer.write_nullable_string(message.value, "value")


def _encode_alter_configs_resource(
    writer: Writer, message: AlterConfigsResource, version: int
) -> None:
    writer.write_int8(message.resource_type)
    if version >= 1:
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


def encode_incremental_alter_configs_request(
    writer: Writer, message: IncrementalAlterConfigsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 1:
        raise unsupported_version("IncrementalAlterConfigsRequest", version)
    if version >= 1:
        writer.write_compact_array_length(message.resources, "resources")
        for alter_configs_resource in message.resources:
            _encode_alter_configs_resource(writer, alter_configs_resource, version)
    else:
        writer.write_array_length(message.resources, "resources")
        for alter_configs_resource in message.resources:
            _encode_alter_configs_resource(writer, alter_configs_resource, version)
    writer.write_bool(message.validate_only)
    if version >= 1:
        writer.buf.append(0)
