"""DescribeShareGroupOffsetsRequest (API key 90), versions 0 to 1, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class DescribeShareGroupOffsetsRequestTopic(Message):
    """Part of DescribeShareGroupOffsetsRequest."""

    __slots__ = (
        "partitions",
        "topic_name",
    )

    def __init__(
        self,
        *,
        topic_name: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic_name = topic_name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class DescribeShareGroupOffsetsRequestGroup(Message):
    """Part of DescribeShareGroupOffsetsRequest."""

    __slots__ = (
        "group_id",
        "topics",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[DescribeShareGroupOffsetsRequestTopic] | None = EMPTY,
    ) -> None:
        self.group_id = group_id  # groupId
        self.topics = [] if topics is EMPTY else topics


class DescribeShareGroupOffsetsRequest(Message):
    """The message."""

    __slots__ = ("groups",)

    def __init__(
        self,
        *,
        groups: list[DescribeShareGroupOffsetsRequestGroup] = EMPTY,
    ) -> None:
        self.groups = [] if groups is EMPTY else groups


def _decode_describe_share_group_offsets_request_topic(
    reader: Reader, version: int
) -> DescribeShareGroupOffsetsRequestTopic:
    message = object.__new__(DescribeShareGroupOffsetsRequestTopic)
    message.topic_name = reader.read_compact_string("topic_name")
    message.partitions = reader.read_int32_array(reader.read_compact_array_length(4, "partitions"))
    reader.skip_tagged_fields()
    return message


def _decode_describe_share_group_offsets_request_group(
    reader: Reader, version: int
) -> DescribeShareGroupOffsetsRequestGroup:
    message = object.__new__(DescribeShareGroupOffsetsRequestGroup)
    message.group_id = reader.read_compact_string("group_id")
    count = reader.read_nullable_compact_array_length(3, "topics")
    message.topics = (
        None
        if count < 0
        else [
            _decode_describe_share_group_offsets_request_topic(reader, version)
            for _ in range(count)
        ]
    )
    reader.skip_tagged_fields()
    return message


def decode_describe_share_group_offsets_request(
    reader: Reader, version: int
) -> DescribeShareGroupOffsetsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 1:
        raise unsupported_version("DescribeShareGroupOffsetsRequest", version)
    message = object.__new__(DescribeShareGroupOffsetsRequest)
    message.groups = [
        _decode_describe_share_group_offsets_request_group(reader, version)
        for _ in range(reader.read_compact_array_length(3, "groups"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_describe_share_group_offsets_request_topic(
    writer: Writer, message: DescribeShareGroupOffsetsRequestTopic, version: int
) -> None:
    writer.write_compact_string(message.topic_name, "topic_name")
    writer.write_compact_array_length(message.partitions, "partitions")
    writer.write_int32_array(message.partitions)
    writer.buf.append(0)


def _encode_describe_share_group_offsets_request_group(
    writer: Writer, message: DescribeShareGroupOffsetsRequestGroup, version: int
) -> None:
    writer.write_compact_string(message.group_id, "group_id")
    writer.write_nullable_compact_array_length(message.topics, "topics")
    if message.topics:
        for describe_share_group_offsets_request_topic in message.topics:
            _encode_describe_share_group_offsets_request_topic(
                writer, describe_share_group_offsets_request_topic, version
            )
    writer.buf.append(0)


def encode_describe_share_group_offsets_request(
    writer: Writer, message: DescribeShareGroupOffsetsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 1:
        raise unsupported_version("DescribeShareGroupOffsetsRequest", version)
    writer.write_compact_array_length(message.groups, "groups")
    for describe_share_group_offsets_request_group in message.groups:
        _encode_describe_share_group_offsets_request_group(
            writer, describe_share_group_offsets_request_group, version
        )
    writer.buf.append(0)
