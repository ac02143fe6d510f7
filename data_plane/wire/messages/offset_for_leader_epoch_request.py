"""OffsetForLeaderEpochRequest (API key 23), versions 2 to 4, flexible from 4.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_3XINT32 = Struct(">iii")


class OffsetForLeaderPartition(Message):
    """Part of OffsetForLeaderEpochRequest."""

    __slots__ = (
        "current_leader_epoch",
        "leader_epoch",
        "partition",
    )

    def __init__(
        self,
        *,
        partition: int = 0,
        current_leader_epoch: int = -1,
        leader_epoch: int = 0,
    ) -> None:
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.leader_epoch = leader_epoch


class OffsetForLeaderTopic(Message):
    """Part of OffsetForLeaderEpochRequest."""

    __slots__ = (
        "partitions",
        "topic",
    )

    def __init__(
        self,
        *,
        topic: str = "",
        partitions: list[OffsetForLeaderPartition] = EMPTY,
    ) -> None:
        self.topic = topic  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class OffsetForLeaderEpochRequest(Message):
    """The message."""

    __slots__ = (
        "replica_id",
        "topics",
    )

    def __init__(
        self,
        *,
        replica_id: int = -2,
        topics: list[OffsetForLeaderTopic] = EMPTY,
    ) -> None:
        self.replica_id = replica_id  # versions 3 to 4, brokerId
        self.topics = [] if topics is EMPTY else topics


def _decode_offset_for_leader_partition(reader: Reader, version: int) -> OffsetForLeaderPartition:
    message = object.__new__(OffsetForLeaderPartition)
    (message.partition, message.current_leader_epoch, message.leader_epoch) = reader.unpack(
        _3XINT32
    )
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def _decode_offset_for_leader_topic(reader: Reader, version: int) -> OffsetForLeaderTopic:
    message = object.__new__(OffsetForLeaderTopic)
    if version >= 4:
        message.topic = reader.read_compact_string("topic")
        message.partitions = [
            _decode_offset_for_leader_partition(reader, version)
            for _ in range(reader.read_compact_array_length(13, "partitions"))
        ]
    else:
        message.topic = reader.read_string("topic")
        message.partitions = [
            _decode_offset_for_leader_partition(reader, version)
            for _ in range(reader.read_array_length(12, "partitions"))
        ]
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def decode_offset_for_leader_epoch_request(
    reader: Reader, version: int
) -> OffsetForLeaderEpochRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 2 <= version <= 4:
        raise unsupported_version("OffsetForLeaderEpochRequest", version)
    message = object.__new__(OffsetForLeaderEpochRequest)
    if version >= 3:
        message.replica_id = reader.read_int32()
    else:
        message.replica_id = -2
    if version >= 4:
        message.topics = [
            _decode_offset_for_leader_topic(reader, version)
            for _ in range(reader.read_compact_array_length(3, "topics"))
        ]
    else:
        message.topics = [
            _decode_offset_for_leader_topic(reader, version)
            for _ in range(reader.read_array_length(6, "topics"))
        ]
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def _encode_offset_for_leader_partition(
    writer: Writer, message: OffsetForLeaderPartition, version: int
) -> None:
    writer.buf += _3XINT32.pack(
        message.partition, message.current_leader_epoch, message.leader_epoch
    )
    if version >= 4:
        writer.buf.append(0)


def _encode_offset_for_leader_topic(
    writer: Writer, message: OffsetForLeaderTopic, version: int
) -> None:
    if version >= 4:
        writer.write_compact_string(message.topic, "topic")
        writer.write_compact_array_length(message.partitions, "partitions")
        for offset_for_leader_partition in message.partitions:
            _encode_offset_for_leader_partition(writer, offset_for_leader_partition, version)
        writer.buf.append(0)
    else:
        writer.write_string(message.topic, "topic")
        writer.write_array_length(message.partitions, "partitions")
        for offset_for_leader_partition in message.partitions:
            _encode_offset_for_leader_partition(writer, offset_for_leader_partition, version)


def encode_offset_for_leader_epoch_request(
    writer: Writer, message: OffsetForLeaderEpochRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 2 <= version <= 4:
        raise unsupported_version("OffsetForLeaderEpochRequest", version)
    if version >= 3:
        writer.write_int32(message.replica_id)
    if version >= 4:
        writer.write_compact_array_length(message.topics, "topics")
        for offset_for_leader_topic in message.topics:
            _encode_offset_for_leader_topic(writer, offset_for_leader_topic, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.topics, "topics")
        for offset_for_leader_topic in message.topics:
            _encode_offset_for_leader_topic(writer, offset_for_leader_topic, version)
