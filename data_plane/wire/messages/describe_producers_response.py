"""DescribeProducersResponse (API key 61), versions 0 to 0, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_INT16 = Struct(">ih")
_INT64_2XINT32_INT64_INT32_INT64 = Struct(">qiiqiq")


class ProducerState(Message):
    """Part of DescribeProducersResponse."""

    __slots__ = (
        "coordinator_epoch",
        "current_txn_start_offset",
        "last_sequence",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        *,
        producer_id: int = 0,
        producer_epoch: int = 0,
        last_sequence: int = -1,
        last_timestamp: int = -1,
        coordinator_epoch: int = 0,
        current_txn_start_offset: int = -1,
    ) -> None:
        self.producer_id = producer_id  # producerId
        self.producer_epoch = producer_epoch
        self.last_sequence = last_sequence
        self.last_timestamp = last_timestamp
        self.coordinator_epoch = coordinator_epoch
        self.current_txn_start_offset = current_txn_start_offset


class PartitionResponse(Message):
    """Part of DescribeProducersResponse."""

    __slots__ = (
        "active_producers",
        "error_code",
        "error_message",
        "partition_index",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        active_producers: list[ProducerState] = EMPTY,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message
        self.active_producers = [] if active_producers is EMPTY else active_producers


class TopicResponse(Message):
    """Part of DescribeProducersResponse."""

    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[PartitionResponse] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class DescribeProducersResponse(Message):
    """The message."""

    __slots__ = (
        "throttle_time_ms",
        "topics",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[TopicResponse] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics


def _decode_producer_state(reader: Reader, version: int) -> ProducerState:
    message = object.__new__(ProducerState)
    (
        message.producer_id,
        message.producer_epoch,
        message.last_sequence,
        message.last_timestamp,
        message.coordinator_epoch,
        message.current_txn_start_offset,
    ) = reader.unpack(_INT64_2XINT32_INT64_INT32_INT64)
    reader.skip_tagged_fields()
    return message


def _decode_partition_response(reader: Reader, version: int) -> PartitionResponse:
    message = object.__new__(PartitionResponse)
    (message.partition_index, message.error_code) = reader.unpack(_INT32_INT16)
    message.error_message = reader.read_nullable_compact_string("error_message")
    message.active_producers = [
        _decode_producer_state(reader, version)
        for _ in range(reader.read_compact_array_length(37, "active_producers"))
    ]
    reader.skip_tagged_fields()
    return message


def _decode_topic_response(reader: Reader, version: int) -> TopicResponse:
    message = object.__new__(TopicResponse)
    message.name = reader.read_compact_string("name")
    message.partitions = [
        _decode_partition_response(reader, version)
        for _ in range(reader.read_compact_array_length(9, "partitions"))
    ]
    reader.skip_tagged_fields()
    return message


def decode_describe_producers_response(reader: Reader, version: int) -> DescribeProducersResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("DescribeProducersResponse", version)
    message = object.__new__(DescribeProducersResponse)
    message.throttle_time_ms = reader.read_int32()
    message.topics = [
        _decode_topic_response(reader, version)
        for _ in range(reader.read_compact_array_length(3, "topics"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_producer_state(writer: Writer, message: ProducerState, version: int) -> None:
    writer.buf += _INT64_2XINT32_INT64_INT32_INT64.pack(
        message.producer_id,
        message.producer_epoch,
        message.last_sequence,
        message.last_timestamp,
        message.coordinator_epoch,
        message.current_txn_start_offset,
    )
    writer.buf.append(0)


def _encode_partition_response(writer: Writer, message: PartitionResponse, version: int) -> None:
    writer.buf += _INT32_INT16.pack(message.partition_index, message.error_code)
    writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.write_compact_array_length(message.active_producers, "active_producers")
    for producer_state in message.active_producers:
        _encode_producer_state(writer, producer_state, version)
    writer.buf.append(0)


def _encode_topic_response(writer: Writer, message: TopicResponse, version: int) -> None:
    writer.write_compact_string(message.name, "name")
    writer.write_compact_array_length(message.partitions, "partitions")
    for partition_response in message.partitions:
        _encode_partition_response(writer, partition_response, version)
    writer.buf.append(0)


def encode_describe_producers_response(
    writer: Writer, message: DescribeProducersResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("DescribeProducersResponse", version)
    writer.write_int32(message.throttle_time_ms)
    writer.write_compact_array_length(message.topics, "topics")
    for topic_response in message.topics:
        _encode_topic_response(writer, topic_response, version)
    writer.buf.append(0)
