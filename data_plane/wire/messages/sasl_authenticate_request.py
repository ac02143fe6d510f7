"""SaslAuthenticateRequest (API key 36), versions 0 to 2, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import Message, Reader, Writer, unsupported_version


class SaslAuthenticateRequest(Message):
    """The message."""

    __slots__ = ("auth_bytes",)

    def __init__(
        self,
        *,
        auth_bytes: bytes = b"",
    ) -> None:
        self.auth_bytes = auth_bytes


def decode_sasl_authenticate_request(reader: Reader, version: int) -> SaslAuthenticateRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 2:
        raise unsupported_version("SaslAuthenticateRequest", version)
    message = object.__new__(SaslAuthenticateRequest)
    if version >= 2:
        message.auth_bytes = reader.read_compact_bytes("auth_bytes")
    else:
        message.auth_bytes = reader.read_bytes("auth_bytes")
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def encode_sasl_authenticate_request(
    writer: Writer, message: SaslAuthenticateRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 2:
        raise unsupported_version("SaslAuthenticateRequest", version)
    if version >= 2:
        writer.write_compact_bytes(message.auth_bytes, "auth_bytes")
        writer.buf.append(0)
    else:
        writer.write_bytes(message.auth_bytes, "auth_bytes")
