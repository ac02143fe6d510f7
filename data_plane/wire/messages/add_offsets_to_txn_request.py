"""AddOffsetsToTxnRequest (API key 25), versions 0 to 4, flexible from 3.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import Message, Reader, Writer, unsupported_version

_INT64_INT16 = Struct(">qh")


class AddOffsetsToTxnRequest(Message):
    """The message."""

    __slots__ = (
        "group_id",
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
        group_id: str = "",
    ) -> None:
        self.transactional_id = transactional_id  # transactionalId
        self.producer_id = producer_id  # producerId
        self.producer_epoch = producer_epoch
        self.group_id = group_id  # groupId


def decode_add_offsets_to_txn_request(reader: Reader, version: int) -> AddOffsetsToTxnRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 4:
        raise unsupported_version("AddOffsetsToTxnRequest", version)
    message = object.__new__(AddOffsetsToTxnRequest)
    if version >= 3:
        message.transactional_id = reader.read_compact_string("transactional_id")
    else:
        message.transactional_id = reader.read_string("transactional_id")
    (message.producer_id, message.producer_epoch) = reader.unpack(_INT64_INT16)
    if version >= 3:
        message.group_id = reader.read_compact_string("group_id")
    else:
        message.group_id = reader.read_string("group_id")
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def encode_add_offsets_to_txn_request(
    writer: Writer, message: AddOffsetsToTxnRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 4:
        raise unsupported_version("AddOffsetsToTxnRequest", version)
    if version >= 3:
        writer.write_compact_string(message.transactional_id, "transactional_id")
    else:
        writer.write_string(message.transactional_id, "transactional_id")
    writer.buf += _INT64_INT16.pack(message.producer_id, message.producer_epoch)
    if version >= 3:
        writer.write_compact_string(message.group_id, "group_id")
        writer.buf.append(0)
    else:
        writer.write_string(message.group_id, "group_id")
