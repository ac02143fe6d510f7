"""Who sees the cell as it is: its brokers and disks, and everybody's topics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from data_plane.broker.admin.describe_configs import SHOWN_TO_ALL
from data_plane.broker.admin.log_dirs import VIRTUAL_DIRECTORY
from data_plane.broker.config.broker_definitions import BROKER_DEFINITIONS
from data_plane.broker.request.namespaces import CellTopics, Held
from data_plane.broker.request.principal import Principal
from data_plane.cell.changes import ChangeBroker
from data_plane.cell.tenants import DeleteTenant
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.describe_log_dirs_response import DescribeLogDirsResult
from data_plane.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from data_plane.wire.registry import ApiKey
from tests.broker.broker_player import NODE_ID
from tests.broker.namespace_player import SECOND, Client, NamespacePlayer
from tests.broker.test_namespaces import (
    OTHER_NODE_ID,
    by_ids,
    created,
    deleted,
    described_configs,
    elected,
    fetched,
    log_dirs,
    moved_dirs,
    named,
    pages,
    produced,
    reassigned,
    reassignments,
)

BROKER, BROKER_LOGGER = 4, 8
THEIRS = f"{SECOND}/x"


class World:
    """A cell with an operator, in which `default` and the second tenant have a topic `x` each."""

    def __init__(self, operators: str = "User:root; User:operator") -> None:
        self.player = NamespacePlayer({"cell.operators": operators})
        self.ids: list[UUID] = []
        for client in (self.player.first, self.player.second):
            made = client.ask(ApiKey.CREATE_TOPICS, 7, created("x"))
            self.ids.append(made.topics[0].topic_id)
        self.player.register(OTHER_NODE_ID)

    def client(self, principal: str, tenant: str = "default") -> Client:
        connection = self.player.connect()
        connection.principal, connection.namespace = Principal("User", principal), tenant
        return Client(self.player, connection)

    def replicas_of(self, tenant: str) -> tuple[int, ...]:
        return self.player.services.image.topics_of(tenant)["x"].partitions[0].replicas


@pytest.fixture
def world() -> World:
    return World()


def to_the_other(name: str) -> Any:
    request = reassigned(name)
    request.topics[0].partitions[0].replicas = [OTHER_NODE_ID]
    return request


def test_an_operator_moves_a_tenants_replicas(world: World) -> None:
    operator = world.client("operator")
    answer = operator.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, to_the_other(THEIRS))
    (topic,) = answer.responses
    assert (topic.name, topic.partitions[0].error_code) == (THEIRS, 0)
    assert OTHER_NODE_ID in world.replicas_of(SECOND)
    assert world.replicas_of("default") == (NODE_ID,)
    for asked in (reassignments(), reassignments(THEIRS)):
        (moving,) = operator.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, asked).topics
        assert (moving.name, moving.partitions[0].adding_replicas) == (THEIRS, [OTHER_NODE_ID])
    assert operator.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, reassignments("x")).topics == []
    # To the tenant nothing is being moved.
    for client in (world.player.second, world.player.first):
        for asked in (reassignments(), reassignments("x")):
            assert client.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, asked).topics == []


def test_an_operator_finds_every_topic_by_a_name_that_no_other_can_have(world: World) -> None:
    operator = world.client("operator")
    names = ["x", THEIRS, "default/x", "nobody/x", f"{SECOND}/", f"{SECOND}/x/x", "/x"]
    metadata = operator.ask(ApiKey.METADATA, 13, named(names, creates=True))
    outcomes = {topic.name: topic.error_code for topic in metadata.topics}
    assert [name for name, code in outcomes.items() if code == 0] == ["x", THEIRS]
    assert {topic.name: topic.topic_id for topic in metadata.topics if not topic.error_code} == {
        "x": world.ids[0],
        THEIRS: world.ids[1],
    }
    page = operator.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, pages(*names))
    assert {topic.name for topic in page.topics if not topic.error_code} == {"x", THEIRS}
    # A topic cannot be given such a name.
    made = operator.ask(ApiKey.CREATE_TOPICS, 7, created(THEIRS)).topics[0]
    assert made.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    # Lists for clients are of the topics that can be read.
    for answer in (
        operator.ask(ApiKey.METADATA, 13, named(None)),
        operator.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, pages()),
    ):
        assert [topic.name for topic in answer.topics] == ["x"]


def test_an_operator_does_not_touch_what_tenants_have_in_their_topics(world: World) -> None:
    operator = world.client("operator")
    theirs = world.ids[1]
    for version in (12, 13):
        (topic,) = operator.ask(
            ApiKey.PRODUCE, version, produced(version, THEIRS, theirs, b"no")
        ).responses
        assert topic.partition_responses[0].error_code in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
        )
        (topic,) = operator.ask(ApiKey.FETCH, version, fetched(version, THEIRS, theirs)).responses
        assert topic.partitions[0].error_code in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
        )
    (topic,) = operator.ask(ApiKey.DELETE_TOPICS, 6, deleted(6, THEIRS)).responses
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (topic,) = operator.ask(ApiKey.METADATA, 13, by_ids(theirs)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    (result,) = described(operator, 2, THEIRS)
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_an_operator_elects_leaders_of_everybody_and_sees_everybodys_sizes(world: World) -> None:
    operator = world.client("operator")
    answer = operator.ask(ApiKey.ELECT_LEADERS, 2, elected())
    assert {result.topic for result in answer.replica_election_results} == {"x", THEIRS}
    answer = operator.ask(ApiKey.ELECT_LEADERS, 2, elected(THEIRS))
    (result,) = answer.replica_election_results
    outcomes = [each.error_code for each in result.partition_result]
    assert outcomes == [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    (directory,) = operator.ask(ApiKey.DESCRIBE_LOG_DIRS, 5, log_dirs()).results
    assert {topic.name for topic in directory.topics} == {"x", THEIRS}
    (topic,) = operator.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, moved_dirs(THEIRS)).results
    assert topic.partitions[0].error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_what_is_in_an_operators_way_is_named(world: World) -> None:
    operator = world.client("operator")
    for tenant in ("default", SECOND):
        assert world.replicas_of(tenant) == (NODE_ID,)
    topic = world.player.services.image.topics_of("default")["x"]
    world.player.delete_topic(topic.topic_id)
    fence(world, NODE_ID)
    request = UnregisterBrokerRequest(broker_id=NODE_ID)
    assert THEIRS in operator.ask(ApiKey.UNREGISTER_BROKER, 0, request).error_message


def fence(world: World, node_id: int) -> None:
    broker = world.player.services.image.brokers[node_id]
    world.player.commit(ChangeBroker(replace(broker, is_fenced=True)))


def described(client: Client, kind: int, name: str) -> list[Any]:
    results: list[Any] = client.ask(
        ApiKey.DESCRIBE_CONFIGS, 4, described_configs(kind, name)
    ).results
    return results


def others(world: World) -> list[Client]:
    return [
        world.player.first,
        world.player.second,
        world.client("operator", SECOND),
        world.client("root", SECOND),
    ]


def test_who_is_no_operator_is_shown_some_properties_of_brokers(world: World) -> None:
    assert set(BROKER_DEFINITIONS) >= SHOWN_TO_ALL
    (whole,) = described(world.client("operator"), BROKER, str(NODE_ID))
    values = {config.name: config.value for config in whole.configs}
    assert "cell.operators" in values
    for client in others(world)[:2]:
        (shown,) = described(client, BROKER, str(NODE_ID))
        assert {config.name for config in shown.configs} == SHOWN_TO_ALL
        for config in shown.configs:
            assert (config.read_only, config.config_source) == (True, 5)
            assert config.value == values[config.name]
        (for_all,) = described(client, BROKER, "")
        assert (for_all.error_code, for_all.configs) == (0, [])
        (loggers,) = described(client, BROKER_LOGGER, str(NODE_ID))
        assert loggers.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        (unknown,) = described(client, BROKER, "77")
        assert unknown.error_code == ErrorCode.INVALID_REQUEST


def test_who_is_no_operator_sees_one_directory_with_his_own(world: World) -> None:
    assert [result.log_dir for result in sizes(world.client("operator"))] != [VIRTUAL_DIRECTORY]
    for client in others(world)[:2]:
        client.ask(ApiKey.PRODUCE, 12, produced(12, "x", world.ids[0], b"v" * 1000))
        (directory,) = sizes(client)
        assert directory.log_dir == VIRTUAL_DIRECTORY
        assert (directory.total_bytes, directory.usable_bytes) == (-1, -1)
        (topic,) = directory.topics
        assert topic.name == "x"
        partitions = [(each.partition_index, each.partition_size) for each in topic.partitions]
        assert [index for index, _ in partitions] == [0, 1]
        assert partitions[0][1] > 1000


def sizes(client: Client) -> list[DescribeLogDirsResult]:
    results: list[DescribeLogDirsResult] = client.ask(
        ApiKey.DESCRIBE_LOG_DIRS, 5, log_dirs()
    ).results
    return results


def test_an_operator_is_one_of_default_alone(world: World) -> None:
    for client in others(world):
        answer = client.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, to_the_other(THEIRS))
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert world.replicas_of(SECOND) == (NODE_ID,)


def test_without_operators_default_sees_the_brokers_and_its_own_topics() -> None:
    world = World(operators="")
    client = world.player.first
    answer = client.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, to_the_other(THEIRS))
    code = answer.responses[0].partitions[0].error_code
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (directory,) = sizes(client)
    assert directory.log_dir != VIRTUAL_DIRECTORY
    assert [topic.name for topic in directory.topics] == ["x"]
    (whole,) = described(client, BROKER, str(NODE_ID))
    assert "cell.operators" in {config.name for config in whole.configs}


def test_topics_of_a_tenant_that_is_gone_are_not_found(world: World) -> None:
    topics = CellTopics(Held(world.player.services.image))
    assert topics.by_name(THEIRS) is not None
    assert set(topics.by_names()) == {"x", THEIRS}
    world.player.delete_topic(world.ids[1])
    world.player.commit(DeleteTenant(SECOND))
    topics = topics.within(world.player.services.image)
    assert topics.by_name(THEIRS) is None
    assert topics.by_id(world.ids[1]) is None
