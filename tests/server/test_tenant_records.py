"""Peek and Produce over the broker's own dispatcher, without a process or a socket."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import grpc
import pytest

from data_plane.broker.quotas.quota_manager import BrokerQuotas
from data_plane.cell.tenant_quotas import PutTenantQuotas, TenantQuotas
from data_plane.cell.tenants import BLOCKED_TENANT, PutTenant
from data_plane.contract import cell_operations_pb2 as messages
from data_plane.server.cell_calls import Calls, Refused
from data_plane.server.kafka_calls import KafkaCalls
from data_plane.server.tenant_records import TenantRecords
from tests.broker.broker_player import BrokerPlayer
from tests.broker.doubles import FixedQuotas


def records_of(broker: BrokerPlayer) -> TenantRecords:
    calls = Calls(broker.services, lambda call: call(), broker.log, lambda: broker.now_ms)
    return TenantRecords(KafkaCalls(calls))


def peek(broker: BrokerPlayer, tenant: str = "default") -> messages.PeekResponse:
    caller = messages.Caller(tenant=tenant, principal="User:alice")
    request = messages.PeekRequest(caller=caller, topic="orders")
    return asyncio.run(records_of(broker).peek(request))


def test_a_peek_of_a_tenant_that_has_to_wait_says_for_how_long() -> None:
    broker = BrokerPlayer()
    broker.create_topic("orders")
    broker.produce("orders", [b"a"])
    assert [record.value for record in peek(broker).records] == [b"a"]
    quotas = FixedQuotas()
    broker.services.quotas = quotas
    quotas.fetch_ms = 40
    with pytest.raises(Refused, match="in 40 ms") as refusal:
        peek(broker)
    assert refusal.value.status is grpc.StatusCode.RESOURCE_EXHAUSTED
    quotas.fetch_ms = 0
    assert [record.value for record in peek(broker).records] == [b"a"]


def test_what_a_control_plane_asks_for_a_tenant_is_none_of_its_connections() -> None:
    broker = BrokerPlayer()
    broker.make_tenant("acme")
    broker.create_topic("orders")
    broker.produce("orders", [b"a"])
    services = broker.services
    services.quotas = quotas = BrokerQuotas(services, lambda: broker.now_ms, lambda: 0, lambda: 0)
    change = PutTenantQuotas("default", TenantQuotas(connections_per_s=1))
    image = services.store.apply((change,), services.image.version, "limit")
    services.apply_image(image, broker.now_ms)
    caps = quotas.share_caps()
    quotas.set_shares(dict(caps), list(caps), 1, broker.now_ms)
    for _ in range(50):
        assert [record.value for record in peek(broker).records] == [b"a"]
    assert quotas.why_no_connection("default") == ""
    assert quotas.owed_ms("default") == 0


def test_nobody_speaks_for_a_tenant_that_is_blocked() -> None:
    broker = BrokerPlayer()
    broker.make_tenant("acme")
    broker.create_topic("orders", tenant="acme")
    assert not peek(broker, "acme").HasField("failure")
    services = broker.services
    tenant = replace(services.image.tenants["acme"], state=BLOCKED_TENANT)
    image = services.store.apply((PutTenant(tenant),), services.image.version, "block")
    services.apply_image(image, broker.now_ms)
    with pytest.raises(Refused, match="the tenant acme is blocked") as refusal:
        peek(broker, "acme")
    assert refusal.value.status is grpc.StatusCode.FAILED_PRECONDITION
