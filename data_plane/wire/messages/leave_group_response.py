"""LeaveGroupResponse (API key 13), versions 0 to 5, flexible from 4.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_INT16 = Struct(">ih")


class MemberResponse(Message):
    """Part of LeaveGroupResponse."""

    __slots__ = (
        "error_code",
        "group_instance_id",
        "member_id",
    )

    def __init__(
        self,
        *,
        member_id: str = "",
        group_instance_id: str | None = "",
        error_code: int = 0,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.error_code = error_code


class LeaveGroupResponse(Message):
    """The message."""

    __slots__ = (
        "error_code",
        "members",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        members: list[MemberResponse] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms  # versions 1 to 5
        self.error_code = error_code
        self.members = [] if members is EMPTY else members  # versions 3 to 5


def _decode_member_response(reader: Reader, version: int) -> MemberResponse:
    message = object.__new__(MemberResponse)
    if version >= 4:
        message.member_id = reader.read_compact_string("member_id")
        message.group_instance_id = reader.read_nullable_compact_string("group_instance_id")
    else:
        message.member_id = reader.read_string("member_id")
        message.group_instance_id = reader.read_nullable_string("group_instance_id")
    message.error_code = reader.read_int16()
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def decode_leave_group_response(reader: Reader, version: int) -> LeaveGroupResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 5:
        raise unsupported_version("LeaveGroupResponse", version)
    message = object.__new__(LeaveGroupResponse)
    if version >= 1:
        (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    else:
        message.error_code = reader.read_int16()
        message.throttle_time_ms = 0
    if version >= 4:
        message.members = [
            _decode_member_response(reader, version)
            for _ in range(reader.read_compact_array_length(5, "members"))
        ]
    elif version >= 3:
        message.members = [
            _decode_member_response(reader, version)
            for _ in range(reader.read_array_length(6, "members"))
        ]
    else:
        message.members = []
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def _encode_member_response(writer: Writer, message: MemberResponse, version: int) -> None:
    if version >= 4:
        writer.write_compact_string(message.member_id, "member_id")
        writer.write_nullable_compact_string(message.group_instance_id, "group_instance_id")
    else:
        writer.write_string(message.member_id, "member_id")
        writer.write_nullable_string(message.group_instance_id, "group_instance_id")
    writer.write_int16(message.error_code)
    if version >= 4:
        writer.buf.append(0)


def encode_leave_group_response(writer: Writer, message: LeaveGroupResponse, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 5:
        raise unsupported_version("LeaveGroupResponse", version)
    if version >= 1:
        writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    else:
        writer.write_int16(message.error_code)
    if version >= 4:
        writer.write_compact_array_length(message.members, "members")
        for member_response in message.members:
            _encode_member_response(writer, member_response, version)
    elif version >= 3:
        writer.write_array_length(message.members, "members")
        for member_response in message.members:
            _encode_member_response(writer, member_response, version)
    if version >= 4:
        writer.buf.append(0)
