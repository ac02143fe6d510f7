"""Kafka's primitive types over a byte buffer: a bounds-checked `Reader` and a `Writer`.

Generated message modules are straight lines of calls into these; nothing else in the product
interprets request bytes, apart from the record batches (records.py) and the kernel's hot paths.
This module is the door to reader.py, writer.py and message.py.

What is deliberately absent: versions, headers and messages, and a bound for the frame itself; the
server has that before the frame is read from the socket.

Sizes on the wire (big endian): a length-prefixed type has a signed prefix, where -1 is null
(int16 for strings, int32 for bytes and arrays), or in flexible versions ("compact") an unsigned
varint of length + 1, where 0 is null.
"""

from __future__ import annotations

from data_plane.wire.message import (
    ARRAY_ITEMS_MAX,
    EMPTY,
    STRING_BYTES_MAX,
    UVARINT_BYTES_MAX,
    VARLONG_BYTES_MAX,
    ZERO_UUID,
    Buffer,
    Message,
    null_field,
    unsupported_field,
    unsupported_version,
)
from data_plane.wire.reader import Reader
from data_plane.wire.writer import Writer

__all__ = [
    "ARRAY_ITEMS_MAX",
    "EMPTY",
    "STRING_BYTES_MAX",
    "UVARINT_BYTES_MAX",
    "VARLONG_BYTES_MAX",
    "ZERO_UUID",
    "Buffer",
    "Message",
    "Reader",
    "Writer",
    "null_field",
    "unsupported_field",
    "unsupported_version",
]
