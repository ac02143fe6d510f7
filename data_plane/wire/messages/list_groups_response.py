"""ListGroupsResponse (API key 16), versions 0 to 5, flexible from 3.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_INT16 = Struct(">ih")


class ListedGroup(Message):
    """Part of ListGroupsResponse."""

    __slots__ = (
        "group_id",
        "group_state",
        "group_type",
        "protocol_type",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        protocol_type: str = "",
        group_state: str = "",
        group_type: str = "",
    ) -> None:
        self.group_id = group_id  # groupId
        self.protocol_type = protocol_type
        self.group_state = group_state  # versions 4 to 5
        self.group_type = group_type  # versions 5 to 5


class ListGroupsResponse(Message):
    """The message."""

    __slots__ = (
        "error_code",
        "groups",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        groups: list[ListedGroup] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms  # versions 1 to 5
        self.error_code = error_code
        self.groups = [] if groups is EMPTY else groups


def _decode_listed_group(reader: Reader, version: int) -> ListedGroup:
    message = object.__new__(ListedGroup)
    if version >= 3:
        message.group_id = reader.read_compact_string("group_id")
        message.protocol_type = reader.read_compact_string("protocol_type")
    else:
        message.group_id = reader.read_string("group_id")
        message.protocol_type = reader.read_string("protocol_type")
    if version >= 4:
        message.group_state = reader.read_compact_string("group_state")
    else:
        message.group_state = ""
    if version >= 5:
        message.group_type = reader.read_compact_string("group_type")
    else:
        message.group_type = ""
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def decode_list_groups_response(reader: Reader, version: int) -> ListGroupsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 5:
        raise unsupported_version("ListGroupsResponse", version)
    message = object.__new__(ListGroupsResponse)
    if version >= 1:
        (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    else:
        message.error_code = reader.read_int16()
        message.throttle_time_ms = 0
    if version >= 3:
        message.groups = [
            _decode_listed_group(reader, version)
            for _ in range(reader.read_compact_array_length(3, "groups"))
        ]
    else:
        message.groups = [
            _decode_listed_group(reader, version)
            for _ in range(reader.read_array_length(4, "groups"))
        ]
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def _encode_listed_group(writer: Writer, message: ListedGroup, version: int) -> None:
    if version >= 3:
        writer.write_compact_string(message.group_id, "group_id")
        writer.write_compact_string(message.protocol_type, "protocol_type")
    else:
        writer.write_string(message.group_id, "group_id")
        writer.write_string(message.protocol_type, "protocol_type")
    if version >= 4:
        writer.write_compact_string(message.group_state, "group_state")
    if version >= 5:
        writer.write_compact_string(message.group_type, "group_type")
    if version >= 3:
        writer.buf.append(0)


def encode_list_groups_response(writer: Writer, message: ListGroupsResponse, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 5:
        raise unsupported_version("ListGroupsResponse", version)
    if version >= 1:
        writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    else:
        writer.write_int16(message.error_code)
    if version >= 3:
        writer.write_compact_array_length(message.groups, "groups")
        for listed_group in message.groups:
            _encode_listed_group(writer, listed_group, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.groups, "groups")
        for listed_group in message.groups:
            _encode_listed_group(writer, listed_group, version)
