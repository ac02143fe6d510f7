"""DescribeClientQuotasResponse (API key 48), versions 0 to 1, flexible from 1.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_INT16 = Struct(">ih")


class EntityData(Message):
    """Part of DescribeClientQuotasResponse."""

    __slots__ = (
        "entity_name",
        "entity_type",
    )

    def __init__(
        self,
        *,
        entity_type: str = "",
        entity_name: str | None = "",
    ) -> None:
        self.entity_type = entity_type
        self.entity_name = entity_name  # principal


class ValueData(Message):
    """Part of DescribeClientQuotasResponse."""

    __slots__ = (
        "key",
        "value",
    )

    def __init__(
        self,
        *,
        key: str = "",
        value: float = 0.0,
    ) -> None:
        self.key = key
        self.value = value


class EntryData(Message):
    """Part of DescribeClientQuotasResponse."""

    __slots__ = (
        "entity",
        "values",
    )

    def __init__(
        self,
        *,
        entity: list[EntityData] = EMPTY,
        values: list[ValueData] = EMPTY,
    ) -> None:
        self.entity = [] if entity is EMPTY else entity
        self.values = [] if values is EMPTY else values


class DescribeClientQuotasResponse(Message):
    """The message."""

    __slots__ = (
        "entries",
        "error_code",
        "error_message",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        entries: list[EntryData] | None = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.entries = [] if entries is EMPTY else entries


def _decode_entity_data(reader: Reader, version: int) -> EntityData:
    message = object.__new__(EntityData)
    if version >= 1:
        message.entity_type = reader.read_compact_string("entity_type")
        message.entity_name = reader.read_nullable_compact_string("entity_name")
    else:
        message.entity_type = reader.read_string("entity_type")
        message.entity_name = reader.read_nullable_string("entity_name")
    if version >= 1:
        reader.skip_tagged_fields()
    return message


def _decode_value_data(reader: Reader, version: int) -> ValueData:
    message = object.__new__(ValueData)
    if version >= 1:
        message.key = reader.read_compact_string("key")
    else:
        message.key = reader.read_string("key")
    message.value = reader.read_float64()
    if version >= 1:
        reader.skip_tagged_fields()
    return message


def _decode_entry_data(reader: Reader, version: int) -> EntryData:
    message = object.__new__(EntryData)
    if version >= 1:
        message.entity = [
            _decode_entity_data(reader, version)
            for _ in range(reader.read_compact_array_length(3, "entity"))
        ]
        message.values = [
            _decode_value_data(reader, version)
            for _ in range(reader.read_compact_array_length(10, "values"))
        ]
    else:
        message.entity = [
            _decode_entity_data(reader, version)
            for _ in range(reader.read_array_length(4, "entity"))
        ]
        message.values = [
            _decode_value_data(reader, version)
            for _ in range(reader.read_array_length(10, "values"))
        ]
    if version >= 1:
        reader.skip_tagged_fields()
    return message


def decode_describe_client_quotas_response(
    reader: Reader, version: int
) -> DescribeClientQuotasResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 1:
        raise unsupported_version("DescribeClientQuotasResponse", version)
    message = object.__new__(DescribeClientQuotasResponse)
    (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    if version >= 1:
        message.error_message = reader.read_nullable_compact_string("error_message")
        count = reader.read_nullable_compact_array_length(3, "entries")
        message.entries = (
            None if count < 0 else [_decode_entry_data(reader, version) for _ in range(count)]
        )
    else:
        message.error_message = reader.read_nullable_string("error_message")
        count = reader.read_nullable_array_length(8, "entries")
        message.entries = (
            None if count < 0 else [_decode_entry_data(reader, version) for _ in range(count)]
        )
    if version >= 1:
        reader.skip_tagged_fields()
    return message


def _encode_entity_data(writer: Writer, message: EntityData, version: int) -> None:
    if version >= 1:
        writer.write_compact_string(message.entity_type, "entity_type")
        writer.write_nullable_compact_string(message.entity_name, "entity_name")
        writer.buf.append(0)
    else:
        writer.write_string(message.entity_type, "entity_type")
        writer.write_nullable_string(message.entity_name, "entity_name")


def _encode_value_data(writer: Writer, message: ValueData, version: int) -> None:
    if version >= 1:
        writer.write_compact_string(message.key, "key")
    else:
        writer.write_string(message.key, "key")
    writer.write_float64(message.value)
    if version >= 1:
        writer.buf.append(0)


def _encode_entry_data(writer: Writer, message: EntryData, version: int) -> None:
    if version >= 1:
        writer.write_compact_array_length(message.entity, "entity")
        for entity_data in message.entity:
            _encode_entity_data(writer, entity_data, version)
        writer.write_compact_array_length(message.values, "values")
        for value_data in message.values:
            _encode_value_data(writer, value_data, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.entity, "entity")
        for entity_data in message.entity:
            _encode_entity_data(writer, entity_data, version)
        writer.write_array_length(message.values, "values")
        for value_data in message.values:
            _encode_value_data(writer, value_data, version)


def encode_describe_client_quotas_response(
    writer: Writer, message: DescribeClientQuotasResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 1:
        raise unsupported_version("DescribeClientQuotasResponse", version)
    writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    if version >= 1:
        writer.write_nullable_compact_string(message.error_message, "error_message")
        writer.write_nullable_compact_array_length(message.entries, "entries")
        if message.entries:
            for entry_data in message.entries:
                _encode_entry_data(writer, entry_data, version)
        writer.buf.append(0)
    else:
        writer.write_nullable_string(message.error_message, "error_message")
        writer.write_nullable_array_length(message.entries, "entries")
        if message.entries:
            for entry_data in message.entries:
                _encode_entry_data(writer, entry_data, version)
