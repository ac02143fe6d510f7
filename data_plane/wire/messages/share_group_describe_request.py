"""ShareGroupDescribeRequest (API key 77), versions 1 to 1, flexible from 1.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class ShareGroupDescribeRequest(Message):
    """The message."""

    __slots__ = (
        "group_ids",
        "include_authorized_operations",
    )

    def __init__(
        self,
        *,
        group_ids: list[str] = EMPTY,
        include_authorized_operations: bool = False,
    ) -> None:
        self.group_ids = [] if group_ids is EMPTY else group_ids  # groupId
        self.include_authorized_operations = include_authorized_operations


def decode_share_group_describe_request(reader: Reader, version: int) -> ShareGroupDescribeRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 1:
        raise unsupported_version("ShareGroupDescribeRequest", version)
    message = object.__new__(ShareGroupDescribeRequest)
    message.group_ids = [
        reader.read_compact_string("group_ids")
        for _ in range(reader.read_compact_array_length(1, "group_ids"))
    ]
    message.include_authorized_operations = reader.read_bool()
    reader.skip_tagged_fields()
    return message


def encode_share_group_describe_request(
    writer: Writer, message: ShareGroupDescribeRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 1:
        raise unsupported_version("ShareGroupDescribeRequest", version)
    writer.write_compact_array_length(message.group_ids, "group_ids")
    for string_item in message.group_ids:
        writer.write_compact_string(string_item, "group_ids")
    writer.write_bool(message.include_authorized_operations)
    writer.buf.append(0)
