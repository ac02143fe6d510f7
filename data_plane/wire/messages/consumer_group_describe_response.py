"""ConsumerGroupDescribeResponse (API key 69), versions 0 to 1, flexible from 0.

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
    unsupported_version,
)

_2XINT32 = Struct(">ii")


class TopicPartitions(Message):
    """Part of ConsumerGroupDescribeResponse."""

    __slots__ = (
        "partitions",
        "topic_id",
        "topic_name",
    )

    def __init__(
        self,
        *,
        topic_id: UUID = ZERO_UUID,
        topic_name: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.topic_name = topic_name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class Assignment(Message):
    """Part of ConsumerGroupDescribeResponse."""

    __slots__ = ("topic_partitions",)

    def __init__(
        self,
        *,
        topic_partitions: list[TopicPartitions] = EMPTY,
    ) -> None:
        self.topic_partitions = [] if topic_partitions is EMPTY else topic_partitions


class Member(Message):
    """Part of ConsumerGroupDescribeResponse."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "member_epoch",
        "member_id",
        "member_type",
        "rack_id",
        "subscribed_topic_names",
        "subscribed_topic_regex",
        "target_assignment",
    )

    def __init__(
        self,
        *,
        member_id: str = "",
        instance_id: str | None = None,
        rack_id: str | None = None,
        member_epoch: int = 0,
        client_id: str = "",
        client_host: str = "",
        subscribed_topic_names: list[str] = EMPTY,
        subscribed_topic_regex: str | None = None,
        assignment: Assignment | None = None,
        target_assignment: Assignment | None = None,
        member_type: int = -1,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.member_epoch = member_epoch
        self.client_id = client_id
        self.client_host = client_host
        self.subscribed_topic_names = (
            [] if subscribed_topic_names is EMPTY else subscribed_topic_names
        )  # topicName
        self.subscribed_topic_regex = subscribed_topic_regex  # pattern
        self.assignment = Assignment() if assignment is None else assignment
        self.target_assignment = Assignment() if target_assignment is None else target_assignment
        self.member_type = member_type  # versions 1 to 1


class DescribedGroup(Message):
    """Part of ConsumerGroupDescribeResponse."""

    __slots__ = (
        "assignment_epoch",
        "assignor_name",
        "authorized_operations",
        "error_code",
        "error_message",
        "group_epoch",
        "group_id",
        "group_state",
        "members",
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = None,
        group_id: str = "",
        group_state: str = "",
        group_epoch: int = 0,
        assignment_epoch: int = 0,
        assignor_name: str = "",
        members: list[Member] = EMPTY,
        authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.group_id = group_id  # groupId
        self.group_state = group_state
        self.group_epoch = group_epoch
        self.assignment_epoch = assignment_epoch
        self.assignor_name = assignor_name
        self.members = [] if members is EMPTY else members
        self.authorized_operations = authorized_operations


class ConsumerGroupDescribeResponse(Message):
    """The message."""

    __slots__ = (
        "groups",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        groups: list[DescribedGroup] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.groups = [] if groups is EMPTY else groups


def _decode_topic_partitions(reader: Reader, version: int) -> TopicPartitions:
    message = object.__new__(TopicPartitions)
    message.topic_id = reader.read_uuid()
    message.topic_name = reader.read_compact_string("topic_name")
    message.partitions = reader.read_int32_array(reader.read_compact_array_length(4, "partitions"))
    reader.skip_tagged_fields()
    return message


def _decode_assignment(reader: Reader, version: int) -> Assignment:
    message = object.__new__(Assignment)
    message.topic_partitions = [
        _decode_topic_partitions(reader, version)
        for _ in range(reader.read_compact_array_length(19, "topic_partitions"))
    ]
    reader.skip_tagged_fields()
    return message


def _decode_member(reader: Reader, version: int) -> Member:
    message = object.__new__(Member)
    message.member_id = reader.read_compact_string("member_id")
    message.instance_id = reader.read_nullable_compact_string("instance_id")
    message.rack_id = reader.read_nullable_compact_string("rack_id")
    message.member_epoch = reader.read_int32()
    message.client_id = reader.read_compact_string("client_id")
    message.client_host = reader.read_compact_string("client_host")
    message.subscribed_topic_names = [
        reader.read_compact_string("subscribed_topic_names")
        for _ in range(reader.read_compact_array_length(1, "subscribed_topic_names"))
    ]
    message.subscribed_topic_regex = reader.read_nullable_compact_string("subscribed_topic_regex")
    message.assignment = _decode_assignment(reader, version)
    message.target_assignment = _decode_assignment(reader, version)
    if version >= 1:
        message.member_type = reader.read_int8()
    else:
        message.member_type = -1
    reader.skip_tagged_fields()
    return message


def _decode_described_group(reader: Reader, version: int) -> DescribedGroup:
    message = object.__new__(DescribedGroup)
    message.error_code = reader.read_int16()
    message.error_message = reader.read_nullable_compact_string("error_message")
    message.group_id = reader.read_compact_string("group_id")
    message.group_state = reader.read_compact_string("group_state")
    (message.group_epoch, message.assignment_epoch) = reader.unpack(_2XINT32)
    message.assignor_name = reader.read_compact_string("assignor_name")
    message.members = [
        _decode_member(reader, version)
        for _ in range(reader.read_compact_array_length(16, "members"))
    ]
    message.authorized_operations = reader.read_int32()
    reader.skip_tagged_fields()
    return message


def decode_consumer_group_describe_response(
    reader: Reader, version: int
) -> ConsumerGroupDescribeResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 1:
        raise unsupported_version("ConsumerGroupDescribeResponse", version)
    message = object.__new__(ConsumerGroupDescribeResponse)
    message.throttle_time_ms = reader.read_int32()
    message.groups = [
        _decode_described_group(reader, version)
        for _ in range(reader.read_compact_array_length(20, "groups"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_topic_partitions(writer: Writer, message: TopicPartitions, version: int) -> None:
    writer.write_uuid(message.topic_id)
    writer.write_compact_string(message.topic_name, "topic_name")
    writer.write_compact_array_length(message.partitions, "partitions")
    writer.write_int32_array(message.partitions)
    writer.buf.append(0)


def _encode_assignment(writer: Writer, message: Assignment, version: int) -> None:
    writer.write_compact_array_length(message.topic_partitions, "topic_partitions")
    for topic_partitions in message.topic_partitions:
        _encode_topic_partitions(writer, topic_partitions, version)
    writer.buf.append(0)


def _encode_member(writer: Writer, message: Member, version: int) -> None:
    writer.write_compact_string(message.member_id, "member_id")
    writer.write_nullable_compact_string(message.instance_id, "instance_id")
    writer.write_nullable_compact_string(message.rack_id, "rack_id")
    writer.write_int32(message.member_epoch)
    writer.write_compact_string(message.client_id, "client_id")
    writer.write_compact_string(message.client_host, "client_host")
    writer.write_compact_array_length(message.subscribed_topic_names, "subscribed_topic_names")
    for string_item in message.subscribed_topic_names:
        writer.write_compact_string(string_item, "subscribed_topic_names")
    writer.write_nullable_compact_string(message.subscribed_topic_regex, "subscribed_topic_regex")
    _encode_assignment(writer, message.assignment, version)
    _encode_assignment(writer, message.target_assignment, version)
    if version >= 1:
        writer.write_int8(message.member_type)
    writer.buf.append(0)


def _encode_described_group(writer: Writer, message: DescribedGroup, version: int) -> None:
    writer.write_int16(message.error_code)
    writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.write_compact_string(message.group_id, "group_id")
    writer.write_compact_string(message.group_state, "group_state")
    writer.buf += _2XINT32.pack(message.group_epoch, message.assignment_epoch)
    writer.write_compact_string(message.assignor_name, "assignor_name")
    writer.write_compact_array_length(message.members, "members")
    for member in message.members:
        _encode_member(writer, member, version)
    writer.write_int32(message.authorized_operations)
    writer.buf.append(0)


def encode_consumer_group_describe_response(
    writer: Writer, message: ConsumerGroupDescribeResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 1:
        raise unsupported_version("ConsumerGroupDescribeResponse", version)
    writer.write_int32(message.throttle_time_ms)
    writer.write_compact_array_length(message.groups, "groups")
    for described_group in message.groups:
        _encode_described_group(writer, described_group, version)
    writer.buf.append(0)
