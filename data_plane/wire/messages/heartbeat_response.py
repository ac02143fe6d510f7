"""HeartbeatResponse (API key 12), versions 0 to 4, flexible from 4.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import Message, Reader, Writer, unsupported_version

_INT32_INT16 = Struct(">ih")


class HeartbeatResponse(Message):
    """The message."""

    __slots__ = (
        "error_code",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms  # versions 1 to 4
        self.error_code = error_code


def decode_heartbeat_response(reader: Reader, version: int) -> HeartbeatResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 4:
        raise unsupported_version("HeartbeatResponse", version)
    message = object.__new__(HeartbeatResponse)
    if version >= 1:
        (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    else:
        message.error_code = reader.read_int16()
        message.throttle_time_ms = 0
    if version >= 4:
        reader.skip_tagged_fields()
    return message


def encode_heartbeat_response(writer: Writer, message: HeartbeatResponse, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 4:
        raise unsupported_version("HeartbeatResponse", version)
    if version >= 1:
        writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    else:
        writer.write_int16(message.error_code)
    if version >= 4:
        writer.buf.append(0)
