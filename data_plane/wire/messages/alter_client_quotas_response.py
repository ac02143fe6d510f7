"""AlterClientQuotasResponse (API key 49), versions 0 to 1, flexible from 1.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class EntityData(Message):
    """Part of AlterClientQuotasResponse."""

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


class EntryData(Message):
    """Part of AlterClientQuotasResponse."""

    __slots__ = (
        "entity",
        "error_code",
        "error_message",
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        entity: list[EntityData] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.entity = [] if entity is EMPTY else entity


class AlterClientQuotasResponse(Message):
    """The message."""

    __slots__ = (
        "entries",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        entries: list[EntryData] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
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


def _decode_entry_data(reader: Reader, version: int) -> EntryData:
    message = object.__new__(EntryData)
    message.error_code = reader.read_int16()
    if version >= 1:
        message.error_message = reader.read_nullable_compact_string("error_message")
        message.entity = [
            _decode_entity_data(reader, version)
            for _ in range(reader.read_compact_array_length(3, "entity"))
        ]
    else:
        message.error_message = reader.read_nullable_string("error_message")
        message.entity = [
            _decode_entity_data(reader, version)
            for _ in range(reader.read_array_length(4, "entity"))
        ]
    if version >= 1:
        reader.skip_tagged_fields()
    return message


def decode_alter_client_quotas_response(reader: Reader, version: int) -> AlterClientQuotasResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 1:
        raise unsupported_version("AlterClientQuotasResponse", version)
    message = object.__new__(AlterClientQuotasResponse)
    message.throttle_time_ms = reader.read_int32()
    if version >= 1:
        message.entries = [
            _decode_entry_data(reader, version)
            for _ in range(reader.read_compact_array_length(5, "entries"))
        ]
    else:
        message.entries = [
            _decode_entry_data(reader, version)
            for _ in range(reader.read_array_length(8, "entries"))
        ]
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


def _encode_entry_data(writer: Writer, message: EntryData, version: int) -> None:
    writer.write_int16(message.error_code)
    if version >= 1:
        writer.write_nullable_compact_string(message.error_message, "error_message")
        writer.write_compact_array_length(message.entity, "entity")
        for entity_data in message.entity:
            _encode_entity_data(writer, entity_data, version)
        writer.buf.append(0)
    else:
        writer.write_nullable_string(message.error_message, "error_message")
        writer.write_array_length(message.entity, "entity")
        for entity_data in message.entity:
            _encode_entity_data(writer, entity_data, version)


def encode_alter_client_quotas_response(
    writer: Writer, message: AlterClientQuotasResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 1:
        raise unsupported_version("AlterClientQuotasResponse", version)
    writer.write_int32(message.throttle_time_ms)
    if version >= 1:
        writer.write_compact_array_length(message.entries, "entries")
        for entry_data in message.entries:
            _encode_entry_data(writer, entry_data, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.entries, "entries")
        for entry_data in message.entries:
            _encode_entry_data(writer, entry_data, version)
