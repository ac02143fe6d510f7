"""SaslHandshakeResponse (API key 17), versions 0 to 1, never flexible.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class SaslHandshakeResponse(Message):
    """The message."""

    __slots__ = (
        "error_code",
        "mechanisms",
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        mechanisms: list[str] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.mechanisms = [] if mechanisms is EMPTY else mechanisms


def decode_sasl_handshake_response(reader: Reader, version: int) -> SaslHandshakeResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 1:
        raise unsupported_version("SaslHandshakeResponse", version)
    message = object.__new__(SaslHandshakeResponse)
    message.error_code = reader.read_int16()
    message.mechanisms = [
        reader.read_string("mechanisms") for _ in range(reader.read_array_length(2, "mechanisms"))
    ]
    return message


def encode_sasl_handshake_response(
    writer: Writer, message: SaslHandshakeResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 1:
        raise unsupported_version("SaslHandshakeResponse", version)
    writer.write_int16(message.error_code)
    writer.write_array_length(message.mechanisms, "mechanisms")
    for string_item in message.mechanisms:
        writer.write_string(string_item, "mechanisms")
