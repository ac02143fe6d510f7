"""WriteTxnMarkersResponse (API key 27), versions 1 to 2, flexible from 1.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_INT16 = Struct(">ih")


class WritableTxnMarkerPartitionResult(Message):
    """Part of WriteTxnMarkersResponse."""

    __slots__ = (
        "error_code",
        "partition_index",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class WritableTxnMarkerTopicResult(Message):
    """Part of WriteTxnMarkersResponse."""

    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[WritableTxnMarkerPartitionResult] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class WritableTxnMarkerResult(Message):
    """Part of WriteTxnMarkersResponse."""

    __slots__ = (
        "producer_id",
        "topics",
    )

    def __init__(
        self,
        *,
        producer_id: int = 0,
        topics: list[WritableTxnMarkerTopicResult] = EMPTY,
    ) -> None:
        self.producer_id = producer_id  # producerId
        self.topics = [] if topics is EMPTY else topics


class WriteTxnMarkersResponse(Message):
    """The message."""

    __slots__ = ("markers",)

    def __init__(
        self,
        *,
        markers: list[WritableTxnMarkerResult] = EMPTY,
    ) -> None:
        self.markers = [] if markers is EMPTY else markers


def _decode_writable_txn_marker_partition_result(
    reader: Reader, version: int
) -> WritableTxnMarkerPartitionResult:
    message = object.__new__(WritableTxnMarkerPartitionResult)
    (message.partition_index, message.error_code) = reader.unpack(_INT32_INT16)
    reader.skip_tagged_fields()
    return message


def _decode_writable_txn_marker_topic_result(
    reader: Reader, version: int
) -> WritableTxnMarkerTopicResult:
    message = object.__new__(WritableTxnMarkerTopicResult)
    message.name = reader.read_compact_string("name")
    message.partitions = [
        _decode_writable_txn_marker_partition_result(reader, version)
        for _ in range(reader.read_compact_array_length(7, "partitions"))
    ]
    reader.skip_tagged_fields()
    return message


def _decode_writable_txn_marker_result(reader: Reader, version: int) -> WritableTxnMarkerResult:
    message = object.__new__(WritableTxnMarkerResult)
    message.producer_id = reader.read_int64()
    message.topics = [
        _decode_writable_txn_marker_topic_result(reader, version)
        for _ in range(reader.read_compact_array_length(3, "topics"))
    ]
    reader.skip_tagged_fields()
    return message


def decode_write_txn_markers_response(reader: Reader, version: int) -> WriteTxnMarkersResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 2:
        raise unsupported_version("WriteTxnMarkersResponse", version)
    message = object.__new__(WriteTxnMarkersResponse)
    message.markers = [
        _decode_writable_txn_marker_result(reader, version)
        for _ in range(reader.read_compact_array_length(10, "markers"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_writable_txn_marker_partition_result(
    writer: Writer, message: WritableTxnMarkerPartitionResult, version: int
) -> None:
    writer.buf += _INT32_INT16.pack(message.partition_index, message.error_code)
    writer.buf.append(0)


def _encode_writable_txn_marker_topic_result(
    writer: Writer, message: WritableTxnMarkerTopicResult, version: int
) -> None:
    writer.write_compact_string(message.name, "name")
    writer.write_compact_array_length(message.partitions, "partitions")
    for writable_txn_marker_partition_result in message.partitions:
        _encode_writable_txn_marker_partition_result(
            writer, writable_txn_marker_partition_result, version
        )
    writer.buf.append(0)


def _encode_writable_txn_marker_result(
    writer: Writer, message: WritableTxnMarkerResult, version: int
) -> None:
    writer.write_int64(message.producer_id)
    writer.write_compact_array_length(message.topics, "topics")
    for writable_txn_marker_topic_result in message.topics:
        _encode_writable_txn_marker_topic_result(writer, writable_txn_marker_topic_result, version)
    writer.buf.append(0)


def encode_write_txn_markers_response(
    writer: Writer, message: WriteTxnMarkersResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 2:
        raise unsupported_version("WriteTxnMarkersResponse", version)
    writer.write_compact_array_length(message.markers, "markers")
    for writable_txn_marker_result in message.markers:
        _encode_writable_txn_marker_result(writer, writable_txn_marker_result, version)
    writer.buf.append(0)
