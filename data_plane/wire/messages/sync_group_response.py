"""SyncGroupResponse (API key 14), versions 0 to 5, flexible from 4.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import Message, Reader, Writer, unsupported_version

_INT32_INT16 = Struct(">ih")


class SyncGroupResponse(Message):
    """The message."""

    __slots__ = (
        "assignment",
        "error_code",
        "protocol_name",
        "protocol_type",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        assignment: bytes = b"",
    ) -> None:
        self.throttle_time_ms = throttle_time_ms  # versions 1 to 5
        self.error_code = error_code
        self.protocol_type = protocol_type  # versions 5 to 5
        self.protocol_name = protocol_name  # versions 5 to 5
        self.assignment = assignment


def decode_sync_group_response(reader: Reader, version: int) -> SyncGroupResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 5:
        raise unsupported_version("SyncGroupResponse", version)
    message = object.__new__(SyncGroupResponse)
    if version >= 1:
        (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    else:
        message.error_code = reader.read_int16()
        message.throttle_time_ms = 0
    if version >= 5:
        message.protocol_type = reader.read_nullable_compact_string("protocol_type")
        message.protocol_name = reader.read_nullable_compact_string("protocol_name")
    else:
        message.protocol_type = None
        message.protocol_name = None
    if version >= 4:
        message.assignment = reader.read_compact_bytes("assignment")
    else:
        message.assignment = reader.read_bytes("assignment")
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def encode_sync_group_response(writer: Writer, message: SyncGroupResponse, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 5:
        raise unsupported_version("SyncGroupResponse", version)
    if version >= 1:
        writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    else:
        writer.write_int16(message.error_code)
    if version >= 5:
        writer.write_nullable_compact_string(message.protocol_type, "protocol_type")
        writer.write_nullable_compact_string(message.protocol_name, "protocol_name")
    if version >= 4:
        writer.write_compact_bytes(message.assignment, "assignment")
        writer.buf.append(0)
    else:
        writer.write_bytes(message.assignment, "assignment")
