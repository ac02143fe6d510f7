"""Topics, elections, reassignments and metadata where there are several brokers.

What is marked "as Apache Kafka" was taken from Apache Kafka 4.3.1 with three nodes, one of them
stopped where the test says so, with the same raw requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from data_plane.cell.changes import AlterConfigs
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from data_plane.wire.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from data_plane.wire.messages.describe_cluster_request import DescribeClusterRequest
from data_plane.wire.messages.describe_producers_request import (
    DescribeProducersRequest,
)
from data_plane.wire.messages.describe_producers_request import (
    TopicRequest as ProducersTopic,
)
from data_plane.wire.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from data_plane.wire.messages.describe_topic_partitions_request import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from data_plane.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from data_plane.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from data_plane.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from data_plane.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from data_plane.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from data_plane.wire.registry import ApiKey
from tests.broker.admin_player import BROKER, BROKER_LOGGER, DELETE, SET, TOPIC, Outcome, new_topic
from tests.broker.broker_player import NODE_ID, make_batch
from tests.broker.cell_admin_player import CellAdminPlayer

E = ErrorCode
ALL = (1, 2, NODE_ID)


@pytest.fixture
def cell() -> CellAdminPlayer:
    return CellAdminPlayer()


# Creation


def test_replicas_and_leaders_are_spread_over_the_brokers(cell: CellAdminPlayer) -> None:
    cell.create(new_topic("t", 6, 3))
    assert all(sorted(replicas) == [1, 2, NODE_ID] for replicas in cell.replicas("t"))
    leaders = [cell.state("t", index).leader for index in range(6)]
    assert sorted(leaders) == [1, 1, 2, 2, NODE_ID, NODE_ID]


def test_topics_of_one_request_are_balanced_together(cell: CellAdminPlayer) -> None:
    cell.create(*(new_topic(f"t{number}", 1, 1) for number in range(6)))
    leaders = [cell.state(f"t{number}").leader for number in range(6)]
    assert sorted(leaders) == [1, 1, 2, 2, NODE_ID, NODE_ID]


@pytest.mark.parametrize("brokers", [(NODE_ID,), (1, NODE_ID), ALL, (*ALL, 8)])
def test_the_default_factor_is_three_or_what_there_is(brokers: tuple[int, ...]) -> None:
    cell = CellAdminPlayer(brokers=brokers)
    (result,) = cell.create(new_topic("t", -1, -1))
    assert result.replication_factor == min(3, len(brokers))


def test_a_default_factor_that_somebody_has_set_is_meant() -> None:
    cell = CellAdminPlayer({"default.replication.factor": "4"})
    assert cell.create_outcome(new_topic("t", -1, -1)) == (
        E.INVALID_REPLICATION_FACTOR,
        "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot "
        "be reached because only 3 broker(s) are registered or some brokers have all their log "
        "directories cordoned.",
    )


def test_a_topic_can_be_made_while_a_broker_is_away_as_apache_kafka(cell: CellAdminPlayer) -> None:
    cell.change_broker(2, is_fenced=True)
    cell.create(new_topic("t", 4, 3))
    for index in range(4):
        state = cell.state("t", index)
        assert sorted(state.replicas) == [1, 2, NODE_ID]
        assert state.leader == state.replicas[0] != 2
        assert state.replicas[2] == 2
        assert sorted(state.isr) == [1, NODE_ID]
    assert cell.create_outcome(new_topic("u", 1, 4))[0] == E.INVALID_REPLICATION_FACTOR
    (default,) = cell.create(new_topic("v", 1, -1))
    assert default.replication_factor == 2


def test_nothing_can_be_placed_where_all_are_fenced(cell: CellAdminPlayer) -> None:
    for node_id in ALL:
        cell.change_broker(node_id, is_fenced=True)
    code, message = cell.create_outcome(new_topic("t", 1, 1))
    assert code == E.INVALID_REPLICATION_FACTOR
    assert message is not None
    assert "currently fenced" in message


def test_manual_assignments_with_a_fenced_broker_as_apache_kafka(cell: CellAdminPlayer) -> None:
    cell.change_broker(2, is_fenced=True)
    assert cell.create_outcome(new_topic("h", -1, -1, [(0, [2])])) == (
        E.INVALID_REPLICA_ASSIGNMENT,
        "All brokers specified in the manual partition assignment for partition 0 are fenced or "
        "in controlled shutdown.",
    )
    cell.create(new_topic("i", -1, -1, [(0, [2, 1])]))
    state = cell.state("i")
    assert (state.replicas, state.isr, state.leader) == ((2, 1), (1,), 1)


def test_new_partitions_are_placed_like_the_first(cell: CellAdminPlayer) -> None:
    cell.create(new_topic("t", 1, 2))
    cell.change_broker(1, is_fenced=True)
    wanted = [CreatePartitionsTopic(name="t", count=3, assignments=None)]
    response = cell.ask(ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics=wanted))
    assert [result.error_code for result in response.results] == [0]
    for index in (1, 2):
        assert sorted(cell.state("t", index).replicas) == [2, NODE_ID]
    assignment = CreatePartitionsAssignment(broker_ids=[1, 2])
    wanted = [CreatePartitionsTopic(name="t", count=4, assignments=[assignment])]
    cell.ask(ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics=wanted))
    assert (cell.state("t", 3).isr, cell.state("t", 3).leader) == ((2,), 2)


def test_partitions_of_a_new_topic_have_equally_many_replicas(cell: CellAdminPlayer) -> None:
    assignments = [(0, [1, 2]), (1, [2, NODE_ID]), (2, [1])]
    code, message = cell.create_outcome(new_topic("t", -1, -1, assignments=assignments))
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert message == (
        "The manual partition assignment includes a partition with 1 replica(s), but this is not "
        "consistent with previous partitions, which have 2 replica(s)."
    )
    assignments = [(0, [1]), (1, [2, NODE_ID])]
    code, message = cell.create_outcome(new_topic("t", -1, -1, assignments=assignments))
    assert message == (
        "The manual partition assignment includes a partition with 2 replica(s), but this is not "
        "consistent with previous partitions, which have 1 replica(s)."
    )


def test_draining_and_stopping_brokers_get_nothing_new(cell: CellAdminPlayer) -> None:
    cell.change_broker(1, is_draining=True)
    cell.change_broker(2, in_controlled_shutdown=True)
    cell.create(new_topic("t", 3, -1))
    assert cell.replicas("t") == [(NODE_ID,)] * 3


# Metadata


def metadata(cell: CellAdminPlayer, name: str) -> tuple[list[int], int, Any]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    response = cell.ask(ApiKey.METADATA, 12, request)
    brokers = [broker.node_id for broker in response.brokers]
    return brokers, response.controller_id, response.topics[0].partitions[0]


def test_metadata_with_a_broker_away_as_apache_kafka(cell: CellAdminPlayer) -> None:
    cell.create(
        new_topic("a", -1, -1, [(0, [2, 1, NODE_ID])]), new_topic("only", -1, -1, [(0, [2])])
    )
    assert metadata(cell, "a")[0] == [1, 2, NODE_ID]
    cell.change_partition("a", isr=(1, NODE_ID), leader=1)
    cell.change_partition("only", isr=(), elr=(2,), leader=-1, last_known_leader=2)
    cell.change_broker(2, is_fenced=True)
    brokers, controller, one = metadata(cell, "a")
    assert (brokers, controller) == ([1, NODE_ID], NODE_ID)
    assert (one.error_code, one.leader_id, one.isr_nodes) == (0, 1, [1, NODE_ID])
    assert (one.replica_nodes, one.offline_replicas) == ([2, 1, NODE_ID], [2])
    _, _, one = metadata(cell, "only")
    assert (one.error_code, one.leader_id) == (E.LEADER_NOT_AVAILABLE, -1)
    assert (one.isr_nodes, one.offline_replicas) == ([], [2])


def test_version_0_of_metadata_names_live_replicas_only_as_apache_kafka(
    cell: CellAdminPlayer,
) -> None:
    cell.create(
        new_topic("a", -1, -1, [(0, [2, 1, NODE_ID])]),
        new_topic("only", -1, -1, [(0, [2])]),
        new_topic("well", -1, -1, [(0, [1, NODE_ID])]),
    )
    cell.change_partition("a", isr=(1, NODE_ID), leader=1)
    cell.change_partition("only", isr=(), elr=(2,), leader=-1, last_known_leader=2)
    cell.change_broker(2, is_fenced=True)
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in ("a", "only", "well")]
    )
    answers = [
        (one.error_code, one.leader_id, one.replica_nodes, one.isr_nodes)
        for topic in cell.ask(ApiKey.METADATA, 0, request).topics
        for one in topic.partitions
    ]
    assert answers == [
        (E.REPLICA_NOT_AVAILABLE, 1, [1, NODE_ID], [1, NODE_ID]),
        (E.LEADER_NOT_AVAILABLE, -1, [], []),
        (0, 1, [1, NODE_ID], [1, NODE_ID]),
    ]
    assert cell.ask(ApiKey.METADATA, 1, request).topics[0].partitions[0].error_code == 0


def test_the_controller_is_who_has_the_lease(cell: CellAdminPlayer) -> None:
    cell.create(new_topic("t"))
    for holder, shown in ((NODE_ID, NODE_ID), (1, 1), (None, -1), (99, -1)):
        cell.hold_lease(holder)
        assert metadata(cell, "t")[1] == shown
        response = cell.ask(ApiKey.DESCRIBE_CLUSTER, 2, DescribeClusterRequest())
        assert response.controller_id == shown


def test_fenced_brokers_are_described_on_request_as_apache_kafka(cell: CellAdminPlayer) -> None:
    cell.change_broker(2, is_fenced=True)
    for asked, expected in (
        (False, [(1, False), (7, False)]),
        (True, [(1, False), (2, True), (7, False)]),
    ):
        request = DescribeClusterRequest(include_fenced_brokers=asked)
        response = cell.ask(ApiKey.DESCRIBE_CLUSTER, 2, request)
        assert [(one.broker_id, one.is_fenced) for one in response.brokers] == expected


def test_eligible_leaders_are_described_as_apache_kafka(cell: CellAdminPlayer) -> None:
    cell.create(new_topic("only", -1, -1, [(0, [2])]))
    cell.change_partition("only", isr=(), elr=(2,), leader=-1, last_known_leader=2)
    cell.change_broker(2, is_fenced=True)
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="only")], response_partition_limit=10
    )
    response = cell.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
    (one,) = response.topics[0].partitions
    assert (one.error_code, one.leader_id, one.isr_nodes) == (0, -1, [])
    assert (one.eligible_leader_replicas, one.last_known_elr) == ([2], [2])
    assert one.offline_replicas == [2]
    cell.change_partition("only", elr=(), last_known_elr=(2,), last_known_leader=7)
    (one,) = cell.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request).topics[0].partitions
    assert (one.eligible_leader_replicas, one.last_known_elr) == ([], [2])


def test_an_elr_is_emptied_in_the_commit_that_lowers_min_isr(cell: CellAdminPlayer) -> None:
    cell.create(new_topic("t", -1, -1, [(0, [1, 2, 7]), (1, [2, 1, 7])]), new_topic("u", 1, 1))
    for index in (0, 1):
        cell.change_partition("t", index, isr=(2,), elr=(1,), leader=2)
    version = cell.services.image.version
    assert cell.alter(TOPIC, "t", ("min.insync.replicas", SET, "1")) == (0, None)
    assert cell.services.image.version == version + 1
    assert [cell.state("t", index).elr for index in (0, 1)] == [(), ()]


def test_an_elr_is_emptied_when_the_default_of_min_isr_is_lowered(cell: CellAdminPlayer) -> None:
    cell.create(new_topic("t", -1, -1, [(0, [1, 2, 7])], {"min.insync.replicas": "2"}))
    cell.create(new_topic("u", -1, -1, [(0, [1, 2, 7])]))
    for name in ("t", "u"):
        cell.change_partition(name, isr=(2,), elr=(1,), leader=2)
    assert cell.alter(BROKER, "", ("min.insync.replicas", SET, "1")) == (0, None)
    assert (cell.state("t").elr, cell.state("u").elr) == ((1,), ())


def test_the_quorum_is_the_controller_and_the_live_brokers(cell: CellAdminPlayer) -> None:
    cell.change_broker(2, is_fenced=True)
    cell.hold_lease(1)
    request = DescribeQuorumRequest(
        topics=[
            TopicData(
                topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)]
            )
        ]
    )
    response = cell.ask(ApiKey.DESCRIBE_QUORUM, 2, request)
    (one,) = response.topics[0].partitions
    assert (one.leader_id, one.leader_epoch) == (1, 1)
    assert [(voter.replica_id, voter.log_end_offset) for voter in one.current_voters] == [
        (1, -1),
        (NODE_ID, one.high_watermark),
    ]
    assert [(node.node_id, node.listeners[0].host) for node in response.nodes] == [
        (1, "host-1"),
        (NODE_ID, "host-7"),
    ]


def test_the_properties_of_all_brokers_are_listed_as_apache_kafka(cell: CellAdminPlayer) -> None:
    cell.change_broker(2, is_fenced=True)
    request = ListConfigResourcesRequest(resource_types=[BROKER, BROKER_LOGGER])
    response = cell.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, request)
    names = ["1", "2", str(NODE_ID)]
    assert [(one.resource_type, one.resource_name) for one in response.config_resources] == [
        *((BROKER_LOGGER, name) for name in names),
        *((BROKER, name) for name in names),
    ]


def test_draining_is_a_property_of_the_broker(cell: CellAdminPlayer) -> None:
    cell.create(new_topic("t", 3, 1), new_topic("u", -1, -1, [(0, [1, 2, 7])]))
    assert cell.alter(BROKER, str(NODE_ID), ("broker.drain", SET, "true")) == (0, None)
    cell.run_controller()
    assert cell.services.image.brokers[NODE_ID].is_draining
    moving = [replicas for replicas in cell.replicas("t") if len(replicas) == 2]
    assert [replicas[1] for replicas in moving] == [NODE_ID]
    # There is nobody left to take over a third replica.
    assert cell.replicas("u") == [(1, 2, 7)]
    (created,) = cell.create(new_topic("v", 2, -1))
    assert created.replication_factor == 2
    assert cell.alter(BROKER, str(NODE_ID), ("broker.drain", DELETE, None)) == (0, None)
    cell.run_controller()
    assert not cell.services.image.brokers[NODE_ID].is_draining


def test_all_brokers_agree_on_min_isr_as_apache_kafka(cell: CellAdminPlayer) -> None:
    name = "min.insync.replicas"
    refused = (
        E.INVALID_CONFIG,
        "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
    )
    assert cell.alter(BROKER, str(NODE_ID), (name, SET, "2")) == refused
    assert cell.alter(BROKER, str(NODE_ID), (name, DELETE, None)) == refused
    assert cell.alter(BROKER, "", (name, SET, "2")) == (0, None)
    assert cell.alter(BROKER, "", (name, DELETE, None)) == (
        E.INVALID_CONFIG,
        "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
    )


def test_nothing_is_committed_while_there_is_an_elr_whatever_the_leader_was_started_with() -> None:
    cell = CellAdminPlayer({"min.insync.replicas": "1"})
    cell.create(new_topic("t", -1, -1, [(0, [NODE_ID, 1, 2])]))
    cell.change_partition("t", isr=(NODE_ID,), elr=(1,))
    (topic,) = cell.produce("t", [b"1"]).response.responses
    assert topic.partition_responses[0].error_code == E.NOT_ENOUGH_REPLICAS
    cell.change_partition("t", elr=())
    (topic,) = cell.produce("t", [b"1"]).response.responses
    assert topic.partition_responses[0].error_code == E.NONE


def unregister(cell: CellAdminPlayer, node_id: int) -> Outcome:
    request = UnregisterBrokerRequest(broker_id=node_id)
    response = cell.ask(ApiKey.UNREGISTER_BROKER, 0, request)
    return response.error_code, response.error_message


def test_a_broker_that_is_gone_for_good(cell: CellAdminPlayer) -> None:
    cell.create(new_topic("t", -1, -1, [(0, [1, 2])]))
    values = (("broker.drain", "true"),)
    cell.change(AlterConfigs("default", BROKER, "2", values))
    cell.run_controller()
    in_service = (E.INVALID_REQUEST, "Broker 2 is in service: stop it first.")
    assert unregister(cell, 2) == in_service
    cell.change_broker(2, is_fenced=True)
    assert unregister(cell, 2) == (
        E.INVALID_REQUEST,
        "Broker 2 has a replica of t-0: drain it first.",
    )
    cell.change_partition("t", isr=(1,), replicas=(1,), adding_replicas=(), removing_replicas=())
    assert unregister(cell, 2) == (0, None)
    assert sorted(cell.services.image.brokers) == [1, NODE_ID]
    assert cell.services.image.config_of("default", BROKER, "2") == {}
    assert unregister(cell, 2) == (
        E.BROKER_ID_NOT_REGISTERED,
        "Broker ID 2 is not currently registered",
    )


# Elections


def elect(
    cell: CellAdminPlayer, *wanted: tuple[str, list[int]], unclean: bool = False, version: int = 2
) -> list[Outcome]:
    topics = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in wanted]
    request = ElectLeadersRequest(
        election_type=int(unclean), topic_partitions=topics if wanted else None
    )
    response = cell.ask(ApiKey.ELECT_LEADERS, version, request)
    return [
        (one.error_code, one.error_message)
        for topic in response.replica_election_results
        for one in topic.partition_result
    ]


_NO_PREFERRED = (E.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
_NOT_NEEDED = (E.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
_NOBODY = (
    E.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    "Eligible topic partition leaders are not available.",
)


def test_the_preferred_leader_is_elected_as_apache_kafka(cell: CellAdminPlayer) -> None:
    cell.create(new_topic("t", -1, -1, [(0, [1, 2, 7]), (1, [1, 2, 7]), (2, [1, 2, 7])]))
    cell.change_partition("t", 0, leader=2)
    cell.change_partition("t", 1, leader=2, isr=(2, 7))
    assert elect(cell, ("t", [0, 1, 2])) == [(0, None), _NO_PREFERRED, _NOT_NEEDED]
    assert [cell.state("t", index).leader for index in range(3)] == [1, 2, 1]
    assert cell.state("t", 0).leader_epoch == 2
    # Everywhere: only those are named that do not lead already.
    assert elect(cell) == [_NO_PREFERRED]


def test_a_preferred_leader_that_is_away_is_not_elected(cell: CellAdminPlayer) -> None:
    cell.create(new_topic("t", -1, -1, [(0, [1, 2, 7])]))
    cell.change_partition("t", 0, leader=2)
    cell.change_broker(1, is_fenced=True)
    assert elect(cell, ("t", [0])) == [_NO_PREFERRED]
    assert cell.state("t").leader == 2


def test_an_unclean_election_as_apache_kafka(cell: CellAdminPlayer) -> None:
    cell.create(new_topic("t", -1, -1, [(0, [1, 2]), (1, [2, 1])]))
    cell.create(new_topic("only", -1, -1, [(0, [1])]))
    for name in ("t", "only"):
        cell.change_partition(name, isr=(), elr=(1,), leader=-1, last_known_leader=1)
    cell.change_broker(1, is_fenced=True)
    assert elect(cell, ("t", [0])) == [_NO_PREFERRED]
    assert elect(cell, ("t", [0, 1]), ("only", [0]), unclean=True) == [
        (0, None),
        _NOT_NEEDED,
        _NOBODY,
    ]
    state = cell.state("t", 0)
    assert (state.leader, state.isr, state.elr, state.last_known_leader) == (2, (2,), (), -1)


def test_a_controller_whose_epoch_is_over_does_not_elect(cell: CellAdminPlayer) -> None:
    cell.create(new_topic("t", -1, -1, [(0, [1, 2, 7])]))
    cell.change_partition("t", 0, leader=2)
    cell.services.store.heartbeat(NODE_ID, "7-a", 10_000, wants_controller=False)
    assert elect(cell, ("t", [0])) == [
        (E.NOT_CONTROLLER, "This is not the correct controller for this cluster.")
    ]
    assert cell.state("t").leader == 2


def test_only_the_controller_elects(cell: CellAdminPlayer) -> None:
    cell.create(new_topic("t", -1, -1, [(0, [1, 2, 7])]))
    cell.change_partition("t", 0, leader=2)
    cell.hold_lease(1)
    request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0])])
    response = cell.ask(ApiKey.ELECT_LEADERS, 2, request)
    assert response.error_code == E.NOT_CONTROLLER
    assert cell.state("t").leader == 2


# Reassignments


def alter(
    cell: CellAdminPlayer,
    name: str,
    index: int,
    replicas: Sequence[int] | None,
    *,
    may_change_factor: bool = True,
) -> Outcome:
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_change_factor,
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(
                        partition_index=index,
                        replicas=None if replicas is None else list(replicas),
                    )
                ],
            )
        ],
    )
    response = cell.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, request)
    assert (response.error_code, response.error_message) == (0, None)
    assert response.allow_replication_factor_change == may_change_factor
    (one,) = response.responses[0].partitions
    return one.error_code, one.error_message


def ongoing(cell: CellAdminPlayer, *asked: tuple[str, list[int]]) -> list[Any]:
    topics = [
        ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
        for name, indexes in asked
    ]
    request = ListPartitionReassignmentsRequest(topics=topics or None)
    response = cell.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, request)
    return [
        (topic.name, one.partition_index, one.replicas, one.adding_replicas, one.removing_replicas)
        for topic in response.topics
        for one in topic.partitions
    ]


def test_a_reassignment_from_the_request_to_its_end_as_apache_kafka(cell: CellAdminPlayer) -> None:
    cell.create(new_topic("one", -1, -1, [(0, [1])]))
    assert alter(cell, "one", 0, [2]) == (0, None)
    expected = [("one", 0, [2, 1], [2], [1])]
    assert ongoing(cell) == ongoing(cell, ("one", [0, 1]), ("nosuch", [0])) == expected
    cell.run_controller()
    assert ongoing(cell) == expected
    cell.change_partition("one", isr=(1, 2))
    cell.run_controller()
    assert ongoing(cell) == []
    state = cell.state("one")
    assert (state.replicas, state.isr, state.leader) == ((2,), (2,), 2)


def test_cancelling_as_apache_kafka(cell: CellAdminPlayer) -> None:
    cell.create(new_topic("one", -1, -1, [(0, [1])]))
    assert alter(cell, "one", 0, None) == (E.NO_REASSIGNMENT_IN_PROGRESS, None)
    alter(cell, "one", 0, [2])
    assert alter(cell, "one", 0, None) == (0, None)
    assert ongoing(cell) == []
    state = cell.state("one")
    assert (state.replicas, state.leader, state.leader_epoch) == ((1,), 1, 1)


def test_a_changed_number_of_replicas_as_apache_kafka(cell: CellAdminPlayer) -> None:
    cell.create(new_topic("a", -1, -1, [(0, [1, 2, 7])]))
    assert alter(cell, "a", 0, [1, 2], may_change_factor=False) == (
        E.INVALID_REPLICATION_FACTOR,
        "The replication factor is changed from 3 to 2",
    )
    assert alter(cell, "a", 0, [2, 1, 7], may_change_factor=False) == (0, None)
    assert cell.state("a").replicas == (2, 1, 7)
    assert cell.state("a").leader == 1
    assert elect(cell, ("a", [0])) == [(0, None)]
    # Under way from one to one: two would be a change.
    cell.create(new_topic("one", -1, -1, [(0, [1])]))
    alter(cell, "one", 0, [2])
    assert alter(cell, "one", 0, [1, 7], may_change_factor=False) == (
        E.INVALID_REPLICATION_FACTOR,
        "The replication factor is changed from 1 to 2",
    )
    assert alter(cell, "a", 0, [1, 2]) == (0, None)
    cell.run_controller()
    assert (cell.state("a").replicas, cell.state("a").isr) == ((1, 2), (1, 2))


def test_a_reassignment_to_a_broker_that_is_not_registered(cell: CellAdminPlayer) -> None:
    cell.create(new_topic("a", -1, -1, [(0, [1, 2, 7])]))
    assert alter(cell, "a", 0, [1, 2, 9]) == (
        E.INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes broker 9, but no such broker is registered.",
    )


def test_a_broker_that_is_not_the_controller_takes_reassignments_too(cell: CellAdminPlayer) -> None:
    cell.create(new_topic("one", -1, -1, [(0, [1])]))
    cell.hold_lease(1)
    assert alter(cell, "one", 0, [2]) == (0, None)
    assert ongoing(cell) == [("one", 0, [2, 1], [2], [1])]


# Producers


def test_every_replica_tells_which_producers_it_knows_as_apache_kafka(
    cell: CellAdminPlayer,
) -> None:
    cell.create(new_topic("t", -1, -1, [(0, [NODE_ID, 1])]))
    batch = make_batch([b"a", b"b"], producer_id=5, producer_epoch=2, base_sequence=0)
    cell.produce("t", [], batch=batch)
    request = DescribeProducersRequest(topics=[ProducersTopic(name="t", partition_indexes=[0])])

    def described() -> Any:
        return cell.ask(ApiKey.DESCRIBE_PRODUCERS, 0, request).topics[0].partitions[0]

    leading = described()
    cell.change_partition("t", leader=1)
    following = described()
    assert following == leading
    (state,) = following.active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (5, 2, 1)
    cell.change_partition("t", replicas=(1,), isr=(1,))
    assert described().error_code == E.NOT_LEADER_OR_FOLLOWER
