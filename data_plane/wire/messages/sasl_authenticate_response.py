"""SaslAuthenticateResponse (API key 36), versions 0 to 2, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import Message, Reader, Writer, unsupported_version


class SaslAuthenticateResponse(Message):
    """The message."""

    __slots__ = (
        "auth_bytes",
        "error_code",
        "error_message",
        "session_lifetime_ms",
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        auth_bytes: bytes = b"",
        session_lifetime_ms: int = 0,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.auth_bytes = auth_bytes
        self.session_lifetime_ms = session_lifetime_ms  # versions 1 to 2


def decode_sasl_authenticate_response(reader: Reader, version: int) -> SaslAuthenticateResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 2:
        raise unsupported_version("SaslAuthenticateResponse", version)
    message = object.__new__(SaslAuthenticateResponse)
    message.error_code = reader.read_int16()
    if version >= 2:
        message.error_message = reader.read_nullable_compact_string("error_message")
        message.auth_bytes = reader.read_compact_bytes("auth_bytes")
    else:
        message.error_message = reader.read_nullable_string("error_message")
        message.auth_bytes = reader.read_bytes("auth_bytes")
    if version >= 1:
        message.session_lifetime_ms = reader.read_int64()
    else:
        message.session_lifetime_ms = 0
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def encode_sasl_authenticate_response(
    writer: Writer, message: SaslAuthenticateResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 2:
        raise unsupported_version("SaslAuthenticateResponse", version)
    writer.write_int16(message.error_code)
    if version >= 2:
        writer.write_nullable_compact_string(message.error_message, "error_message")
        writer.write_compact_bytes(message.auth_bytes, "auth_bytes")
    else:
        writer.write_nullable_string(message.error_message, "error_message")
        writer.write_bytes(message.auth_bytes, "auth_bytes")
    if version >= 1:
        writer.write_int64(message.session_lifetime_ms)
    if version >= 2:
        writer.buf.append(0)
