"""ListGroupsRequest (API key 16), versions 0 to 5, flexible from 3.

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


class ListGroupsRequest(Message):
    """The message."""

    __slots__ = (
        "states_filter",
        "types_filter",
    )

    def __init__(
        self,
        *,
        states_filter: list[str] = EMPTY,
        types_filter: list[str] = EMPTY,
    ) -> None:
        self.states_filter = [] if states_filter is EMPTY else states_filter  # versions 4 to 5
        self.types_filter = [] if types_filter is EMPTY else types_filter  # versions 5 to 5


def decode_list_groups_request(reader: Reader, version: int) -> ListGroupsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 5:
        raise unsupported_version("ListGroupsRequest", version)
    message = object.__new__(ListGroupsRequest)
    if version >= 4:
        message.states_filter = [
            reader.read_compact_string("states_filter")
            for _ in range(reader.read_compact_array_length(1, "states_filter"))
        ]
    else:
        message.states_filter = []
    if version >= 5:
        message.types_filter = [
            reader.read_compact_string("types_filter")
            for _ in range(reader.read_compact_array_length(1, "types_filter"))
        ]
    else:
        message.types_filter = []
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def encode_list_groups_request(writer: Writer, message: ListGroupsRequest, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 5:
        raise unsupported_version("ListGroupsRequest", version)
    if version >= 4:
        writer.write_compact_array_length(message.states_filter, "states_filter")
        for string_item in message.states_filter:
            writer.write_compact_string(string_item, "states_filter")
    else:
        if message.states_filter:
            raise unsupported_field("ListGroupsRequest", "states_filter", version)
    if version >= 5:
        writer.write_compact_array_length(message.types_filter, "types_filter")
        for string_item in message.types_filter:
            writer.write_compact_string(string_item, "types_filter")
    else:
        if message.types_filter:
            raise unsupported_field("ListGroupsRequest", "types_filter", version)
    if version >= 3:
        writer.buf.append(0)
