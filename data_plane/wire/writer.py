"""Kafka's primitive types into a byte buffer. Sizes on the wire: see primitives.py."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, pack
from typing import Final, NoReturn
from uuid import UUID

from data_plane.wire.errors import InvalidMessage
from data_plane.wire.message import STRING_BYTES_MAX, Buffer, null_field

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_UINT16: Final = Struct(">H")
_UINT32: Final = Struct(">I")
_FLOAT64: Final = Struct(">d")


class Writer:
    """Appends primitives to `buf`. Values out of a type's range are bugs of the caller and raise
    struct.error; None where the version has no null, and strings too long for the wire, raise
    InvalidMessage naming the field."""

    __slots__ = ("buf",)

    def __init__(self) -> None:
        self.buf = bytearray()

    # Numbers

    def write_bool(self, value: bool) -> None:
        self.buf.append(1 if value else 0)

    def write_int8(self, value: int) -> None:
        self.buf += _INT8.pack(value)

    def write_int16(self, value: int) -> None:
        self.buf += _INT16.pack(value)

    def write_int32(self, value: int) -> None:
        self.buf += _INT32.pack(value)

    def write_int64(self, value: int) -> None:
        self.buf += _INT64.pack(value)

    def write_uint16(self, value: int) -> None:
        self.buf += _UINT16.pack(value)

    def write_uint32(self, value: int) -> None:
        self.buf += _UINT32.pack(value)

    def write_float64(self, value: float) -> None:
        self.buf += _FLOAT64.pack(value)

    def write_uuid(self, value: UUID) -> None:
        self.buf += value.int.to_bytes(16, "big")

    def write_uvarint(self, value: int) -> None:
        """An unsigned varint, of 32 bits for every use on the wire."""
        buf = self.buf
        while value > 0x7F:
            buf.append((value & 0x7F) | 0x80)
            value >>= 7
        buf.append(value)

    def write_varint(self, value: int) -> None:
        """A zigzag-coded signed 32-bit varint."""
        self.write_uvarint(((value << 1) ^ (value >> 31)) & 0xFFFF_FFFF)

    def write_varlong(self, value: int) -> None:
        """A zigzag-coded signed 64-bit varint."""
        self.write_uvarint(((value << 1) ^ (value >> 63)) & 0xFFFF_FFFF_FFFF_FFFF)

    # Strings

    def write_string(self, value: str | None, field: str = "string") -> None:
        if value is None:
            raise null_field(field)
        self.write_nullable_string(value, field)

    def write_nullable_string(self, value: str | None, field: str = "string") -> None:
        if value is None:
            self.buf += b"\xff\xff"
            return
        data = value.encode()
        if len(data) > STRING_BYTES_MAX:
            _refuse_long_string(data, field)
        self.buf += _INT16.pack(len(data))
        self.buf += data

    def write_compact_string(self, value: str | None, field: str = "string") -> None:
        if value is None:
            raise null_field(field)
        self.write_nullable_compact_string(value, field)

    def write_nullable_compact_string(self, value: str | None, field: str = "string") -> None:
        if value is None:
            self.buf.append(0)
            return
        data = value.encode()
        size = len(data)
        if size < 0x7F:
            self.buf.append(size + 1)
        else:
            if size > STRING_BYTES_MAX:
                _refuse_long_string(data, field)
            self.write_uvarint(size + 1)
        self.buf += data

    # Bytes (records are written the same way)

    def write_bytes(self, value: Buffer | None, field: str = "bytes") -> None:
        if value is None:
            raise null_field(field)
        self.write_nullable_bytes(value)

    def write_nullable_bytes(self, value: Buffer | None, field: str = "bytes") -> None:
        if value is None:
            self.buf += b"\xff\xff\xff\xff"
            return
        self.buf += _INT32.pack(len(value))
        self.buf += value

    def write_compact_bytes(self, value: Buffer | None, field: str = "bytes") -> None:
        if value is None:
            raise null_field(field)
        self.write_nullable_compact_bytes(value)

    def write_nullable_compact_bytes(self, value: Buffer | None, field: str = "bytes") -> None:
        if value is None:
            self.buf.append(0)
            return
        self.write_uvarint(len(value) + 1)
        self.buf += value

    # Arrays: the length first, then the caller writes the items

    def write_array_length(self, items: Sequence[object] | None, field: str = "array") -> None:
        if items is None:
            raise null_field(field)
        self.buf += _INT32.pack(len(items))

    def write_nullable_array_length(
        self, items: Sequence[object] | None, field: str = "array"
    ) -> None:
        self.buf += _INT32.pack(-1 if items is None else len(items))

    def write_compact_array_length(
        self, items: Sequence[object] | None, field: str = "array"
    ) -> None:
        if items is None:
            raise null_field(field)
        self.write_uvarint(len(items) + 1)

    def write_nullable_compact_array_length(
        self, items: Sequence[object] | None, field: str = "array"
    ) -> None:
        self.write_uvarint(0 if items is None else len(items) + 1)

    def write_int8_array(self, items: Sequence[int]) -> None:
        self.buf += pack(f">{len(items)}b", *items)

    def write_int16_array(self, items: Sequence[int]) -> None:
        self.buf += pack(f">{len(items)}h", *items)

    def write_int32_array(self, items: Sequence[int]) -> None:
        self.buf += pack(f">{len(items)}i", *items)

    def write_int64_array(self, items: Sequence[int]) -> None:
        self.buf += pack(f">{len(items)}q", *items)

    # Structures

    def write_tagged_fields(self, fields: Sequence[tuple[int, Writer]]) -> None:
        """The tagged fields of a structure, in the order of their tags."""
        self.write_uvarint(len(fields))
        for tag, content in fields:
            self.write_uvarint(tag)
            self.write_uvarint(len(content.buf))
            self.buf += content.buf


def _refuse_long_string(data: bytes, field: str) -> NoReturn:
    raise InvalidMessage(f"{field} has {len(data)} bytes, more than {STRING_BYTES_MAX}")
