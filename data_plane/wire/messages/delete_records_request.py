"""DeleteRecordsRequest (API key 21), versions 0 to 2, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_INT64 = Struct(">iq")


class DeleteRecordsPartition(Message):
    """Part of DeleteRecordsRequest."""

    __slots__ = (
        "offset",
        "partition_index",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        offset: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.offset = offset


class DeleteRecordsTopic(Message):
    """Part of DeleteRecordsRequest."""

    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[DeleteRecordsPartition] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class DeleteRecordsRequest(Message):
    """The message."""

    __slots__ = (
        "timeout_ms",
        "topics",
    )

    def __init__(
        self,
        *,
        topics: list[DeleteRecordsTopic] = EMPTY,
        timeout_ms: int = 0,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.timeout_ms = timeout_ms


def _decode_delete_records_partition(reader: Reader, version: int) -> DeleteRecordsPartition:
    message = object.__new__(DeleteRecordsPartition)
    (message.partition_index, message.offset) = reader.unpack(_INT32_INT64)
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _decode_delete_records_topic(reader: Reader, version: int) -> DeleteRecordsTopic:
    message = object.__new__(DeleteRecordsTopic)
    if version >= 2:
        message.name = reader.read_compact_string("name")
        message.partitions = [
            _decode_delete_records_partition(reader, version)
            for _ in range(reader.read_compact_array_length(13, "partitions"))
        ]
    else:
        message.name = reader.read_string("name")
        message.partitions = [
            _decode_delete_records_partition(reader, version)
            for _ in range(reader.read_array_length(12, "partitions"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def decode_delete_records_request(reader: Reader, version: int) -> DeleteRecordsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 2:
        raise unsupported_version("DeleteRecordsRequest", version)
    message = object.__new__(DeleteRecordsRequest)
    if version >= 2:
        message.topics = [
            _decode_delete_records_topic(reader, version)
            for _ in range(reader.read_compact_array_length(3, "topics"))
        ]
    else:
        message.topics = [
            _decode_delete_records_topic(reader, version)
            for _ in range(reader.read_array_length(6, "topics"))
        ]
    message.timeout_ms = reader.read_int32()
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _encode_delete_records_partition(
    writer: Writer, message: DeleteRecordsPartition, version: int
) -> None:
    writer.buf += _INT32_INT64.pack(message.partition_index, message.offset)
    if version >= 2:
        writer.buf.append(0)


def _encode_delete_records_topic(writer: Writer, message: DeleteRecordsTopic, version: int) -> None:
    if version >= 2:
        writer.write_compact_string(message.name, "name")
        writer.write_compact_array_length(message.partitions, "partitions")
        for delete_records_partition in message.partitions:
            _encode_delete_records_partition(writer, delete_records_partition, version)
        writer.buf.append(0)
    else:
        writer.write_string(message.name, "name")
        writer.write_array_length(message.partitions, "partitions")
        for delete_records_partition in message.partitions:
            _encode_delete_records_partition(writer, delete_records_partition, version)


def encode_delete_records_request(
    writer: Writer, message: DeleteRecordsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 2:
        raise unsupported_version("DeleteRecordsRequest", version)
    if version >= 2:
        writer.write_compact_array_length(message.topics, "topics")
        for delete_records_topic in message.topics:
            _encode_delete_records_topic(writer, delete_records_topic, version)
    else:
        writer.write_array_length(message.topics, "topics")
        for delete_records_topic in message.topics:
            _encode_delete_records_topic(writer, delete_records_topic, version)
    writer.write_int32(message.timeout_ms)
    if version >= 2:
        writer.buf.append(0)
