"""Kafka's primitive types out of a byte buffer, bounds checked.

Invariants
- A Reader never reads past `end`, whatever the bytes say. Malformed input of any kind raises
  MalformedFrame and nothing else: no IndexError, struct.error or UnicodeDecodeError.
- Memory is reserved only after its size was checked: a string or byte length against the bytes
  that remain, an array's count against the bytes that remain divided by the smallest size of an
  item and against the items that one frame may hold (ARRAY_ITEMS_MAX), so that a small frame
  cannot ask for a large list and a large frame of tiny items cannot fill the memory.
- Time is linear in the frame's size. There is no recursion over input.

Sizes on the wire: see primitives.py.
"""

from __future__ import annotations

from struct import Struct, unpack_from
from typing import Any, Final
from uuid import UUID, SafeUUID

from data_plane.wire.errors import MalformedFrame
from data_plane.wire.message import (
    ARRAY_ITEMS_MAX,
    STRING_BYTES_MAX,
    UVARINT_BYTES_MAX,
    VARLONG_BYTES_MAX,
    ZERO_UUID,
    Buffer,
)

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_UINT16: Final = Struct(">H")
_UINT32: Final = Struct(">I")
_FLOAT64: Final = Struct(">d")
_UNKNOWN_SAFETY: Final = SafeUUID.unknown
_set_uuid_field: Final = object.__setattr__


class Reader:
    """Reads primitives from `buf[pos:end]` and moves `pos` on.

    `field` parameters name the field in errors. Lengths and counts are in bytes and items. All
    methods raise MalformedFrame when the bytes are not what they should be. After an error `pos`
    is meaningless.
    """

    __slots__ = ("buf", "end", "items_left", "pos")

    def __init__(self, buf: Buffer, pos: int = 0, end: int | None = None) -> None:
        size = len(buf)
        self.buf = buf
        self.pos = pos
        self.end = size if end is None else end
        self.items_left = ARRAY_ITEMS_MAX
        assert 0 <= self.pos <= self.end <= size

    @property
    def remaining(self) -> int:
        """Bytes not read yet."""
        return self.end - self.pos

    # Fixed width

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        """A run of fixed-width fields."""
        pos = self.pos
        after = pos + layout.size
        if after > self.end:
            raise self._short(layout.size)
        self.pos = after
        return layout.unpack_from(self.buf, pos)

    def read_bool(self) -> bool:
        return self.read_int8() != 0

    def read_int8(self) -> int:
        value: int = self.unpack(_INT8)[0]
        return value

    def read_int16(self) -> int:
        value: int = self.unpack(_INT16)[0]
        return value

    def read_int32(self) -> int:
        value: int = self.unpack(_INT32)[0]
        return value

    def read_int64(self) -> int:
        value: int = self.unpack(_INT64)[0]
        return value

    def read_uint16(self) -> int:
        value: int = self.unpack(_UINT16)[0]
        return value

    def read_uint32(self) -> int:
        value: int = self.unpack(_UINT32)[0]
        return value

    def read_float64(self) -> float:
        value: float = self.unpack(_FLOAT64)[0]
        return value

    def read_uuid(self) -> UUID:
        pos = self.pos
        after = pos + 16
        if after > self.end:
            raise self._short(16)
        self.pos = after
        number = int.from_bytes(self.buf[pos:after], "big")
        if number == 0:
            return ZERO_UUID
        # UUID's own constructor spends a microsecond on checks that hold here by construction,
        # and every partition of a produce or fetch may name its topic.
        value = UUID.__new__(UUID)
        _set_uuid_field(value, "int", number)
        _set_uuid_field(value, "is_safe", _UNKNOWN_SAFETY)
        return value

    # Variable width numbers

    def read_uvarint(self) -> int:
        """An unsigned 32-bit varint (at most five bytes)."""
        pos = self.pos
        if pos >= self.end:
            raise self._short(1)
        byte = self.buf[pos]
        if byte < 0x80:
            self.pos = pos + 1
            return byte
        return self._read_long_varint(UVARINT_BYTES_MAX, 32)

    def read_varint(self) -> int:
        """A zigzag-coded signed 32-bit varint."""
        value = self._read_long_varint(UVARINT_BYTES_MAX, 32)
        return (value >> 1) ^ -(value & 1)

    def read_varlong(self) -> int:
        """A zigzag-coded signed 64-bit varint (at most ten bytes)."""
        value = self._read_long_varint(VARLONG_BYTES_MAX, 64)
        return (value >> 1) ^ -(value & 1)

    def _read_long_varint(self, bytes_max: int, bits: int) -> int:
        buf = self.buf
        pos = self.pos
        last = min(self.end, pos + bytes_max)
        value = 0
        shift = 0
        while pos < last:
            byte = buf[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> bits:
                    raise MalformedFrame(f"varint exceeds {bits} bits at byte {self.pos}")
                self.pos = pos
                return value
            shift += 7
        if pos == self.end:
            raise self._short(1)
        raise MalformedFrame(f"varint longer than {bytes_max} bytes at byte {self.pos}")

    # Strings

    def read_string(self, field: str = "string") -> str:
        value = self._string(self._length16(field), field)
        if value is None:
            raise self._null(field)
        return value

    def read_nullable_string(self, field: str = "string") -> str | None:
        return self._string(self._length16(field), field)

    def read_compact_string(self, field: str = "string") -> str:
        value = self._string(self.read_uvarint() - 1, field)
        if value is None:
            raise self._null(field)
        return value

    def read_nullable_compact_string(self, field: str = "string") -> str | None:
        return self._string(self.read_uvarint() - 1, field)

    def _string(self, size: int, field: str) -> str | None:
        if size <= 0:
            return "" if size == 0 else None
        pos = self.pos
        after = pos + size
        if after > self.end or size > STRING_BYTES_MAX:
            raise self._bad_length(size, field)
        self.pos = after
        try:
            return str(self.buf[pos:after], "utf-8")
        except UnicodeDecodeError:
            raise MalformedFrame(f"{field} at byte {pos} is not UTF-8") from None

    # Bytes and records

    def read_bytes(self, field: str = "bytes") -> bytes:
        return bytes(self._view(self._length32(field), field))

    def read_nullable_bytes(self, field: str = "bytes") -> bytes | None:
        size = self._length32(field)
        return None if size < 0 else bytes(self._view(size, field))

    def read_compact_bytes(self, field: str = "bytes") -> bytes:
        return bytes(self._view(self.read_uvarint() - 1, field))

    def read_nullable_compact_bytes(self, field: str = "bytes") -> bytes | None:
        size = self.read_uvarint() - 1
        return None if size < 0 else bytes(self._view(size, field))

    def read_records(self, field: str = "records") -> memoryview:
        """A view of the reader's buffer, not a copy: it lives as long as the buffer does, and a
        bytearray cannot be resized while it lives."""
        return self._view(self._length32(field), field)

    def read_nullable_records(self, field: str = "records") -> memoryview | None:
        size = self._length32(field)
        return None if size < 0 else self._view(size, field)

    def read_compact_records(self, field: str = "records") -> memoryview:
        return self._view(self.read_uvarint() - 1, field)

    def read_nullable_compact_records(self, field: str = "records") -> memoryview | None:
        size = self.read_uvarint() - 1
        return None if size < 0 else self._view(size, field)

    def _view(self, size: int, field: str) -> memoryview:
        pos = self.pos
        after = pos + size
        if size < 0:
            raise self._null(field)
        if after > self.end:
            raise self._bad_length(size, field)
        self.pos = after
        return memoryview(self.buf)[pos:after]

    # Arrays

    def read_array_length(self, min_item_bytes: int = 1, field: str = "array") -> int:
        """The count of an array whose items take at least `min_item_bytes` each."""
        count = self._check_count(self._length32(field), min_item_bytes, field)
        if count < 0:
            raise self._null(field)
        return count

    def read_nullable_array_length(self, min_item_bytes: int = 1, field: str = "array") -> int:
        """As read_array_length; -1 for null."""
        return self._check_count(self._length32(field), min_item_bytes, field)

    def read_compact_array_length(self, min_item_bytes: int = 1, field: str = "array") -> int:
        count = self._check_count(self.read_uvarint() - 1, min_item_bytes, field)
        if count < 0:
            raise self._null(field)
        return count

    def read_nullable_compact_array_length(
        self, min_item_bytes: int = 1, field: str = "array"
    ) -> int:
        return self._check_count(self.read_uvarint() - 1, min_item_bytes, field)

    def _check_count(self, count: int, min_item_bytes: int, field: str) -> int:
        if count > 0:
            if count * min_item_bytes > self.end - self.pos:
                raise MalformedFrame(
                    f"{field} claims {count} items at byte {self.pos}, "
                    f"but only {self.end - self.pos} bytes follow"
                )
            self._count_items(count, field)
        return count

    def _count_items(self, count: int, field: str) -> None:
        self.items_left -= count
        if self.items_left < 0:
            raise MalformedFrame(f"more than {ARRAY_ITEMS_MAX} array items, in {field}")

    def read_int8_array(self, count: int) -> list[int]:
        return self._number_array("b", 1, count)

    def read_int16_array(self, count: int) -> list[int]:
        return self._number_array("h", 2, count)

    def read_int32_array(self, count: int) -> list[int]:
        return self._number_array("i", 4, count)

    def read_int64_array(self, count: int) -> list[int]:
        return self._number_array("q", 8, count)

    def _number_array(self, code: str, item_bytes: int, count: int) -> list[int]:
        pos = self.pos
        after = pos + item_bytes * count
        if after > self.end:
            raise self._short(item_bytes * count)
        self.pos = after
        return list(unpack_from(f">{count}{code}", self.buf, pos))

    # Structures

    def read_present(self, field: str = "struct") -> bool:
        """The marker byte before a nullable structure (KIP-893): negative is null."""
        return self.read_int8() >= 0

    def skip_tagged_fields(self) -> None:
        """Skips the tagged fields of a structure of which none is known (KIP-482)."""
        for _ in range(self.read_tagged_fields_count()):
            self.read_uvarint()
            self.pos = self.read_tagged_field_end()

    def read_tagged_fields_count(self) -> int:
        """How many tagged fields a structure has; they count as items of the frame."""
        count = self.read_uvarint()
        if count:
            self._count_items(count, "tagged fields")
        return count

    def read_tagged_field_end(self) -> int:
        """Reads a tagged field's size; the position where it ends."""
        size = self.read_uvarint()
        after = self.pos + size
        if after > self.end:
            raise self._bad_length(size, "tagged field")
        return after

    def check_tagged_field_end(self, after: int) -> None:
        """A known tagged field must take as many bytes as it said."""
        if self.pos != after:
            raise MalformedFrame(f"tagged field ends at byte {self.pos}, not at {after} as it said")

    # Lengths and errors

    def _length16(self, field: str) -> int:
        length: int = self.unpack(_INT16)[0]
        if length < -1:
            raise self._bad_length(length, field)
        return length

    def _length32(self, field: str) -> int:
        length: int = self.unpack(_INT32)[0]
        if length < -1:
            raise self._bad_length(length, field)
        return length

    def _short(self, size: int) -> MalformedFrame:
        return MalformedFrame(
            f"{size} more bytes expected at byte {self.pos}, {self.end - self.pos} remain"
        )

    def _bad_length(self, length: int, field: str) -> MalformedFrame:
        return MalformedFrame(
            f"{field} claims length {length} at byte {self.pos}, {self.end - self.pos} remain"
        )

    def _null(self, field: str) -> MalformedFrame:
        return MalformedFrame(f"{field} is null at byte {self.pos}, but is not nullable")
