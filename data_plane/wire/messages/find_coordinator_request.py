"""FindCoordinatorRequest (API key 10), versions 0 to 6, flexible from 3.

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


class FindCoordinatorRequest(Message):
    """The message."""

    __slots__ = (
        "coordinator_keys",
        "key",
        "key_type",
    )

    def __init__(
        self,
        *,
        key: str = "",
        key_type: int = 0,
        coordinator_keys: list[str] = EMPTY,
    ) -> None:
        self.key = key  # versions 0 to 3, groupId or transactionalId
        self.key_type = key_type  # versions 1 to 6
        self.coordinator_keys = (
            [] if coordinator_keys is EMPTY else coordinator_keys
        )  # versions 4 to 6, groupId or transactionalId


def decode_find_coordinator_request(reader: Reader, version: int) -> FindCoordinatorRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 6:
        raise unsupported_version("FindCoordinatorRequest", version)
    message = object.__new__(FindCoordinatorRequest)
    if version >= 4:
        message.key = ""
    elif version >= 3:
        message.key = reader.read_compact_string("key")
    else:
        message.key = reader.read_string("key")
    if version >= 1:
        message.key_type = reader.read_int8()
    else:
        message.key_type = 0
    if version >= 4:
        message.coordinator_keys = [
            reader.read_compact_string("coordinator_keys")
            for _ in range(reader.read_compact_array_length(1, "coordinator_keys"))
        ]
    else:
        message.coordinator_keys = []
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def encode_find_coordinator_request(
    writer: Writer, message: FindCoordinatorRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 6:
        raise unsupported_version("FindCoordinatorRequest", version)
    if version >= 4:
        if message.key:
            raise unsupported_field("FindCoordinatorRequest", "key", version)
    elif version >= 3:
        writer.write_compact_string(message.key, "key")
    else:
        writer.write_string(message.key, "key")
    if version >= 1:
        writer.write_int8(message.key_type)
    else:
        if message.key_type != 0:
            raise unsupported_field("FindCoordinatorRequest", "key_type", version)
    if version >= 4:
        writer.write_compact_array_length(message.coordinator_keys, "coordinator_keys")
        for string_item in message.coordinator_keys:
            writer.write_compact_string(string_item, "coordinator_keys")
    else:
        if message.coordinator_keys:
            raise unsupported_field("FindCoordinatorRequest", "coordinator_keys", version)
    if version >= 3:
        writer.buf.append(0)
