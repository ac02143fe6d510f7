"""DescribeTransactionsResponse (API key 65), versions 0 to 0, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_2XINT64_INT16 = Struct(">iqqh")


class TopicData(Message):
    """Part of DescribeTransactionsResponse."""

    __slots__ = (
        "partitions",
        "topic",
    )

    def __init__(
        self,
        *,
        topic: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic = topic  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class TransactionState(Message):
    """Part of DescribeTransactionsResponse."""

    __slots__ = (
        "error_code",
        "producer_epoch",
        "producer_id",
        "topics",
        "transaction_start_time_ms",
        "transaction_state",
        "transaction_timeout_ms",
        "transactional_id",
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        transactional_id: str = "",
        transaction_state: str = "",
        transaction_timeout_ms: int = 0,
        transaction_start_time_ms: int = 0,
        producer_id: int = 0,
        producer_epoch: int = 0,
        topics: list[TopicData] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.transactional_id = transactional_id  # transactionalId
        self.transaction_state = transaction_state
        self.transaction_timeout_ms = transaction_timeout_ms
        self.transaction_start_time_ms = transaction_start_time_ms
        self.producer_id = producer_id  # producerId
        self.producer_epoch = producer_epoch
        self.topics = [] if topics is EMPTY else topics


class DescribeTransactionsResponse(Message):
    """The message."""

    __slots__ = (
        "throttle_time_ms",
        "transaction_states",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        transaction_states: list[TransactionState] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.transaction_states = [] if transaction_states is EMPTY else transaction_states


def _decode_topic_data(reader: Reader, version: int) -> TopicData:
    message = object.__new__(TopicData)
    message.topic = reader.read_compact_string("topic")
    message.partitions = reader.read_int32_array(reader.read_compact_array_length(4, "partitions"))
    reader.skip_tagged_fields()
    return message


def _decode_transaction_state(reader: Reader, version: int) -> TransactionState:
    message = object.__new__(TransactionState)
    message.error_code = reader.read_int16()
    message.transactional_id = reader.read_compact_string("transactional_id")
    message.transaction_state = reader.read_compact_string("transaction_state")
    (
        message.transaction_timeout_ms,
        message.transaction_start_time_ms,
        message.producer_id,
        message.producer_epoch,
    ) = reader.unpack(_INT32_2XINT64_INT16)
    message.topics = [
        _decode_topic_data(reader, version)
        for _ in range(reader.read_compact_array_length(3, "topics"))
    ]
    reader.skip_tagged_fields()
    return message


def decode_describe_transactions_response(
    reader: Reader, version: int
) -> DescribeTransactionsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("DescribeTransactionsResponse", version)
    message = object.__new__(DescribeTransactionsResponse)
    message.throttle_time_ms = reader.read_int32()
    message.transaction_states = [
        _decode_transaction_state(reader, version)
        for _ in range(reader.read_compact_array_length(28, "transaction_states"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_topic_data(writer: Writer, message: TopicData, version: int) -> None:
    writer.write_compact_string(message.topic, "topic")
    writer.write_compact_array_length(message.partitions, "partitions")
    writer.write_int32_array(message.partitions)
    writer.buf.append(0)


def _encode_transaction_state(writer: Writer, message: TransactionState, version: int) -> None:
    writer.write_int16(message.error_code)
    writer.write_compact_string(message.transactional_id, "transactional_id")
    writer.write_compact_string(message.transaction_state, "transaction_state")
    writer.buf += _INT32_2XINT64_INT16.pack(
        message.transaction_timeout_ms,
        message.transaction_start_time_ms,
        message.producer_id,
        message.producer_epoch,
    )
    writer.write_compact_array_length(message.topics, "topics")
    for topic_data in message.topics:
        _encode_topic_data(writer, topic_data, version)
    writer.buf.append(0)


def encode_describe_transactions_response(
    writer: Writer, message: DescribeTransactionsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("DescribeTransactionsResponse", version)
    writer.write_int32(message.throttle_time_ms)
    writer.write_compact_array_length(message.transaction_states, "transaction_states")
    for transaction_state in message.transaction_states:
        _encode_transaction_state(writer, transaction_state, version)
    writer.buf.append(0)
