"""DescribeDelayedRequest (API key 20000), versions 0 to 0, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_2XINT64_BOOL_3XINT32 = Struct(">qq?iii")
_INT32_2XINT64 = Struct(">iqq")


class DescribeDelayedRequest(Message):
    """The message."""

    __slots__ = (
        "after_deliver_at_ms",
        "after_offset",
        "bytes_max",
        "edges_ms",
        "filter",
        "from_ms",
        "is_to_cancel",
        "messages_max",
        "partition",
        "topic",
        "until_ms",
        "value_bytes_max",
    )

    def __init__(
        self,
        *,
        topic: str = "",
        partition: int = 0,
        from_ms: int = -1,
        until_ms: int = -1,
        filter: str = "",
        after_deliver_at_ms: int = -1,
        after_offset: int = -1,
        is_to_cancel: bool = False,
        messages_max: int = 0,
        bytes_max: int = 0,
        value_bytes_max: int = 0,
        edges_ms: list[int] = EMPTY,
    ) -> None:
        self.topic = topic  # topicName
        self.partition = partition
        self.from_ms = from_ms
        self.until_ms = until_ms
        self.filter = filter
        self.after_deliver_at_ms = after_deliver_at_ms
        self.after_offset = after_offset
        self.is_to_cancel = is_to_cancel
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.value_bytes_max = value_bytes_max
        self.edges_ms = [] if edges_ms is EMPTY else edges_ms


def decode_describe_delayed_request(reader: Reader, version: int) -> DescribeDelayedRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("DescribeDelayedRequest", version)
    message = object.__new__(DescribeDelayedRequest)
    message.topic = reader.read_compact_string("topic")
    (message.partition, message.from_ms, message.until_ms) = reader.unpack(_INT32_2XINT64)
    message.filter = reader.read_compact_string("filter")
    (
        message.after_deliver_at_ms,
        message.after_offset,
        message.is_to_cancel,
        message.messages_max,
        message.bytes_max,
        message.value_bytes_max,
    ) = reader.unpack(_2XINT64_BOOL_3XINT32)
    message.edges_ms = reader.read_int64_array(reader.read_compact_array_length(8, "edges_ms"))
    reader.skip_tagged_fields()
    return message


def encode_describe_delayed_request(
    writer: Writer, message: DescribeDelayedRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("DescribeDelayedRequest", version)
    writer.write_compact_string(message.topic, "topic")
    writer.buf += _INT32_2XINT64.pack(message.partition, message.from_ms, message.until_ms)
    writer.write_compact_string(message.filter, "filter")
    writer.buf += _2XINT64_BOOL_3XINT32.pack(
        message.after_deliver_at_ms,
        message.after_offset,
        message.is_to_cancel,
        message.messages_max,
        message.bytes_max,
        message.value_bytes_max,
    )
    writer.write_compact_array_length(message.edges_ms, "edges_ms")
    writer.write_int64_array(message.edges_ms)
    writer.buf.append(0)
