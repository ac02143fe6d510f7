"""Reader and Writer: what each accepts, at its bounds and on both sides of them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.wire.errors import InvalidMessage, MalformedFrame
from data_plane.wire.primitives import (
    ARRAY_ITEMS_MAX,
    STRING_BYTES_MAX,
    ZERO_UUID,
    Buffer,
    Message,
    Reader,
    Writer,
)


def written(write: Callable[[Writer], None]) -> bytes:
    writer = Writer()
    write(writer)
    return bytes(writer.buf)


INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


@pytest.mark.parametrize("kind", INTEGERS)
@given(data=st.data())
def test_signed_integers(kind: str, data: st.DataObject) -> None:
    half = 1 << (INTEGERS[kind] - 1)
    value = data.draw(st.integers(-half, half - 1))
    encoded = written(lambda w: getattr(w, f"write_{kind}")(value))
    assert encoded == value.to_bytes(INTEGERS[kind] // 8, "big", signed=True)
    assert getattr(Reader(encoded), f"read_{kind}")() == value


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF_FFFF), st.floats(allow_nan=False))
def test_unsigned_integers_and_floats(small: int, large: int, number: float) -> None:
    writer = Writer()
    writer.write_uint16(small)
    writer.write_uint32(large)
    writer.write_float64(number)
    assert bytes(writer.buf) == struct.pack(">HId", small, large, number)
    reader = Reader(writer.buf)
    assert (reader.read_uint16(), reader.read_uint32()) == (small, large)
    assert reader.read_float64() == number


def test_any_byte_but_zero_is_true() -> None:
    assert [Reader(bytes([byte])).read_bool() for byte in (0, 1, 2, 255)] == [False, *[True] * 3]
    assert written(lambda w: w.write_bool(True)) == b"\x01"


@given(st.integers(0, 0xFFFF_FFFF))
def test_uvarint(value: int) -> None:
    encoded = written(lambda w: w.write_uvarint(value))
    assert len(encoded) == max(1, (value.bit_length() + 6) // 7)
    reader = Reader(encoded + b"\xff")
    assert reader.read_uvarint() == value
    assert reader.remaining == 1


@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_varint(value: int) -> None:
    assert Reader(written(lambda w: w.write_varint(value))).read_varint() == value


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_varlong(value: int) -> None:
    assert Reader(written(lambda w: w.write_varlong(value))).read_varlong() == value


def test_zigzag_as_in_the_protocol_buffers_documents() -> None:
    for value, encoded in ((0, b"\0"), (-1, b"\1"), (1, b"\2"), (-2, b"\3"), (150, b"\xac\x02")):
        assert written(lambda w, value=value: w.write_varint(value)) == encoded  # type: ignore[misc]


@pytest.mark.parametrize(
    ("data", "read", "reason"),
    [
        (b"\x80\x80\x80\x80\x80\x01", "read_uvarint", "longer than 5 bytes"),
        (b"\xff\xff\xff\xff\x1f", "read_uvarint", "exceeds 32 bits"),
        (b"\x80\x80\x80\x80\x10", "read_varint", "exceeds 32 bits"),
        (b"\xff" * 9 + b"\x02", "read_varlong", "exceeds 64 bits"),
        (b"\x80" * 10 + b"\x01", "read_varlong", "longer than 10 bytes"),
        (b"\x80\x80", "read_uvarint", "1 more bytes expected"),
        (b"", "read_uvarint", "1 more bytes expected"),
        (b"", "read_varlong", "1 more bytes expected"),
    ],
)
def test_malformed_varints(data: bytes, read: str, reason: str) -> None:
    with pytest.raises(MalformedFrame, match=reason):
        getattr(Reader(data), read)()


def test_a_varint_may_carry_leading_zeros() -> None:
    assert Reader(b"\x81\x80\x80\x80\x00").read_uvarint() == 1


@given(st.uuids())
def test_uuid(value: UUID) -> None:
    encoded = written(lambda w: w.write_uuid(value))
    assert encoded == value.bytes
    again = Reader(encoded).read_uuid()
    assert (again, hash(again), str(again)) == (value, hash(value), str(value))


def test_the_zero_uuid_is_one_object() -> None:
    assert Reader(bytes(16)).read_uuid() is ZERO_UUID


STRINGS = ["string", "nullable_string", "compact_string", "nullable_compact_string"]
BYTES = ["bytes", "nullable_bytes", "compact_bytes", "nullable_compact_bytes"]


@pytest.mark.parametrize("kind", STRINGS)
@given(value=st.text(st.characters(codec="utf-8")))
def test_strings(kind: str, value: str) -> None:
    encoded = written(lambda w: getattr(w, f"write_{kind}")(value, "name"))
    for buffer in (encoded, bytearray(encoded), memoryview(encoded)):
        assert getattr(Reader(buffer), f"read_{kind}")("name") == value


@pytest.mark.parametrize("kind", BYTES)
@given(value=st.binary())
def test_bytes(kind: str, value: bytes) -> None:
    encoded = written(lambda w: getattr(w, f"write_{kind}")(value, "data"))
    again = getattr(Reader(bytearray(encoded)), f"read_{kind}")("data")
    assert again == value
    assert type(again) is bytes
    view = getattr(Reader(encoded), f"read_{kind.replace('bytes', 'records')}")("records")
    assert view == value
    assert type(view) is memoryview


@pytest.mark.parametrize("kind", STRINGS + BYTES)
def test_null(kind: str) -> None:
    is_nullable = kind.startswith("nullable")
    width = 1 if "compact" in kind else 2 if "string" in kind else 4
    null = b"\0" if width == 1 else b"\xff" * width
    if is_nullable:
        assert getattr(Reader(null), f"read_{kind}")("name") is None
        assert written(lambda w: getattr(w, f"write_{kind}")(None, "name")) == null
    else:
        with pytest.raises(MalformedFrame, match="name is null"):
            getattr(Reader(null), f"read_{kind}")("name")
        with pytest.raises(InvalidMessage, match="name is None"):
            getattr(Writer(), f"write_{kind}")(None, "name")


@pytest.mark.parametrize("kind", ["string", "compact_string"])
def test_the_longest_string(kind: str) -> None:
    longest = "x" * STRING_BYTES_MAX
    encoded = written(lambda w: getattr(w, f"write_{kind}")(longest, "name"))
    assert getattr(Reader(encoded), f"read_{kind}")("name") == longest
    with pytest.raises(InvalidMessage, match="name has 32768 bytes"):
        getattr(Writer(), f"write_{kind}")(longest + "x", "name")


def test_a_compact_string_beyond_the_longest_is_malformed() -> None:
    writer = Writer()
    writer.write_uvarint(STRING_BYTES_MAX + 2)
    with pytest.raises(MalformedFrame, match="name claims length 32768"):
        Reader(bytes(writer.buf) + bytes(40_000)).read_compact_string("name")


@pytest.mark.parametrize("data", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"])
def test_a_string_must_be_utf_8(data: bytes) -> None:
    encoded = struct.pack(">h", len(data)) + data
    with pytest.raises(MalformedFrame, match="name at byte 2 is not UTF-8"):
        Reader(encoded).read_string("name")


@pytest.mark.parametrize(
    ("data", "read"),
    [
        (b"\xff\xfe", "read_nullable_string"),
        (b"\x80\x00", "read_string"),
        (b"\xff\xff\xff\xfe", "read_nullable_bytes"),
        (b"\xff\xff\xff\xfe", "read_nullable_records"),
        (b"\x80\x00\x00\x00", "read_records"),
    ],
)
def test_negative_lengths_other_than_null(data: bytes, read: str) -> None:
    with pytest.raises(MalformedFrame, match="claims length -"):
        getattr(Reader(data + bytes(8)), read)("name")


ARRAYS: list[tuple[str, bytes]] = [
    ("read_array_length", b"\0\0\0\3"),
    ("read_nullable_array_length", b"\0\0\0\3"),
    ("read_compact_array_length", b"\4"),
    ("read_nullable_compact_array_length", b"\4"),
]


@pytest.mark.parametrize(("read", "prefix"), ARRAYS)
def test_an_array_must_fit_into_what_follows(read: str, prefix: bytes) -> None:
    assert getattr(Reader(prefix + bytes(12)), read)(4, "items") == 3
    with pytest.raises(MalformedFrame, match="items claims 3 items"):
        getattr(Reader(prefix + bytes(11)), read)(4, "items")


@pytest.mark.parametrize(("read", "prefix"), ARRAYS)
def test_null_arrays(read: str, prefix: bytes) -> None:
    null = b"\0" if "compact" in read else b"\xff\xff\xff\xff"
    if "nullable" in read:
        assert getattr(Reader(null), read)(4, "items") == -1
    else:
        with pytest.raises(MalformedFrame, match="items is null"):
            getattr(Reader(null), read)(4, "items")


def test_negative_array_lengths_other_than_null() -> None:
    with pytest.raises(MalformedFrame, match="claims length -2"):
        Reader(b"\xff\xff\xff\xfe").read_nullable_array_length(4, "items")


@pytest.mark.parametrize("kind", INTEGERS)
@given(data=st.data())
def test_number_arrays(kind: str, data: st.DataObject) -> None:
    half = 1 << (INTEGERS[kind] - 1)
    values = data.draw(st.lists(st.integers(-half, half - 1)))
    encoded = written(lambda w: getattr(w, f"write_{kind}_array")(values))
    assert getattr(Reader(encoded), f"read_{kind}_array")(len(values)) == values
    with pytest.raises(MalformedFrame):
        getattr(Reader(encoded), f"read_{kind}_array")(len(values) + 1)


READS: list[tuple[Callable[[Reader], Any], int]] = [
    (Reader.read_int8, 1),
    (Reader.read_bool, 1),
    (Reader.read_int16, 2),
    (Reader.read_uint16, 2),
    (Reader.read_int32, 4),
    (Reader.read_uint32, 4),
    (Reader.read_int64, 8),
    (Reader.read_float64, 8),
    (Reader.read_uuid, 16),
]


@pytest.mark.parametrize(("read", "size"), READS)
def test_nothing_is_read_past_the_end(read: Callable[[Reader], Any], size: int) -> None:
    buffer: Buffer = bytes(64)
    exact = Reader(buffer, 10, 10 + size)
    read(exact)
    assert exact.remaining == 0
    with pytest.raises(MalformedFrame, match=f"{size} more bytes expected at byte 10"):
        read(Reader(buffer, 10, 9 + size))


def test_tagged_fields() -> None:
    writer = Writer()
    content = Writer()
    content.write_int32(7)
    writer.write_tagged_fields([(0, content), (300, Writer())])
    assert bytes(writer.buf) == b"\x02\x00\x04\0\0\0\7\xac\x02\x00"
    reader = Reader(writer.buf)
    reader.skip_tagged_fields()
    assert reader.remaining == 0
    with pytest.raises(MalformedFrame):
        Reader(writer.buf, 0, 6).skip_tagged_fields()


def test_a_known_tagged_field_must_be_as_long_as_it_says() -> None:
    reader = Reader(b"\x04\0\0\0\7rest")
    after = reader.read_tagged_field_end()
    reader.read_int32()
    reader.check_tagged_field_end(after)
    with pytest.raises(MalformedFrame, match="tagged field ends at byte 5, not at 6"):
        reader.check_tagged_field_end(6)


class Point(Message):
    __slots__ = ("x", "y")

    def __init__(self, *, x: int = 0, y: int = 0) -> None:
        self.x = x
        self.y = y


def test_messages_compare_by_value_and_show_it() -> None:
    assert Point(x=1) == Point(x=1)
    assert Point(x=1) != Point(x=2)
    assert Point() != Message()
    assert repr(Point(x=1)) == "Point(x=1, y=0)"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point())


def test_tagged_fields_count_as_items_of_their_frame() -> None:
    for count, fits in ((ARRAY_ITEMS_MAX, True), (ARRAY_ITEMS_MAX + 1, False)):
        writer = Writer()
        writer.write_uvarint(count)
        reader = Reader(bytes(writer.buf) + b"\x00\x00" * count)
        if fits:
            reader.skip_tagged_fields()
            assert reader.remaining == 0
            assert reader.items_left == 0
        else:
            with pytest.raises(MalformedFrame, match="array items, in tagged fields"):
                reader.skip_tagged_fields()


def test_a_structure_is_absent_where_its_marker_is_negative() -> None:
    """As Apache Kafka reads it (KIP-893), whose writers say 1 or -1."""
    reader = Reader(b"\x01\x00\x7f\xff\x80")
    assert [reader.read_present() for _ in range(5)] == [True, True, True, False, False]
