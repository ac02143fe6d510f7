"""ProduceRequest (API key 0), versions 3 to 13, flexible from 9.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct
from uuid import UUID

from data_plane.wire.primitives import (
    EMPTY,
    ZERO_UUID,
    Message,
    Reader,
    Writer,
    unsupported_version,
)

_INT16_INT32 = Struct(">hi")


class PartitionProduceData(Message):
    """Part of ProduceRequest."""

    __slots__ = (
        "index",
        "records",
    )

    def __init__(
        self,
        *,
        index: int = 0,
        records: bytes | memoryview | None = None,
    ) -> None:
        self.index = index
        self.records = records


class TopicProduceData(Message):
    """Part of ProduceRequest."""

    __slots__ = (
        "name",
        "partition_data",
        "topic_id",
    )

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: UUID = ZERO_UUID,
        partition_data: list[PartitionProduceData] = EMPTY,
    ) -> None:
        self.name = name  # versions 3 to 12, topicName
        self.topic_id = topic_id  # versions 13 to 13
        self.partition_data = [] if partition_data is EMPTY else partition_data


class ProduceRequest(Message):
    """The message."""

    __slots__ = (
        "acks",
        "timeout_ms",
        "topic_data",
        "transactional_id",
    )

    def __init__(
        self,
        *,
        transactional_id: str | None = None,
        acks: int = 0,
        timeout_ms: int = 0,
        topic_data: list[TopicProduceData] = EMPTY,
    ) -> None:
        self.transactional_id = transactional_id  # transactionalId
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topic_data = [] if topic_data is EMPTY else topic_data


def _decode_partition_produce_data(reader: Reader, version: int) -> PartitionProduceData:
    message = object.__new__(PartitionProduceData)
    message.index = reader.read_int32()
    if version >= 9:
        message.records = reader.read_nullable_compact_records("records")
    else:
        message.records = reader.read_nullable_records("records")
    if version >= 9:
        reader.skip_tagged_fields()
    return message


def _decode_topic_produce_data(reader: Reader, version: int) -> TopicProduceData:
    message = object.__new__(TopicProduceData)
    if version >= 13:
        message.name = ""
    elif version >= 9:
        message.name = reader.read_compact_string("name")
    else:
        message.name = reader.read_string("name")
    if version >= 13:
        message.topic_id = reader.read_uuid()
    else:
        message.topic_id = ZERO_UUID
    if version >= 9:
        message.partition_data = [
            _decode_partition_produce_data(reader, version)
            for _ in range(reader.read_compact_array_length(6, "partition_data"))
        ]
    else:
        message.partition_data = [
            _decode_partition_produce_data(reader, version)
            for _ in range(reader.read_array_length(8, "partition_data"))
        ]
    if version >= 9:
        reader.skip_tagged_fields()
    return message


def decode_produce_request(reader: Reader, version: int) -> ProduceRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 3 <= version <= 13:
        raise unsupported_version("ProduceRequest", version)
    message = object.__new__(ProduceRequest)
    if version >= 9:
        message.transactional_id = reader.read_nullable_compact_string("transactional_id")
    else:
        message.transactional_id = reader.read_nullable_string("transactional_id")
    (message.acks, message.timeout_ms) = reader.unpack(_INT16_INT32)
    if version >= 9:
        message.topic_data = [
            _decode_topic_produce_data(reader, version)
            for _ in range(reader.read_compact_array_length(3, "topic_data"))
        ]
    else:
        message.topic_data = [
            _decode_topic_produce_data(reader, version)
            for _ in range(reader.read_array_length(6, "topic_data"))
        ]
    if version >= 9:
        reader.skip_tagged_fields()
    return message


def _encode_partition_produce_data(
    writer: Writer, message: PartitionProduceData, version: int
) -> None:
    writer.write_int32(message.index)
    if version >= 9:
        writer.write_nullable_compact_bytes(message.records, "records")
        writer.buf.append(0)
    else:
        writer.write_nullable_bytes(message.records, "records")


def _encode_topic_produce_data(writer: Writer, message: TopicProduceData, version: int) -> None:
    if version <= 8:
        writer.write_string(message.name, "name")
    elif version <= 12:
        writer.write_compact_string(message.name, "name")
    if version >= 13:
        writer.write_uuid(message.topic_id)
    if version >= 9:
        writer.write_compact_array_length(message.partition_data, "partition_data")
        for partition_produce_data in message.partition_data:
            _encode_partition_produce_data(writer, partition_produce_data, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.partition_data, "partition_data")
        for partition_produce_data in message.partition_data:
            _encode_partition_produce_data(writer, partition_produce_data, version)


def encode_produce_request(writer: Writer, message: ProduceRequest, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 3 <= version <= 13:
        raise unsupported_version("ProduceRequest", version)
    if version >= 9:
        writer.write_nullable_compact_string(message.transactional_id, "transactional_id")
    else:
        writer.write_nullable_string(message.transactional_id, "transactional_id")
    writer.buf += _INT16_INT32.pack(message.acks, message.timeout_ms)
    if version >= 9:
        writer.write_compact_array_length(message.topic_data, "topic_data")
        for topic_produce_data in message.topic_data:
            _encode_topic_produce_data(writer, topic_produce_data, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.topic_data, "topic_data")
        for topic_produce_data in message.topic_data:
            _encode_topic_produce_data(writer, topic_produce_data, version)
