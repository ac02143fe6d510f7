"""PushTelemetryRequest (API key 72), versions 0 to 0, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct
from uuid import UUID

from data_plane.wire.primitives import ZERO_UUID, Message, Reader, Writer, unsupported_version

_INT32_BOOL_INT8 = Struct(">i?b")


class PushTelemetryRequest(Message):
    """The message."""

    __slots__ = (
        "client_instance_id",
        "compression_type",
        "metrics",
        "subscription_id",
        "terminating",
    )

    def __init__(
        self,
        *,
        client_instance_id: UUID = ZERO_UUID,
        subscription_id: int = 0,
        terminating: bool = False,
        compression_type: int = 0,
        metrics: bytes = b"",
    ) -> None:
        self.client_instance_id = client_instance_id
        self.subscription_id = subscription_id
        self.terminating = terminating
        self.compression_type = compression_type
        self.metrics = metrics


def decode_push_telemetry_request(reader: Reader, version: int) -> PushTelemetryRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("PushTelemetryRequest", version)
    message = object.__new__(PushTelemetryRequest)
    message.client_instance_id = reader.read_uuid()
    (message.subscription_id, message.terminating, message.compression_type) = reader.unpack(
        _INT32_BOOL_INT8
    )
    message.metrics = reader.read_compact_bytes("metrics")
    reader.skip_tagged_fields()
    return message


def encode_push_telemetry_request(
    writer: Writer, message: PushTelemetryRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("PushTelemetryRequest", version)
    writer.write_uuid(message.client_instance_id)
    writer.buf += _INT32_BOOL_INT8.pack(
        message.subscription_id, message.terminating, message.compression_type
    )
    writer.write_compact_bytes(message.metrics, "metrics")
    writer.buf.append(0)
