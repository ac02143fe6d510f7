"""GetTelemetrySubscriptionsRequest (API key 71), versions 0 to 0, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from uuid import UUID

from data_plane.wire.primitives import ZERO_UUID, Message, Reader, Writer, unsupported_version


class GetTelemetrySubscriptionsRequest(Message):
    """The message."""

    __slots__ = ("client_instance_id",)

    def __init__(
        self,
        *,
        client_instance_id: UUID = ZERO_UUID,
    ) -> None:
        self.client_instance_id = client_instance_id


def decode_get_telemetry_subscriptions_request(
    reader: Reader, version: int
) -> GetTelemetrySubscriptionsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("GetTelemetrySubscriptionsRequest", version)
    message = object.__new__(GetTelemetrySubscriptionsRequest)
    message.client_instance_id = reader.read_uuid()
    reader.skip_tagged_fields()
    return message


def encode_get_telemetry_subscriptions_request(
    writer: Writer, message: GetTelemetrySubscriptionsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("GetTelemetrySubscriptionsRequest", version)
    writer.write_uuid(message.client_instance_id)
    writer.buf.append(0)
