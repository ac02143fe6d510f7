"""WriteTxnMarkersRequest (API key 27), versions 1 to 2, flexible from 1.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_INT8 = Struct(">ib")
_INT64_INT16_BOOL = Struct(">qh?")


class WritableTxnMarkerTopic(Message):
    """Part of WriteTxnMarkersRequest."""

    __slots__ = (
        "name",
        "partition_indexes",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partition_indexes: list[int] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.partition_indexes = [] if partition_indexes is EMPTY else partition_indexes


class WritableTxnMarker(Message):
    """Part of WriteTxnMarkersRequest."""

    __slots__ = (
        "coordinator_epoch",
        "producer_epoch",
        "producer_id",
        "topics",
        "transaction_result",
        "transaction_version",
    )

    def __init__(
        self,
        *,
        producer_id: int = 0,
        producer_epoch: int = 0,
        transaction_result: bool = False,
        topics: list[WritableTxnMarkerTopic] = EMPTY,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
    ) -> None:
        self.producer_id = producer_id  # producerId
        self.producer_epoch = producer_epoch
        self.transaction_result = transaction_result
        self.topics = [] if topics is EMPTY else topics
        self.coordinator_epoch = coordinator_epoch
        self.transaction_version = transaction_version  # versions 2 to 2


class WriteTxnMarkersRequest(Message):
    """The message."""

    __slots__ = ("markers",)

    def __init__(
        self,
        *,
        markers: list[WritableTxnMarker] = EMPTY,
    ) -> None:
        self.markers = [] if markers is EMPTY else markers


def _decode_writable_txn_marker_topic(reader: Reader, version: int) -> WritableTxnMarkerTopic:
    message = object.__new__(WritableTxnMarkerTopic)
    message.name = reader.read_compact_string("name")
    message.partition_indexes = reader.read_int32_array(
        reader.read_compact_array_length(4, "partition_indexes")
    )
    reader.skip_tagged_fields()
    return message


def _decode_writable_txn_marker(reader: Reader, version: int) -> WritableTxnMarker:
    message = object.__new__(WritableTxnMarker)
    (message.producer_id, message.producer_epoch, message.transaction_result) = reader.unpack(
        _INT64_INT16_BOOL
    )
    message.topics = [
        _decode_writable_txn_marker_topic(reader, version)
        for _ in range(reader.read_compact_array_length(3, "topics"))
    ]
    if version >= 2:
        (message.coordinator_epoch, message.transaction_version) = reader.unpack(_INT32_INT8)
    else:
        message.coordinator_epoch = reader.read_int32()
        message.transaction_version = 0
    reader.skip_tagged_fields()
    return message


def decode_write_txn_markers_request(reader: Reader, version: int) -> WriteTxnMarkersRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 2:
        raise unsupported_version("WriteTxnMarkersRequest", version)
    message = object.__new__(WriteTxnMarkersRequest)
    message.markers = [
        _decode_writable_txn_marker(reader, version)
        for _ in range(reader.read_compact_array_length(17, "markers"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_writable_txn_marker_topic(
    writer: Writer, message: WritableTxnMarkerTopic, version: int
) -> None:
    writer.write_compact_string(message.name, "name")
    writer.write_compact_array_length(message.partition_indexes, "partition_indexes")
    writer.write_int32_array(message.partition_indexes)
    writer.buf.append(0)


def _encode_writable_txn_marker(writer: Writer, message: WritableTxnMarker, version: int) -> None:
    writer.buf += _INT64_INT16_BOOL.pack(
        message.producer_id, message.producer_epoch, message.transaction_result
    )
    writer.write_compact_array_length(message.topics, "topics")
    for writable_txn_marker_topic in message.topics:
        _encode_writable_txn_marker_topic(writer, writable_txn_marker_topic, version)
    if version >= 2:
        writer.buf += _INT32_INT8.pack(message.coordinator_epoch, message.transaction_version)
    else:
        writer.write_int32(message.coordinator_epoch)
    writer.buf.append(0)


def encode_write_txn_markers_request(
    writer: Writer, message: WriteTxnMarkersRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 2:
        raise unsupported_version("WriteTxnMarkersRequest", version)
    writer.write_compact_array_length(message.markers, "markers")
    for writable_txn_marker in message.markers:
        _encode_writable_txn_marker(writer, writable_txn_marker, version)
    writer.buf.append(0)
