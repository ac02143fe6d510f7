"""Rates of tenants over the whole cell: who waits, how brokers share a cap, and floors."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from data_plane.broker.quotas.held import Held
from data_plane.broker.quotas.quota_manager import BrokerQuotas
from data_plane.broker.quotas.share_exchange import INTERVAL_MS, ShareExchange
from data_plane.broker.quotas.shares import UNHEARD_MS, Demand
from data_plane.broker.quotas.tenant_rates import (
    CONSUME,
    PRODUCE,
    RATES,
    REQUESTS,
    RateKey,
    TenantRateTable,
    Use,
)
from data_plane.broker.request.api import Buffer, ConnectionInfo
from data_plane.broker.request.peers import OnResponse
from data_plane.broker.request.principal import Principal
from data_plane.cell.changes import AlterConfigs, Change, ChangeBroker, RegisterBroker
from data_plane.cell.client_quotas import AlterClientQuotas, QuotaEntity
from data_plane.cell.metadata import ResourceType
from data_plane.cell.tenant_quotas import PRODUCE_CAPACITY, PutTenantQuotas, TenantQuotas
from data_plane.cell.tenants import TenantImage
from data_plane.wire.errors import MalformedFrame
from data_plane.wire.messages.push_telemetry_request import (
    PushTelemetryRequest,
    decode_push_telemetry_request,
)
from data_plane.wire.primitives import Reader
from data_plane.wire.registry import ApiKey
from tests.broker.admin_player import AdminPlayer
from tests.broker.broker_player import values_of
from tests.broker.test_client_quotas import waited_for
from tests.broker.test_produce import only
from tests.cell.cases import NEWEST_BROKER

POLICY_VIOLATION = 44
T = 1_000_000


class Shared(AdminPlayer):
    """A broker with the tenant `acme`, and its quotas; `peers` None: it is alone."""

    def __init__(self, node_id: int = 1, cell: Cell | None = None) -> None:
        super().__init__()
        self.make_tenant("acme")
        self.services.node_id = node_id
        self.quotas = BrokerQuotas(self.services, lambda: self.now_ms, lambda: 0, lambda: 0)
        self.services.quotas = self.quotas
        peers = None if cell is None else LinkedPeers(cell, node_id)
        self.exchange = ShareExchange(self.services, self.quotas, peers, lambda: self.now_ms)
        self.quotas.on_tenants_changed = self.exchange.quotas_changed
        self.services.share_exchange = self.exchange
        self.services.components.append(self.exchange)
        self.exchange.start(self.now_ms)
        self.muted_ms: list[int] = []
        self.acme = self.as_tenant("acme")

    def as_tenant(self, tenant: str) -> ConnectionInfo:
        connection = self.connect()
        connection.authenticate(Principal("User", "alice"), tenant)
        connection.mute = self.muted_ms.append
        return connection

    def commit(self, *changes: Change) -> None:
        image = self.services.store.read()
        image = self.services.store.apply(changes, image.version, f"r{image.version}")
        self.services.apply_image(image, self.now_ms)

    def limit(self, tenant: str = "acme", **limits: Any) -> None:
        self.commit(PutTenantQuotas(tenant, TenantQuotas(**limits)))

    def throttle(self, size: int, connection: ConnectionInfo | None = None) -> int:
        """For how long a Produce of about that size waits."""
        pending = self.produce("orders", [bytes(size)], connection=connection or self.acme)
        assert only(pending.response).error_code == 0
        throttle_ms: int = pending.response.throttle_time_ms
        return throttle_ms

    def share(self, rate: str = PRODUCE) -> float:
        use = self.quotas._tenants.of("acme")
        assert use is not None
        bucket = use.of(rate).bucket
        assert bucket is not None
        return bucket.rate_per_s


class LinkedPeers:
    """The Peers port between such brokers: what is sent arrives when the cell delivers it."""

    def __init__(self, cell: Cell, node_id: int) -> None:
        self._cell = cell
        self._node_id = node_id

    def send(
        self,
        node_id: int,
        api_key: int,
        api_version: int,
        body: Sequence[Buffer],
        on_response: OnResponse,
    ) -> None:
        assert (api_key, api_version) == (int(ApiKey.PUSH_TELEMETRY), 0)
        data = b"".join(bytes(buffer) for buffer in body)
        self._cell.sent.append((self._node_id, node_id, data, on_response))

    def disconnect(self, node_id: int) -> None:
        """There is nothing to let go of."""


class Cell:
    """Three brokers, of which each tenant's connections use some."""

    def __init__(self, brokers: int = 3) -> None:
        self.sent: list[tuple[int, int, bytes, OnResponse]] = []
        self.cuts: set[frozenset[int]] = set()
        self.brokers = {node: Shared(node, self) for node in range(1, brokers + 1)}
        self.given = dict.fromkeys(self.brokers, 0)
        self._busy_until = dict.fromkeys(self.brokers, 0)
        members = [
            RegisterBroker(replace(NEWEST_BROKER, node_id=node, is_fenced=False))
            for node in self.brokers
        ]
        for broker in self.brokers.values():
            broker.commit(*members)
            broker.create_topic("orders", tenant="acme")

    def limit(self, **limits: Any) -> None:
        for broker in self.brokers.values():
            broker.limit(**limits)

    def deliver(self) -> None:
        while self.sent:
            sender, receiver, data, on_response = self.sent.pop(0)
            now_ms = self.brokers[sender].now_ms
            if frozenset((sender, receiver)) in self.cuts:
                on_response(None, now_ms)
                continue
            request = decode_push_telemetry_request(Reader(data, 0), 0)
            self.brokers[receiver].exchange.heard(request.metrics, now_ms)
            on_response(memoryview(b""), now_ms)

    def run(self, duration_ms: int, busy: Mapping[int, int]) -> dict[int, int]:
        """What brokers give meanwhile, of whom clients ask as much as they can, in batches of that
        size, and wait as they are told."""
        before = dict(self.given)
        for _ in range(duration_ms // 50):
            for node, broker in self.brokers.items():
                broker.pass_time(50)
                size = busy.get(node)
                while size and self._busy_until[node] <= broker.now_ms:
                    use = broker.quotas._tenants.of("acme")
                    assert use is not None
                    wait_ms = use.produce.take(size, broker.now_ms)
                    self.given[node] += size
                    # A client that need not wait sends the next one after a while all the same.
                    begun_ms = max(self._busy_until[node], broker.now_ms - 50)
                    self._busy_until[node] = begun_ms + max(1, wait_ms)
            self.deliver()
        return {node: self.given[node] - before[node] for node in self.brokers}


def test_a_tenant_waits_when_it_has_had_its_rate() -> None:
    broker = Shared()
    broker.create_topic("orders", tenant="acme")
    broker.limit(produce_bytes_per_s=10_000)
    assert broker.quotas.is_active
    assert broker.throttle(9_000) == 0
    waited = broker.throttle(3_000)
    assert 210 <= waited <= 250
    # Whoever of it asks: a tenant is all of its users.
    other = broker.as_tenant("acme")
    assert broker.throttle(1_000, other) > waited
    broker.create_topic("orders")
    assert broker.throttle(50_000, broker.as_tenant("default")) == 0
    broker.pass_time(2_000)
    assert broker.throttle(5_000) == 0
    assert broker.quotas.throttled["tenant_produce"].duration_ms == sum(broker.muted_ms)
    assert waited_for(broker.quotas) == {"tenant_produce"}
    broker.limit()
    assert not broker.quotas.is_active
    assert broker.exchange.next_deadline_ms() is None


def test_a_fetch_beyond_the_rate_is_sent_and_the_next_one_waits() -> None:
    broker = Shared()
    broker.create_topic("orders", tenant="acme")
    for _ in range(3):
        broker.throttle(9_000)
    broker.limit(consume_bytes_per_s=5_000)
    first = broker.fetch({("orders", 0): 0}, connection=broker.acme).response
    assert first.throttle_time_ms == 0
    sent = len(only(first).records)
    second = broker.fetch({("orders", 0): 0}, connection=broker.acme).response
    assert second.responses == []
    expected_ms = (sent - 5_000) / 5
    assert abs(second.throttle_time_ms - expected_ms) <= 5
    broker.pass_time(second.throttle_time_ms)
    third = broker.fetch({("orders", 0): 0}, connection=broker.acme).response
    assert values_of(only(third).records)


def test_requests_and_their_time_are_rates_too() -> None:
    broker = Shared()
    broker.create_topic("orders", tenant="acme")
    broker.limit(requests_per_s=2)
    assert [broker.throttle(1) for _ in range(3)] == [0, 0, 500]
    broker.limit(handler_ms_per_s=100)
    clock = iter(range(0, 10**12, 90_000_000))
    broker.quotas.clock_ns = lambda: next(clock)
    assert broker.throttle(1) == 0
    assert broker.throttle(1) == 0
    assert broker.throttle(1) == 800
    assert broker.throttle(1) == 1000
    assert waited_for(broker.quotas) == {
        "tenant_requests",
        "tenant_handler",
    }


def test_client_quotas_only_lower_what_a_tenant_has() -> None:
    broker = Shared()
    broker.create_topic("orders", tenant="acme")
    broker.limit(produce_bytes_per_s=10_000)
    generous = AlterClientQuotas("acme", QuotaEntity("alice", None), (("producer_byte_rate", 1e9),))
    broker.commit(generous)
    assert broker.throttle(20_000) > 900
    mean = AlterClientQuotas("acme", QuotaEntity("alice", None), (("producer_byte_rate", 100.0),))
    broker.limit(produce_bytes_per_s=10_000_000)
    broker.commit(mean)
    assert broker.throttle(100) > 10_000


def test_at_the_storage_limit_nothing_is_produced_and_all_else_goes_on() -> None:
    broker = Shared()
    broker.create_topic("orders", tenant="acme")
    broker.create_topic("orders")
    broker.throttle(3_000)
    broker.limit(storage_bytes=5_000)
    broker.pass_time(INTERVAL_MS)
    broker.throttle(3_000)
    broker.pass_time(INTERVAL_MS)
    answer = only(broker.produce("orders", [b"a"], connection=broker.acme).response)
    assert answer.error_code == POLICY_VIOLATION
    assert answer.error_message.startswith("The tenant stores 6")
    assert answer.error_message.endswith("bytes, and may store 5000")
    assert broker.throttle(10, broker.as_tenant("default")) == 0
    fetched = broker.fetch({("orders", 0): 0}, connection=broker.acme).response
    assert len(values_of(only(fetched).records)) == 2
    broker.limit(storage_bytes=50_000)
    broker.pass_time(INTERVAL_MS)
    broker.throttle(1)
    broker.limit(storage_bytes=1)
    broker.pass_time(INTERVAL_MS)
    broker.limit()
    broker.throttle(1)


def test_storage_is_counted_over_all_brokers() -> None:
    cell = Cell(2)
    cell.limit(storage_bytes=5_000)
    for broker in cell.brokers.values():
        broker.throttle(3_000)
    cell.run(1_000, {})
    for broker in cell.brokers.values():
        answer = only(broker.produce("orders", [b"a"], connection=broker.acme).response)
        assert answer.error_code == POLICY_VIOLATION


def test_the_rate_over_all_brokers_is_the_cap_wherever_clients_are() -> None:
    cell = Cell()
    cap = 100_000
    cell.limit(produce_bytes_per_s=cap)
    for busy in ({1: 5_000}, {2: 2_000, 3: 2_000}, {1: 1_000, 2: 1_000, 3: 1_000}, {3: 10_000}):
        cell.run(2_000, busy)
        given = cell.run(10_000, busy)
        total = sum(given.values())
        assert 0.9 * cap * 10 <= total <= 1.1 * cap * 10, (busy, given)
        assert min(given[node] for node in busy) > 0.5 * total / len(busy)
        assert sum(broker.share() for broker in cell.brokers.values()) <= cap * 1.001


def test_brokers_that_do_not_hear_each_other_do_not_have_a_cap_each() -> None:
    cell = Cell()
    cap = 90_000
    cell.limit(produce_bytes_per_s=cap)
    cell.run(3_000, {1: 2_000})
    cell.cuts = {frozenset((1, 2)), frozenset((1, 3)), frozenset((2, 3))}
    cell.run(UNHEARD_MS + 1_000, {1: 2_000})
    everywhere = {1: 2_000, 2: 2_000, 3: 2_000}
    given = cell.run(10_000, everywhere)
    assert sum(given.values()) <= 1.1 * cap * 10
    assert cell.brokers[1].share() == pytest.approx(cap / 3)
    cell.cuts = set()
    cell.run(2_000, everywhere)
    assert sum(cell.run(5_000, everywhere).values()) >= 0.9 * cap * 5


def test_a_broker_that_dies_leaves_its_share_to_the_others() -> None:
    cell = Cell(2)
    cell.limit(produce_bytes_per_s=50_000)
    cell.run(2_000, {2: 1_000})
    fenced = replace(NEWEST_BROKER, node_id=2, is_fenced=True)
    cell.brokers[1].commit(RegisterBroker(fenced))
    cell.cuts = {frozenset((1, 2))}
    cell.run(1_000, {1: 1_000})
    assert cell.brokers[1].share() == 50_000


def test_a_word_that_makes_no_sense_is_refused() -> None:
    broker = Shared()
    for message in (b"", b"[]", b"{}", b'{"node": 2, "life": 1, "sequence": 1, "demands": [1]}'):
        with pytest.raises(MalformedFrame):
            broker.exchange.heard(message, broker.now_ms)


def test_clients_do_not_speak_as_brokers() -> None:
    broker = Shared()
    broker.limit(produce_bytes_per_s=1_000)
    heard: list[bytes] = []
    broker.exchange.heard = lambda message, now_ms: heard.append(message)  # type: ignore[method-assign]
    request = PushTelemetryRequest(metrics=b"{}")
    assert broker.ask(ApiKey.PUSH_TELEMETRY, 0, request).error_code == 42
    peer = broker.connect(is_inter_broker=True)
    assert broker.ask(ApiKey.PUSH_TELEMETRY, 0, request, connection=peer).error_code == 0
    assert heard == [b"{}"]


def test_whoever_begins_on_another_broker_does_not_wait_for_what_he_will_have() -> None:
    cell = Cell()
    cell.limit(produce_bytes_per_s=30_000)
    cell.run(3_000, {1: 1_000})
    second = cell.brokers[2]
    assert second.share() < 1_000
    assert 0 < second.throttle(5_000) <= 500


def test_a_word_of_another_broker_costs_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell()
    broker = cell.brokers[1]
    names = [f"t{number}" for number in range(100)]
    for name in names:
        broker.make_tenant(name)
    limits = TenantQuotas(produce_bytes_per_s=1_000, requests_per_s=100, storage_bytes=1_000)
    broker.commit(*(PutTenantQuotas(name, limits) for name in names))
    broker.pass_time(INTERVAL_MS)
    broker.exchange.heard(word(2, 1, {"t3": 1_000}, {"t5": 900}), broker.now_ms)
    limited: list[Use] = []

    def set_rate(use: Use, per_s: float | None, expected_per_s: float, now_ms: int) -> None:
        limited.append(use)
        plain_set_rate(use, per_s, expected_per_s, now_ms)

    plain_set_rate = Use.set_rate
    monkeypatch.setattr(Use, "set_rate", set_rate)
    broker.exchange.heard(word(2, 2, {"t3": 1_000, "t4": 500}, {"t5": 1_000}), broker.now_ms)
    of_t4 = broker.quotas._tenants.of("t4")
    assert of_t4 is not None
    assert limited == [of_t4.produce]
    assert of_t4.produce.bucket is not None
    assert of_t4.produce.bucket.rate_per_s < 1_000 / 3
    namespaces = broker.services.namespaces.names
    assert namespaces["t5"].storage_refusal
    broker.exchange.heard(word(2, 3, {}, {}), broker.now_ms)
    assert not namespaces["t5"].storage_refusal


def test_a_period_ends_for_those_who_have_taken_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = TenantRateTable()
    limits = TenantQuotas(requests_per_s=2)
    names = [f"t{number}" for number in range(100)]
    table.set_tenants({name: TenantImage(name, name, quotas=limits) for name in names})
    shares = dict(table.caps())
    table.set_shares(shares, list(shares), {}, 1, 0)
    table.end_period(500, 500)
    ended: list[Use] = []

    def end_period(use: Use, duration_ms: int, now_ms: int) -> Demand:
        ended.append(use)
        return plain_end_period(use, duration_ms, now_ms)

    plain_end_period = Use.end_period
    monkeypatch.setattr(Use, "end_period", end_period)
    assert table.end_period(500, 1_000) == {}
    assert ended == []
    of_t7 = table.of("t7")
    assert of_t7 is not None
    of_t7.requests.take(10, 1_000)
    # It owes for five seconds, and what it has given fades.
    for now_ms in range(1_500, 6_500, 500):
        assert list(table.end_period(500, now_ms)) == [RateKey("t7", REQUESTS)]
        assert len(ended) == len(RATES)
        ended.clear()
    for now_ms in range(6_500, 60_000, 500):
        table.end_period(500, now_ms)
    assert table.end_period(500, 60_000) == {}
    ended.clear()
    table.end_period(500, 60_500)
    assert ended == []


def test_a_round_looks_at_tenants_that_hold_something() -> None:
    cell = Cell()
    broker = cell.brokers[1]
    names = [f"t{number}" for number in range(100)]
    for name in names:
        broker.make_tenant(name)
    limits = TenantQuotas(storage_bytes=1_000, connections=10)
    broker.commit(*(PutTenantQuotas(name, limits) for name in names))
    share = broker.services.connections.of("t7")
    share.add(2)
    holdings = broker.quotas.holdings
    looked_at: list[str] = []

    class Looked(dict[str, dict[str, int]]):
        def __getitem__(self, name: str) -> dict[str, int]:
            looked_at.append(name)
            return super().__getitem__(name)

        def items(self) -> Any:
            raise AssertionError("it walks through all of them")

    holdings._limits = Looked(holdings._limits)
    assert holdings.look().counts == {"t7": {"connections": 2}}
    assert looked_at == ["t7"]


def test_what_a_broker_that_is_gone_has_stored_counts_no_more() -> None:
    broker = Cell(2).brokers[1]
    broker.limit(storage_bytes=1_000)
    broker.pass_time(INTERVAL_MS)
    acme = broker.services.namespaces.names["acme"]
    broker.exchange.heard(word(2, 1, {}, {"acme": 1_000}), broker.now_ms)
    broker.pass_time(INTERVAL_MS)
    assert acme.storage_refusal
    there = broker.services.image.brokers[2]
    broker.commit(ChangeBroker(replace(there, is_fenced=True)))
    broker.pass_time(INTERVAL_MS)
    assert not acme.storage_refusal


def test_what_tenants_store_is_as_the_last_word_of_a_broker_that_serves_says() -> None:
    broker = Cell(2).brokers[1]
    broker.limit(storage_bytes=1_000)
    broker.pass_time(INTERVAL_MS)
    acme = broker.services.namespaces.names["acme"]
    broker.exchange.heard(word(2, 2, {}, {"acme": 900}), broker.now_ms)
    for node_id, sequence in ((2, 1), (2, 2), (3, 1)):
        broker.exchange.heard(word(node_id, sequence, {}, {"acme": 5_000}), broker.now_ms)
        assert not acme.storage_refusal
    broker.exchange.heard(word(2, 3, {}, {"acme": 1_000}), broker.now_ms)
    assert acme.storage_refusal
    broker.exchange.heard(word(2, 2, {}, {}), broker.now_ms)
    assert acme.storage_refusal


def word(
    node_id: int, sequence: int, rates: Mapping[str, float], stored: Mapping[str, int]
) -> bytes:
    document = {
        "node": node_id,
        "life": 1,
        "sequence": sequence,
        "demands": [[tenant, PRODUCE, per_s, True] for tenant, per_s in rates.items()],
        "held": {tenant: {"storage_bytes": size} for tenant, size in stored.items()},
    }
    return json.dumps(document).encode()


def test_what_is_counted_in_partitions_goes_with_the_word() -> None:
    broker = Cell(2).brokers[1]
    broker.limit(connections=3)
    broker.pass_time(INTERVAL_MS)
    told = {"acme": {"connections": 3}}
    document = {"node": 2, "life": 1, "sequence": 1, "demands": [], "held": told}
    broker.exchange.heard(json.dumps({**document, "partitions": [1, 4]}).encode(), broker.now_ms)
    assert broker.exchange._held[2] == Held(told, frozenset({1, 4}), broker.now_ms)
    assert broker.quotas.why_no_connection("acme").startswith("The tenant has 3 connections")
    # A broker of the version before does not say it.
    document["sequence"] = 2
    broker.exchange.heard(json.dumps(document).encode(), broker.now_ms)
    assert broker.exchange._held[2] == Held(told, at_ms=broker.now_ms)
    document.update(sequence=3, held={})
    broker.exchange.heard(json.dumps(document).encode(), broker.now_ms)
    assert broker.quotas.why_no_connection("acme") == ""


def test_what_was_heard_before_the_last_quota_went_does_not_count_with_the_next_one() -> None:
    broker = Cell(2).brokers[1]
    broker.limit(connections=3)
    broker.pass_time(INTERVAL_MS)
    told = {"acme": {"connections": 3}}
    document = {"node": 2, "life": 1, "sequence": 1, "demands": [], "held": told}
    broker.exchange.heard(json.dumps({**document, "partitions": [1]}).encode(), broker.now_ms)
    assert broker.quotas.why_no_connection("acme") != ""
    broker.limit()
    broker.pass_time(INTERVAL_MS)
    broker.limit(connections=3)
    assert broker.quotas.why_no_connection("acme") == ""
    assert broker.exchange._held == {}
    document["sequence"] = 2
    broker.exchange.heard(json.dumps(document).encode(), broker.now_ms)
    assert broker.quotas.why_no_connection("acme") != ""


def test_new_connections_wait_for_their_rate_and_too_many_are_turned_away() -> None:
    broker = Shared()
    broker.limit(connections_per_s=2)
    waits = [broker.quotas.owed_ms("acme") for _ in range(5)]
    assert waits == [0, 0, 500, 1_000, 1_500]
    assert broker.quotas.owed_ms("default") == 0
    assert broker.quotas.why_no_connection("acme") == ""
    for _ in range(38):
        broker.quotas.owed_ms("acme")
    assert broker.quotas.why_no_connection("acme") == (
        "The tenant may open 2 connections per second, and has used up those of the next 20 seconds"
    )
    assert broker.quotas.why_no_connection("default") == ""
    assert broker.quotas.holdings.refused_connections_count == 1
    broker.pass_time(1_000)
    assert broker.quotas.why_no_connection("acme") == ""


def test_brokers_share_the_rate_of_new_connections() -> None:
    cell = Cell()
    cell.limit(connections_per_s=30)
    cell.run(1_000, {})
    opened: list[int] = []
    next_ms = dict.fromkeys((1, 2), 0)
    for _ in range(300):
        cell.run(50, {})
        for node in next_ms:
            broker = cell.brokers[node]
            while next_ms[node] <= broker.now_ms:
                wait_ms = broker.quotas.owed_ms("acme")
                opened.append(broker.now_ms)
                next_ms[node] = max(next_ms[node], broker.now_ms - 50) + max(10, wait_ms)
    begun_ms = opened[0] + 5_000
    count = sum(begun_ms <= at_ms < begun_ms + 10_000 for at_ms in opened)
    assert 0.8 * 300 <= count <= 1.1 * 300


def test_a_limit_that_is_set_again_holds_again() -> None:
    broker = Shared()
    broker.create_topic("orders", tenant="acme")
    for _ in range(2):
        broker.limit(produce_bytes_per_s=1_000)
        assert broker.throttle(5_000) > 3_000
        broker.limit()
        assert broker.throttle(5_000) == 0


# Floors


def contended(
    quotas: Mapping[str, TenantQuotas], wanted: Mapping[str, float], capacity: float = 100_000
) -> dict[str, float]:
    """What tenants get per second of one broker that can take `capacity`."""
    table = TenantRateTable()
    table.set_tenants({name: TenantImage(name, name, quotas=each) for name, each in quotas.items()})
    generator = random.Random(5)
    now_ms = T
    waits = dict.fromkeys(wanted, 0)
    given = dict.fromkeys(wanted, 0.0)
    shares = table.caps()
    for step in range(400):
        now_ms += 50
        if step % 10 == 0:
            table.end_period(500, now_ms)
            table.set_shares(shares, shares, {PRODUCE: capacity, CONSUME: 0}, 1, now_ms)
        for name in sorted(wanted, key=lambda _: generator.random()):
            use = table.of(name)
            assert use is not None
            # What a client sends in that time, once it need not wait.
            if waits[name] <= now_ms:
                waits[name] = now_ms + use.produce.take(wanted[name] / 20, now_ms)
                if step >= 100:
                    given[name] += wanted[name] / 20
    return {name: amount / 15 for name, amount in given.items()}


def test_a_floor_is_reached_while_others_saturate() -> None:
    quotas = {
        "a": TenantQuotas(produce_floor_bytes_per_s=40_000),
        "b": TenantQuotas(),
        "c": TenantQuotas(),
    }
    given = contended(quotas, {"a": 45_000, "b": 400_000, "c": 400_000})
    assert given["a"] >= 40_000 * 0.95
    assert min(given["b"], given["c"]) > 15_000
    assert sum(given.values()) <= 110_000


def test_nobody_is_held_back_while_there_is_room() -> None:
    quotas = {"a": TenantQuotas(produce_floor_bytes_per_s=40_000), "b": TenantQuotas()}
    given = contended(quotas, {"a": 10_000, "b": 70_000})
    assert given == pytest.approx({"a": 10_000, "b": 70_000})


def test_a_floor_does_not_lift_a_cap() -> None:
    quotas = {
        "a": TenantQuotas(produce_floor_bytes_per_s=20_000, produce_bytes_per_s=30_000),
        "b": TenantQuotas(),
    }
    given = contended(quotas, {"a": 90_000, "b": 400_000})
    assert 20_000 * 0.95 <= given["a"] <= 33_000
    assert sum(given.values()) <= 110_000


def test_what_is_not_limited_is_not_measured() -> None:
    table = TenantRateTable()
    assert table.of("acme") is None
    table.set_tenants({"acme": TenantImage("acme", "c", quotas=TenantQuotas(partitions=5))})
    assert not table.is_active
    table.set_tenants({"acme": TenantImage("acme", "c", quotas=TenantQuotas(requests_per_s=5))})
    assert table.is_active
    assert table.of("other") is None
    assert table.caps() == {RateKey("acme", "requests_per_s"): 5}


def test_what_a_broker_can_take_is_its_property() -> None:
    broker = Shared()
    broker.create_topic("orders", tenant="acme")
    broker.commit(
        RegisterBroker(replace(NEWEST_BROKER, node_id=1, is_fenced=False)),
        AlterConfigs("default", ResourceType.BROKER, "", ((PRODUCE_CAPACITY, "10000"),)),
    )
    broker.limit(produce_floor_bytes_per_s=5_000)
    broker.create_topic("orders")
    other = broker.as_tenant("default")
    for _ in range(8):
        broker.throttle(6_000, other)
        broker.pass_time(INTERVAL_MS)
    assert broker.throttle(20_000, other) > 0
    assert broker.throttle(500) == 0
