"""DescribeGroupsRequest (API key 15), versions 0 to 6, flexible from 5.

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


class DescribeGroupsRequest(Message):
    """The message."""

    __slots__ = (
        "groups",
        "include_authorized_operations",
    )

    def __init__(
        self,
        *,
        groups: list[str] = EMPTY,
        include_authorized_operations: bool = False,
    ) -> None:
        self.groups = [] if groups is EMPTY else groups  # groupId
        self.include_authorized_operations = include_authorized_operations  # versions 3 to 6


def decode_describe_groups_request(reader: Reader, version: int) -> DescribeGroupsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 6:
        raise unsupported_version("DescribeGroupsRequest", version)
    message = object.__new__(DescribeGroupsRequest)
    if version >= 5:
        message.groups = [
            reader.read_compact_string("groups")
            for _ in range(reader.read_compact_array_length(1, "groups"))
        ]
    else:
        message.groups = [
            reader.read_string("groups") for _ in range(reader.read_array_length(2, "groups"))
        ]
    if version >= 3:
        message.include_authorized_operations = reader.read_bool()
    else:
        message.include_authorized_operations = False
    if version >= 5:
        reader.skip_tagged_fields()
    return message


def encode_describe_groups_request(
    writer: Writer, message: DescribeGroupsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 6:
        raise unsupported_version("DescribeGroupsRequest", version)
    if version >= 5:
        writer.write_compact_array_length(message.groups, "groups")
        for string_item in message.groups:
            writer.write_compact_string(string_item, "groups")
    else:
        writer.write_array_length(message.groups, "groups")
        for string_item in message.groups:
            writer.write_string(string_item, "groups")
    if version >= 3:
        writer.write_bool(message.include_authorized_operations)
    else:
        if message.include_authorized_operations:
            raise unsupported_field(
                "DescribeGroupsRequest", "include_authorized_operations", version
            )
    if version >= 5:
        writer.buf.append(0)
