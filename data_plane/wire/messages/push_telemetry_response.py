"""PushTelemetryResponse (API key 72), versions 0 to 0, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import Message, Reader, Writer, unsupported_version

_INT32_INT16 = Struct(">ih")


class PushTelemetryResponse(Message):
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
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code


def decode_push_telemetry_response(reader: Reader, version: int) -> PushTelemetryResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("PushTelemetryResponse", version)
    message = object.__new__(PushTelemetryResponse)
    (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    reader.skip_tagged_fields()
    return message


def encode_push_telemetry_response(
    writer: Writer, message: PushTelemetryResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("PushTelemetryResponse", version)
    writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    writer.buf.append(0)
