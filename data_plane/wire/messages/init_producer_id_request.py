"""InitProducerIdRequest (API key 22), versions 0 to 6, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import (
    Message,
    Reader,
    Writer,
    unsupported_field,
    unsupported_version,
)

_INT32_INT64_INT16 = Struct(">iqh")
_INT32_INT64_INT16_2XBOOL = Struct(">iqh??")


class InitProducerIdRequest(Message):
    """The message."""

    __slots__ = (
        "enable2_pc",
        "keep_prepared_txn",
        "producer_epoch",
        "producer_id",
        "transaction_timeout_ms",
        "transactional_id",
    )

    def __init__(
        self,
        *,
        transactional_id: str | None = "",
        transaction_timeout_ms: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
        enable2_pc: bool = False,
        keep_prepared_txn: bool = False,
    ) -> None:
        self.transactional_id = transactional_id  # transactionalId
        self.transaction_timeout_ms = transaction_timeout_ms
        self.producer_id = producer_id  # versions 3 to 6, producerId
        self.producer_epoch = producer_epoch  # versions 3 to 6
        self.enable2_pc = enable2_pc  # versions 6 to 6
        self.keep_prepared_txn = keep_prepared_txn  # versions 6 to 6


def decode_init_producer_id_request(reader: Reader, version: int) -> InitProducerIdRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 6:
        raise unsupported_version("InitProducerIdRequest", version)
    message = object.__new__(InitProducerIdRequest)
    if version >= 2:
        message.transactional_id = reader.read_nullable_compact_string("transactional_id")
    else:
        message.transactional_id = reader.read_nullable_string("transactional_id")
    if version >= 6:
        (
            message.transaction_timeout_ms,
            message.producer_id,
            message.producer_epoch,
            message.enable2_pc,
            message.keep_prepared_txn,
        ) = reader.unpack(_INT32_INT64_INT16_2XBOOL)
    elif version >= 3:
        (message.transaction_timeout_ms, message.producer_id, message.producer_epoch) = (
            reader.unpack(_INT32_INT64_INT16)
        )
        message.enable2_pc = False
        message.keep_prepared_txn = False
    else:
        message.transaction_timeout_ms = reader.read_int32()
        message.producer_id = -1
        message.producer_epoch = -1
        message.enable2_pc = False
        message.keep_prepared_txn = False
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def encode_init_producer_id_request(
    writer: Writer, message: InitProducerIdRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 6:
        raise unsupported_version("InitProducerIdRequest", version)
    if version >= 2:
        writer.write_nullable_compact_string(message.transactional_id, "transactional_id")
    else:
        writer.write_nullable_string(message.transactional_id, "transactional_id")
    if version >= 6:
        writer.buf += _INT32_INT64_INT16_2XBOOL.pack(
            message.transaction_timeout_ms,
            message.producer_id,
            message.producer_epoch,
            message.enable2_pc,
            message.keep_prepared_txn,
        )
    elif version >= 3:
        if message.enable2_pc:
            raise unsupported_field("InitProducerIdRequest", "enable2_pc", version)
        if message.keep_prepared_txn:
            raise unsupported_field("InitProducerIdRequest", "keep_prepared_txn", version)
        writer.buf += _INT32_INT64_INT16.pack(
            message.transaction_timeout_ms, message.producer_id, message.producer_epoch
        )
    else:
        if message.producer_id != -1:
            raise unsupported_field("InitProducerIdRequest", "producer_id", version)
        if message.producer_epoch != -1:
            raise unsupported_field("InitProducerIdRequest", "producer_epoch", version)
        if message.enable2_pc:
            raise unsupported_field("InitProducerIdRequest", "enable2_pc", version)
        if message.keep_prepared_txn:
            raise unsupported_field("InitProducerIdRequest", "keep_prepared_txn", version)
        writer.write_int32(message.transaction_timeout_ms)
    if version >= 2:
        writer.buf.append(0)
