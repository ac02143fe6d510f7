"""Client quotas: asked for, changed, and what they have clients wait for."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from data_plane.broker.quotas import client_limits
from data_plane.broker.quotas.client_limits import (
    LIMITS_MAX,
    NO_LIMITS,
    ClientLimits,
    ClientLimitTable,
    matching_quota,
)
from data_plane.broker.quotas.quota_manager import BrokerQuotas
from data_plane.broker.quotas.rates import Windows
from data_plane.broker.request.api import ConnectionInfo
from data_plane.broker.request.principal import Principal
from data_plane.cell.client_quotas import QUOTA_KEYS, QuotaEntity
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.tenants import PutTenant, TenantImage
from data_plane.wire.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from data_plane.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from data_plane.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from data_plane.wire.messages.describe_client_quotas_request import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from data_plane.wire.registry import ApiKey
from tests.broker.admin_player import AdminPlayer, new_topic
from tests.broker.broker_player import values_of
from tests.broker.test_produce import only
from tests.cell.cases import NEW_CELL

THROTTLED = 89
ALICE = (("user", "alice"),)
DEFAULT_CLIENT = (("client-id", None),)

Entity = tuple[tuple[str, str | None], ...]


class Metered(AdminPlayer):
    """A broker whose tenants may have quotas."""

    def __init__(self) -> None:
        super().__init__()
        self.make_tenant("acme")
        self.clock_ns = 0
        self.quotas = BrokerQuotas(self.services, lambda: self.now_ms, self._clock, self._clock)
        self.services.quotas = self.quotas
        self.muted_ms: list[int] = []
        self.connection.mute = self.muted_ms.append

    def _clock(self) -> int:
        return self.clock_ns

    def as_user(self, name: str, namespace: str = "default") -> ConnectionInfo:
        connection = self.connect()
        connection.authenticate(Principal("User", name), namespace)
        connection.mute = self.muted_ms.append
        return connection

    def alter(  # type: ignore[override]
        self,
        entity: Entity,
        *ops: tuple[str, float | None],
        version: int = 1,
        validate_only: bool = False,
        connection: ConnectionInfo | None = None,
    ) -> tuple[int, str | None]:
        request = AlterClientQuotasRequest(
            entries=[entry(entity, *ops)], validate_only=validate_only
        )
        response = self.ask(ApiKey.ALTER_CLIENT_QUOTAS, version, request, connection=connection)
        (result,) = response.entries
        told = tuple((one.entity_type, one.entity_name) for one in result.entity)
        assert told == entity
        return result.error_code, result.error_message

    def described(
        self,
        *components: tuple[str, int, str | None],
        strict: bool = False,
        version: int = 1,
        connection: ConnectionInfo | None = None,
    ) -> Any:
        request = DescribeClientQuotasRequest(
            components=[
                ComponentData(entity_type=kind, match_type=match_type, match=name)
                for kind, match_type, name in components
            ],
            strict=strict,
        )
        response = self.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, request, connection=connection)
        if response.error_code:
            assert response.entries is None
            return response.error_code, response.error_message
        return {
            tuple((one.entity_type, one.entity_name) for one in item.entity): {
                value.key: value.value for value in item.values
            }
            for item in response.entries
        }


def entry(entity: Entity, *ops: tuple[str, float | None]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )


def waited_for(quotas: BrokerQuotas) -> set[str]:
    """Why somebody had to wait."""
    return {reason for reason, throttled in quotas.throttled.items() if throttled.count}


@pytest.fixture
def broker() -> Metered:
    return Metered()


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_described_and_taken_away(broker: Metered, version: int) -> None:
    pair: Entity = (("user", "alice"), ("client-id", None))
    assert broker.alter(ALICE, ("producer_byte_rate", 10.0), version=version) == (0, None)
    assert broker.alter(pair, ("request_percentage", 0.5), version=version) == (0, None)
    assert broker.alter(DEFAULT_CLIENT, ("consumer_byte_rate", 7.0)) == (0, None)
    assert broker.described(version=version) == {
        ALICE: {"producer_byte_rate": 10.0},
        pair: {"request_percentage": 0.5},
        DEFAULT_CLIENT: {"consumer_byte_rate": 7.0},
    }
    assert set(broker.described(("user", 0, "alice"))) == {ALICE, pair}
    assert set(broker.described(("user", 0, "alice"), strict=True)) == {ALICE}
    assert set(broker.described(("client-id", 1, None))) == {pair, DEFAULT_CLIENT}
    assert set(broker.described(("user", 2, None), ("client-id", 2, None))) == {pair}
    assert broker.described(("user", 0, "")) == {}
    assert broker.described(("ip", 2, None)) == {}
    assert broker.alter(ALICE, ("producer_byte_rate", None)) == (0, None)
    assert set(broker.described()) == {pair, DEFAULT_CLIENT}


def test_what_is_only_looked_at_changes_nothing(broker: Metered) -> None:
    assert broker.alter(ALICE, ("producer_byte_rate", 1.0), validate_only=True) == (0, None)
    assert broker.described() == {}
    assert broker.alter(ALICE, ("color", 1.0), validate_only=True)[0] == 42


@pytest.mark.parametrize(
    ("entity", "ops", "words"),
    [
        ((), (("producer_byte_rate", 1.0),), "Invalid empty client quota entity"),
        ((("user", ""),), (("producer_byte_rate", 1.0),), "Empty user not supported"),
        ((("color", "red"),), (), "Unhandled client quota entity type: color"),
        ((("ip", "10.0.0.1"),), (), "Quotas of IP addresses are not served"),
        (ALICE, (("color", 1.0),), "Invalid configuration key color"),
        (ALICE, (("request_percentage", -1.0),), "greater than 0"),
        (ALICE, (("request_percentage", 1.0), ("request_percentage", 2.0)), "Duplicate quota key"),
    ],
)
def test_what_is_refused(broker: Metered, entity: Entity, ops: Any, words: str) -> None:
    code, message = broker.alter(entity, *ops)
    assert code == 42
    assert words in (message or "")
    assert broker.described() == {}


def test_each_entity_of_a_request_is_changed_by_itself(broker: Metered) -> None:
    good = ("producer_byte_rate", 1.0)
    request = AlterClientQuotasRequest(
        entries=[entry(ALICE, good), entry(ALICE, good), entry(DEFAULT_CLIENT, ("x", 1.0))]
    )
    response = broker.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, request)
    assert [item.error_code for item in response.entries] == [0, 42, 42]
    assert set(broker.described()) == {ALICE}


@pytest.mark.parametrize(
    ("components", "code", "words"),
    [
        ([("", 0, "x")], 42, "Invalid empty entity type."),
        ([("user", 0, "x"), ("user", 1, None)], 42, "cannot appear more than once"),
        ([("color", 0, "x")], 35, "Unsupported entity type color"),
        ([("user", 0, None)], 42, "MATCH_TYPE_EXACT, but set match string to null"),
        ([("user", 1, "x")], 42, "MATCH_TYPE_DEFAULT, but also specified"),
        ([("user", 2, "x")], 42, "MATCH_TYPE_SPECIFIED, but also specified"),
        ([("user", 3, None)], 42, "Unknown match type 3"),
        ([("user", 2, None), ("ip", 2, None)], 42, "Invalid entity filter component combination"),
    ],
)
def test_filters_that_make_no_sense(
    broker: Metered, components: Any, code: int, words: str
) -> None:
    told, message = broker.described(*components)
    assert told == code
    assert words in message


def test_tenants_have_their_own(broker: Metered) -> None:
    acme = broker.as_user("alice", "acme")
    assert broker.alter(ALICE, ("producer_byte_rate", 1.0), connection=acme) == (0, None)
    assert broker.described() == {}
    assert set(broker.described(connection=acme)) == {ALICE}
    broker.create_topic("orders")
    response = broker.produce("orders", [bytes(100_000)], connection=broker.as_user("alice"))
    assert response.response.throttle_time_ms == 0


def test_who_may_not_is_told_so(broker: Metered) -> None:
    image = broker.services.store.read()
    closed = PutTenant(TenantImage("acme", "acme-cluster"))
    image = broker.services.store.apply((closed,), image.version, "close")
    broker.services.apply_image(image, broker.now_ms)
    acme = broker.as_user("bob", "acme")
    assert broker.alter(ALICE, ("producer_byte_rate", 1.0), connection=acme)[0] == 31
    assert broker.described(connection=acme)[0] == 31


def test_below_their_level_there_are_none() -> None:
    player = AdminPlayer()
    request = AlterClientQuotasRequest(entries=[entry(ALICE, ("producer_byte_rate", 1.0))])
    (result,) = player.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, request).entries
    assert (result.error_code, result.error_message) == (
        35,
        "Client quotas need metadata.version 3",
    )


# What they do


def test_the_most_special_quota_holds() -> None:
    quotas = {
        QuotaEntity(user, client): {"producer_byte_rate": float(number)}
        for number, (user, client) in enumerate(
            [
                ("alice", "app"),
                ("alice", ""),
                ("alice", None),
                ("", "app"),
                ("", ""),
                ("", None),
                (None, "app"),
                (None, ""),
            ]
        )
    }
    for number, entity in enumerate(list(quotas)):
        found = matching_quota(quotas, "producer_byte_rate", "alice", "app")
        assert found == (float(number), entity)
        del quotas[entity]
    assert matching_quota(quotas, "producer_byte_rate", "alice", "app") is None
    # Each key by itself.
    mixed = {
        QuotaEntity("alice", None): {"request_percentage": 1.0},
        QuotaEntity(None, ""): {"producer_byte_rate": 2.0},
    }
    found = matching_quota(mixed, "producer_byte_rate", "alice", "app")
    assert found == (2.0, QuotaEntity(None, ""))


def test_who_shares_a_quota(broker: Metered) -> None:
    table = ClientLimitTable(Windows(), Windows())
    rate = {"producer_byte_rate": 100.0}

    def limit(user: str, client: str, tenant: str = "default") -> Any:
        return table.of(tenant, user, client, 0).produce

    table.set_quotas({"default": {QuotaEntity("", None): rate}})
    assert limit("alice", "a") is limit("alice", "b")
    assert limit("alice", "a") is not limit("bob", "a")
    assert limit("alice", "a", "acme") is None
    first = limit("alice", "a")
    table.set_quotas({"default": {QuotaEntity("", None): {"producer_byte_rate": 5.0}}})
    assert limit("alice", "a") is first
    assert first.bound == 5.0
    table.set_quotas({"default": {QuotaEntity(None, ""): rate}})
    assert limit("alice", "a") is limit("bob", "a")
    table.set_quotas({"default": {QuotaEntity("", ""): rate}})
    assert limit("alice", "a") is not limit("alice", "b")


def test_client_ids_are_free_and_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_limits, "CLIENTS_MAX", 100)
    table = ClientLimitTable(Windows(), Windows())
    values = {"producer_byte_rate": 1.0, "controller_mutation_rate": 1.0}
    table.set_quotas({"default": {QuotaEntity(None, ""): values}})
    for number in range(LIMITS_MAX + 500):
        limits = table.of("default", "alice", f"c{number}", 0)
        assert limits.produce is not None
        assert limits.mutation is not None
        limits.produce.record(1, 0)
        limits.mutation.take(1, 0)
    assert len(table) <= 2 * LIMITS_MAX
    # What is idle goes first.
    busy = table.of("default", "alice", "busy", 60_000).produce
    assert busy is not None
    busy.record(1, 60_000)
    for number in range(LIMITS_MAX):
        table.of("default", "bob", f"d{number}", 60_000)
    assert table.of("default", "alice", "busy", 60_000).produce is busy


def test_of_a_tenant_without_client_quotas_nothing_is_remembered() -> None:
    table = ClientLimitTable(Windows(), Windows())
    table.set_quotas({"acme": {QuotaEntity("", None): {"producer_byte_rate": 1.0}}})
    for number in range(50):
        assert table.of("default", "alice", f"c{number}", 0) is NO_LIMITS
    assert table.clients_count == 0
    table.of("acme", "alice", "c", 0)
    assert table.clients_count == 1
    table.set_quotas({"acme": {QuotaEntity("bob", None): {"producer_byte_rate": 1.0}}})
    assert table.of("acme", "alice", "c", 0) == NO_LIMITS


def test_whoever_shares_a_quota_has_the_same_limit_after_some_were_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_limits, "LIMITS_MAX", 20)
    table = ClientLimitTable(Windows(), Windows())
    table.set_quotas({"default": {QuotaEntity("", None): dict.fromkeys(QUOTA_KEYS, 1.0)}})
    for number in range(100):
        table.of("default", f"u{number}", "a", 0)
        for user in (f"u{number}", f"u{number // 2}"):
            table.of("default", user, "a", 0)
            other = table.of("default", user, "b", 0)
            assert table.of("default", user, "a", 0) == other
        assert table._limits.count <= 20
        assert table._mutations.count <= 20


def test_of_a_tenant_whose_client_quotas_are_gone_nothing_is_kept() -> None:
    table = ClientLimitTable(Windows(), Windows())
    quotas = {QuotaEntity("", None): dict.fromkeys(QUOTA_KEYS, 1.0)}
    table.set_quotas({"acme": quotas, "default": quotas})
    for tenant in ("acme", "default"):
        limit = table.of(tenant, "alice", "a", 0).produce
        assert limit is not None
        limit.record(1, 0)
    table.set_quotas({"acme": quotas})
    assert (len(table), table.clients_count) == (4, 1)
    table.set_quotas({})
    assert (len(table), table.clients_count) == (0, 0)


def test_a_change_of_client_quotas_leaves_other_tenants_alone(broker: Metered) -> None:
    followed_ms: list[int] = []
    broker.quotas.on_tenants_changed = followed_ms.append
    acme, mine = broker.as_user("alice", "acme"), broker.as_user("alice")
    rate = ("producer_byte_rate", 1.0)
    for connection in (acme, mine):
        assert broker.alter(ALICE, rate, connection=connection) == (0, None)
    table = broker.quotas._clients
    before = table.of("acme", "alice", "c", 0)
    assert broker.alter(ALICE, ("producer_byte_rate", 2.0), connection=mine) == (0, None)
    assert table.of("acme", "alice", "c", 0) is before
    assert followed_ms == []
    broker.make_tenant("other")
    assert len(followed_ms) == 1


def test_long_client_ids_are_told_apart_and_take_no_more_memory_than_short_ones() -> None:
    table = ClientLimitTable(Windows(), Windows())
    named = "n" * 32_000
    table.set_quotas(
        {
            "default": {
                QuotaEntity(None, ""): {"producer_byte_rate": 1.0},
                QuotaEntity(None, named): {"producer_byte_rate": 2.0},
            }
        }
    )
    prefix = "x" * 32_000
    tracemalloc.start()
    try:
        limits = [table.of("default", "alice", f"{prefix}{number}", 0) for number in range(500)]
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 4_000_000
    assert len({id(each.produce) for each in limits}) == 500
    assert table.of("default", "alice", f"{prefix}7", 0) is limits[7]
    by_name = table.of("default", "alice", named, 0).produce
    assert by_name is not None
    assert by_name.bound == 2.0


def test_client_ids_of_one_tenant_do_not_have_others_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_limits, "CLIENTS_MAX", 100)
    monkeypatch.setattr(client_limits, "LIMITS_MAX", 200)
    table = ClientLimitTable(Windows(), Windows())
    values = {"producer_byte_rate": 1.0, "controller_mutation_rate": 1.0}
    quotas = {QuotaEntity(None, ""): values}
    table.set_quotas({"acme": quotas, "default": quotas})

    def busy(tenant: str, client_id: str) -> ClientLimits:
        limits = table.of(tenant, "alice", client_id, 0)
        assert limits.produce is not None
        assert limits.mutation is not None
        limits.produce.record(1, 0)
        limits.mutation.take(1, 0)
        return limits

    theirs = [busy("acme", f"c{number}") for number in range(40)]
    for number in range(1000):
        busy("default", f"c{number}")
        assert table.clients_count <= 100
        assert len(table) <= 2 * 200
    for number, limits in enumerate(theirs):
        assert table.of("acme", "alice", f"c{number}", 0) == limits
    # A change of quotas has everything looked up again, and what is used stays.
    table.set_quotas({"acme": quotas})
    for number, limits in enumerate(theirs):
        assert table.of("acme", "alice", f"c{number}", 0).produce is limits.produce


def test_a_produce_over_the_rate_of_its_user_waits_as_kafka_has_it(broker: Metered) -> None:
    broker.create_topic("orders")
    broker.alter(ALICE, ("producer_byte_rate", 1000.0))
    alice = broker.as_user("alice")
    first = broker.produce("orders", [bytes(8_000)], connection=alice).response
    assert first.throttle_time_ms == 0
    second = broker.produce("orders", [bytes(8_000)], connection=alice).response
    # twice 8,000 and some over 10 s: 600 B/s too much, for 10 s.
    assert only(second).error_code == 0
    assert 6_000 <= second.throttle_time_ms <= 6_600
    assert broker.muted_ms == [second.throttle_time_ms]
    # Others do not wait, and neither do other brokers.
    bob = broker.as_user("bob")
    assert broker.produce("orders", [bytes(8_000)], connection=bob).response.throttle_time_ms == 0
    broker.pass_time(11_000)
    third = broker.produce("orders", [b"a"], connection=alice).response
    assert third.throttle_time_ms == 0
    why = broker.quotas.throttled["produce"]
    assert why.count == len(broker.muted_ms)
    assert why.duration_ms == sum(broker.muted_ms)


def test_a_fetch_over_its_quota_gets_an_empty_answer_that_does_not_count(broker: Metered) -> None:
    broker.create_topic("orders")
    for _ in range(8):
        broker.produce("orders", [bytes(2_000)])
    broker.alter(DEFAULT_CLIENT, ("consumer_byte_rate", 1000.0))
    sent = 0
    for _ in range(5):
        response = broker.fetch({("orders", 0): sent // 2_000}, partition_max_bytes=3_000).response
        if response.throttle_time_ms:
            break
        sent += len(only(response).records)
    assert response.responses == []
    # An answer has at most what ten seconds allow; the one that would be beyond has to wait.
    assert 8_000 <= sent <= 10_000
    wait_ms = response.throttle_time_ms
    again = broker.fetch({("orders", 0): 0}, partition_max_bytes=3_000).response
    assert again.throttle_time_ms == wait_ms
    broker.pass_time(11_000)
    assert values_of(only(broker.fetch({("orders", 0): 0}).response).records)


def test_an_answer_has_what_its_quota_allows_in_all_windows(broker: Metered) -> None:
    broker.create_topic("orders")
    for _ in range(20):
        broker.produce("orders", [bytes(1_000)])
    broker.alter(DEFAULT_CLIENT, ("consumer_byte_rate", 500.0))
    response = broker.fetch({("orders", 0): 0}).response
    assert response.throttle_time_ms == 0
    assert 3_000 <= len(only(response).records) <= 5_000


def test_time_of_the_loop_counts_and_is_waited_for_one_window_at_most(broker: Metered) -> None:
    broker.create_topic("orders")
    broker.alter(ALICE, ("request_percentage", 1.0))
    alice = broker.as_user("alice")

    def busy_clock() -> int:
        broker.clock_ns += 60_000_000
        return broker.clock_ns

    assert broker.produce("orders", [b"a"], connection=alice).response.throttle_time_ms == 0
    broker.quotas.clock_ns = busy_clock
    # 60 ms each: 0.6 % of 10 s.
    assert broker.produce("orders", [b"a"], connection=alice).response.throttle_time_ms == 0
    assert broker.produce("orders", [b"a"], connection=alice).response.throttle_time_ms == 0
    waited = broker.produce("orders", [b"a"], connection=alice).response.throttle_time_ms
    # 1.2 %, so 0.2 of 10 s, but never more than a window.
    assert waited == 1000
    assert waited_for(broker.quotas) == {"request"}


@pytest.mark.parametrize(("version", "is_strict"), [(6, True), (5, False)])
def test_making_topics_is_refused_or_waited_for(
    broker: Metered, version: int, is_strict: bool
) -> None:
    broker.alter((("user", None),), ("controller_mutation_rate", 1.0))
    # The bucket has 11 s of it, and goes below zero once.
    codes = []
    for number in range(4):
        (result,) = broker.create(new_topic(f"t{number}", 6), version=version)
        codes.append(result.error_code)
    assert codes == ([0, 0, THROTTLED, THROTTLED] if is_strict else [0] * 4)
    # 12 of 11: a second; each that is made beyond is paid for, too.
    assert broker.muted_ms == ([1000, 1000] if is_strict else [1000, 7000, 13_000])
    assert waited_for(broker.quotas) == {"mutation"}
    broker.pass_time(20_000)
    (result,) = broker.create(new_topic("later"), version=version)
    assert result.error_code == 0


def test_partitions_and_deletions_are_mutations(broker: Metered) -> None:
    broker.create_topic("orders", 2)
    broker.create_topic("pay", 20)
    broker.alter((("user", None),), ("controller_mutation_rate", 1.0))
    grown = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="orders", count=14, assignments=None)], timeout_ms=1000
    )
    (result,) = broker.ask(ApiKey.CREATE_PARTITIONS, 3, grown).results
    assert result.error_code == 0
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="pay")], timeout_ms=1000)
    response = broker.ask(ApiKey.DELETE_TOPICS, 6, gone)
    (deleted,) = response.responses
    assert deleted.error_code == THROTTLED
    assert response.throttle_time_ms == 1000
    broker.pass_time(1100)
    (deleted,) = broker.ask(ApiKey.DELETE_TOPICS, 6, gone).responses
    assert deleted.error_code == 0


def test_a_broker_without_quotas_asks_nothing(broker: Metered) -> None:
    assert not broker.quotas.is_active
    broker.alter(ALICE, ("producer_byte_rate", 1.0))
    assert broker.quotas.is_active
    broker.alter(ALICE, ("producer_byte_rate", None))
    assert not broker.quotas.is_active


def test_a_quota_is_there_from_the_first_image_on() -> None:
    image = MetadataImage(
        "cluster",
        features=NEW_CELL.features,
        client_quotas={"default": {QuotaEntity(None, ""): {"producer_byte_rate": 1.0}}},
    )
    player = AdminPlayer()
    player.services.image = image
    assert BrokerQuotas(player.services, *[lambda: 0] * 3).is_active
