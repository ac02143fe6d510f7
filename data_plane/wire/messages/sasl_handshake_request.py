"""SaslHandshakeRequest (API key 17), versions 0 to 1, never flexible.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import Message, Reader, Writer, unsupported_version


class SaslHandshakeRequest(Message):
    """The message."""

    __slots__ = ("mechanism",)

    def __init__(
        self,
        *,
        mechanism: str = "",
    ) -> None:
        self.mechanism = mechanism


def decode_sasl_handshake_request(reader: Reader, version: int) -> SaslHandshakeRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 1:
        raise unsupported_version("SaslHandshakeRequest", version)
    message = object.__new__(SaslHandshakeRequest)
    message.mechanism = reader.read_string("mechanism")
    return message


def encode_sasl_handshake_request(
    writer: Writer, message: SaslHandshakeRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 1:
        raise unsupported_version("SaslHandshakeRequest", version)
    writer.write_string(message.mechanism, "mechanism")
