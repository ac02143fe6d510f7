"""AddPartitionsToTxnRequest (API key 24), versions 0 to 5, flexible from 3.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import (
    EMPTY,
    Message,
    Reader,
    Writer,
    unsupported_field,
    unsupported_version,
)

_INT64_INT16 = Struct(">qh")
_INT64_INT16_BOOL = Struct(">qh?")


class AddPartitionsToTxnTopic(Message):
    """Part of AddPartitionsToTxnRequest."""

    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class AddPartitionsToTxnTransaction(Message):
    """Part of AddPartitionsToTxnRequest."""

    __slots__ = (
        "producer_epoch",
        "producer_id",
        "topics",
        "transactional_id",
        "verify_only",
    )

    def __init__(
        self,
        *,
        transactional_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        verify_only: bool = False,
        topics: list[AddPartitionsToTxnTopic] = EMPTY,
    ) -> None:
        self.transactional_id = transactional_id  # transactionalId
        self.producer_id = producer_id  # producerId
        self.producer_epoch = producer_epoch
        self.verify_only = verify_only
        self.topics = [] if topics is EMPTY else topics


class AddPartitionsToTxnRequest(Message):
    """The message."""

    __slots__ = (
        "transactions",
        "v3_and_below_producer_epoch",
        "v3_and_below_producer_id",
        "v3_and_below_topics",
        "v3_and_below_transactional_id",
    )

    def __init__(
        self,
        *,
        v3_and_below_transactional_id: str = "",
        v3_and_below_producer_id: int = 0,
        v3_and_below_producer_epoch: int = 0,
        v3_and_below_topics: list[AddPartitionsToTxnTopic] = EMPTY,
        transactions: list[AddPartitionsToTxnTransaction] = EMPTY,
    ) -> None:
        self.v3_and_below_transactional_id = (
            v3_and_below_transactional_id  # versions 0 to 3, transactionalId
        )
        self.v3_and_below_producer_id = v3_and_below_producer_id  # versions 0 to 3, producerId
        self.v3_and_below_producer_epoch = v3_and_below_producer_epoch  # versions 0 to 3
        self.v3_and_below_topics = (
            [] if v3_and_below_topics is EMPTY else v3_and_below_topics
        )  # versions 0 to 3
        self.transactions = [] if transactions is EMPTY else transactions  # versions 4 to 5


def _decode_add_partitions_to_txn_topic(reader: Reader, version: int) -> AddPartitionsToTxnTopic:
    message = object.__new__(AddPartitionsToTxnTopic)
    if version >= 3:
        message.name = reader.read_compact_string("name")
        message.partitions = reader.read_int32_array(
            reader.read_compact_array_length(4, "partitions")
        )
    else:
        message.name = reader.read_string("name")
        message.partitions = reader.read_int32_array(reader.read_array_length(4, "partitions"))
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def _decode_add_partitions_to_txn_transaction(
    reader: Reader, version: int
) -> AddPartitionsToTxnTransaction:
    message = object.__new__(AddPartitionsToTxnTransaction)
    message.transactional_id = reader.read_compact_string("transactional_id")
    (message.producer_id, message.producer_epoch, message.verify_only) = reader.unpack(
        _INT64_INT16_BOOL
    )
    message.topics = [
        _decode_add_partitions_to_txn_topic(reader, version)
        for _ in range(reader.read_compact_array_length(3, "topics"))
    ]
    reader.skip_tagged_fields()
    return message


def decode_add_partitions_to_txn_request(reader: Reader, version: int) -> AddPartitionsToTxnRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 5:
        raise unsupported_version("AddPartitionsToTxnRequest", version)
    message = object.__new__(AddPartitionsToTxnRequest)
    if version >= 4:
        message.v3_and_below_transactional_id = ""
    elif version >= 3:
        message.v3_and_below_transactional_id = reader.read_compact_string(
            "v3_and_below_transactional_id"
        )
    else:
        message.v3_and_below_transactional_id = reader.read_string("v3_and_below_transactional_id")
    if version >= 4:
        message.v3_and_below_producer_id = 0
        message.v3_and_below_producer_epoch = 0
    else:
        (message.v3_and_below_producer_id, message.v3_and_below_producer_epoch) = reader.unpack(
            _INT64_INT16
        )
    if version >= 4:
        message.v3_and_below_topics = []
    elif version >= 3:
        message.v3_and_below_topics = [
            _decode_add_partitions_to_txn_topic(reader, version)
            for _ in range(reader.read_compact_array_length(3, "v3_and_below_topics"))
        ]
    else:
        message.v3_and_below_topics = [
            _decode_add_partitions_to_txn_topic(reader, version)
            for _ in range(reader.read_array_length(6, "v3_and_below_topics"))
        ]
    if version >= 4:
        message.transactions = [
            _decode_add_partitions_to_txn_transaction(reader, version)
            for _ in range(reader.read_compact_array_length(14, "transactions"))
        ]
    else:
        message.transactions = []
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def _encode_add_partitions_to_txn_topic(
    writer: Writer, message: AddPartitionsToTxnTopic, version: int
) -> None:
    if version >= 3:
        writer.write_compact_string(message.name, "name")
        writer.write_compact_array_length(message.partitions, "partitions")
        writer.write_int32_array(message.partitions)
        writer.buf.append(0)
    else:
        writer.write_string(message.name, "name")
        writer.write_array_length(message.partitions, "partitions")
        writer.write_int32_array(message.partitions)


def _encode_add_partitions_to_txn_transaction(
    writer: Writer, message: AddPartitionsToTxnTransaction, version: int
) -> None:
    writer.write_compact_string(message.transactional_id, "transactional_id")
    writer.buf += _INT64_INT16_BOOL.pack(
        message.producer_id, message.producer_epoch, message.verify_only
    )
    writer.write_compact_array_length(message.topics, "topics")
    for add_partitions_to_txn_topic in message.topics:
        _encode_add_partitions_to_txn_topic(writer, add_partitions_to_txn_topic, version)
    writer.buf.append(0)


def encode_add_partitions_to_txn_request(
    writer: Writer, message: AddPartitionsToTxnRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 5:
        raise unsupported_version("AddPartitionsToTxnRequest", version)
    if version >= 4:
        if message.v3_and_below_transactional_id:
            raise unsupported_field(
                "AddPartitionsToTxnRequest", "v3_and_below_transactional_id", version
            )
    elif version >= 3:
        writer.write_compact_string(
            message.v3_and_below_transactional_id, "v3_and_below_transactional_id"
        )
    else:
        writer.write_string(message.v3_and_below_transactional_id, "v3_and_below_transactional_id")
    if version >= 4:
        if message.v3_and_below_producer_id != 0:
            raise unsupported_field(
                "AddPartitionsToTxnRequest", "v3_and_below_producer_id", version
            )
        if message.v3_and_below_producer_epoch != 0:
            raise unsupported_field(
                "AddPartitionsToTxnRequest", "v3_and_below_producer_epoch", version
            )
    else:
        writer.buf += _INT64_INT16.pack(
            message.v3_and_below_producer_id, message.v3_and_below_producer_epoch
        )
    if version >= 4:
        if message.v3_and_below_topics:
            raise unsupported_field("AddPartitionsToTxnRequest", "v3_and_below_topics", version)
    elif version >= 3:
        writer.write_compact_array_length(message.v3_and_below_topics, "v3_and_below_topics")
        for add_partitions_to_txn_topic in message.v3_and_below_topics:
            _encode_add_partitions_to_txn_topic(writer, add_partitions_to_txn_topic, version)
    else:
        writer.write_array_length(message.v3_and_below_topics, "v3_and_below_topics")
        for add_partitions_to_txn_topic in message.v3_and_below_topics:
            _encode_add_partitions_to_txn_topic(writer, add_partitions_to_txn_topic, version)
    if version >= 4:
        writer.write_compact_array_length(message.transactions, "transactions")
        for add_partitions_to_txn_transaction in message.transactions:
            _encode_add_partitions_to_txn_transaction(
                writer, add_partitions_to_txn_transaction, version
            )
    else:
        if message.transactions:
            raise unsupported_field("AddPartitionsToTxnRequest", "transactions", version)
    if version >= 3:
        writer.buf.append(0)
