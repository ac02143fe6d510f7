"""HeartbeatRequest (API key 12), versions 0 to 4, flexible from 4.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import (
    Message,
    Reader,
    Writer,
    unsupported_field,
    unsupported_version,
)


class HeartbeatRequest(Message):
    """The message."""

    __slots__ = (
        "generation_id",
        "group_id",
        "group_instance_id",
        "member_id",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        generation_id: int = 0,
        member_id: str = "",
        group_instance_id: str | None = None,
    ) -> None:
        self.group_id = group_id  # groupId
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id  # versions 3 to 4


def decode_heartbeat_request(reader: Reader, version: int) -> HeartbeatRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 4:
        raise unsupported_version("HeartbeatRequest", version)
    message = object.__new__(HeartbeatRequest)
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
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def encode_heartbeat_request(writer: Writer, message: HeartbeatRequest, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 4:
        raise unsupported_version("HeartbeatRequest", version)
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
            raise unsupported_field("HeartbeatRequest", "group_instance_id", version)
    if version >= 4:
        writer.buf.append(0)
