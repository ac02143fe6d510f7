"""Two hundred tenants on one broker, each with users, topics and groups of the same names."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from data_plane.wire.messages.describe_acls_request import DescribeAclsRequest
from data_plane.wire.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
)
from data_plane.wire.messages.list_groups_request import ListGroupsRequest
from data_plane.wire.registry import ApiKey
from tests.broker.broker_player import values_of
from tests.broker.namespace_player import Client, NamespacePlayer
from tests.broker.test_namespaces import (
    EVERY_ACL,
    coordinators,
    created,
    fetched,
    granted,
    named,
    produced,
)
from tests.groups.requests import commit, fetch, join, sync

TENANTS = [f"tenant-{number}" for number in range(200)]
NO_ID = UUID(int=0)


class Tenant:
    """A client of one, and what it has there: more or less of it, by its number."""

    def __init__(self, player: NamespacePlayer, number: int) -> None:
        self.number = number
        self.name = TENANTS[number]
        player.make_tenant(self.name)
        self.client: Client = player.client_of(self.name)

    def make(self) -> None:
        ask = self.client.ask
        made = ask(ApiKey.CREATE_TOPICS, 7, created("orders", "pay.ments"))
        assert [topic.error_code for topic in made.topics] == [0, 0]
        value = self.name.encode()
        ask(ApiKey.PRODUCE, 12, produced(12, "orders", NO_ID, value))
        salted = ScramCredentialUpsertion(
            name="alice", mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
        )
        request = AlterUserScramCredentialsRequest(upsertions=[salted])
        (user,) = ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request).results
        assert user.error_code == 0
        # Of a topic that there is not: where an ACL is about one, only those that it allows see it.
        ask(ApiKey.CREATE_ACLS, 3, granted("ledger", "User:alice"))
        ask(ApiKey.FIND_COORDINATOR, 6, coordinators(6, "billing"))
        member_id = ask(ApiKey.JOIN_GROUP, 9, join("billing")).member_id
        joined = ask(ApiKey.JOIN_GROUP, 9, join("billing", member_id))
        assert joined.error_code == 0
        assigned = sync("billing", member_id, joined.generation_id, {member_id: value})
        assert ask(ApiKey.SYNC_GROUP, 5, assigned).assignment == value
        offsets: Any = {("orders", 0): self.number}
        committed = commit(
            "billing", offsets, member_id=member_id, generation_id=joined.generation_id
        )
        ask(ApiKey.OFFSET_COMMIT, 9, committed)

    def check(self) -> None:
        ask = self.client.ask
        everything = ask(ApiKey.METADATA, 12, named(None))
        assert sorted(topic.name for topic in everything.topics) == ["orders", "pay.ments"]
        (topic,) = ask(ApiKey.FETCH, 12, fetched(12, "orders", NO_ID)).responses
        assert values_of(topic.partitions[0].records) == [(0, self.name.encode())]
        groups = ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).groups
        assert [group.group_id for group in groups] == ["billing"]
        (group,) = ask(ApiKey.OFFSET_FETCH, 9, fetch("billing")).groups
        assert [each.partitions[0].committed_offset for each in group.topics] == [self.number]
        request = DescribeUserScramCredentialsRequest(users=None)
        users = ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, request).results
        assert [user.user for user in users] == ["alice"]
        (resource,) = ask(ApiKey.DESCRIBE_ACLS, 3, DescribeAclsRequest(**EVERY_ACL)).resources
        assert [acl.principal for acl in resource.acls] == ["User:alice"]


def lags(player: NamespacePlayer) -> dict[tuple[str, ...], float]:
    text = generate_latest(player.services.metrics).decode()
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        if family.name == "tidewheel_group_lag"
        for sample in family.samples
    }


def test_metrics_name_tenants_only_where_somebody_asks_for_it() -> None:
    for wanted in ("false", "true"):
        player = NamespacePlayer({"metrics.tenant.labels": wanted})
        for number in range(2):
            Tenant(player, number).make()
        player.first.ask(ApiKey.CREATE_TOPICS, 7, created("orders"))
        player.first.ask(ApiKey.OFFSET_COMMIT, 9, commit("billing", {("orders", 0): 0}))
        if wanted == "true":
            assert lags(player) == {
                ("billing", "default", "orders"): 0,
                ("billing", "tenant-0", "orders"): 1,
                ("billing", "tenant-1", "orders"): 0,
            }
        else:
            assert lags(player) == {("billing", "orders"): 0}
            assert b"tenant-" not in generate_latest(player.services.metrics)


def test_each_of_200_tenants_has_its_own() -> None:
    player = NamespacePlayer({"offsets.topic.num.partitions": "8"})
    tenants = [Tenant(player, number) for number in range(len(TENANTS))]
    for tenant in tenants:
        tenant.make()
    for tenant in tenants:
        tenant.check()
    image = player.services.image
    assert Counter(one.tenant for one in image.credentials.values()) == Counter(TENANTS)
    assert image.acls.keys() >= set(TENANTS)
    # One that goes takes nothing of others with it.
    gone = tenants[100].client.ask(ApiKey.METADATA, 12, named(["orders"])).topics[0]
    player.delete_topic(gone.topic_id)
    (topic_gone,) = tenants[100].client.ask(ApiKey.METADATA, 12, named(["orders"])).topics
    assert topic_gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (group,) = tenants[100].client.ask(ApiKey.OFFSET_FETCH, 9, fetch("billing")).groups
    assert group.topics == []
    for tenant in (*tenants[:5], tenants[99], tenants[101]):
        tenant.check()
