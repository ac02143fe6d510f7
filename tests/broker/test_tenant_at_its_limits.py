"""A tenant that is at all of its limits at once, and takes all that it can get of what is shared:
it is told so each time, and another one on the same broker notices nothing of it."""

from __future__ import annotations

from typing import Any

import pytest

from data_plane.broker.cell.waiting_writes import WAITING_MAX, TooManyWaiting
from data_plane.broker.fetch.cold_reads import ANSWER_BYTES_MIN
from data_plane.broker.quotas.quota_manager import BrokerQuotas
from data_plane.broker.quotas.share_exchange import INTERVAL_MS, ShareExchange
from data_plane.broker.request.budget import Share
from data_plane.cell.authors import KAFKA_SOURCE, Author
from data_plane.cell.changes import AllocateProducerIds, Change
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.tenant_quotas import QUOTA_NAMES, PutTenantQuotas, TenantQuotas
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from data_plane.wire.messages.alter_configs_request import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from data_plane.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
)
from data_plane.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from data_plane.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from data_plane.wire.messages.create_topics_request import CreateTopicsRequest
from data_plane.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from data_plane.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from data_plane.wire.messages.incremental_alter_configs_request import (
    AlterableConfig as Alteration,
)
from data_plane.wire.messages.incremental_alter_configs_request import (
    AlterConfigsResource as AlteredResource,
)
from data_plane.wire.messages.incremental_alter_configs_request import (
    IncrementalAlterConfigsRequest,
)
from data_plane.wire.registry import ApiKey
from tests.broker.admin_player import SET, TOPIC, new_topic
from tests.broker.namespace_player import SECOND, NamespacePlayer
from tests.broker.test_produce import only
from tests.broker.test_scram_credentials import put
from tests.groups.requests import commit, join

FULL, TOO_MUCH = ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.INVALID_COMMIT_OFFSET_SIZE
POLICY, TOO_LARGE = ErrorCode.POLICY_VIOLATION, ErrorCode.MESSAGE_TOO_LARGE
LIMITS = TenantQuotas(
    produce_bytes_per_s=1_000,
    produce_floor_bytes_per_s=None,
    consume_bytes_per_s=1_000,
    consume_floor_bytes_per_s=None,
    requests_per_s=5,
    handler_ms_per_s=5,
    connections=2,
    connections_per_s=1,
    partitions=3,
    storage_bytes=3_000,
    groups=2,
    message_bytes=2_000,
    acls=1,
    users=1,
    committed_offsets=2,
    group_metadata_bytes=6_000,
)


class World(NamespacePlayer):
    """A broker with the tenants `default` and SECOND."""

    def __init__(self) -> None:
        super().__init__()
        services = self.services
        self._clock_ns = 0
        self.quotas = BrokerQuotas(services, lambda: self.now_ms, self._clock, self._clock)
        services.quotas = self.quotas
        exchange = ShareExchange(services, self.quotas, None, lambda: self.now_ms)
        self.quotas.on_tenants_changed = exchange.quotas_changed
        services.components.append(exchange)
        exchange.start(self.now_ms)
        # What somebody else's connections count in, for as long as they are there.
        self.held: list[Share] = []
        self.connections = {"default": self.connect(), SECOND: self.connect()}
        self.connections[SECOND].namespace = SECOND

    def _clock(self) -> int:
        """Each request takes two milliseconds."""
        self._clock_ns += 2_000_000
        return self._clock_ns

    def limit(self, limits: TenantQuotas) -> None:
        self.commit(PutTenantQuotas(SECOND, limits))
        self.pass_time(INTERVAL_MS)

    def call(self, tenant: str, api_key: ApiKey, version: int, request: Any) -> Any:
        client = self.client_of(tenant)
        return client.take(
            self.send(api_key, version, request, connection=self.connections[tenant])
        )

    # What a tenant does, and what comes of it.

    def make(self, tenant: str, name: str, partitions: int = 1) -> int:
        request = CreateTopicsRequest(topics=[new_topic(name, partitions)])
        return int(self.call(tenant, ApiKey.CREATE_TOPICS, 7, request).topics[0].error_code)

    def produced(self, tenant: str, size: int) -> Any:
        connection = self.connections[tenant]
        return self.produce("orders", [bytes(size)], connection=connection).response

    def fetched(self, tenant: str) -> Any:
        return self.fetch({("orders", 0): 0}, connection=self.connections[tenant]).response

    def grant(self, tenant: str, name: str) -> int:
        request = CreateAclsRequest(creations=[acl(name)])
        return int(self.call(tenant, ApiKey.CREATE_ACLS, 3, request).results[0].error_code)

    def add_user(self, tenant: str, name: str) -> int:
        request = AlterUserScramCredentialsRequest(upsertions=[put(name)])
        response = self.call(tenant, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request)
        return int(response.results[0].error_code)

    def joined(self, tenant: str, group_id: str, metadata: int = 10) -> int:
        request = join(group_id, protocols=[("range", bytes(metadata))])
        return int(self.call(tenant, ApiKey.JOIN_GROUP, 9, request).error_code)

    def committed(self, tenant: str, group_id: str, *partitions: int) -> int:
        offsets: Any = {("orders", each): 1 for each in partitions}
        response = self.call(tenant, ApiKey.OFFSET_COMMIT, 9, commit(group_id, offsets))
        (code,) = {int(each.error_code) for each in response.topics[0].partitions}
        return code


def acl(name: str) -> AclCreation:
    return AclCreation(
        resource_type=2,
        resource_name=name,
        resource_pattern_type=3,
        principal="User:bob",
        host="*",
        operation=3,
        permission_type=3,
    )


@pytest.fixture
def world() -> World:
    world = World()
    world.services.groups.topic.create()
    world.run_jobs()
    world.services.groups.tick(world.now_ms)
    for tenant in ("default", SECOND):
        assert world.make(tenant, "orders", 2) == 0
        assert world.committed(tenant, "g", 0) == 0
    return world


def reach_all(world: World) -> None:
    """Have the tenant at each of its limits, and refused beyond, in the way of that limit."""
    # Before its rates make it wait.
    assert [world.make(SECOND, name) for name in ("a", "b")] == [0, POLICY]
    assert [world.grant(SECOND, name) for name in ("a", "b")] == [0, POLICY]
    assert [world.add_user(SECOND, name) for name in ("alice", "bob")] == [0, POLICY]
    assert world.committed(SECOND, "g", 0) == 0
    assert world.committed(SECOND, "h", 0) == 0
    assert world.committed(SECOND, "i", 0) == TOO_MUCH
    assert world.joined(SECOND, "i") == FULL
    assert world.committed(SECOND, "g", 1) == TOO_MUCH
    assert world.joined(SECOND, "g", 6_000) == FULL
    assert only(world.produced(SECOND, 3_000)).error_code == TOO_LARGE
    while not only(world.produced(SECOND, 1_000)).error_code:
        world.pass_time(INTERVAL_MS)
    answer = world.produced(SECOND, 1_000)
    assert only(answer).error_code == POLICY
    assert answer.throttle_time_ms > 0
    assert any(world.fetched(SECOND).throttle_time_ms for _ in range(5))
    share = world.services.connections.of(SECOND)
    share.add(2)
    assert "may have 2" in world.quotas.why_no_connection(SECOND)
    assert any(world.quotas.owed_ms(SECOND) for _ in range(3))
    world.held.append(share)


def is_served(world: World, tenant: str, name: str) -> None:
    """It may do all that, and waits for nothing."""
    assert world.make(tenant, name) == 0
    assert world.grant(tenant, name) == 0
    assert world.add_user(tenant, name) == 0
    assert world.committed(tenant, name, 0) == 0
    assert world.joined(tenant, f"members of {name}") == ErrorCode.MEMBER_ID_REQUIRED
    answer = world.produced(tenant, 5_000)
    assert (only(answer).error_code, answer.throttle_time_ms) == (0, 0)
    answer = world.fetched(tenant)
    assert answer.throttle_time_ms == 0
    assert len(only(answer).records) > 5_000
    assert world.quotas.why_no_connection(tenant) == ""
    assert world.quotas.owed_ms(tenant) == 0


def test_one_tenant_at_all_of_its_limits_and_another_that_notices_nothing(world: World) -> None:
    unlimited = {"produce_floor_bytes_per_s", "consume_floor_bytes_per_s"}
    assert {name for name in QUOTA_NAMES if getattr(LIMITS, name) is None} == unlimited
    world.limit(LIMITS)
    reach_all(world)
    is_served(world, "default", "n1")
    # What is there goes on, and what is lifted holds no more.
    assert world.committed(SECOND, "g", 0) == 0
    world.limit(TenantQuotas())
    is_served(world, SECOND, "n2")


def test_what_is_shared_has_something_left_for_others_when_one_has_taken_all(
    world: World,
) -> None:
    services = world.services
    unsent = services.unsent
    share = unsent.of(SECOND)
    while share.take(max(1, share.left())):
        pass
    assert unsent.of("default").left() >= unsent.max // 4
    assert services.fetches.cold_reads.bytes_max(world.connections["default"]) > ANSWER_BYTES_MIN
    assert services.fetches.cold_reads.bytes_max(world.connections[SECOND]) == ANSWER_BYTES_MIN
    outcomes = fill_the_queue(world, 9)
    assert [type(outcome) for outcome in outcomes] == [TooManyWaiting] * 9
    kept = services.fetches.kept.budget.of(SECOND)
    kept.add(kept.left())
    is_served(world, "default", "n1")


def fill_the_queue(world: World, more: int = 0) -> list[BaseException | None]:
    """Have a change of the tenant under way, as many wait as may, and some more come; returns what
    becomes of them."""
    author = Author(KAFKA_SOURCE, SECOND, "User:alice")
    outcomes: list[BaseException | None] = []

    def decide(image: MetadataImage) -> list[Change]:
        return [AllocateProducerIds(image.next_producer_id, 1)]

    for _ in range(1 + WAITING_MAX + more):
        world.services.metadata.write(decide, outcomes.append, author=author)
    return outcomes


def two_of_each() -> list[tuple[ApiKey, int, str, Any]]:
    """Requests for two changes, with the name of the results in their answers."""
    configs = [("retention.ms", "1000")]
    quotas = [
        EntryData(
            entity=[EntityData(entity_type="user", entity_name=name)],
            ops=[OpData(key="producer_byte_rate", value=1_000.0)],
        )
        for name in ("alice", "bob")
    ]
    altered = [
        AlterConfigsResource(
            resource_type=TOPIC,
            resource_name=name,
            configs=[AlterableConfig(name=key, value=value) for key, value in configs],
        )
        for name in ("orders", "bills")
    ]
    altered_in_part = [
        AlteredResource(
            resource_type=TOPIC,
            resource_name=name,
            configs=[
                Alteration(name=key, config_operation=SET, value=value) for key, value in configs
            ],
        )
        for name in ("orders", "bills")
    ]
    every_acl = [
        DeleteAclsFilter(
            resource_type_filter=2,
            resource_name_filter=name,
            pattern_type_filter=3,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        for name in ("a", "b")
    ]
    more = [
        CreatePartitionsTopic(name=name, count=9, assignments=None) for name in ("orders", "bills")
    ]
    gone = [DeleteTopicState(name=name) for name in ("orders", "bills")]
    new = [new_topic("a", 1), new_topic("b", 1)]
    return [
        (ApiKey.ALTER_CLIENT_QUOTAS, 1, "entries", AlterClientQuotasRequest(entries=quotas)),
        (ApiKey.CREATE_TOPICS, 7, "topics", CreateTopicsRequest(topics=new)),
        (ApiKey.DELETE_TOPICS, 6, "responses", DeleteTopicsRequest(topics=gone)),
        (ApiKey.CREATE_PARTITIONS, 3, "results", CreatePartitionsRequest(topics=more)),
        (ApiKey.CREATE_ACLS, 3, "results", CreateAclsRequest(creations=[acl("a"), acl("b")])),
        (ApiKey.DELETE_ACLS, 3, "filter_results", DeleteAclsRequest(filters=every_acl)),
        (ApiKey.ALTER_CONFIGS, 2, "responses", AlterConfigsRequest(resources=altered)),
        (
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            "responses",
            IncrementalAlterConfigsRequest(resources=altered_in_part),
        ),
        (
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            0,
            "results",
            AlterUserScramCredentialsRequest(upsertions=[put("alice"), put("bob")]),
        ),
    ]


@pytest.mark.parametrize("asked", two_of_each(), ids=lambda asked: asked[0].name)
def test_a_change_too_many_is_answered_with_an_error_for_each_thing(
    world: World, asked: tuple[ApiKey, int, str, Any]
) -> None:
    api_key, version, results, request = asked
    assert world.make(SECOND, "bills") == 0
    before = world.services.image
    fill_the_queue(world)
    pending = world.send(api_key, version, request, connection=world.connections[SECOND])
    assert pending.is_answered, "it does not wait"
    codes = [result.error_code for result in getattr(pending.response, results)]
    assert codes == [ErrorCode.REQUEST_TIMED_OUT] * 2
    world.run_jobs()
    after = world.services.image
    assert after.version > before.version
    assert after.topics_of(SECOND) == before.topics_of(SECOND)
