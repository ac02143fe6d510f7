"""GetTelemetrySubscriptions and PushTelemetry, version 0 (KIP-714): the empty subscription.

A client is told that nobody wants its metrics, and asks again after PUSH_INTERVAL_MS. What it
pushes all the same, as Java's does when it stops, is thrown away. The brokers of a cell use the
same request for what they tell each other of their tenants (quotas/share_exchange.py), on their own
connections.

Deliberately absent: subscriptions, and a place for metrics of clients.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from data_plane.broker.request.api import HandlerTable, RequestContext
from data_plane.broker.services import Services
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from data_plane.wire.messages.get_telemetry_subscriptions_response import (
    GetTelemetrySubscriptionsResponse,
)
from data_plane.wire.messages.push_telemetry_request import PushTelemetryRequest
from data_plane.wire.messages.push_telemetry_response import PushTelemetryResponse
from data_plane.wire.primitives import ZERO_UUID
from data_plane.wire.registry import ApiKey

# Kafka's.
PUSH_INTERVAL_MS: Final = 300_000
TELEMETRY_BYTES_MAX: Final = 1 << 20
# Any, as long as it is the one of everybody: it stands for the empty subscription. With any but 0
# librdkafka would write a line to its user's log for each client.
SUBSCRIPTION_ID: Final = 0
# zstd, lz4, gzip, snappy.
COMPRESSION_TYPES: Final = (4, 3, 1, 2)


def handle_get_subscriptions(
    services: Services,
    context: RequestContext,
    request: GetTelemetrySubscriptionsRequest,
    now_ms: int,
) -> GetTelemetrySubscriptionsResponse:
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = UUID(int=services.random.getrandbits(128), version=4)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=SUBSCRIPTION_ID,
        accepted_compression_types=list(COMPRESSION_TYPES),
        push_interval_ms=PUSH_INTERVAL_MS,
        telemetry_max_bytes=TELEMETRY_BYTES_MAX,
        delta_temporality=True,
    )


def handle_push(
    services: Services, context: RequestContext, request: PushTelemetryRequest, now_ms: int
) -> PushTelemetryResponse:
    if context.connection.is_inter_broker:
        if services.share_exchange is not None:
            services.share_exchange.heard(bytes(request.metrics), now_ms)
        return PushTelemetryResponse()
    error = ErrorCode.NONE
    if request.client_instance_id == ZERO_UUID:
        error = ErrorCode.INVALID_REQUEST
    elif request.subscription_id != SUBSCRIPTION_ID:
        error = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    elif len(request.metrics) > TELEMETRY_BYTES_MAX:
        error = ErrorCode.TELEMETRY_TOO_LARGE
    return PushTelemetryResponse(error_code=int(error))


def register(table: HandlerTable) -> None:
    table.register(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, handle_get_subscriptions)
    table.register(ApiKey.PUSH_TELEMETRY, 0, 0, handle_push)
