"""JoinGroupResponse (API key 11), versions 0 to 9, flexible from 6.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT16_INT32 = Struct(">hi")
_INT32_INT16_INT32 = Struct(">ihi")


class JoinGroupResponseMember(Message):
    """Part of JoinGroupResponse."""

    __slots__ = (
        "group_instance_id",
        "member_id",
        "metadata",
    )

    def __init__(
        self,
        *,
        member_id: str = "",
        group_instance_id: str | None = None,
        metadata: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id  # versions 5 to 9
        self.metadata = metadata


class JoinGroupResponse(Message):
    """The message."""

    __slots__ = (
        "error_code",
        "generation_id",
        "leader",
        "member_id",
        "members",
        "protocol_name",
        "protocol_type",
        "skip_assignment",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        generation_id: int = -1,
        protocol_type: str | None = None,
        protocol_name: str | None = "",
        leader: str = "",
        skip_assignment: bool = False,
        member_id: str = "",
        members: list[JoinGroupResponseMember] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms  # versions 2 to 9
        self.error_code = error_code
        self.generation_id = generation_id
        self.protocol_type = protocol_type  # versions 7 to 9
        self.protocol_name = protocol_name  # nullable in 7 to 9
        self.leader = leader
        self.skip_assignment = skip_assignment  # versions 9 to 9
        self.member_id = member_id
        self.members = [] if members is EMPTY else members


def _decode_join_group_response_member(reader: Reader, version: int) -> JoinGroupResponseMember:
    message = object.__new__(JoinGroupResponseMember)
    if version >= 6:
        message.member_id = reader.read_compact_string("member_id")
    else:
        message.member_id = reader.read_string("member_id")
    if version >= 6:
        message.group_instance_id = reader.read_nullable_compact_string("group_instance_id")
    elif version >= 5:
        message.group_instance_id = reader.read_nullable_string("group_instance_id")
    else:
        message.group_instance_id = None
    if version >= 6:
        message.metadata = reader.read_compact_bytes("metadata")
    else:
        message.metadata = reader.read_bytes("metadata")
    if version >= 6:
        reader.skip_tagged_fields()
    return message


def decode_join_group_response(reader: Reader, version: int) -> JoinGroupResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 9:
        raise unsupported_version("JoinGroupResponse", version)
    message = object.__new__(JoinGroupResponse)
    if version >= 2:
        (message.throttle_time_ms, message.error_code, message.generation_id) = reader.unpack(
            _INT32_INT16_INT32
        )
    else:
        (message.error_code, message.generation_id) = reader.unpack(_INT16_INT32)
        message.throttle_time_ms = 0
    if version >= 7:
        message.protocol_type = reader.read_nullable_compact_string("protocol_type")
    else:
        message.protocol_type = None
    if version >= 7:
        message.protocol_name = reader.read_nullable_compact_string("protocol_name")
    elif version >= 6:
        message.protocol_name = reader.read_compact_string("protocol_name")
    else:
        message.protocol_name = reader.read_string("protocol_name")
    if version >= 6:
        message.leader = reader.read_compact_string("leader")
    else:
        message.leader = reader.read_string("leader")
    if version >= 9:
        message.skip_assignment = reader.read_bool()
    else:
        message.skip_assignment = False
    if version >= 6:
        message.member_id = reader.read_compact_string("member_id")
        message.members = [
            _decode_join_group_response_member(reader, version)
            for _ in range(reader.read_compact_array_length(4, "members"))
        ]
    else:
        message.member_id = reader.read_string("member_id")
        message.members = [
            _decode_join_group_response_member(reader, version)
            for _ in range(reader.read_array_length(6, "members"))
        ]
    if version >= 6:
        reader.skip_tagged_fields()
    return message


def _encode_join_group_response_member(
    writer: Writer, message: JoinGroupResponseMember, version: int
) -> None:
    if version >= 6:
        writer.write_compact_string(message.member_id, "member_id")
    else:
        writer.write_string(message.member_id, "member_id")
    if version >= 6:
        writer.write_nullable_compact_string(message.group_instance_id, "group_instance_id")
    elif version >= 5:
        writer.write_nullable_string(message.group_instance_id, "group_instance_id")
    if version >= 6:
        writer.write_compact_bytes(message.metadata, "metadata")
        writer.buf.append(0)
    else:
        writer.write_bytes(message.metadata, "metadata")


def encode_join_group_response(writer: Writer, message: JoinGroupResponse, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 9:
        raise unsupported_version("JoinGroupResponse", version)
    if version >= 2:
        writer.buf += _INT32_INT16_INT32.pack(
            message.throttle_time_ms, message.error_code, message.generation_id
        )
    else:
        writer.buf += _INT16_INT32.pack(message.error_code, message.generation_id)
    if version >= 7:
        writer.write_nullable_compact_string(message.protocol_type, "protocol_type")
    if version >= 7:
        writer.write_nullable_compact_string(message.protocol_name, "protocol_name")
    elif version >= 6:
        writer.write_compact_string(message.protocol_name, "protocol_name")
    else:
        writer.write_string(message.protocol_name, "protocol_name")
    if version >= 6:
        writer.write_compact_string(message.leader, "leader")
    else:
        writer.write_string(message.leader, "leader")
    if version >= 9:
        writer.write_bool(message.skip_assignment)
    if version >= 6:
        writer.write_compact_string(message.member_id, "member_id")
        writer.write_compact_array_length(message.members, "members")
        for join_group_response_member in message.members:
            _encode_join_group_response_member(writer, join_group_response_member, version)
        writer.buf.append(0)
    else:
        writer.write_string(message.member_id, "member_id")
        writer.write_array_length(message.members, "members")
        for join_group_response_member in message.members:
            _encode_join_group_response_member(writer, join_group_response_member, version)
