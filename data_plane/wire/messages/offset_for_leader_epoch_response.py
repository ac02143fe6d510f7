"""OffsetForLeaderEpochResponse (API key 23), versions 2 to 4, flexible from 4.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT16_2XINT32_INT64 = Struct(">hiiq")


class EpochEndOffset(Message):
    """Part of OffsetForLeaderEpochResponse."""

    __slots__ = (
        "end_offset",
        "error_code",
        "leader_epoch",
        "partition",
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        partition: int = 0,
        leader_epoch: int = -1,
        end_offset: int = -1,
    ) -> None:
        self.error_code = error_code
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.end_offset = end_offset


class OffsetForLeaderTopicResult(Message):
    """Part of OffsetForLeaderEpochResponse."""

    __slots__ = (
        "partitions",
        "topic",
    )

    def __init__(
        self,
        *,
        topic: str = "",
        partitions: list[EpochEndOffset] = EMPTY,
    ) -> None:
        self.topic = topic  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class OffsetForLeaderEpochResponse(Message):
    """The message."""

    __slots__ = (
        "throttle_time_ms",
        "topics",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[OffsetForLeaderTopicResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics


def _decode_epoch_end_offset(reader: Reader, version: int) -> EpochEndOffset:
    message = object.__new__(EpochEndOffset)
    (message.error_code, message.partition, message.leader_epoch, message.end_offset) = (
        reader.unpack(_INT16_2XINT32_INT64)
    )
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def _decode_offset_for_leader_topic_result(
    reader: Reader, version: int
) -> OffsetForLeaderTopicResult:
    message = object.__new__(OffsetForLeaderTopicResult)
    if version >= 4:
        message.topic = reader.read_compact_string("topic")
        message.partitions = [
            _decode_epoch_end_offset(reader, version)
            for _ in range(reader.read_compact_array_length(19, "partitions"))
        ]
    else:
        message.topic = reader.read_string("topic")
        message.partitions = [
            _decode_epoch_end_offset(reader, version)
            for _ in range(reader.read_array_length(18, "partitions"))
        ]
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def decode_offset_for_leader_epoch_response(
    reader: Reader, version: int
) -> OffsetForLeaderEpochResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 2 <= version <= 4:
        raise unsupported_version("OffsetForLeaderEpochResponse", version)
    message = object.__new__(OffsetForLeaderEpochResponse)
    message.throttle_time_ms = reader.read_int32()
    if version >= 4:
        message.topics = [
            _decode_offset_for_leader_topic_result(reader, version)
            for _ in range(reader.read_compact_array_length(3, "topics"))
        ]
    else:
        message.topics = [
            _decode_offset_for_leader_topic_result(reader, version)
            for _ in range(reader.read_array_length(6, "topics"))
        ]
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def _encode_epoch_end_offset(writer: Writer, message: EpochEndOffset, version: int) -> None:
    writer.buf += _INT16_2XINT32_INT64.pack(
        message.error_code, message.partition, message.leader_epoch, message.end_offset
    )
    if version >= 4:
        writer.buf.append(0)


def _encode_offset_for_leader_topic_result(
    writer: Writer, message: OffsetForLeaderTopicResult, version: int
) -> None:
    if version >= 4:
        writer.write_compact_string(message.topic, "topic")
        writer.write_compact_array_length(message.partitions, "partitions")
        for epoch_end_offset in message.partitions:
            _encode_epoch_end_offset(writer, epoch_end_offset, version)
        writer.buf.append(0)
    else:
        writer.write_string(message.topic, "topic")
        writer.write_array_length(message.partitions, "partitions")
        for epoch_end_offset in message.partitions:
            _encode_epoch_end_offset(writer, epoch_end_offset, version)


def encode_offset_for_leader_epoch_response(
    writer: Writer, message: OffsetForLeaderEpochResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 2 <= version <= 4:
        raise unsupported_version("OffsetForLeaderEpochResponse", version)
    writer.write_int32(message.throttle_time_ms)
    if version >= 4:
        writer.write_compact_array_length(message.topics, "topics")
        for offset_for_leader_topic_result in message.topics:
            _encode_offset_for_leader_topic_result(writer, offset_for_leader_topic_result, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.topics, "topics")
        for offset_for_leader_topic_result in message.topics:
            _encode_offset_for_leader_topic_result(writer, offset_for_leader_topic_result, version)
