"""FetchRequest (API key 1), versions 4 to 18, flexible from 12.

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

_2XINT32_2XINT64_INT32 = Struct(">iiqqi")
_2XINT32_INT64_INT32_INT64_INT32 = Struct(">iiqiqi")
_3XINT32_INT8_2XINT32 = Struct(">iiibii")
_4XINT32_INT8 = Struct(">iiiib")
_4XINT32_INT8_2XINT32 = Struct(">iiiibii")
_INT32_2XINT64_INT32 = Struct(">iqqi")
_INT32_INT64 = Struct(">iq")
_INT32_INT64_INT32 = Struct(">iqi")


class ReplicaState(Message):
    """Part of FetchRequest."""

    __slots__ = (
        "replica_epoch",
        "replica_id",
    )

    def __init__(
        self,
        *,
        replica_id: int = -1,
        replica_epoch: int = -1,
    ) -> None:
        self.replica_id = replica_id  # brokerId
        self.replica_epoch = replica_epoch


class FetchPartition(Message):
    """Part of FetchRequest."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "last_fetched_epoch",
        "log_start_offset",
        "partition",
        "partition_max_bytes",
        "replica_directory_id",
    )

    def __init__(
        self,
        *,
        partition: int = 0,
        current_leader_epoch: int = -1,
        fetch_offset: int = 0,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
        partition_max_bytes: int = 0,
        replica_directory_id: UUID = ZERO_UUID,
        high_watermark: int = 9223372036854775807,
    ) -> None:
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch  # versions 9 to 18
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch  # versions 12 to 18
        self.log_start_offset = log_start_offset  # versions 5 to 18
        self.partition_max_bytes = partition_max_bytes
        self.replica_directory_id = replica_directory_id  # versions 17 to 18, tag 0
        self.high_watermark = high_watermark  # versions 18 to 18, tag 1


class FetchTopic(Message):
    """Part of FetchRequest."""

    __slots__ = (
        "partitions",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        *,
        topic: str = "",
        topic_id: UUID = ZERO_UUID,
        partitions: list[FetchPartition] = EMPTY,
    ) -> None:
        self.topic = topic  # versions 4 to 12, topicName
        self.topic_id = topic_id  # versions 13 to 18
        self.partitions = [] if partitions is EMPTY else partitions


class ForgottenTopic(Message):
    """Part of FetchRequest."""

    __slots__ = (
        "partitions",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        *,
        topic: str = "",
        topic_id: UUID = ZERO_UUID,
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic = topic  # versions 7 to 12, topicName
        self.topic_id = topic_id  # versions 13 to 18
        self.partitions = [] if partitions is EMPTY else partitions


class FetchRequest(Message):
    """The message."""

    __slots__ = (
        "cluster_id",
        "forgotten_topics_data",
        "isolation_level",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "rack_id",
        "replica_id",
        "replica_state",
        "session_epoch",
        "session_id",
        "topics",
    )

    def __init__(
        self,
        *,
        cluster_id: str | None = None,
        replica_id: int = -1,
        replica_state: ReplicaState | None = None,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 2147483647,
        isolation_level: int = 0,
        session_id: int = 0,
        session_epoch: int = -1,
        topics: list[FetchTopic] = EMPTY,
        forgotten_topics_data: list[ForgottenTopic] = EMPTY,
        rack_id: str = "",
    ) -> None:
        self.cluster_id = cluster_id  # versions 12 to 18, tag 0
        self.replica_id = replica_id  # versions 4 to 14, brokerId
        self.replica_state = (
            ReplicaState() if replica_state is None else replica_state
        )  # versions 15 to 18, tag 1
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation_level = isolation_level
        self.session_id = session_id  # versions 7 to 18
        self.session_epoch = session_epoch  # versions 7 to 18
        self.topics = [] if topics is EMPTY else topics
        self.forgotten_topics_data = (
            [] if forgotten_topics_data is EMPTY else forgotten_topics_data
        )  # versions 7 to 18
        self.rack_id = rack_id  # versions 11 to 18


def _decode_replica_state(reader: Reader, version: int) -> ReplicaState:
    message = object.__new__(ReplicaState)
    (message.replica_id, message.replica_epoch) = reader.unpack(_INT32_INT64)
    reader.skip_tagged_fields()
    return message


def _decode_fetch_partition(reader: Reader, version: int) -> FetchPartition:
    message = object.__new__(FetchPartition)
    if version >= 12:
        (
            message.partition,
            message.current_leader_epoch,
            message.fetch_offset,
            message.last_fetched_epoch,
            message.log_start_offset,
            message.partition_max_bytes,
        ) = reader.unpack(_2XINT32_INT64_INT32_INT64_INT32)
    elif version >= 9:
        (
            message.partition,
            message.current_leader_epoch,
            message.fetch_offset,
            message.log_start_offset,
            message.partition_max_bytes,
        ) = reader.unpack(_2XINT32_2XINT64_INT32)
        message.last_fetched_epoch = -1
    elif version >= 5:
        (
            message.partition,
            message.fetch_offset,
            message.log_start_offset,
            message.partition_max_bytes,
        ) = reader.unpack(_INT32_2XINT64_INT32)
        message.current_leader_epoch = -1
        message.last_fetched_epoch = -1
    else:
        (message.partition, message.fetch_offset, message.partition_max_bytes) = reader.unpack(
            _INT32_INT64_INT32
        )
        message.current_leader_epoch = -1
        message.last_fetched_epoch = -1
        message.log_start_offset = -1
    message.replica_directory_id = ZERO_UUID
    message.high_watermark = 9223372036854775807
    if version >= 12:
        for _ in range(reader.read_tagged_fields_count()):
            tag = reader.read_uvarint()
            end = reader.read_tagged_field_end()
            if tag == 0 and version >= 17:
                message.replica_directory_id = reader.read_uuid()
            elif tag == 1 and version >= 18:
                message.high_watermark = reader.read_int64()
            else:
                reader.pos = end
            reader.check_tagged_field_end(end)
    return message


def _decode_fetch_topic(reader: Reader, version: int) -> FetchTopic:
    message = object.__new__(FetchTopic)
    if version >= 13:
        message.topic = ""
    elif version >= 12:
        message.topic = reader.read_compact_string("topic")
    else:
        message.topic = reader.read_string("topic")
    if version >= 13:
        message.topic_id = reader.read_uuid()
    else:
        message.topic_id = ZERO_UUID
    if version >= 12:
        message.partitions = [
            _decode_fetch_partition(reader, version)
            for _ in range(reader.read_compact_array_length(33, "partitions"))
        ]
    else:
        message.partitions = [
            _decode_fetch_partition(reader, version)
            for _ in range(reader.read_array_length(16, "partitions"))
        ]
    if version >= 12:
        reader.skip_tagged_fields()
    return message


def _decode_forgotten_topic(reader: Reader, version: int) -> ForgottenTopic:
    message = object.__new__(ForgottenTopic)
    if version >= 13:
        message.topic = ""
    elif version >= 12:
        message.topic = reader.read_compact_string("topic")
    else:
        message.topic = reader.read_string("topic")
    if version >= 13:
        message.topic_id = reader.read_uuid()
    else:
        message.topic_id = ZERO_UUID
    if version >= 12:
        message.partitions = reader.read_int32_array(
            reader.read_compact_array_length(4, "partitions")
        )
    else:
        message.partitions = reader.read_int32_array(reader.read_array_length(4, "partitions"))
    if version >= 12:
        reader.skip_tagged_fields()
    return message


def decode_fetch_request(reader: Reader, version: int) -> FetchRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 4 <= version <= 18:
        raise unsupported_version("FetchRequest", version)
    message = object.__new__(FetchRequest)
    if version >= 15:
        (
            message.max_wait_ms,
            message.min_bytes,
            message.max_bytes,
            message.isolation_level,
            message.session_id,
            message.session_epoch,
        ) = reader.unpack(_3XINT32_INT8_2XINT32)
        message.replica_id = -1
    elif version >= 7:
        (
            message.replica_id,
            message.max_wait_ms,
            message.min_bytes,
            message.max_bytes,
            message.isolation_level,
            message.session_id,
            message.session_epoch,
        ) = reader.unpack(_4XINT32_INT8_2XINT32)
    else:
        (
            message.replica_id,
            message.max_wait_ms,
            message.min_bytes,
            message.max_bytes,
            message.isolation_level,
        ) = reader.unpack(_4XINT32_INT8)
        message.session_id = 0
        message.session_epoch = -1
    if version >= 12:
        message.topics = [
            _decode_fetch_topic(reader, version)
            for _ in range(reader.read_compact_array_length(3, "topics"))
        ]
    else:
        message.topics = [
            _decode_fetch_topic(reader, version)
            for _ in range(reader.read_array_length(6, "topics"))
        ]
    if version >= 12:
        message.forgotten_topics_data = [
            _decode_forgotten_topic(reader, version)
            for _ in range(reader.read_compact_array_length(3, "forgotten_topics_data"))
        ]
    elif version >= 7:
        message.forgotten_topics_data = [
            _decode_forgotten_topic(reader, version)
            for _ in range(reader.read_array_length(6, "forgotten_topics_data"))
        ]
    else:
        message.forgotten_topics_data = []
    if version >= 12:
        message.rack_id = reader.read_compact_string("rack_id")
    elif version >= 11:
        message.rack_id = reader.read_string("rack_id")
    else:
        message.rack_id = ""
    message.cluster_id = None
    message.replica_state = ReplicaState()
    if version >= 12:
        for _ in range(reader.read_tagged_fields_count()):
            tag = reader.read_uvarint()
            end = reader.read_tagged_field_end()
            if tag == 0:
                message.cluster_id = reader.read_nullable_compact_string("cluster_id")
            elif tag == 1 and version >= 15:
                message.replica_state = _decode_replica_state(reader, version)
            else:
                reader.pos = end
            reader.check_tagged_field_end(end)
    return message


def _encode_replica_state(writer: Writer, message: ReplicaState, version: int) -> None:
    writer.buf += _INT32_INT64.pack(message.replica_id, message.replica_epoch)
    writer.buf.append(0)


def _encode_fetch_partition(writer: Writer, message: FetchPartition, version: int) -> None:
    if version >= 12:
        writer.buf += _2XINT32_INT64_INT32_INT64_INT32.pack(
            message.partition,
            message.current_leader_epoch,
            message.fetch_offset,
            message.last_fetched_epoch,
            message.log_start_offset,
            message.partition_max_bytes,
        )
    elif version >= 9:
        if message.last_fetched_epoch != -1:
            raise unsupported_field("FetchPartition", "last_fetched_epoch", version)
        writer.buf += _2XINT32_2XINT64_INT32.pack(
            message.partition,
            message.current_leader_epoch,
            message.fetch_offset,
            message.log_start_offset,
            message.partition_max_bytes,
        )
    elif version >= 5:
        if message.last_fetched_epoch != -1:
            raise unsupported_field("FetchPartition", "last_fetched_epoch", version)
        writer.buf += _INT32_2XINT64_INT32.pack(
            message.partition,
            message.fetch_offset,
            message.log_start_offset,
            message.partition_max_bytes,
        )
    else:
        if message.last_fetched_epoch != -1:
            raise unsupported_field("FetchPartition", "last_fetched_epoch", version)
        writer.buf += _INT32_INT64_INT32.pack(
            message.partition, message.fetch_offset, message.partition_max_bytes
        )
    if version >= 12:
        tagged: list[tuple[int, Writer]] = []
        if version >= 17 and message.replica_directory_id != ZERO_UUID:
            content = Writer()
            content.write_uuid(message.replica_directory_id)
            tagged.append((0, content))
        if version >= 18 and message.high_watermark != 9223372036854775807:
            content = Writer()
            content.write_int64(message.high_watermark)
            tagged.append((1, content))
        writer.write_tagged_fields(tagged)


def _encode_fetch_topic(writer: Writer, message: FetchTopic, version: int) -> None:
    if version <= 11:
        writer.write_string(message.topic, "topic")
    elif version <= 12:
        writer.write_compact_string(message.topic, "topic")
    if version >= 13:
        writer.write_uuid(message.topic_id)
    if version >= 12:
        writer.write_compact_array_length(message.partitions, "partitions")
        for fetch_partition in message.partitions:
            _encode_fetch_partition(writer, fetch_partition, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.partitions, "partitions")
        for fetch_partition in message.partitions:
            _encode_fetch_partition(writer, fetch_partition, version)


def _encode_forgotten_topic(writer: Writer, message: ForgottenTopic, version: int) -> None:
    if version <= 11:
        writer.write_string(message.topic, "topic")
    elif version <= 12:
        writer.write_compact_string(message.topic, "topic")
    if version >= 13:
        writer.write_uuid(message.topic_id)
    if version >= 12:
        writer.write_compact_array_length(message.partitions, "partitions")
        writer.write_int32_array(message.partitions)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.partitions, "partitions")
        writer.write_int32_array(message.partitions)


def encode_fetch_request(writer: Writer, message: FetchRequest, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 4 <= version <= 18:
        raise unsupported_version("FetchRequest", version)
    if version >= 15:
        if message.replica_id != -1:
            raise unsupported_field("FetchRequest", "replica_id", version)
        writer.buf += _3XINT32_INT8_2XINT32.pack(
            message.max_wait_ms,
            message.min_bytes,
            message.max_bytes,
            message.isolation_level,
            message.session_id,
            message.session_epoch,
        )
    elif version >= 7:
        writer.buf += _4XINT32_INT8_2XINT32.pack(
            message.replica_id,
            message.max_wait_ms,
            message.min_bytes,
            message.max_bytes,
            message.isolation_level,
            message.session_id,
            message.session_epoch,
        )
    else:
        writer.buf += _4XINT32_INT8.pack(
            message.replica_id,
            message.max_wait_ms,
            message.min_bytes,
            message.max_bytes,
            message.isolation_level,
        )
    if version >= 12:
        writer.write_compact_array_length(message.topics, "topics")
        for fetch_topic in message.topics:
            _encode_fetch_topic(writer, fetch_topic, version)
    else:
        writer.write_array_length(message.topics, "topics")
        for fetch_topic in message.topics:
            _encode_fetch_topic(writer, fetch_topic, version)
    if version >= 12:
        writer.write_compact_array_length(message.forgotten_topics_data, "forgotten_topics_data")
        for forgotten_topic in message.forgotten_topics_data:
            _encode_forgotten_topic(writer, forgotten_topic, version)
    elif version >= 7:
        writer.write_array_length(message.forgotten_topics_data, "forgotten_topics_data")
        for forgotten_topic in message.forgotten_topics_data:
            _encode_forgotten_topic(writer, forgotten_topic, version)
    else:
        if message.forgotten_topics_data:
            raise unsupported_field("FetchRequest", "forgotten_topics_data", version)
    if version >= 12:
        writer.write_compact_string(message.rack_id, "rack_id")
    elif version >= 11:
        writer.write_string(message.rack_id, "rack_id")
    if version <= 14 and not _is_default_replica_state(message.replica_state):
        raise unsupported_field("FetchRequest", "replica_state", version)
    if version >= 12:
        tagged: list[tuple[int, Writer]] = []
        if message.cluster_id is not None:
            content = Writer()
            content.write_nullable_compact_string(message.cluster_id, "cluster_id")
            tagged.append((0, content))
        if version >= 15 and not _is_default_replica_state(message.replica_state):
            content = Writer()
            _encode_replica_state(content, message.replica_state, version)
            tagged.append((1, content))
        writer.write_tagged_fields(tagged)


def _is_default_replica_state(message: ReplicaState) -> bool:
    return message.replica_id == -1 and message.replica_epoch == -1
