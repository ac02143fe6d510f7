"""DescribeDelayedResponse (API key 20000), versions 0 to 0, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_2XINT64 = Struct(">qq")
_3XINT64 = Struct(">qqq")
_3XINT64_INT32_BOOL = Struct(">qqqi?")
_INT32_INT16 = Struct(">ih")


class DelayedHeader(Message):
    """Part of DescribeDelayedResponse."""

    __slots__ = (
        "key",
        "value",
    )

    def __init__(
        self,
        *,
        key: bytes = b"",
        value: bytes | None = None,
    ) -> None:
        self.key = key
        self.value = value


class DelayedMessage(Message):
    """Part of DescribeDelayedResponse."""

    __slots__ = (
        "deliver_at_ms",
        "headers",
        "is_cut",
        "key",
        "offset",
        "timestamp_ms",
        "value",
        "value_bytes",
    )

    def __init__(
        self,
        *,
        deliver_at_ms: int = 0,
        offset: int = 0,
        timestamp_ms: int = 0,
        value_bytes: int = 0,
        is_cut: bool = False,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: list[DelayedHeader] = EMPTY,
    ) -> None:
        self.deliver_at_ms = deliver_at_ms
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.value_bytes = value_bytes
        self.is_cut = is_cut
        self.key = key
        self.value = value
        self.headers = [] if headers is EMPTY else headers


class DescribeDelayedResponse(Message):
    """The message."""

    __slots__ = (
        "counts",
        "error_code",
        "error_message",
        "first_ms",
        "messages",
        "next_deliver_at_ms",
        "next_offset",
        "offsets",
        "pending_count",
        "throttle_time_ms",
        "uncertain_count",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        pending_count: int = 0,
        uncertain_count: int = 0,
        first_ms: int = -1,
        counts: list[int] = EMPTY,
        messages: list[DelayedMessage] = EMPTY,
        offsets: list[int] = EMPTY,
        next_deliver_at_ms: int = -1,
        next_offset: int = -1,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.pending_count = pending_count
        self.uncertain_count = uncertain_count
        self.first_ms = first_ms
        self.counts = [] if counts is EMPTY else counts
        self.messages = [] if messages is EMPTY else messages
        self.offsets = [] if offsets is EMPTY else offsets
        self.next_deliver_at_ms = next_deliver_at_ms
        self.next_offset = next_offset


def _decode_delayed_header(reader: Reader, version: int) -> DelayedHeader:
    message = object.__new__(DelayedHeader)
    message.key = reader.read_compact_bytes("key")
    message.value = reader.read_nullable_compact_bytes("value")
    reader.skip_tagged_fields()
    return message


def _decode_delayed_message(reader: Reader, version: int) -> DelayedMessage:
    message = object.__new__(DelayedMessage)
    (
        message.deliver_at_ms,
        message.offset,
        message.timestamp_ms,
        message.value_bytes,
        message.is_cut,
    ) = reader.unpack(_3XINT64_INT32_BOOL)
    message.key = reader.read_nullable_compact_bytes("key")
    message.value = reader.read_nullable_compact_bytes("value")
    message.headers = [
        _decode_delayed_header(reader, version)
        for _ in range(reader.read_compact_array_length(3, "headers"))
    ]
    reader.skip_tagged_fields()
    return message


def decode_describe_delayed_response(reader: Reader, version: int) -> DescribeDelayedResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("DescribeDelayedResponse", version)
    message = object.__new__(DescribeDelayedResponse)
    (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    message.error_message = reader.read_nullable_compact_string("error_message")
    (message.pending_count, message.uncertain_count, message.first_ms) = reader.unpack(_3XINT64)
    message.counts = reader.read_int64_array(reader.read_compact_array_length(8, "counts"))
    message.messages = [
        _decode_delayed_message(reader, version)
        for _ in range(reader.read_compact_array_length(33, "messages"))
    ]
    message.offsets = reader.read_int64_array(reader.read_compact_array_length(8, "offsets"))
    (message.next_deliver_at_ms, message.next_offset) = reader.unpack(_2XINT64)
    reader.skip_tagged_fields()
    return message


def _encode_delayed_header(writer: Writer, message: DelayedHeader, version: int) -> None:
    writer.write_compact_bytes(message.key, "key")
    writer.write_nullable_compact_bytes(message.value, "value")
    writer.buf.append(0)


def _encode_delayed_message(writer: Writer, message: DelayedMessage, version: int) -> None:
    writer.buf += _3XINT64_INT32_BOOL.pack(
        message.deliver_at_ms,
        message.offset,
        message.timestamp_ms,
        message.value_bytes,
        message.is_cut,
    )
    writer.write_nullable_compact_bytes(message.key, "key")
    writer.write_nullable_compact_bytes(message.value, "value")
    writer.write_compact_array_length(message.headers, "headers")
    for delayed_header in message.headers:
        _encode_delayed_header(writer, delayed_header, version)
    writer.buf.append(0)


def encode_describe_delayed_response(
    writer: Writer, message: DescribeDelayedResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("DescribeDelayedResponse", version)
    writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.buf += _3XINT64.pack(message.pending_count, message.uncertain_count, message.first_ms)
    writer.write_compact_array_length(message.counts, "counts")
    writer.write_int64_array(message.counts)
    writer.write_compact_array_length(message.messages, "messages")
    for delayed_message in message.messages:
        _encode_delayed_message(writer, delayed_message, version)
    writer.write_compact_array_length(message.offsets, "offsets")
    writer.write_int64_array(message.offsets)
    writer.buf += _2XINT64.pack(message.next_deliver_at_ms, message.next_offset)
    writer.buf.append(0)
