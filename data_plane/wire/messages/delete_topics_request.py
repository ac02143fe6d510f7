"""DeleteTopicsRequest (API key 20), versions 1 to 6, flexible from 4.

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


class DeleteTopicState(Message):
    """Part of DeleteTopicsRequest."""

    __slots__ = (
        "name",
        "topic_id",
    )

    def __init__(
        self,
        *,
        name: str | None = None,
        topic_id: UUID = ZERO_UUID,
    ) -> None:
        self.name = name  # topicName
        self.topic_id = topic_id


class DeleteTopicsRequest(Message):
    """The message."""

    __slots__ = (
        "timeout_ms",
        "topic_names",
        "topics",
    )

    def __init__(
        self,
        *,
        topic_names: list[str] = EMPTY,
        topics: list[DeleteTopicState] = EMPTY,
        timeout_ms: int = 0,
    ) -> None:
        self.topic_names = [] if topic_names is EMPTY else topic_names  # versions 1 to 5, topicName
        self.topics = [] if topics is EMPTY else topics  # versions 6 to 6
        self.timeout_ms = timeout_ms


def _decode_delete_topic_state(reader: Reader, version: int) -> DeleteTopicState:
    message = object.__new__(DeleteTopicState)
    message.name = reader.read_nullable_compact_string("name")
    message.topic_id = reader.read_uuid()
    reader.skip_tagged_fields()
    return message


def decode_delete_topics_request(reader: Reader, version: int) -> DeleteTopicsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 6:
        raise unsupported_version("DeleteTopicsRequest", version)
    message = object.__new__(DeleteTopicsRequest)
    if version >= 6:
        message.topic_names = []
    elif version >= 4:
        message.topic_names = [
            reader.read_compact_string("topic_names")
            for _ in range(reader.read_compact_array_length(1, "topic_names"))
        ]
    else:
        message.topic_names = [
            reader.read_string("topic_names")
            for _ in range(reader.read_array_length(2, "topic_names"))
        ]
    if version >= 6:
        message.topics = [
            _decode_delete_topic_state(reader, version)
            for _ in range(reader.read_compact_array_length(18, "topics"))
        ]
    else:
        message.topics = []
    message.timeout_ms = reader.read_int32()
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def _encode_delete_topic_state(writer: Writer, message: DeleteTopicState, version: int) -> None:
    writer.write_nullable_compact_string(message.name, "name")
    writer.write_uuid(message.topic_id)
    writer.buf.append(0)


def encode_delete_topics_request(
    writer: Writer, message: DeleteTopicsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 6:
        raise unsupported_version("DeleteTopicsRequest", version)
    if version <= 3:
        writer.write_array_length(message.topic_names, "topic_names")
        for string_item in message.topic_names:
            writer.write_string(string_item, "topic_names")
    elif version <= 5:
        writer.write_compact_array_length(message.topic_names, "topic_names")
        for string_item in message.topic_names:
            writer.write_compact_string(string_item, "topic_names")
    if version >= 6:
        writer.write_compact_array_length(message.topics, "topics")
        for delete_topic_state in message.topics:
            _encode_delete_topic_state(writer, delete_topic_state, version)
    else:
        if message.topics:
            raise unsupported_field("DeleteTopicsRequest", "topics", version)
    writer.write_int32(message.timeout_ms)
    if version >= 4:
        writer.buf.append(0)
