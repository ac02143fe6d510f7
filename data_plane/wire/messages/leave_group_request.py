"""LeaveGroupRequest (API key 13), versions 0 to 5, flexible from 4.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import (
    EMPTY,
    Message,
    Reader,
    Writer,
    unsupported_field,
    unsupported_version,
)


class MemberIdentity(Message):
    """Part of LeaveGroupRequest."""

    __slots__ = (
        "group_instance_id",
        "member_id",
        "reason",
    )

    def __init__(
        self,
        *,
        member_id: str = "",
        group_instance_id: str | None = None,
        reason: str | None = None,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.reason = reason  # versions 5 to 5


class LeaveGroupRequest(Message):
    """The message."""

    __slots__ = (
        "group_id",
        "member_id",
        "members",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        members: list[MemberIdentity] = EMPTY,
    ) -> None:
        self.group_id = group_id  # groupId
        self.member_id = member_id  # versions 0 to 2
        self.members = [] if members is EMPTY else members  # versions 3 to 5


def _decode_member_identity(reader: Reader, version: int) -> MemberIdentity:
    message = object.__new__(MemberIdentity)
    if version >= 4:
        message.member_id = reader.read_compact_string("member_id")
        message.group_instance_id = reader.read_nullable_compact_string("group_instance_id")
    else:
        message.member_id = reader.read_string("member_id")
        message.group_instance_id = reader.read_nullable_string("group_instance_id")
    if version >= 5:
        message.reason = reader.read_nullable_compact_string("reason")
    else:
        message.reason = None
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def decode_leave_group_request(reader: Reader, version: int) -> LeaveGroupRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 5:
        raise unsupported_version("LeaveGroupRequest", version)
    message = object.__new__(LeaveGroupRequest)
    if version >= 4:
        message.group_id = reader.read_compact_string("group_id")
    else:
        message.group_id = reader.read_string("group_id")
    if version >= 3:
        message.member_id = ""
    else:
        message.member_id = reader.read_string("member_id")
    if version >= 4:
        message.members = [
            _decode_member_identity(reader, version)
            for _ in range(reader.read_compact_array_length(3, "members"))
        ]
    elif version >= 3:
        message.members = [
            _decode_member_identity(reader, version)
            for _ in range(reader.read_array_length(4, "members"))
        ]
    else:
        message.members = []
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def _encode_member_identity(writer: Writer, message: MemberIdentity, version: int) -> None:
    if version >= 4:
        writer.write_compact_string(message.member_id, "member_id")
        writer.write_nullable_compact_string(message.group_instance_id, "group_instance_id")
    else:
        writer.write_string(message.member_id, "member_id")
        writer.write_nullable_string(message.group_instance_id, "group_instance_id")
    if version >= 5:
        writer.write_nullable_compact_string(message.reason, "reason")
    if version >= 4:
        writer.buf.append(0)


def encode_leave_group_request(writer: Writer, message: LeaveGroupRequest, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 5:
        raise unsupported_version("LeaveGroupRequest", version)
    if version >= 4:
        writer.write_compact_string(message.group_id, "group_id")
    else:
        writer.write_string(message.group_id, "group_id")
    if version >= 3:
        if message.member_id:
            raise unsupported_field("LeaveGroupRequest", "member_id", version)
    else:
        writer.write_string(message.member_id, "member_id")
    if version >= 4:
        writer.write_compact_array_length(message.members, "members")
        for member_identity in message.members:
            _encode_member_identity(writer, member_identity, version)
    elif version >= 3:
        writer.write_array_length(message.members, "members")
        for member_identity in message.members:
            _encode_member_identity(writer, member_identity, version)
    else:
        if message.members:
            raise unsupported_field("LeaveGroupRequest", "members", version)
    if version >= 4:
        writer.buf.append(0)
