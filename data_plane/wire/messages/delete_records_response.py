"""DeleteRecordsResponse (API key 21), versions 0 to 2, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_INT64_INT16 = Struct(">iqh")


class DeleteRecordsPartitionResult(Message):
    """Part of DeleteRecordsResponse."""

    __slots__ = (
        "error_code",
        "low_watermark",
        "partition_index",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        low_watermark: int = 0,
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.low_watermark = low_watermark
        self.error_code = error_code


class DeleteRecordsTopicResult(Message):
    """Part of DeleteRecordsResponse."""

    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[DeleteRecordsPartitionResult] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class DeleteRecordsResponse(Message):
    """The message."""

    __slots__ = (
        "throttle_time_ms",
        "topics",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[DeleteRecordsTopicResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics


def _decode_delete_records_partition_result(
    reader: Reader, version: int
) -> DeleteRecordsPartitionResult:
    message = object.__new__(DeleteRecordsPartitionResult)
    (message.partition_index, message.low_watermark, message.error_code) = reader.unpack(
        _INT32_INT64_INT16
    )
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _decode_delete_records_topic_result(reader: Reader, version: int) -> DeleteRecordsTopicResult:
    message = object.__new__(DeleteRecordsTopicResult)
    if version >= 2:
        message.name = reader.read_compact_string("name")
        message.partitions = [
            _decode_delete_records_partition_result(reader, version)
            for _ in range(reader.read_compact_array_length(15, "partitions"))
        ]
    else:
        message.name = reader.read_string("name")
        message.partitions = [
            _decode_delete_records_partition_result(reader, version)
            for _ in range(reader.read_array_length(14, "partitions"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def decode_delete_records_response(reader: Reader, version: int) -> DeleteRecordsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 2:
        raise unsupported_version("DeleteRecordsResponse", version)
    message = object.__new__(DeleteRecordsResponse)
    message.throttle_time_ms = reader.read_int32()
    if version >= 2:
        message.topics = [
            _decode_delete_records_topic_result(reader, version)
            for _ in range(reader.read_compact_array_length(3, "topics"))
        ]
    else:
        message.topics = [
            _decode_delete_records_topic_result(reader, version)
            for _ in range(reader.read_array_length(6, "topics"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _encode_delete_records_partition_result(
    writer: Writer, message: DeleteRecordsPartitionResult, version: int
) -> None:
    writer.buf += _INT32_INT64_INT16.pack(
        message.partition_index, message.low_watermark, message.error_code
    )
    if version >= 2:
        writer.buf.append(0)


def _encode_delete_records_topic_result(
    writer: Writer, message: DeleteRecordsTopicResult, version: int
) -> None:
    if version >= 2:
        writer.write_compact_string(message.name, "name")
        writer.write_compact_array_length(message.partitions, "partitions")
        for delete_records_partition_result in message.partitions:
            _encode_delete_records_partition_result(
                writer, delete_records_partition_result, version
            )
        writer.buf.append(0)
    else:
        writer.write_string(message.name, "name")
        writer.write_array_length(message.partitions, "partitions")
        for delete_records_partition_result in message.partitions:
            _encode_delete_records_partition_result(
                writer, delete_records_partition_result, version
            )


def encode_delete_records_response(
    writer: Writer, message: DeleteRecordsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 2:
        raise unsupported_version("DeleteRecordsResponse", version)
    writer.write_int32(message.throttle_time_ms)
    if version >= 2:
        writer.write_compact_array_length(message.topics, "topics")
        for delete_records_topic_result in message.topics:
            _encode_delete_records_topic_result(writer, delete_records_topic_result, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.topics, "topics")
        for delete_records_topic_result in message.topics:
            _encode_delete_records_topic_result(writer, delete_records_topic_result, version)
