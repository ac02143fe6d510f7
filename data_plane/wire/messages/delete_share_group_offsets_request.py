"""DeleteShareGroupOffsetsRequest (API key 92), versions 0 to 0, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class DeleteShareGroupOffsetsRequestTopic(Message):
    """Part of DeleteShareGroupOffsetsRequest."""

    __slots__ = ("topic_name",)

    def __init__(
        self,
        *,
        topic_name: str = "",
    ) -> None:
        self.topic_name = topic_name  # topicName


class DeleteShareGroupOffsetsRequest(Message):
    """The message."""

    __slots__ = (
        "group_id",
        "topics",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[DeleteShareGroupOffsetsRequestTopic] = EMPTY,
    ) -> None:
        self.group_id = group_id  # groupId
        self.topics = [] if topics is EMPTY else topics


def _decode_delete_share_group_offsets_request_topic(
    reader: Reader, version: int
) -> DeleteShareGroupOffsetsRequestTopic:
    message = object.__new__(DeleteShareGroupOffsetsRequestTopic)
    message.topic_name = reader.read_compact_string("topic_name")
    reader.skip_tagged_fields()
    return message


def decode_delete_share_group_offsets_request(
    reader: Reader, version: int
) -> DeleteShareGroupOffsetsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("DeleteShareGroupOffsetsRequest", version)
    message = object.__new__(DeleteShareGroupOffsetsRequest)
    message.group_id = reader.read_compact_string("group_id")
    message.topics = [
        _decode_delete_share_group_offsets_request_topic(reader, version)
        for _ in range(reader.read_compact_array_length(2, "topics"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_delete_share_group_offsets_request_topic(
    writer: Writer, message: DeleteShareGroupOffsetsRequestTopic, version: int
) -> None:
    writer.write_compact_string(message.topic_name, "topic_name")
    writer.buf.append(0)


def encode_delete_share_group_offsets_request(
    writer: Writer, message: DeleteShareGroupOffsetsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("DeleteShareGroupOffsetsRequest", version)
    writer.write_compact_string(message.group_id, "group_id")
    writer.write_compact_array_length(message.topics, "topics")
    for delete_share_group_offsets_request_topic in message.topics:
        _encode_delete_share_group_offsets_request_topic(
            writer, delete_share_group_offsets_request_topic, version
        )
    writer.buf.append(0)
