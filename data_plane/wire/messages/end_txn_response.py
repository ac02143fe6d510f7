"""EndTxnResponse (API key 26), versions 0 to 5, flexible from 3.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import Message, Reader, Writer, unsupported_version

_INT32_INT16 = Struct(">ih")
_INT32_INT16_INT64_INT16 = Struct(">ihqh")


class EndTxnResponse(Message):
    """The message."""

    __slots__ = (
        "error_code",
        "producer_epoch",
        "producer_id",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.producer_id = producer_id  # versions 5 to 5, producerId
        self.producer_epoch = producer_epoch  # versions 5 to 5


def decode_end_txn_response(reader: Reader, version: int) -> EndTxnResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 5:
        raise unsupported_version("EndTxnResponse", version)
    message = object.__new__(EndTxnResponse)
    if version >= 5:
        (
            message.throttle_time_ms,
            message.error_code,
            message.producer_id,
            message.producer_epoch,
        ) = reader.unpack(_INT32_INT16_INT64_INT16)
    else:
        (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
        message.producer_id = -1
        message.producer_epoch = -1
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def encode_end_txn_response(writer: Writer, message: EndTxnResponse, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 5:
        raise unsupported_version("EndTxnResponse", version)
    if version >= 5:
        writer.buf += _INT32_INT16_INT64_INT16.pack(
            message.throttle_time_ms,
            message.error_code,
            message.producer_id,
            message.producer_epoch,
        )
    else:
        writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    if version >= 3:
        writer.buf.append(0)
