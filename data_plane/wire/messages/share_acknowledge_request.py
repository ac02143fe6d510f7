"""ShareAcknowledgeRequest (API key 79), versions 1 to 2, flexible from 1.

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
    unsupported_field,
    unsupported_version,
)

_2XINT64 = Struct(">qq")
_INT32_BOOL = Struct(">i?")


class AcknowledgementBatch(Message):
    """Part of ShareAcknowledgeRequest."""

    __slots__ = (
        "acknowledge_types",
        "first_offset",
        "last_offset",
    )

    def __init__(
        self,
        *,
        first_offset: int = 0,
        last_offset: int = 0,
        acknowledge_types: list[int] = EMPTY,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.acknowledge_types = [] if acknowledge_types is EMPTY else acknowledge_types


class AcknowledgePartition(Message):
    """Part of ShareAcknowledgeRequest."""

    __slots__ = (
        "acknowledgement_batches",
        "partition_index",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        acknowledgement_batches: list[AcknowledgementBatch] = EMPTY,
    ) -> None:
        self.partition_index = partition_index
        self.acknowledgement_batches = (
            [] if acknowledgement_batches is EMPTY else acknowledgement_batches
        )


class AcknowledgeTopic(Message):
    """Part of ShareAcknowledgeRequest."""

    __slots__ = (
        "partitions",
        "topic_id",
    )

    def __init__(
        self,
        *,
        topic_id: UUID = ZERO_UUID,
        partitions: list[AcknowledgePartition] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class ShareAcknowledgeRequest(Message):
    """The message."""

    __slots__ = (
        "group_id",
        "is_renew_ack",
        "member_id",
        "share_session_epoch",
        "topics",
    )

    def __init__(
        self,
        *,
        group_id: str | None = None,
        member_id: str | None = "",
        share_session_epoch: int = 0,
        is_renew_ack: bool = False,
        topics: list[AcknowledgeTopic] = EMPTY,
    ) -> None:
        self.group_id = group_id  # groupId
        self.member_id = member_id
        self.share_session_epoch = share_session_epoch
        self.is_renew_ack = is_renew_ack  # versions 2 to 2
        self.topics = [] if topics is EMPTY else topics


def _decode_acknowledgement_batch(reader: Reader, version: int) -> AcknowledgementBatch:
    message = object.__new__(AcknowledgementBatch)
    (message.first_offset, message.last_offset) = reader.unpack(_2XINT64)
    message.acknowledge_types = reader.read_int8_array(
        reader.read_compact_array_length(1, "acknowledge_types")
    )
    reader.skip_tagged_fields()
    return message


def _decode_acknowledge_partition(reader: Reader, version: int) -> AcknowledgePartition:
    message = object.__new__(AcknowledgePartition)
    message.partition_index = reader.read_int32()
    message.acknowledgement_batches = [
        _decode_acknowledgement_batch(reader, version)
        for _ in range(reader.read_compact_array_length(18, "acknowledgement_batches"))
    ]
    reader.skip_tagged_fields()
    return message


def _decode_acknowledge_topic(reader: Reader, version: int) -> AcknowledgeTopic:
    message = object.__new__(AcknowledgeTopic)
    message.topic_id = reader.read_uuid()
    message.partitions = [
        _decode_acknowledge_partition(reader, version)
        for _ in range(reader.read_compact_array_length(6, "partitions"))
    ]
    reader.skip_tagged_fields()
    return message


def decode_share_acknowledge_request(reader: Reader, version: int) -> ShareAcknowledgeRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 2:
        raise unsupported_version("ShareAcknowledgeRequest", version)
    message = object.__new__(ShareAcknowledgeRequest)
    message.group_id = reader.read_nullable_compact_string("group_id")
    message.member_id = reader.read_nullable_compact_string("member_id")
    if version >= 2:
        (message.share_session_epoch, message.is_renew_ack) = reader.unpack(_INT32_BOOL)
    else:
        message.share_session_epoch = reader.read_int32()
        message.is_renew_ack = False
    message.topics = [
        _decode_acknowledge_topic(reader, version)
        for _ in range(reader.read_compact_array_length(18, "topics"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_acknowledgement_batch(
    writer: Writer, message: AcknowledgementBatch, version: int
) -> None:
    writer.buf += _2XINT64.pack(message.first_offset, message.last_offset)
    writer.write_compact_array_length(message.acknowledge_types, "acknowledge_types")
    writer.write_int8_array(message.acknowledge_types)
    writer.buf.append(0)


def _encode_acknowledge_partition(
    writer: Writer, message: AcknowledgePartition, version: int
) -> None:
    writer.write_int32(message.partition_index)
    writer.write_compact_array_length(message.acknowledgement_batches, "acknowledgement_batches")
    for acknowledgement_batch in message.acknowledgement_batches:
        _encode_acknowledgement_batch(writer, acknowledgement_batch, version)
    writer.buf.append(0)


def _encode_acknowledge_topic(writer: Writer, message: AcknowledgeTopic, version: int) -> None:
    writer.write_uuid(message.topic_id)
    writer.write_compact_array_length(message.partitions, "partitions")
    for acknowledge_partition in message.partitions:
        _encode_acknowledge_partition(writer, acknowledge_partition, version)
    writer.buf.append(0)


def encode_share_acknowledge_request(
    writer: Writer, message: ShareAcknowledgeRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 2:
        raise unsupported_version("ShareAcknowledgeRequest", version)
    writer.write_nullable_compact_string(message.group_id, "group_id")
    writer.write_nullable_compact_string(message.member_id, "member_id")
    if version >= 2:
        writer.buf += _INT32_BOOL.pack(message.share_session_epoch, message.is_renew_ack)
    else:
        if message.is_renew_ack:
            raise unsupported_field("ShareAcknowledgeRequest", "is_renew_ack", version)
        writer.write_int32(message.share_session_epoch)
    writer.write_compact_array_length(message.topics, "topics")
    for acknowledge_topic in message.topics:
        _encode_acknowledge_topic(writer, acknowledge_topic, version)
    writer.buf.append(0)
