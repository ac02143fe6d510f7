"""SyncGroupRequest (API key 14), versions 0 to 5, flexible from 4.

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


class SyncGroupRequestAssignment(Message):
    """Part of SyncGroupRequest."""

    __slots__ = (
        "assignment",
        "member_id",
    )

    def __init__(
        self,
        *,
        member_id: str = "",
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.assignment = assignment


class SyncGroupRequest(Message):
    """The message."""

    __slots__ = (
        "assignments",
        "generation_id",
        "group_id",
        "group_instance_id",
        "member_id",
        "protocol_name",
        "protocol_type",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        generation_id: int = 0,
        member_id: str = "",
        group_instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        assignments: list[SyncGroupRequestAssignment] = EMPTY,
    ) -> None:
        self.group_id = group_id  # groupId
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id  # versions 3 to 5
        self.protocol_type = protocol_type  # versions 5 to 5
        self.protocol_name = protocol_name  # versions 5 to 5
        self.assignments = [] if assignments is EMPTY else assignments


def _decode_sync_group_request_assignment(
    reader: Reader, version: int
) -> SyncGroupRequestAssignment:
    message = object.__new__(SyncGroupRequestAssignment)
    if version >= 4:
        message.member_id = reader.read_compact_string("member_id")
        message.assignment = reader.read_compact_bytes("assignment")
    else:
        message.member_id = reader.read_string("member_id")
        message.assignment = reader.read_bytes("assignment")
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def decode_sync_group_request(reader: Reader, version: int) -> SyncGroupRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 5:
        raise unsupported_version("SyncGroupRequest", version)
    message = object.__new__(SyncGroupRequest)
    if version >= 4:
        message.group_id = reader.read_compact_string("group_id")
    else:
        message.group_id = reader.read_string("group_id")
    message.generation_id = reader.read_int32()
    if version >= 4:
        message.member_id = reader.read_compact_string("member_id")
    else:
        message.member_id = reader.read_string("member_id")
    if version >= 4:
        message.group_instance_id = reader.read_nullable_compact_string("group_instance_id")
    elif version >= 3:
        message.group_instance_id = reader.read_nullable_string("group_instance_id")
    else:
        message.group_instance_id = None
    if version >= 5:
        message.protocol_type = reader.read_nullable_compact_string("protocol_type")
        message.protocol_name = reader.read_nullable_compact_string("protocol_name")
    else:
        message.protocol_type = None
        message.protocol_name = None
    if version >= 4:
        message.assignments = [
            _decode_sync_group_request_assignment(reader, version)
            for _ in range(reader.read_compact_array_length(3, "assignments"))
        ]
    else:
        message.assignments = [
            _decode_sync_group_request_assignment(reader, version)
            for _ in range(reader.read_array_length(6, "assignments"))
        ]
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def _encode_sync_group_request_assignment(
    writer: Writer, message: SyncGroupRequestAssignment, version: int
) -> None:
    if version >= 4:
        writer.write_compact_string(message.member_id, "member_id")
        writer.write_compact_bytes(message.assignment, "assignment")
        writer.buf.append(0)
    else:
        writer.write_string(message.member_id, "member_id")
        writer.write_bytes(message.assignment, "assignment")


def encode_sync_group_request(writer: Writer, message: SyncGroupRequest, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 5:
        raise unsupported_version("SyncGroupRequest", version)
    if version >= 4:
        writer.write_compact_string(message.group_id, "group_id")
    else:
        writer.write_string(message.group_id, "group_id")
    writer.write_int32(message.generation_id)
    if version >= 4:
        writer.write_compact_string(message.member_id, "member_id")
    else:
        writer.write_string(message.member_id, "member_id")
    if version >= 4:
        writer.write_nullable_compact_string(message.group_instance_id, "group_instance_id")
    elif version >= 3:
        writer.write_nullable_string(message.group_instance_id, "group_instance_id")
    else:
        if message.group_instance_id is not None:
            raise unsupported_field("SyncGroupRequest", "group_instance_id", version)
    if version >= 5:
        writer.write_nullable_compact_string(message.protocol_type, "protocol_type")
        writer.write_nullable_compact_string(message.protocol_name, "protocol_name")
    if version >= 4:
        writer.write_compact_array_length(message.assignments, "assignments")
        for sync_group_request_assignment in message.assignments:
            _encode_sync_group_request_assignment(writer, sync_group_request_assignment, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.assignments, "assignments")
        for sync_group_request_assignment in message.assignments:
            _encode_sync_group_request_assignment(writer, sync_group_request_assignment, version)
