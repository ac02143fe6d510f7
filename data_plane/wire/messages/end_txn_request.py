"""EndTxnRequest (API key 26), versions 0 to 5, flexible from 3.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import Message, Reader, Writer, unsupported_version

_INT64_INT16_BOOL = Struct(">qh?")


class EndTxnRequest(Message):
    """The message."""

    __slots__ = (
        "committed",
        "producer_epoch",
        "producer_id",
        "transactional_id",
    )

    def __init__(
        self,
        *,
        transactional_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        committed: bool = False,
    ) -> None:
        self.transactional_id = transactional_id  # transactionalId
        self.producer_id = producer_id  # producerId
        self.producer_epoch = producer_epoch
        self.committed = committed


def decode_end_txn_request(reader: Reader, version: int) -> EndTxnRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 5:
        raise unsupported_version("EndTxnRequest", version)
    message = object.__new__(EndTxnRequest)
    if version >= 3:
        message.transactional_id = reader.read_compact_string("transactional_id")
    else:
        message.transactional_id = reader.read_string("transactional_id")
    (message.producer_id, message.producer_epoch, message.committed) = reader.unpack(
        _INT64_INT16_BOOL
    )
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def encode_end_txn_request(writer: Writer, message: EndTxnRequest, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 5:
        raise unsupported_version("EndTxnRequest", version)
    if version >= 3:
        writer.write_compact_string(message.transactional_id, "transactional_id")
    else:
        writer.write_string(message.transactional_id, "transactional_id")
    writer.buf += _INT64_INT16_BOOL.pack(
        message.producer_id, message.producer_epoch, message.committed
    )
    if version >= 3:
        writer.buf.append(0)
