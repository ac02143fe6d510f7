"""UnregisterBrokerRequest (API key 64), versions 0 to 0, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import Message, Reader, Writer, unsupported_version


class UnregisterBrokerRequest(Message):
    """The message."""

    __slots__ = ("broker_id",)

    def __init__(
        self,
        *,
        broker_id: int = 0,
    ) -> None:
        self.broker_id = broker_id  # brokerId


def decode_unregister_broker_request(reader: Reader, version: int) -> UnregisterBrokerRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("UnregisterBrokerRequest", version)
    message = object.__new__(UnregisterBrokerRequest)
    message.broker_id = reader.read_int32()
    reader.skip_tagged_fields()
    return message


def encode_unregister_broker_request(
    writer: Writer, message: UnregisterBrokerRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("UnregisterBrokerRequest", version)
    writer.write_int32(message.broker_id)
    writer.buf.append(0)
