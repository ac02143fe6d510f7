"""Tenants of one broker: what is one's is nobody else's, and they come and go with the image.

What a tenant is told in every version of every API is test_namespaces.py's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from data_plane.broker.request.api import CloseConnection
from data_plane.cell.changes import ChangePartition
from data_plane.cell.partition_state import next_epochs
from data_plane.cell.tenants import DeleteTenant, TenantImage
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages import alter_configs_request, incremental_alter_configs_request
from data_plane.wire.messages.describe_cluster_request import DescribeClusterRequest
from data_plane.wire.messages.list_groups_request import ListGroupsRequest
from data_plane.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from data_plane.wire.messages.update_features_request import UpdateFeaturesRequest
from data_plane.wire.registry import ApiKey
from tests.broker.namespace_player import SECOND, Client, NamespacePlayer
from tests.broker.test_namespaces import (
    by_ids,
    coordinators,
    created,
    fetched,
    moved_dirs,
    named,
    produced,
    reassigned,
)
from tests.groups.requests import commit, fetch, join


def test_the_default_tenant_has_no_part_in_what_is_another_ones() -> None:
    player = NamespacePlayer()
    made = player.second.ask(ApiKey.CREATE_TOPICS, 7, created("x"))
    topic_id = made.topics[0].topic_id
    player.second.ask(ApiKey.FIND_COORDINATOR, 6, coordinators(6, "g"))
    player.second.ask(ApiKey.JOIN_GROUP, 9, join("g"))
    ask = player.first.ask
    everything = ask(ApiKey.METADATA, 13, named(None))
    assert [topic.name for topic in everything.topics] == ["__consumer_offsets"]
    (topic,) = ask(ApiKey.METADATA, 13, by_ids(topic_id)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    (topic,) = ask(ApiKey.PRODUCE, 13, produced(13, "x", topic_id, b"no")).responses
    assert topic.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    (topic,) = ask(ApiKey.FETCH, 13, fetched(13, "x", topic_id)).responses
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    (topic,) = ask(ApiKey.PRODUCE, 12, produced(12, "x", topic_id, b"no")).responses
    assert topic.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).groups == []
    assert player.partition("x", tenant=SECOND).log.log_end_offset == 0


def test_a_tenant_has_no_internal_topics() -> None:
    player = NamespacePlayer()
    player.first.ask(ApiKey.FIND_COORDINATOR, 6, coordinators(6, "g"))
    assert player.services.image.topic("default", "__consumer_offsets") is not None
    (topic,) = player.second.ask(ApiKey.METADATA, 13, named(["__consumer_offsets"])).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not topic.is_internal


def test_tenants_come_and_go_with_the_image() -> None:
    player = NamespacePlayer()
    player.make_tenant("third")
    client = player.client_of("third")
    assert client.ask(ApiKey.METADATA, 13, named(None)).topics == []
    player.commit(DeleteTenant("third"))
    with pytest.raises(CloseConnection, match="tenant third is no more"):
        client.send(ApiKey.METADATA, 13, named(None))
    # Nor was it there before it was made.
    with pytest.raises(CloseConnection, match="tenant fourth is no more"):
        player.client_of("fourth").send(ApiKey.METADATA, 13, named(None))


def test_no_log_is_opened_for_whoever_names_another_tenant_s_topic() -> None:
    player = NamespacePlayer()
    partitions = player.services.partitions
    for owner, stranger in ((player.second, player.first), (player.first, player.second)):
        topic_id = owner.ask(ApiKey.CREATE_TOPICS, 7, created("x")).topics[0].topic_id
        opened_count = len(partitions)
        (topic,) = stranger.ask(ApiKey.PRODUCE, 13, produced(13, "x", topic_id, b"no")).responses
        assert topic.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        for rack_id in ("", "rack"):
            request = fetched(13, "x", topic_id)
            request.rack_id = rack_id
            (topic,) = stranger.ask(ApiKey.FETCH, 13, request).responses
            assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert len(partitions) == opened_count
        # Nor is it found when it is open.
        (topic,) = owner.ask(ApiKey.PRODUCE, 13, produced(13, "x", topic_id, b"yes")).responses
        assert topic.partition_responses[0].error_code == ErrorCode.NONE
        assert len(partitions) == opened_count + 1
        (topic,) = stranger.ask(ApiKey.FETCH, 13, fetched(13, "x", topic_id)).responses
        assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        (topic,) = stranger.ask(ApiKey.PRODUCE, 13, produced(13, "x", topic_id, b"no")).responses
        assert topic.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_what_a_connection_reads_is_given_up_for_a_tenant_that_has_less() -> None:
    player = NamespacePlayer()
    kept = player.services.fetches.kept
    kept.budget.max = 2
    for client in (player.first, player.second):
        client.ask(ApiKey.CREATE_TOPICS, 7, created("x"))
    greedy = [player.client_of("default") for _ in range(3)]

    def poll(client: Client) -> Any:
        (topic,) = client.ask(ApiKey.FETCH, 12, fetched(12, "x", UUID(int=0))).responses
        return topic.partitions[0].error_code

    for client in greedy:
        assert poll(client) == ErrorCode.NONE
    assert kept.budget.of("default").used == 2
    waiting = fetched(12, "x", UUID(int=0))
    waiting.max_wait_ms = 60_000
    pending = greedy[0].send(ApiKey.FETCH, 12, waiting)
    assert not pending.is_answered
    # It is given up, and counts until it is answered.
    assert poll(player.second) == ErrorCode.NONE
    assert kept.budget.of(SECOND).used == 0
    player.produce("x", [b"v"])
    assert greedy[0].take(pending).responses[0].partitions[0].records
    assert poll(player.second) == ErrorCode.NONE
    shares = [kept.budget.of(name).used for name in ("default", SECOND)]
    assert shares == [1, 1]
    for client in greedy:
        assert poll(client) == ErrorCode.NONE
    assert [kept.budget.of(name).used for name in ("default", SECOND)] == shares


def test_a_tenant_is_told_its_own_cluster_id() -> None:
    player = NamespacePlayer()
    for client, cluster_id in ((player.first, "cluster"), (player.second, "second-cluster")):
        assert client.ask(ApiKey.METADATA, 13, named([])).cluster_id == cluster_id
        answer = client.ask(ApiKey.DESCRIBE_CLUSTER, 2, DescribeClusterRequest())
        assert answer.cluster_id == cluster_id
    # It was deleted and made anew, which this broker hears of at once.
    tenants = {**player.services.image.tenants, SECOND: TenantImage(SECOND, "another")}
    image = replace(player.services.image, version=1_000, tenants=tenants)
    player.services.apply_image(image, player.now_ms)
    player.run_jobs()
    assert player.services.namespaces.names[SECOND].cluster_id == "another"


def test_what_tenants_have_committed_is_theirs_after_a_failover() -> None:
    player = NamespacePlayer()
    for client, offset in ((player.first, 7), (player.second, 9)):
        client.ask(ApiKey.CREATE_TOPICS, 7, created("x"))
        client.ask(ApiKey.FIND_COORDINATOR, 6, coordinators(6, "g"))
        offsets: Any = {("x", 0): offset}
        answer = client.ask(ApiKey.OFFSET_COMMIT, 9, commit("g", offsets))
        assert answer.topics[0].partitions[0].error_code == 0
    topic = player.services.image.topics_of("default")["__consumer_offsets"]
    for index, old in enumerate(topic.partitions):
        change = next_epochs(old, old, is_fencing=True)
        player.commit(ChangePartition(topic.topic_id, index, change))
    for client, offset in ((player.first, 7), (player.second, 9)):
        (group,) = client.ask(ApiKey.OFFSET_FETCH, 9, fetch("g")).groups
        found = {each.name: each.partitions[0].committed_offset for each in group.topics}
        assert found == {"x": offset}
        listed = client.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).groups
        assert [each.group_id for each in listed] == ["g"]


def test_a_tenant_that_is_made_anew_finds_no_group_of_the_one_before() -> None:
    player = NamespacePlayer()
    found = []
    for _ in range(2):
        player.make_tenant("third")
        client = player.client_of("third")
        client.ask(ApiKey.CREATE_TOPICS, 7, created("x"))
        client.ask(ApiKey.FIND_COORDINATOR, 6, coordinators(6, "g"))
        client.ask(ApiKey.FIND_COORDINATOR, 6, coordinators(6, "joined"))
        listed = client.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).groups
        (group,) = client.ask(ApiKey.OFFSET_FETCH, 9, fetch("g")).groups
        found.append((listed, group.topics))
        offsets: Any = {("x", 0): 7}
        client.ask(ApiKey.OFFSET_COMMIT, 9, commit("g", offsets))
        client.ask(ApiKey.JOIN_GROUP, 9, join("joined"))
        (group,) = client.ask(ApiKey.OFFSET_FETCH, 9, fetch("g")).groups
        assert [topic.name for topic in group.topics] == ["x"]
        player.delete_topic(player.services.image.topics_of("third")["x"].topic_id)
        player.commit(DeleteTenant("third"))
    assert found == [([], []), ([], [])]


def test_offsets_that_a_crash_has_left_of_a_tenant_that_is_gone_are_deleted() -> None:
    player = NamespacePlayer()
    player.make_tenant("third")
    client = player.client_of("third")
    client.ask(ApiKey.CREATE_TOPICS, 7, created("x"))
    client.ask(ApiKey.FIND_COORDINATOR, 6, coordinators(6, "g"))
    offsets: Any = {("x", 0): 7}
    client.ask(ApiKey.OFFSET_COMMIT, 9, commit("g", offsets))
    tenant_id = player.services.image.tenants["third"].tenant_id
    service = player.services.groups
    assert service.coordinator.committed_offsets(tenant_id)
    # This broker does not coordinate while the tenant goes, and its topic and name come again.
    for partition in range(2):
        service.unload(partition, player.now_ms)
    player.delete_topic(player.services.image.topics_of("third")["x"].topic_id)
    player.commit(DeleteTenant("third"))
    player.make_tenant("third")
    client.ask(ApiKey.CREATE_TOPICS, 7, created("x"))
    topic = player.services.image.topics_of("default")["__consumer_offsets"]
    for index, old in enumerate(topic.partitions):
        change = next_epochs(old, old, is_fencing=True)
        player.commit(ChangePartition(topic.topic_id, index, change))
    assert client.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).groups == []
    assert service.coordinator.committed_offsets(tenant_id) == {}


def test_a_tenant_changes_nothing_of_the_cell_whoever_asks() -> None:
    """Its super users may do everything there is for a tenant."""
    player = NamespacePlayer()
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for client in (player.first, player.second):
        client.ask(ApiKey.CREATE_TOPICS, 7, created("x"))
    before = player.services.image
    requests: list[tuple[ApiKey, int, Any]] = [
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, reassigned("x")),
        (ApiKey.UPDATE_FEATURES, 1, UpdateFeaturesRequest()),
        (ApiKey.UNREGISTER_BROKER, 0, UnregisterBrokerRequest(broker_id=99)),
    ]
    for api_key, version, request in requests:
        assert player.second.ask(api_key, version, request).error_code == refused, api_key
        assert player.first.ask(api_key, version, request).error_code != refused, api_key
    (topic,) = player.second.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, moved_dirs("x")).results
    assert topic.partitions[0].error_code == refused
    for module, api_key in (
        (alter_configs_request, ApiKey.ALTER_CONFIGS),
        (incremental_alter_configs_request, ApiKey.INCREMENTAL_ALTER_CONFIGS),
    ):
        config = module.AlterableConfig(name="log.retention.ms", value="1")
        resource = module.AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
        kind = [getattr(module, name) for name in dir(module) if name.endswith("ConfigsRequest")]
        (answer,) = player.second.ask(api_key, 1, kind[0](resources=[resource])).responses
        assert answer.error_code == refused
    assert player.services.image is before
