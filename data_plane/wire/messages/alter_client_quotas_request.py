"""AlterClientQuotasRequest (API key 49), versions 0 to 1, flexible from 1.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_FLOAT64_BOOL = Struct(">d?")


class EntityData(Message):
    """Part of AlterClientQuotasRequest."""

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


class OpData(Message):
    """Part of AlterClientQuotasRequest."""

    __slots__ = (
        "key",
        "remove",
        "value",
    )

    def __init__(
        self,
        *,
        key: str = "",
        value: float = 0.0,
        remove: bool = False,
    ) -> None:
        self.key = key
        self.value = value
        self.remove = remove


class EntryData(Message):
    """Part of AlterClientQuotasRequest."""

    __slots__ = (
        "entity",
        "ops",
    )

    def __init__(
        self,
        *,
        entity: list[EntityData] = EMPTY,
        ops: list[OpData] = EMPTY,
    ) -> None:
        self.entity = [] if entity is EMPTY else entity
        self.ops = [] if ops is EMPTY else ops


class AlterClientQuotasRequest(Message):
    """The message."""

    __slots__ = (
        "entries",
        "validate_only",
    )

    def __init__(
        self,
        *,
        entries: list[EntryData] = EMPTY,
        validate_only: bool = False,
    ) -> None:
        self.entries = [] if entries is EMPTY else entries
        self.validate_only = validate_only


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


def _decode_op_data(reader: Reader, version: int) -> OpData:
    message = object.__new__(OpData)
    if version >= 1:
        message.key = reader.read_compact_string("key")
    else:
        message.key = reader.read_string("key")
    (message.value, message.remove) = reader.unpack(_FLOAT64_BOOL)
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
        message.ops = [
            _decode_op_data(reader, version)
            for _ in range(reader.read_compact_array_length(11, "ops"))
        ]
    else:
        message.entity = [
            _decode_entity_data(reader, version)
            for _ in range(reader.read_array_length(4, "entity"))
        ]
        message.ops = [
            _decode_op_data(reader, version) for _ in range(reader.read_array_length(11, "ops"))
        ]
    if version >= 1:
        reader.skip_tagged_fields()
    return message


def decode_alter_client_quotas_request(reader: Reader, version: int) -> AlterClientQuotasRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 1:
        raise unsupported_version("AlterClientQuotasRequest", version)
    message = object.__new__(AlterClientQuotasRequest)
    if version >= 1:
        message.entries = [
            _decode_entry_data(reader, version)
            for _ in range(reader.read_compact_array_length(3, "entries"))
        ]
    else:
        message.entries = [
            _decode_entry_data(reader, version)
            for _ in range(reader.read_array_length(8, "entries"))
        ]
    message.validate_only = reader.read_bool()
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


def _encode_op_data(writer: Writer, message: OpData, version: int) -> None:
    if version >= 1:
        writer.write_compact_string(message.key, "key")
    else:
        writer.write_string(message.key, "key")
    writer.buf += _FLOAT64_BOOL.pack(message.value, message.remove)
    if version >= 1:
        writer.buf.append(0)


def _encode_entry_data(writer: Writer, message: EntryData, version: int) -> None:
    if version >= 1:
        writer.write_compact_array_length(message.entity, "entity")
        for entity_data in message.entity:
            _encode_entity_data(writer, entity_data, version)
        writer.write_compact_array_length(message.ops, "ops")
        for op_data in message.ops:
            _encode_op_data(writer, op_data, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.entity, "entity")
        for entity_data in message.entity:
            _encode_entity_data(writer, entity_data, version)
        writer.write_array_length(message.ops, "ops")
        for op_data in message.ops:
            _encode_op_data(writer, op_data, version)


def encode_alter_client_quotas_request(
    writer: Writer, message: AlterClientQuotasRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 1:
        raise unsupported_version("AlterClientQuotasRequest", version)
    if version >= 1:
        writer.write_compact_array_length(message.entries, "entries")
        for entry_data in message.entries:
            _encode_entry_data(writer, entry_data, version)
    else:
        writer.write_array_length(message.entries, "entries")
        for entry_data in message.entries:
            _encode_entry_data(writer, entry_data, version)
    writer.write_bool(message.validate_only)
    if version >= 1:
        writer.buf.append(0)
