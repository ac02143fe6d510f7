"""DescribeGroupsResponse (API key 15), versions 0 to 6, flexible from 5.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class DescribedGroupMember(Message):
    """Part of DescribeGroupsResponse."""

    __slots__ = (
        "client_host",
        "client_id",
        "group_instance_id",
        "member_assignment",
        "member_id",
        "member_metadata",
    )

    def __init__(
        self,
        *,
        member_id: str = "",
        group_instance_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
        member_metadata: bytes = b"",
        member_assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id  # versions 4 to 6
        self.client_id = client_id
        self.client_host = client_host
        self.member_metadata = member_metadata
        self.member_assignment = member_assignment


class DescribedGroup(Message):
    """Part of DescribeGroupsResponse."""

    __slots__ = (
        "authorized_operations",
        "error_code",
        "error_message",
        "group_id",
        "group_state",
        "members",
        "protocol_data",
        "protocol_type",
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = None,
        group_id: str = "",
        group_state: str = "",
        protocol_type: str = "",
        protocol_data: str = "",
        members: list[DescribedGroupMember] = EMPTY,
        authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message  # versions 6 to 6
        self.group_id = group_id  # groupId
        self.group_state = group_state
        self.protocol_type = protocol_type
        self.protocol_data = protocol_data
        self.members = [] if members is EMPTY else members
        self.authorized_operations = authorized_operations  # versions 3 to 6


class DescribeGroupsResponse(Message):
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
        self.throttle_time_ms = throttle_time_ms  # versions 1 to 6
        self.groups = [] if groups is EMPTY else groups


def _decode_described_group_member(reader: Reader, version: int) -> DescribedGroupMember:
    message = object.__new__(DescribedGroupMember)
    if version >= 5:
        message.member_id = reader.read_compact_string("member_id")
    else:
        message.member_id = reader.read_string("member_id")
    if version >= 5:
        message.group_instance_id = reader.read_nullable_compact_string("group_instance_id")
    elif version >= 4:
        message.group_instance_id = reader.read_nullable_string("group_instance_id")
    else:
        message.group_instance_id = None
    if version >= 5:
        message.client_id = reader.read_compact_string("client_id")
        message.client_host = reader.read_compact_string("client_host")
        message.member_metadata = reader.read_compact_bytes("member_metadata")
        message.member_assignment = reader.read_compact_bytes("member_assignment")
    else:
        message.client_id = reader.read_string("client_id")
        message.client_host = reader.read_string("client_host")
        message.member_metadata = reader.read_bytes("member_metadata")
        message.member_assignment = reader.read_bytes("member_assignment")
    if version >= 5:
        reader.skip_tagged_fields()
    return message


def _decode_described_group(reader: Reader, version: int) -> DescribedGroup:
    message = object.__new__(DescribedGroup)
    message.error_code = reader.read_int16()
    if version >= 6:
        message.error_message = reader.read_nullable_compact_string("error_message")
    else:
        message.error_message = None
    if version >= 5:
        message.group_id = reader.read_compact_string("group_id")
        message.group_state = reader.read_compact_string("group_state")
        message.protocol_type = reader.read_compact_string("protocol_type")
        message.protocol_data = reader.read_compact_string("protocol_data")
        message.members = [
            _decode_described_group_member(reader, version)
            for _ in range(reader.read_compact_array_length(7, "members"))
        ]
    else:
        message.group_id = reader.read_string("group_id")
        message.group_state = reader.read_string("group_state")
        message.protocol_type = reader.read_string("protocol_type")
        message.protocol_data = reader.read_string("protocol_data")
        message.members = [
            _decode_described_group_member(reader, version)
            for _ in range(reader.read_array_length(14, "members"))
        ]
    if version >= 3:
        message.authorized_operations = reader.read_int32()
    else:
        message.authorized_operations = -2147483648
    if version >= 5:
        reader.skip_tagged_fields()
    return message


def decode_describe_groups_response(reader: Reader, version: int) -> DescribeGroupsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 6:
        raise unsupported_version("DescribeGroupsResponse", version)
    message = object.__new__(DescribeGroupsResponse)
    if version >= 1:
        message.throttle_time_ms = reader.read_int32()
    else:
        message.throttle_time_ms = 0
    if version >= 5:
        message.groups = [
            _decode_described_group(reader, version)
            for _ in range(reader.read_compact_array_length(12, "groups"))
        ]
    else:
        message.groups = [
            _decode_described_group(reader, version)
            for _ in range(reader.read_array_length(14, "groups"))
        ]
    if version >= 5:
        reader.skip_tagged_fields()
    return message


def _encode_described_group_member(
    writer: Writer, message: DescribedGroupMember, version: int
) -> None:
    if version >= 5:
        writer.write_compact_string(message.member_id, "member_id")
    else:
        writer.write_string(message.member_id, "member_id")
    if version >= 5:
        writer.write_nullable_compact_string(message.group_instance_id, "group_instance_id")
    elif version >= 4:
        writer.write_nullable_string(message.group_instance_id, "group_instance_id")
    if version >= 5:
        writer.write_compact_string(message.client_id, "client_id")
        writer.write_compact_string(message.client_host, "client_host")
        writer.write_compact_bytes(message.member_metadata, "member_metadata")
        writer.write_compact_bytes(message.member_assignment, "member_assignment")
        writer.buf.append(0)
    else:
        writer.write_string(message.client_id, "client_id")
        writer.write_string(message.client_host, "client_host")
        writer.write_bytes(message.member_metadata, "member_metadata")
        writer.write_bytes(message.member_assignment, "member_assignment")


def _encode_described_group(writer: Writer, message: DescribedGroup, version: int) -> None:
    writer.write_int16(message.error_code)
    if version >= 6:
        writer.write_nullable_compact_string(message.error_message, "error_message")
    if version >= 5:
        writer.write_compact_string(message.group_id, "group_id")
        writer.write_compact_string(message.group_state, "group_state")
        writer.write_compact_string(message.protocol_type, "protocol_type")
        writer.write_compact_string(message.protocol_data, "protocol_data")
        writer.write_compact_array_length(message.members, "members")
        for described_group_member in message.members:
            _encode_described_group_member(writer, described_group_member, version)
    else:
        writer.write_string(message.group_id, "group_id")
        writer.write_string(message.group_state, "group_state")
        writer.write_string(message.protocol_type, "protocol_type")
        writer.write_string(message.protocol_data, "protocol_data")
        writer.write_array_length(message.members, "members")
        for described_group_member in message.members:
            _encode_described_group_member(writer, described_group_member, version)
    if version >= 3:
        writer.write_int32(message.authorized_operations)
    if version >= 5:
        writer.buf.append(0)


def encode_describe_groups_response(
    writer: Writer, message: DescribeGroupsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 6:
        raise unsupported_version("DescribeGroupsResponse", version)
    if version >= 1:
        writer.write_int32(message.throttle_time_ms)
    if version >= 5:
        writer.write_compact_array_length(message.groups, "groups")
        for described_group in message.groups:
            _encode_described_group(writer, described_group, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.groups, "groups")
        for described_group in message.groups:
            _encode_described_group(writer, described_group, version)
