"""AddOffsetsToTxnResponse (API key 25), versions 0 to 4, flexible from 3.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import Message, Reader, Writer, unsupported_version

_INT32_INT16 = Struct(">ih")


class AddOffsetsToTxnResponse(Message):
    """The message."""

    __slots__ = (
        "error_code",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code


def decode_add_offsets_to_txn_response(reader: Reader, version: int) -> AddOffsetsToTxnResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 4:
        raise unsupported_version("AddOffsetsToTxnResponse", version)
    message = object.__new__(AddOffsetsToTxnResponse)
    (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def encode_add_offsets_to_txn_response(
    writer: Writer, message: AddOffsetsToTxnResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 4:
        raise unsupported_version("AddOffsetsToTxnResponse", version)
    writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    if version >= 3:
        writer.buf.append(0)
