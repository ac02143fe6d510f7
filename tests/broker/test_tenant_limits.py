"""What a tenant may have, counted: what would go beyond is refused, with limit and use; and what a
tenant that is not active may still do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from data_plane.broker.request.api import ConnectionInfo
from data_plane.broker.request.principal import Principal
from data_plane.broker.request.refusal import Refusal
from data_plane.broker.topics.requested_replicas import NewPartitions
from data_plane.cell.changes import Change
from data_plane.cell.metadata import TopicImage
from data_plane.cell.tenant_quotas import PutTenantQuotas, TenantQuotas
from data_plane.cell.tenants import PutTenantState
from data_plane.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from data_plane.wire.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from data_plane.wire.messages.create_topics_request import CreateTopicsRequest
from data_plane.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from data_plane.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from data_plane.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from data_plane.wire.registry import ApiKey
from tests.broker.admin_player import BROKER, SET, TOPIC, AdminPlayer, new_topic
from tests.broker.broker_player import NODE_ID, values_of
from tests.broker.test_produce import only
from tests.broker.test_scram_credentials import OK, ScramPlayer, drop, put

POLICY_VIOLATION, MESSAGE_TOO_LARGE = 44, 10


class Limited(AdminPlayer):
    """A broker with a tenant whose limits a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.make_tenant("acme")
        self.acme = self.connect()
        self.acme.authenticate(Principal("User", "alice"), "acme")

    def commit(self, *changes: Change) -> None:
        image = self.services.store.read()
        image = self.services.store.apply(changes, image.version, f"r{image.version}")
        self.services.apply_image(image, self.now_ms)

    def limit(self, tenant: str = "acme", **limits: Any) -> None:
        self.commit(PutTenantQuotas(tenant, TenantQuotas(**limits)))

    def outcome(
        self, name: str, partitions: int, connection: ConnectionInfo | None = None
    ) -> tuple[int, str | None]:
        request = CreateTopicsRequest(topics=[new_topic(name, partitions)])
        response = self.ask(ApiKey.CREATE_TOPICS, 7, request, connection=connection or self.acme)
        (result,) = response.topics
        return result.error_code, result.error_message

    def grown(self, name: str, count: int) -> tuple[int, str | None]:
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
            timeout_ms=1000,
        )
        (result,) = self.ask(ApiKey.CREATE_PARTITIONS, 3, request, connection=self.acme).results
        return result.error_code, result.error_message


@pytest.fixture
def broker() -> Limited:
    return Limited()


def test_partitions_are_counted_whichever_way_they_come(broker: Limited) -> None:
    broker.limit(partitions=5)
    assert broker.outcome("a", 2) == (0, None)
    words = "The tenant has 2 partition(s), and may have 5: 4 more would be too many."
    assert broker.outcome("b", 4) == (POLICY_VIOLATION, words)
    assert broker.grown("a", 6) == (POLICY_VIOLATION, words)
    assert broker.grown("a", 4) == (0, None)
    assert broker.outcome("b", 1) == (0, None)
    assert broker.outcome("c", 1)[0] == POLICY_VIOLATION
    # Nobody else's business.
    assert broker.outcome("c", 9, broker.connection) == (0, None)
    # Who frees some has room again.
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="b")], timeout_ms=1000)
    (deleted,) = broker.ask(ApiKey.DELETE_TOPICS, 6, gone, connection=broker.acme).responses
    assert deleted.error_code == 0
    assert broker.outcome("c", 1) == (0, None)


def test_topics_of_one_request_are_counted_together(broker: Limited) -> None:
    broker.limit(partitions=3)
    request = CreateTopicsRequest(topics=[new_topic(name, 2) for name in ("a", "b")])
    response = broker.ask(ApiKey.CREATE_TOPICS, 7, request, connection=broker.acme)
    assert [topic.error_code for topic in response.topics] == [0, POLICY_VIOLATION]


class CountedTopics(dict[str, TopicImage]):
    """Topics by name; remembers how many have been looked through."""

    looked_at = 0

    def __iter__(self) -> Iterator[str]:
        self.looked_at += len(self)
        return super().__iter__()

    def values(self) -> Any:
        self.looked_at += len(self)
        return super().values()


def test_what_a_tenant_has_is_counted_once_for_a_request(broker: Limited) -> None:
    broker.limit(partitions=1000)
    for number in range(20):
        broker.outcome(f"t{number}", 2)
    image = broker.services.store.read()
    topics = CountedTopics(image.topics_of("acme"))
    image = replace(image, topics_by_tenant={**image.topics_by_tenant, "acme": topics})
    new = NewPartitions(broker.services, image)
    for _ in range(500):
        with pytest.raises(Refusal):
            new.take_room("acme", 2000)
        new.take_room("acme", 1)
    assert topics.looked_at == len(topics)
    new.take_room("acme", 460)
    with pytest.raises(Refusal, match=r"The tenant has 1000 partition\(s\)"):
        new.take_room("acme", 1)


def test_topics_that_are_made_by_the_way_are_counted(broker: Limited) -> None:
    broker.limit(partitions=1)
    for name in ("a", "b"):
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
        )
        broker.ask(ApiKey.METADATA, 9, request, connection=broker.acme)
    assert set(broker.services.image.topics_of("acme")) == {"a"}


def test_a_batch_may_have_so_many_bytes(broker: Limited) -> None:
    broker.outcome("orders", 1)
    broker.limit(message_bytes=1000)
    response = broker.produce("orders", [bytes(900)], connection=broker.acme).response
    assert only(response).error_code == 0
    answer = only(broker.produce("orders", [bytes(1000)], connection=broker.acme).response)
    assert answer.error_code == MESSAGE_TOO_LARGE
    assert answer.error_message == (
        "The batch has 1070 bytes, and the tenant may send 1000 at most."
    )
    broker.limit()
    response = broker.produce("orders", [bytes(1000)], connection=broker.acme).response
    assert only(response).error_code == 0


@pytest.mark.parametrize("tenant", ["acme", "default"])
@pytest.mark.parametrize("state", ["read-only", "blocked", "deleting", "a later state"])
def test_a_tenant_that_is_not_active_takes_nothing_in(
    broker: Limited, tenant: str, state: str
) -> None:
    connection = broker.acme if tenant == "acme" else broker.connection
    assert broker.outcome("orders", 1, connection) == (0, None)
    broker.produce("orders", [b"a"], connection=connection)
    broker.commit(PutTenantState(tenant, state, "not paid"))
    words = f"The tenant is {state}: not paid"
    for version in (12, 13) if tenant == "default" else (12,):
        pending = broker.produce("orders", [b"b"], version=version, connection=connection)
        answer = only(pending.response)
        assert (answer.error_code, answer.error_message) == (POLICY_VIOLATION, words)
    assert broker.outcome("more", 1, connection) == (POLICY_VIOLATION, words)
    # What is there can be read, and goes.
    fetched = broker.fetch({("orders", 0): 0}, connection=connection).response
    assert values_of(only(fetched).records) == [(0, b"a")]
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=1000)
    (deleted,) = broker.ask(ApiKey.DELETE_TOPICS, 6, gone, connection=connection).responses
    assert deleted.error_code == 0
    if state != "deleting":
        broker.commit(PutTenantState(tenant, "active"))
        assert broker.outcome("more", 1, connection) == (0, None)


def test_acls_are_counted(broker: Limited) -> None:
    broker.limit(acls=2)

    def created(*names: str) -> list[tuple[int, Any]]:
        request = CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=2,
                    resource_name=name,
                    resource_pattern_type=3,
                    principal="User:bob",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
                for name in names
            ]
        )
        response = broker.ask(ApiKey.CREATE_ACLS, 3, request, connection=broker.acme)
        return [(one.error_code, one.error_message) for one in response.results]

    words = "The tenant has 2 ACLs, and may have 2."
    assert created("a") == [(0, None)]
    assert created("b", "c") == [(0, None), (POLICY_VIOLATION, words)]


def test_users_are_counted() -> None:
    broker = ScramPlayer()
    broker.commit(PutTenantQuotas("default", TenantQuotas(users=2)))
    assert broker.alter_users(put("alice")) == {"alice": OK}
    words = "The tenant has 2 users, and may have 2."
    assert broker.alter_users(put("bob"), put("carol")) == {
        "bob": OK,
        "carol": (POLICY_VIOLATION, words),
    }
    # Those that there are change their passwords, and make room.
    assert broker.alter_users(put("bob"), drop("alice")) == {"bob": OK, "alice": OK}
    assert broker.alter_users(put("carol")) == {"carol": OK}


# What operators allow


BOUNDS = (
    "segment.bytes=2097152..,min.insync.replicas=1..2,flush.messages=1000..,"
    "unclean.leader.election.enable=false,cleanup.policy=delete|compact,"
    "replication.factor=1,manual.assignment=false"
)


def made(broker: Limited, topic: Any, connection: ConnectionInfo | None = None) -> Any:
    request = CreateTopicsRequest(topics=[topic])
    response = broker.ask(ApiKey.CREATE_TOPICS, 7, request, connection=connection or broker.acme)
    (result,) = response.topics
    return result.error_code, result.error_message


@pytest.fixture
def bounded(broker: Limited) -> Limited:
    assert broker.alter(BROKER, "", ("tenant.topic.bounds", SET, BOUNDS)) == (0, None)
    return broker


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("segment.bytes", "2097151", "segment.bytes is 2097151, and tenants may have 2097152.."),
        ("min.insync.replicas", "3", "min.insync.replicas is 3, and tenants may have 1..2"),
        ("flush.messages", "1", "flush.messages is 1, and tenants may have 1000.."),
        (
            "unclean.leader.election.enable",
            "true",
            "unclean.leader.election.enable is true, and tenants may have false",
        ),
        (
            "cleanup.policy",
            "compact,delete",
            "cleanup.policy is compact,delete, and tenants may have delete|compact",
        ),
    ],
)
def test_what_operators_do_not_allow_is_refused(
    bounded: Limited, name: str, value: str, words: str
) -> None:
    wrong = new_topic("orders", configs={name: value})
    assert made(bounded, wrong) == (POLICY_VIOLATION, words)
    assert made(bounded, new_topic("orders")) == (0, None)
    config = AlterableConfig(name=name, config_operation=SET, value=value)
    for dry in (True, False):
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(resource_type=TOPIC, resource_name="orders", configs=[config])
            ],
            validate_only=dry,
        )
        response = bounded.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request, connection=bounded.acme
        )
        (result,) = response.responses
        assert (result.error_code, result.error_message) == (POLICY_VIOLATION, words)
    # The operator's own topics are his business.
    assert made(bounded, wrong, bounded.connection) == (0, None)


def test_what_operators_allow_is_taken(bounded: Limited) -> None:
    configs = {
        "segment.bytes": "2097152",
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "FALSE",
        "cleanup.policy": "compact",
        "retention.ms": "5",
    }
    assert made(bounded, new_topic("orders", configs=configs)) == (0, None)


def test_where_replicas_are_operators_may_keep_to_themselves(bounded: Limited) -> None:
    manual = new_topic("orders", -1, -1, assignments=[(0, [NODE_ID])])
    words = "manual.assignment is true, and tenants may have false"
    assert made(bounded, manual) == (POLICY_VIOLATION, words)
    assert made(bounded, new_topic("orders")) == (0, None)
    assignment = CreatePartitionsAssignment(broker_ids=[NODE_ID])
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="orders", count=2, assignments=[assignment])],
        timeout_ms=1000,
    )
    response = bounded.ask(ApiKey.CREATE_PARTITIONS, 3, request, connection=bounded.acme)
    (result,) = response.results
    assert (result.error_code, result.error_message) == (POLICY_VIOLATION, words)
    assert bounded.grown("orders", 2) == (0, None)
    assert made(bounded, manual, bounded.connection) == (0, None)


@pytest.mark.parametrize("text", ["segment.bytes", "=1..2", "a=", "a=x..2", "a=1..y", "a=--5..2"])
def test_a_bound_that_cannot_be_read_is_refused(broker: Limited, text: str) -> None:
    code, message = broker.alter(BROKER, "", ("tenant.topic.bounds", SET, text))
    assert code != 0
    assert text in (message or "")
