"""ListConfigResourcesRequest (API key 74), versions 0 to 1, flexible from 0.

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


class ListConfigResourcesRequest(Message):
    """The message."""

    __slots__ = ("resource_types",)

    def __init__(
        self,
        *,
        resource_types: list[int] = EMPTY,
    ) -> None:
        self.resource_types = [] if resource_types is EMPTY else resource_types  # versions 1 to 1


def decode_list_config_resources_request(
    reader: Reader, version: int
) -> ListConfigResourcesRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 1:
        raise unsupported_version("ListConfigResourcesRequest", version)
    message = object.__new__(ListConfigResourcesRequest)
    if version >= 1:
        message.resource_types = reader.read_int8_array(
            reader.read_compact_array_length(1, "resource_types")
        )
    else:
        message.resource_types = []
    reader.skip_tagged_fields()
    return message


def encode_list_config_resources_request(
    writer: Writer, message: ListConfigResourcesRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 1:
        raise unsupported_version("ListConfigResourcesRequest", version)
    if version >= 1:
        writer.write_compact_array_length(message.resource_types, "resource_types")
        writer.write_int8_array(message.resource_types)
    else:
        if message.resource_types:
            raise unsupported_field("ListConfigResourcesRequest", "resource_types", version)
    writer.buf.append(0)
