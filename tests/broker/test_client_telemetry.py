"""Client telemetry (KIP-714), as far as the empty subscription."""

from __future__ import annotations

from uuid import UUID

import pytest

from data_plane.broker.admin.client_telemetry import SUBSCRIPTION_ID, TELEMETRY_BYTES_MAX
from data_plane.wire.messages.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from data_plane.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from data_plane.wire.messages.push_telemetry_request import PushTelemetryRequest
from data_plane.wire.primitives import ZERO_UUID
from data_plane.wire.registry import ApiKey
from tests.broker.admin_player import AdminPlayer

CLIENT = UUID(int=7)


def test_a_client_is_told_that_nobody_wants_its_metrics() -> None:
    broker = AdminPlayer()
    request = GetTelemetrySubscriptionsRequest(client_instance_id=CLIENT)
    told = broker.ask(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, request)
    assert (told.error_code, told.client_instance_id) == (0, CLIENT)
    assert told.requested_metrics == []
    assert told.push_interval_ms == 300_000
    # Who has no id yet gets one, each another.
    first, second = (
        broker.ask(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, GetTelemetrySubscriptionsRequest())
        for _ in range(2)
    )
    assert len({first.client_instance_id, second.client_instance_id, ZERO_UUID}) == 3
    # What it pushes when it stops is taken.
    last = PushTelemetryRequest(
        client_instance_id=CLIENT, subscription_id=told.subscription_id, terminating=True
    )
    assert broker.ask(ApiKey.PUSH_TELEMETRY, 0, last).error_code == 0


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (PushTelemetryRequest(client_instance_id=CLIENT, subscription_id=99), 117),
        (PushTelemetryRequest(subscription_id=SUBSCRIPTION_ID), 42),
        (
            PushTelemetryRequest(
                client_instance_id=CLIENT,
                subscription_id=SUBSCRIPTION_ID,
                metrics=bytes(TELEMETRY_BYTES_MAX + 1),
            ),
            118,
        ),
    ],
)
def test_what_is_pushed_wrongly(request_: PushTelemetryRequest, code: int) -> None:
    assert AdminPlayer().ask(ApiKey.PUSH_TELEMETRY, 0, request_).error_code == code


def test_there_are_no_client_metrics_resources() -> None:
    broker = AdminPlayer()
    for version in (0, 1):
        request = ListConfigResourcesRequest(resource_types=[16] if version else [])
        listed = broker.ask(ApiKey.LIST_CONFIG_RESOURCES, version, request)
        assert (listed.error_code, listed.config_resources) == (0, [])


def test_a_subscription_that_nobody_has_made_is_described_by_its_defaults() -> None:
    broker = AdminPlayer()
    described = broker.describe(16, "mine")
    assert described.error_code == 0
    values = {config.name: (config.value, config.config_source) for config in described.configs}
    assert values == {"interval.ms": ("300000", 5), "match": ("", 5), "metrics": ("", 5)}
    nameless = broker.describe(16, "")
    assert (nameless.error_code, nameless.error_message) == (
        42,
        "Client metrics subscription name must not be empty",
    )
