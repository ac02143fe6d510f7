"""ShareFetchRequest (API key 78), versions 1 to 2, flexible from 1.

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
_6XINT32 = Struct(">iiiiii")
_6XINT32_INT8_BOOL = Struct(">iiiiiib?")


class AcknowledgementBatch(Message):
    """Part of ShareFetchRequest."""

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


class FetchPartition(Message):
    """Part of ShareFetchRequest."""

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


class FetchTopic(Message):
    """Part of ShareFetchRequest."""

    __slots__ = (
        "partitions",
        "topic_id",
    )

    def __init__(
        self,
        *,
        topic_id: UUID = ZERO_UUID,
        partitions: list[FetchPartition] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class ForgottenTopic(Message):
    """Part of ShareFetchRequest."""

    __slots__ = (
        "partitions",
        "topic_id",
    )

    def __init__(
        self,
        *,
        topic_id: UUID = ZERO_UUID,
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class ShareFetchRequest(Message):
    """The message."""

    __slots__ = (
        "batch_size",
        "forgotten_topics_data",
        "group_id",
        "is_renew_ack",
        "max_bytes",
        "max_records",
        "max_wait_ms",
        "member_id",
        "min_bytes",
        "share_acquire_mode",
        "share_session_epoch",
        "topics",
    )

    def __init__(
        self,
        *,
        group_id: str | None = None,
        member_id: str | None = "",
        share_session_epoch: int = 0,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 2147483647,
        max_records: int = 0,
        batch_size: int = 0,
        share_acquire_mode: int = 0,
        is_renew_ack: bool = False,
        topics: list[FetchTopic] = EMPTY,
        forgotten_topics_data: list[ForgottenTopic] = EMPTY,
    ) -> None:
        self.group_id = group_id  # groupId
        self.member_id = member_id
        self.share_session_epoch = share_session_epoch
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.max_records = max_records
        self.batch_size = batch_size
        self.share_acquire_mode = share_acquire_mode  # versions 2 to 2
        self.is_renew_ack = is_renew_ack  # versions 2 to 2
        self.topics = [] if topics is EMPTY else topics
        self.forgotten_topics_data = [] if forgotten_topics_data is EMPTY else forgotten_topics_data


def _decode_acknowledgement_batch(reader: Reader, version: int) -> AcknowledgementBatch:
    message = object.__new__(AcknowledgementBatch)
    (message.first_offset, message.last_offset) = reader.unpack(_2XINT64)
    message.acknowledge_types = reader.read_int8_array(
        reader.read_compact_array_length(1, "acknowledge_types")
    )
    reader.skip_tagged_fields()
    return message


def _decode_fetch_partition(reader: Reader, version: int) -> FetchPartition:
    message = object.__new__(FetchPartition)
    message.partition_index = reader.read_int32()
    message.acknowledgement_batches = [
        _decode_acknowledgement_batch(reader, version)
        for _ in range(reader.read_compact_array_length(18, "acknowledgement_batches"))
    ]
    reader.skip_tagged_fields()
    return message


def _decode_fetch_topic(reader: Reader, version: int) -> FetchTopic:
    message = object.__new__(FetchTopic)
    message.topic_id = reader.read_uuid()
    message.partitions = [
        _decode_fetch_partition(reader, version)
        for _ in range(reader.read_compact_array_length(6, "partitions"))
    ]
    reader.skip_tagged_fields()
    return message


def _decode_forgotten_topic(reader: Reader, version: int) -> ForgottenTopic:
    message = object.__new__(ForgottenTopic)
    message.topic_id = reader.read_uuid()
    message.partitions = reader.read_int32_array(reader.read_compact_array_length(4, "partitions"))
    reader.skip_tagged_fields()
    return message


def decode_share_fetch_request(reader: Reader, version: int) -> ShareFetchRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 2:
        raise unsupported_version("ShareFetchRequest", version)
    message = object.__new__(ShareFetchRequest)
    message.group_id = reader.read_nullable_compact_string("group_id")
    message.member_id = reader.read_nullable_compact_string("member_id")
    if version >= 2:
        (
            message.share_session_epoch,
            message.max_wait_ms,
            message.min_bytes,
            message.max_bytes,
            message.max_records,
            message.batch_size,
            message.share_acquire_mode,
            message.is_renew_ack,
        ) = reader.unpack(_6XINT32_INT8_BOOL)
    else:
        (
            message.share_session_epoch,
            message.max_wait_ms,
            message.min_bytes,
            message.max_bytes,
            message.max_records,
            message.batch_size,
        ) = reader.unpack(_6XINT32)
        message.share_acquire_mode = 0
        message.is_renew_ack = False
    message.topics = [
        _decode_fetch_topic(reader, version)
        for _ in range(reader.read_compact_array_length(18, "topics"))
    ]
    message.forgotten_topics_data = [
        _decode_forgotten_topic(reader, version)
        for _ in range(reader.read_compact_array_length(18, "forgotten_topics_data"))
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


def _encode_fetch_partition(writer: Writer, message: FetchPartition, version: int) -> None:
    writer.write_int32(message.partition_index)
    writer.write_compact_array_length(message.acknowledgement_batches, "acknowledgement_batches")
    for acknowledgement_batch in message.acknowledgement_batches:
        _encode_acknowledgement_batch(writer, acknowledgement_batch, version)
    writer.buf.append(0)


def _encode_fetch_topic(writer: Writer, message: FetchTopic, version: int) -> None:
    writer.write_uuid(message.topic_id)
    writer.write_compact_array_length(message.partitions, "partitions")
    for fetch_partition in message.partitions:
        _encode_fetch_partition(writer, fetch_partition, version)
    writer.buf.append(0)


def _encode_forgotten_topic(writer: Writer, message: ForgottenTopic, version: int) -> None:
    writer.write_uuid(message.topic_id)
    writer.write_compact_array_length(message.partitions, "partitions")
    writer.write_int32_array(message.partitions)
    writer.buf.append(0)


def encode_share_fetch_request(writer: Writer, message: ShareFetchRequest, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 2:
        raise unsupported_version("ShareFetchRequest", version)
    writer.write_nullable_compact_string(message.group_id, "group_id")
    writer.write_nullable_compact_string(message.member_id, "member_id")
    if version >= 2:
        writer.buf += _6XINT32_INT8_BOOL.pack(
            message.share_session_epoch,
            message.max_wait_ms,
            message.min_bytes,
            message.max_bytes,
            message.max_records,
            message.batch_size,
            message.share_acquire_mode,
            message.is_renew_ack,
        )
    else:
        if message.is_renew_ack:
            raise unsupported_field("ShareFetchRequest", "is_renew_ack", version)
        writer.buf += _6XINT32.pack(
            message.share_session_epoch,
            message.max_wait_ms,
            message.min_bytes,
            message.max_bytes,
            message.max_records,
            message.batch_size,
        )
    writer.write_compact_array_length(message.topics, "topics")
    for fetch_topic in message.topics:
        _encode_fetch_topic(writer, fetch_topic, version)
    writer.write_compact_array_length(message.forgotten_topics_data, "forgotten_topics_data")
    for forgotten_topic in message.forgotten_topics_data:
        _encode_forgotten_topic(writer, forgotten_topic, version)
    writer.buf.append(0)
