"""The kernel's smallest steps on bytes, as Python; `kernel_leaves.pxd` says the same in C.

`kernel_batches.py` and `kernel_requests.py` are written once. Interpreted, they call the
functions below; compiled, the inline C functions of the same names. So this is the one place where
the two kernels differ, and both are kept in step by the tests that run on either.

Rules
- None of these checks bounds except the varint readers: the caller has done it.
- A varint reader returns (value, position behind it); the position is -1 when the varint reaches
  `end` unfinished or is longer than its type allows. Bits beyond the type are dropped in records,
  as in Java.
- `p` is the buffer here and a pointer there; `acquire`/`release` bracket its use.
"""

from __future__ import annotations

import struct
from typing import Any

Bytes = Any
"""bytes, bytearray or a memoryview of unsigned bytes; a pointer when compiled."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_PARTITION = struct.Struct(">ihqqq")
_OLD_PARTITION = struct.Struct(">ihqq")
_UINT32 = struct.Struct(">I")


def acquire(buf: Any) -> Any:
    """The buffer in a form that yields ints when indexed. Compiled: pins its memory."""
    if isinstance(buf, (bytes, bytearray)):
        return buf
    view = memoryview(buf)
    if not view.contiguous:
        raise BufferError("the kernel reads contiguous buffers only")
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def release(view: Any) -> None:
    """Ends what `acquire` began. Compiled: unpins."""


def yield_gil() -> None:
    """Lets a waiting thread run. Interpreted code does so by itself."""


def pointer(view: Any) -> Any:
    return view


def length(view: Any) -> int:
    return len(view)


def load_int8(p: Bytes, pos: int) -> int:
    value: int = p[pos]
    return value - 256 if value > 127 else value


def load_int16(p: Bytes, pos: int) -> int:
    value: int = _INT16.unpack_from(p, pos)[0]
    return value


def load_int32(p: Bytes, pos: int) -> int:
    value: int = _INT32.unpack_from(p, pos)[0]
    return value


def load_int64(p: Bytes, pos: int) -> int:
    value: int = _INT64.unpack_from(p, pos)[0]
    return value


def load_uint32(p: Bytes, pos: int) -> int:
    value: int = _UINT32.unpack_from(p, pos)[0]
    return value


def overflows(base: int, delta: int) -> bool:
    """Whether base + delta leaves 64 bits."""
    return not -(2**63) <= base + delta < 2**63


def take_bytes(p: Bytes, start: int, end: int) -> bytes:
    return bytes(p[start:end])


def take_text(p: Bytes, start: int, end: int) -> str:
    """Raises UnicodeDecodeError."""
    return str(p[start:end], "utf-8")


def append_bytes(out: bytearray, p: Bytes, start: int, end: int) -> None:
    out += p[start:end]


def as_tuple(fields: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same value. Compiled: known to be a tuple, of whatever class."""
    return fields


def append_data(out: bytearray, data: bytes) -> None:
    out += data


def append_int8(out: bytearray, value: int) -> None:
    out.append(value & 0xFF)


def append_int16(out: bytearray, value: int) -> None:
    out += _INT16.pack(value)


def append_int32(out: bytearray, value: int) -> None:
    out += _INT32.pack(value)


def append_int64(out: bytearray, value: int) -> None:
    out += _INT64.pack(value)


def append_partition(
    out: bytearray,
    index: int,
    error_code: int,
    first: int,
    second: int,
    third: int,
    has_third: bool,
) -> None:
    """How a partition's answer begins: index, error code, two or three offsets or times."""
    if has_third:
        out += _PARTITION.pack(index, error_code, first, second, third)
    else:
        out += _OLD_PARTITION.pack(index, error_code, first, second)


def append_uvarint(out: bytearray, value: int) -> None:
    """Unsigned, 32 bits."""
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def store_int32(out: bytearray, pos: int, value: int) -> None:
    _INT32.pack_into(out, pos, value)


def append_varlong(out: bytearray, value: int) -> None:
    """Zigzag, 64 bits; the same bytes as a varint of 32 bits for values that fit one."""
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{value} does not fit 64 bits")
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def starts_with(p: Bytes, start: int, end: int, prefix: bytes) -> bool:
    """Whether p[start:end] begins with `prefix`."""
    return bytes(p[start : min(end, start + len(prefix))]) == prefix


def equals(p: Bytes, first: int, second: int, size: int) -> bool:
    """Whether the `size` bytes at p[first] and p[second] are the same."""
    return bytes(p[first : first + size]) == bytes(p[second : second + size])


def contains(p: Bytes, start: int, end: int, needle: bytes) -> bool:
    """Whether `needle` occurs in p[start:end]."""
    if isinstance(p, memoryview):
        return needle in bytes(p[start:end])
    found: int = p.find(needle, start, end)
    return found >= 0


def read_uvarint(p: Bytes, pos: int, end: int) -> tuple[int, int]:
    """Unsigned, 32 bits; a value beyond them is broken, as for `primitives.Reader`."""
    value, pos = _read_long(p, pos, end)
    return (value, pos) if value < 2**32 else (0, -1)


def _read_long(p: Bytes, pos: int, end: int) -> tuple[int, int]:
    """Unsigned, up to five bytes, which hold 35 bits."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        if pos >= end:
            return 0, -1
        byte = p[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
    return 0, -1


def read_varint(p: Bytes, pos: int, end: int) -> tuple[int, int]:
    """Zigzag, 32 bits."""
    if pos < end:
        byte = p[pos]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), pos + 1
    value, pos = _read_long(p, pos, end)
    value &= 0xFFFFFFFF
    return (value >> 1) ^ -(value & 1), pos


def read_varlong(p: Bytes, pos: int, end: int) -> tuple[int, int]:
    """Zigzag, 64 bits."""
    value = shift = 0
    while shift <= 63:
        if pos >= end:
            return 0, -1
        byte = p[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFFFFFFFFFF
            return (value >> 1) ^ -(value & 1), pos
        shift += 7
    return 0, -1
