"""TxnOffsetCommitResponse (API key 28), versions 0 to 5, flexible from 3.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_INT16 = Struct(">ih")


class TxnOffsetCommitResponsePartition(Message):
    """Part of TxnOffsetCommitResponse."""

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


class TxnOffsetCommitResponseTopic(Message):
    """Part of TxnOffsetCommitResponse."""

    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[TxnOffsetCommitResponsePartition] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class TxnOffsetCommitResponse(Message):
    """The message."""

    __slots__ = (
        "throttle_time_ms",
        "topics",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[TxnOffsetCommitResponseTopic] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics


def _decode_txn_offset_commit_response_partition(
    reader: Reader, version: int
) -> TxnOffsetCommitResponsePartition:
    message = object.__new__(TxnOffsetCommitResponsePartition)
    (message.partition_index, message.error_code) = reader.unpack(_INT32_INT16)
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def _decode_txn_offset_commit_response_topic(
    reader: Reader, version: int
) -> TxnOffsetCommitResponseTopic:
    message = object.__new__(TxnOffsetCommitResponseTopic)
    if version >= 3:
        message.name = reader.read_compact_string("name")
        message.partitions = [
            _decode_txn_offset_commit_response_partition(reader, version)
            for _ in range(reader.read_compact_array_length(7, "partitions"))
        ]
    else:
        message.name = reader.read_string("name")
        message.partitions = [
            _decode_txn_offset_commit_response_partition(reader, version)
            for _ in range(reader.read_array_length(6, "partitions"))
        ]
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def decode_txn_offset_commit_response(reader: Reader, version: int) -> TxnOffsetCommitResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 5:
        raise unsupported_version("TxnOffsetCommitResponse", version)
    message = object.__new__(TxnOffsetCommitResponse)
    message.throttle_time_ms = reader.read_int32()
    if version >= 3:
        message.topics = [
            _decode_txn_offset_commit_response_topic(reader, version)
            for _ in range(reader.read_compact_array_length(3, "topics"))
        ]
    else:
        message.topics = [
            _decode_txn_offset_commit_response_topic(reader, version)
            for _ in range(reader.read_array_length(6, "topics"))
        ]
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def _encode_txn_offset_commit_response_partition(
    writer: Writer, message: TxnOffsetCommitResponsePartition, version: int
) -> None:
    writer.buf += _INT32_INT16.pack(message.partition_index, message.error_code)
    if version >= 3:
        writer.buf.append(0)


def _encode_txn_offset_commit_response_topic(
    writer: Writer, message: TxnOffsetCommitResponseTopic, version: int
) -> None:
    if version >= 3:
        writer.write_compact_string(message.name, "name")
        writer.write_compact_array_length(message.partitions, "partitions")
        for txn_offset_commit_response_partition in message.partitions:
            _encode_txn_offset_commit_response_partition(
                writer, txn_offset_commit_response_partition, version
            )
        writer.buf.append(0)
    else:
        writer.write_string(message.name, "name")
        writer.write_array_length(message.partitions, "partitions")
        for txn_offset_commit_response_partition in message.partitions:
            _encode_txn_offset_commit_response_partition(
                writer, txn_offset_commit_response_partition, version
            )


def encode_txn_offset_commit_response(
    writer: Writer, message: TxnOffsetCommitResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 5:
        raise unsupported_version("TxnOffsetCommitResponse", version)
    writer.write_int32(message.throttle_time_ms)
    if version >= 3:
        writer.write_compact_array_length(message.topics, "topics")
        for txn_offset_commit_response_topic in message.topics:
            _encode_txn_offset_commit_response_topic(
                writer, txn_offset_commit_response_topic, version
            )
        writer.buf.append(0)
    else:
        writer.write_array_length(message.topics, "topics")
        for txn_offset_commit_response_topic in message.topics:
            _encode_txn_offset_commit_response_topic(
                writer, txn_offset_commit_response_topic, version
            )
