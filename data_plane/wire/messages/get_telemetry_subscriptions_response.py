"""GetTelemetrySubscriptionsResponse (API key 71), versions 0 to 0, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct
from uuid import UUID

from data_plane.wire.primitives import (
    EMPTY,
    ZERO_UUID,
    Message,
    Reader,
    Writer,
    unsupported_version,
)

_2XINT32_BOOL = Struct(">ii?")
_INT32_INT16 = Struct(">ih")


class GetTelemetrySubscriptionsResponse(Message):
    """The message."""

    __slots__ = (
        "accepted_compression_types",
        "client_instance_id",
        "delta_temporality",
        "error_code",
        "push_interval_ms",
        "requested_metrics",
        "subscription_id",
        "telemetry_max_bytes",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        client_instance_id: UUID = ZERO_UUID,
        subscription_id: int = 0,
        accepted_compression_types: list[int] = EMPTY,
        push_interval_ms: int = 0,
        telemetry_max_bytes: int = 0,
        delta_temporality: bool = False,
        requested_metrics: list[str] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.client_instance_id = client_instance_id
        self.subscription_id = subscription_id
        self.accepted_compression_types = (
            [] if accepted_compression_types is EMPTY else accepted_compression_types
        )
        self.push_interval_ms = push_interval_ms
        self.telemetry_max_bytes = telemetry_max_bytes
        self.delta_temporality = delta_temporality
        self.requested_metrics = [] if requested_metrics is EMPTY else requested_metrics


def decode_get_telemetry_subscriptions_response(
    reader: Reader, version: int
) -> GetTelemetrySubscriptionsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("GetTelemetrySubscriptionsResponse", version)
    message = object.__new__(GetTelemetrySubscriptionsResponse)
    (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    message.client_instance_id = reader.read_uuid()
    message.subscription_id = reader.read_int32()
    message.accepted_compression_types = reader.read_int8_array(
        reader.read_compact_array_length(1, "accepted_compression_types")
    )
    (message.push_interval_ms, message.telemetry_max_bytes, message.delta_temporality) = (
        reader.unpack(_2XINT32_BOOL)
    )
    message.requested_metrics = [
        reader.read_compact_string("requested_metrics")
        for _ in range(reader.read_compact_array_length(1, "requested_metrics"))
    ]
    reader.skip_tagged_fields()
    return message


def encode_get_telemetry_subscriptions_response(
    writer: Writer, message: GetTelemetrySubscriptionsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("GetTelemetrySubscriptionsResponse", version)
    writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    writer.write_uuid(message.client_instance_id)
    writer.write_int32(message.subscription_id)
    writer.write_compact_array_length(
        message.accepted_compression_types, "accepted_compression_types"
    )
    writer.write_int8_array(message.accepted_compression_types)
    writer.buf += _2XINT32_BOOL.pack(
        message.push_interval_ms, message.telemetry_max_bytes, message.delta_temporality
    )
    writer.write_compact_array_length(message.requested_metrics, "requested_metrics")
    for string_item in message.requested_metrics:
        writer.write_compact_string(string_item, "requested_metrics")
    writer.buf.append(0)
