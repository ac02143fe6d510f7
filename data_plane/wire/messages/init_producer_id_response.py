"""InitProducerIdResponse (API key 22), versions 0 to 6, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import Message, Reader, Writer, unsupported_version

_INT32_INT16_INT64_INT16 = Struct(">ihqh")
_INT32_INT16_INT64_INT16_INT64_INT16 = Struct(">ihqhqh")


class InitProducerIdResponse(Message):
    """The message."""

    __slots__ = (
        "error_code",
        "ongoing_txn_producer_epoch",
        "ongoing_txn_producer_id",
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
        producer_epoch: int = 0,
        ongoing_txn_producer_id: int = -1,
        ongoing_txn_producer_epoch: int = -1,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.producer_id = producer_id  # producerId
        self.producer_epoch = producer_epoch
        self.ongoing_txn_producer_id = ongoing_txn_producer_id  # versions 6 to 6, producerId
        self.ongoing_txn_producer_epoch = ongoing_txn_producer_epoch  # versions 6 to 6


def decode_init_producer_id_response(reader: Reader, version: int) -> InitProducerIdResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 6:
        raise unsupported_version("InitProducerIdResponse", version)
    message = object.__new__(InitProducerIdResponse)
    if version >= 6:
        (
            message.throttle_time_ms,
            message.error_code,
            message.producer_id,
            message.producer_epoch,
            message.ongoing_txn_producer_id,
            message.ongoing_txn_producer_epoch,
        ) = reader.unpack(_INT32_INT16_INT64_INT16_INT64_INT16)
    else:
        (
            message.throttle_time_ms,
            message.error_code,
            message.producer_id,
            message.producer_epoch,
        ) = reader.unpack(_INT32_INT16_INT64_INT16)
        message.ongoing_txn_producer_id = -1
        message.ongoing_txn_producer_epoch = -1
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def encode_init_producer_id_response(
    writer: Writer, message: InitProducerIdResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 6:
        raise unsupported_version("InitProducerIdResponse", version)
    if version >= 6:
        writer.buf += _INT32_INT16_INT64_INT16_INT64_INT16.pack(
            message.throttle_time_ms,
            message.error_code,
            message.producer_id,
            message.producer_epoch,
            message.ongoing_txn_producer_id,
            message.ongoing_txn_producer_epoch,
        )
    else:
        writer.buf += _INT32_INT16_INT64_INT16.pack(
            message.throttle_time_ms,
            message.error_code,
            message.producer_id,
            message.producer_epoch,
        )
    if version >= 2:
        writer.buf.append(0)
