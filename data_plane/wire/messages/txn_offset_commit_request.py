"""TxnOffsetCommitRequest (API key 28), versions 0 to 5, flexible from 3.

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

_INT32_INT64 = Struct(">iq")
_INT32_INT64_INT32 = Struct(">iqi")
_INT64_INT16 = Struct(">qh")
_INT64_INT16_INT32 = Struct(">qhi")


class TxnOffsetCommitRequestPartition(Message):
    """Part of TxnOffsetCommitRequest."""

    __slots__ = (
        "committed_leader_epoch",
        "committed_metadata",
        "committed_offset",
        "partition_index",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        committed_metadata: str | None = "",
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch  # versions 2 to 5
        self.committed_metadata = committed_metadata


class TxnOffsetCommitRequestTopic(Message):
    """Part of TxnOffsetCommitRequest."""

    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[TxnOffsetCommitRequestPartition] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class TxnOffsetCommitRequest(Message):
    """The message."""

    __slots__ = (
        "generation_id",
        "group_id",
        "group_instance_id",
        "member_id",
        "producer_epoch",
        "producer_id",
        "topics",
        "transactional_id",
    )

    def __init__(
        self,
        *,
        transactional_id: str = "",
        group_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        generation_id: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        topics: list[TxnOffsetCommitRequestTopic] = EMPTY,
    ) -> None:
        self.transactional_id = transactional_id  # transactionalId
        self.group_id = group_id  # groupId
        self.producer_id = producer_id  # producerId
        self.producer_epoch = producer_epoch
        self.generation_id = generation_id  # versions 3 to 5
        self.member_id = member_id  # versions 3 to 5
        self.group_instance_id = group_instance_id  # versions 3 to 5
        self.topics = [] if topics is EMPTY else topics


def _decode_txn_offset_commit_request_partition(
    reader: Reader, version: int
) -> TxnOffsetCommitRequestPartition:
    message = object.__new__(TxnOffsetCommitRequestPartition)
    if version >= 2:
        (message.partition_index, message.committed_offset, message.committed_leader_epoch) = (
            reader.unpack(_INT32_INT64_INT32)
        )
    else:
        (message.partition_index, message.committed_offset) = reader.unpack(_INT32_INT64)
        message.committed_leader_epoch = -1
    if version >= 3:
        message.committed_metadata = reader.read_nullable_compact_string("committed_metadata")
    else:
        message.committed_metadata = reader.read_nullable_string("committed_metadata")
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def _decode_txn_offset_commit_request_topic(
    reader: Reader, version: int
) -> TxnOffsetCommitRequestTopic:
    message = object.__new__(TxnOffsetCommitRequestTopic)
    if version >= 3:
        message.name = reader.read_compact_string("name")
        message.partitions = [
            _decode_txn_offset_commit_request_partition(reader, version)
            for _ in range(reader.read_compact_array_length(18, "partitions"))
        ]
    else:
        message.name = reader.read_string("name")
        message.partitions = [
            _decode_txn_offset_commit_request_partition(reader, version)
            for _ in range(reader.read_array_length(14, "partitions"))
        ]
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def decode_txn_offset_commit_request(reader: Reader, version: int) -> TxnOffsetCommitRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 5:
        raise unsupported_version("TxnOffsetCommitRequest", version)
    message = object.__new__(TxnOffsetCommitRequest)
    if version >= 3:
        message.transactional_id = reader.read_compact_string("transactional_id")
        message.group_id = reader.read_compact_string("group_id")
        (message.producer_id, message.producer_epoch, message.generation_id) = reader.unpack(
            _INT64_INT16_INT32
        )
        message.member_id = reader.read_compact_string("member_id")
        message.group_instance_id = reader.read_nullable_compact_string("group_instance_id")
        message.topics = [
            _decode_txn_offset_commit_request_topic(reader, version)
            for _ in range(reader.read_compact_array_length(3, "topics"))
        ]
    else:
        message.transactional_id = reader.read_string("transactional_id")
        message.group_id = reader.read_string("group_id")
        (message.producer_id, message.producer_epoch) = reader.unpack(_INT64_INT16)
        message.generation_id = -1
        message.member_id = ""
        message.group_instance_id = None
        message.topics = [
            _decode_txn_offset_commit_request_topic(reader, version)
            for _ in range(reader.read_array_length(6, "topics"))
        ]
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def _encode_txn_offset_commit_request_partition(
    writer: Writer, message: TxnOffsetCommitRequestPartition, version: int
) -> None:
    if version >= 2:
        writer.buf += _INT32_INT64_INT32.pack(
            message.partition_index, message.committed_offset, message.committed_leader_epoch
        )
    else:
        writer.buf += _INT32_INT64.pack(message.partition_index, message.committed_offset)
    if version >= 3:
        writer.write_nullable_compact_string(message.committed_metadata, "committed_metadata")
        writer.buf.append(0)
    else:
        writer.write_nullable_string(message.committed_metadata, "committed_metadata")


def _encode_txn_offset_commit_request_topic(
    writer: Writer, message: TxnOffsetCommitRequestTopic, version: int
) -> None:
    if version >= 3:
        writer.write_compact_string(message.name, "name")
        writer.write_compact_array_length(message.partitions, "partitions")
        for txn_offset_commit_request_partition in message.partitions:
            _encode_txn_offset_commit_request_partition(
                writer, txn_offset_commit_request_partition, version
            )
        writer.buf.append(0)
    else:
        writer.write_string(message.name, "name")
        writer.write_array_length(message.partitions, "partitions")
        for txn_offset_commit_request_partition in message.partitions:
            _encode_txn_offset_commit_request_partition(
                writer, txn_offset_commit_request_partition, version
            )


def encode_txn_offset_commit_request(
    writer: Writer, message: TxnOffsetCommitRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 5:
        raise unsupported_version("TxnOffsetCommitRequest", version)
    if version >= 3:
        writer.write_compact_string(message.transactional_id, "transactional_id")
        writer.write_compact_string(message.group_id, "group_id")
        writer.buf += _INT64_INT16_INT32.pack(
            message.producer_id, message.producer_epoch, message.generation_id
        )
        writer.write_compact_string(message.member_id, "member_id")
        writer.write_nullable_compact_string(message.group_instance_id, "group_instance_id")
        writer.write_compact_array_length(message.topics, "topics")
        for txn_offset_commit_request_topic in message.topics:
            _encode_txn_offset_commit_request_topic(
                writer, txn_offset_commit_request_topic, version
            )
        writer.buf.append(0)
    else:
        writer.write_string(message.transactional_id, "transactional_id")
        writer.write_string(message.group_id, "group_id")
        if message.generation_id != -1:
            raise unsupported_field("TxnOffsetCommitRequest", "generation_id", version)
        writer.buf += _INT64_INT16.pack(message.producer_id, message.producer_epoch)
        if message.member_id:
            raise unsupported_field("TxnOffsetCommitRequest", "member_id", version)
        if message.group_instance_id is not None:
            raise unsupported_field("TxnOffsetCommitRequest", "group_instance_id", version)
        writer.write_array_length(message.topics, "topics")
        for txn_offset_commit_request_topic in message.topics:
            _encode_txn_offset_commit_request_topic(
                writer, txn_offset_commit_request_topic, version
            )
