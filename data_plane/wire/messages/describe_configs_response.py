"""DescribeConfigsResponse (API key 32), versions 1 to 4, flexible from 4.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_BOOL_INT8_BOOL = Struct(">?b?")


class DescribeConfigsSynonym(Message):
    """Part of DescribeConfigsResponse."""

    __slots__ = (
        "name",
        "source",
        "value",
    )

    def __init__(
        self,
        *,
        name: str = "",
        value: str | None = "",
        source: int = 0,
    ) -> None:
        self.name = name
        self.value = value
        self.source = source


class DescribeConfigsResourceResult(Message):
    """Part of DescribeConfigsResponse."""

    __slots__ = (
        "config_source",
        "config_type",
        "documentation",
        "is_sensitive",
        "name",
        "read_only",
        "synonyms",
        "value",
    )

    def __init__(
        self,
        *,
        name: str = "",
        value: str | None = "",
        read_only: bool = False,
        config_source: int = -1,
        is_sensitive: bool = False,
        synonyms: list[DescribeConfigsSynonym] = EMPTY,
        config_type: int = 0,
        documentation: str | None = "",
    ) -> None:
        self.name = name
        self.value = value
        self.read_only = read_only
        self.config_source = config_source
        self.is_sensitive = is_sensitive
        self.synonyms = [] if synonyms is EMPTY else synonyms
        self.config_type = config_type  # versions 3 to 4
        self.documentation = documentation  # versions 3 to 4


class DescribeConfigsResult(Message):
    """Part of DescribeConfigsResponse."""

    __slots__ = (
        "configs",
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
        configs: list[DescribeConfigsResourceResult] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.resource_type = resource_type
        self.resource_name = resource_name  # topicName or groupId
        self.configs = [] if configs is EMPTY else configs


class DescribeConfigsResponse(Message):
    """The message."""

    __slots__ = (
        "results",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[DescribeConfigsResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results = [] if results is EMPTY else results


def _decode_describe_configs_synonym(reader: Reader, version: int) -> DescribeConfigsSynonym:
    message = object.__new__(DescribeConfigsSynonym)
    if version >= 4:
        message.name = reader.read_compact_string("name")
        message.value = reader.read_nullable_compact_string("value")
    else:
        message.name = reader.read_string("name")
        message.value = reader.read_nullable_string("value")
    message.source = reader.read_int8()
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def _decode_describe_configs_resource_result(
    reader: Reader, version: int
) -> DescribeConfigsResourceResult:
    message = object.__new__(DescribeConfigsResourceResult)
    if version >= 4:
        message.name = reader.read_compact_string("name")
        message.value = reader.read_nullable_compact_string("value")
    else:
        message.name = reader.read_string("name")
        message.value = reader.read_nullable_string("value")
    (message.read_only, message.config_source, message.is_sensitive) = reader.unpack(
        _BOOL_INT8_BOOL
    )
    if version >= 4:
        message.synonyms = [
            _decode_describe_configs_synonym(reader, version)
            for _ in range(reader.read_compact_array_length(4, "synonyms"))
        ]
    else:
        message.synonyms = [
            _decode_describe_configs_synonym(reader, version)
            for _ in range(reader.read_array_length(5, "synonyms"))
        ]
    if version >= 3:
        message.config_type = reader.read_int8()
    else:
        message.config_type = 0
    if version >= 4:
        message.documentation = reader.read_nullable_compact_string("documentation")
    elif version >= 3:
        message.documentation = reader.read_nullable_string("documentation")
    else:
        message.documentation = ""
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def _decode_describe_configs_result(reader: Reader, version: int) -> DescribeConfigsResult:
    message = object.__new__(DescribeConfigsResult)
    message.error_code = reader.read_int16()
    if version >= 4:
        message.error_message = reader.read_nullable_compact_string("error_message")
    else:
        message.error_message = reader.read_nullable_string("error_message")
    message.resource_type = reader.read_int8()
    if version >= 4:
        message.resource_name = reader.read_compact_string("resource_name")
        message.configs = [
            _decode_describe_configs_resource_result(reader, version)
            for _ in range(reader.read_compact_array_length(9, "configs"))
        ]
    else:
        message.resource_name = reader.read_string("resource_name")
        message.configs = [
            _decode_describe_configs_resource_result(reader, version)
            for _ in range(reader.read_array_length(11, "configs"))
        ]
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def decode_describe_configs_response(reader: Reader, version: int) -> DescribeConfigsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 4:
        raise unsupported_version("DescribeConfigsResponse", version)
    message = object.__new__(DescribeConfigsResponse)
    message.throttle_time_ms = reader.read_int32()
    if version >= 4:
        message.results = [
            _decode_describe_configs_result(reader, version)
            for _ in range(reader.read_compact_array_length(7, "results"))
        ]
    else:
        message.results = [
            _decode_describe_configs_result(reader, version)
            for _ in range(reader.read_array_length(11, "results"))
        ]
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def _encode_describe_configs_synonym(
    writer: Writer, message: DescribeConfigsSynonym, version: int
) -> None:
    if version >= 4:
        writer.write_compact_string(message.name, "name")
        writer.write_nullable_compact_string(message.value, "value")
    else:
        writer.write_string(message.name, "name")
        writer.write_nullable_string(message.value, "value")
    writer.write_int8(message.source)
    if version >= 4:
        writer.buf.append(0)


def _encode_describe_configs_resource_result(
    writer: Writer, message: DescribeConfigsResourceResult, version: int
) -> None:
    if version >= 4:
        writer.write_compact_string(message.name, "name")
        writer.write_nullable_compact_string(message.value, "value")
    else:
        writer.write_string(message.name, "name")
        writer.write_nullable_string(message.value, "value")
    writer.buf += _BOOL_INT8_BOOL.pack(
        message.read_only, message.config_source, message.is_sensitive
    )
    if version >= 4:
        writer.write_compact_array_length(message.synonyms, "synonyms")
        for describe_configs_synonym in message.synonyms:
            _encode_describe_configs_synonym(writer, describe_configs_synonym, version)
    else:
        writer.write_array_length(message.synonyms, "synonyms")
        for describe_configs_synonym in message.synonyms:
            _encode_describe_configs_synonym(writer, describe_configs_synonym, version)
    if version >= 3:
        writer.write_int8(message.config_type)
    if version >= 4:
        writer.write_nullable_compact_string(message.documentation, "documentation")
    elif version >= 3:
        writer.write_nullable_string(message.documentation, "documentation")
    if version >= 4:
        writer.buf.append(0)


def _encode_describe_configs_result(
    writer: Writer, message: DescribeConfigsResult, version: int
) -> None:
    writer.write_int16(message.error_code)
    if version >= 4:
        writer.write_nullable_compact_string(message.error_message, "error_message")
    else:
        writer.write_nullable_string(message.error_message, "error_message")
    writer.write_int8(message.resource_type)
    if version >= 4:
        writer.write_compact_string(message.resource_name, "resource_name")
        writer.write_compact_array_length(message.configs, "configs")
        for describe_configs_resource_result in message.configs:
            _encode_describe_configs_resource_result(
                writer, describe_configs_resource_result, version
            )
        writer.buf.append(0)
    else:
        writer.write_string(message.resource_name, "resource_name")
        writer.write_array_length(message.configs, "configs")
        for describe_configs_resource_result in message.configs:
            _encode_describe_configs_resource_result(
                writer, describe_configs_resource_result, version
            )


def encode_describe_configs_response(
    writer: Writer, message: DescribeConfigsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 4:
        raise unsupported_version("DescribeConfigsResponse", version)
    writer.write_int32(message.throttle_time_ms)
    if version >= 4:
        writer.write_compact_array_length(message.results, "results")
        for describe_configs_result in message.results:
            _encode_describe_configs_result(writer, describe_configs_result, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.results, "results")
        for describe_configs_result in message.results:
            _encode_describe_configs_result(writer, describe_configs_result, version)
