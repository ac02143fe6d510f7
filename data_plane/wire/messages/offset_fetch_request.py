"""OffsetFetchRequest (API key 9), versions 1 to 10, flexible from 6.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

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


class OffsetFetchRequestTopic(Message):
    """Part of OffsetFetchRequest."""

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


class OffsetFetchRequestTopics(Message):
    """Part of OffsetFetchRequest."""

    __slots__ = (
        "name",
        "partition_indexes",
        "topic_id",
    )

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: UUID = ZERO_UUID,
        partition_indexes: list[int] = EMPTY,
    ) -> None:
        self.name = name  # versions 8 to 9, topicName
        self.topic_id = topic_id  # versions 10 to 10
        self.partition_indexes = [] if partition_indexes is EMPTY else partition_indexes


class OffsetFetchRequestGroup(Message):
    """Part of OffsetFetchRequest."""

    __slots__ = (
        "group_id",
        "member_epoch",
        "member_id",
        "topics",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str | None = None,
        member_epoch: int = -1,
        topics: list[OffsetFetchRequestTopics] | None = EMPTY,
    ) -> None:
        self.group_id = group_id  # groupId
        self.member_id = member_id  # versions 9 to 10
        self.member_epoch = member_epoch  # versions 9 to 10
        self.topics = [] if topics is EMPTY else topics


class OffsetFetchRequest(Message):
    """The message."""

    __slots__ = (
        "group_id",
        "groups",
        "require_stable",
        "topics",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[OffsetFetchRequestTopic] | None = EMPTY,
        groups: list[OffsetFetchRequestGroup] = EMPTY,
        require_stable: bool = False,
    ) -> None:
        self.group_id = group_id  # versions 1 to 7, groupId
        self.topics = [] if topics is EMPTY else topics  # versions 1 to 7, nullable in 2 to 7
        self.groups = [] if groups is EMPTY else groups  # versions 8 to 10
        self.require_stable = require_stable  # versions 7 to 10


def _decode_offset_fetch_request_topic(reader: Reader, version: int) -> OffsetFetchRequestTopic:
    message = object.__new__(OffsetFetchRequestTopic)
    if version >= 6:
        message.name = reader.read_compact_string("name")
        message.partition_indexes = reader.read_int32_array(
            reader.read_compact_array_length(4, "partition_indexes")
        )
    else:
        message.name = reader.read_string("name")
        message.partition_indexes = reader.read_int32_array(
            reader.read_array_length(4, "partition_indexes")
        )
    if version >= 6:
        reader.skip_tagged_fields()
    return message


def _decode_offset_fetch_request_topics(reader: Reader, version: int) -> OffsetFetchRequestTopics:
    message = object.__new__(OffsetFetchRequestTopics)
    if version >= 10:
        message.name = ""
        message.topic_id = reader.read_uuid()
    else:
        message.name = reader.read_compact_string("name")
        message.topic_id = ZERO_UUID
    message.partition_indexes = reader.read_int32_array(
        reader.read_compact_array_length(4, "partition_indexes")
    )
    reader.skip_tagged_fields()
    return message


def _decode_offset_fetch_request_group(reader: Reader, version: int) -> OffsetFetchRequestGroup:
    message = object.__new__(OffsetFetchRequestGroup)
    message.group_id = reader.read_compact_string("group_id")
    if version >= 9:
        message.member_id = reader.read_nullable_compact_string("member_id")
        message.member_epoch = reader.read_int32()
    else:
        message.member_id = None
        message.member_epoch = -1
    count = reader.read_nullable_compact_array_length(3, "topics")
    message.topics = (
        None
        if count < 0
        else [_decode_offset_fetch_request_topics(reader, version) for _ in range(count)]
    )
    reader.skip_tagged_fields()
    return message


def decode_offset_fetch_request(reader: Reader, version: int) -> OffsetFetchRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 10:
        raise unsupported_version("OffsetFetchRequest", version)
    message = object.__new__(OffsetFetchRequest)
    if version >= 8:
        message.group_id = ""
    elif version >= 6:
        message.group_id = reader.read_compact_string("group_id")
    else:
        message.group_id = reader.read_string("group_id")
    if version >= 8:
        message.topics = []
    elif version >= 6:
        count = reader.read_nullable_compact_array_length(3, "topics")
        message.topics = (
            None
            if count < 0
            else [_decode_offset_fetch_request_topic(reader, version) for _ in range(count)]
        )
    elif version >= 2:
        count = reader.read_nullable_array_length(6, "topics")
        message.topics = (
            None
            if count < 0
            else [_decode_offset_fetch_request_topic(reader, version) for _ in range(count)]
        )
    else:
        message.topics = [
            _decode_offset_fetch_request_topic(reader, version)
            for _ in range(reader.read_array_length(6, "topics"))
        ]
    if version >= 8:
        message.groups = [
            _decode_offset_fetch_request_group(reader, version)
            for _ in range(reader.read_compact_array_length(3, "groups"))
        ]
    else:
        message.groups = []
    if version >= 7:
        message.require_stable = reader.read_bool()
    else:
        message.require_stable = False
    if version >= 6:
        reader.skip_tagged_fields()
    return message


def _encode_offset_fetch_request_topic(
    writer: Writer, message: OffsetFetchRequestTopic, version: int
) -> None:
    if version >= 6:
        writer.write_compact_string(message.name, "name")
        writer.write_compact_array_length(message.partition_indexes, "partition_indexes")
        writer.write_int32_array(message.partition_indexes)
        writer.buf.append(0)
    else:
        writer.write_string(message.name, "name")
        writer.write_array_length(message.partition_indexes, "partition_indexes")
        writer.write_int32_array(message.partition_indexes)


def _encode_offset_fetch_request_topics(
    writer: Writer, message: OffsetFetchRequestTopics, version: int
) -> None:
    if version >= 10:
        writer.write_uuid(message.topic_id)
    else:
        writer.write_compact_string(message.name, "name")
    writer.write_compact_array_length(message.partition_indexes, "partition_indexes")
    writer.write_int32_array(message.partition_indexes)
    writer.buf.append(0)


def _encode_offset_fetch_request_group(
    writer: Writer, message: OffsetFetchRequestGroup, version: int
) -> None:
    writer.write_compact_string(message.group_id, "group_id")
    if version >= 9:
        writer.write_nullable_compact_string(message.member_id, "member_id")
        writer.write_int32(message.member_epoch)
    writer.write_nullable_compact_array_length(message.topics, "topics")
    if message.topics:
        for offset_fetch_request_topics in message.topics:
            _encode_offset_fetch_request_topics(writer, offset_fetch_request_topics, version)
    writer.buf.append(0)


def encode_offset_fetch_request(writer: Writer, message: OffsetFetchRequest, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 10:
        raise unsupported_version("OffsetFetchRequest", version)
    if version >= 8:
        if message.group_id:
            raise unsupported_field("OffsetFetchRequest", "group_id", version)
    elif version >= 6:
        writer.write_compact_string(message.group_id, "group_id")
    else:
        writer.write_string(message.group_id, "group_id")
    if version >= 8:
        if message.topics is None or message.topics:
            raise unsupported_field("OffsetFetchRequest", "topics", version)
    elif version >= 6:
        writer.write_nullable_compact_array_length(message.topics, "topics")
        if message.topics:
            for offset_fetch_request_topic in message.topics:
                _encode_offset_fetch_request_topic(writer, offset_fetch_request_topic, version)
    elif version >= 2:
        writer.write_nullable_array_length(message.topics, "topics")
        if message.topics:
            for offset_fetch_request_topic in message.topics:
                _encode_offset_fetch_request_topic(writer, offset_fetch_request_topic, version)
    else:
        writer.write_array_length(message.topics, "topics")
        if message.topics:
            for offset_fetch_request_topic in message.topics:
                _encode_offset_fetch_request_topic(writer, offset_fetch_request_topic, version)
    if version >= 8:
        writer.write_compact_array_length(message.groups, "groups")
        for offset_fetch_request_group in message.groups:
            _encode_offset_fetch_request_group(writer, offset_fetch_request_group, version)
    else:
        if message.groups:
            raise unsupported_field("OffsetFetchRequest", "groups", version)
    if version >= 7:
        writer.write_bool(message.require_stable)
    else:
        if message.require_stable:
            raise unsupported_field("OffsetFetchRequest", "require_stable", version)
    if version >= 6:
        writer.buf.append(0)
