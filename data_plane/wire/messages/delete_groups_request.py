"""DeleteGroupsRequest (API key 42), versions 0 to 2, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class DeleteGroupsRequest(Message):
    """The message."""

    __slots__ = ("groups_names",)

    def __init__(
        self,
        *,
        groups_names: list[str] = EMPTY,
    ) -> None:
        self.groups_names = [] if groups_names is EMPTY else groups_names  # groupId


def decode_delete_groups_request(reader: Reader, version: int) -> DeleteGroupsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 2:
        raise unsupported_version("DeleteGroupsRequest", version)
    message = object.__new__(DeleteGroupsRequest)
    if version >= 2:
        message.groups_names = [
            reader.read_compact_string("groups_names")
            for _ in range(reader.read_compact_array_length(1, "groups_names"))
        ]
    else:
        message.groups_names = [
            reader.read_string("groups_names")
            for _ in range(reader.read_array_length(2, "groups_names"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def encode_delete_groups_request(
    writer: Writer, message: DeleteGroupsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 2:
        raise unsupported_version("DeleteGroupsRequest", version)
    if version >= 2:
        writer.write_compact_array_length(message.groups_names, "groups_names")
        for string_item in message.groups_names:
            writer.write_compact_string(string_item, "groups_names")
        writer.buf.append(0)
    else:
        writer.write_array_length(message.groups_names, "groups_names")
        for string_item in message.groups_names:
            writer.write_string(string_item, "groups_names")
