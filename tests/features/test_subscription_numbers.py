"""Numbers of a subscription's partitions in requests and answers: always those that clients see.

Of `pay` over the two partitions of `orders` these are 0 to 3; its own are 1 and 3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from data_plane.cell.changes import ChangePartition, RegisterBroker
from data_plane.cell.features import SUPPORTED_FEATURES, VIRTUAL_TOPICS, FeatureRange
from data_plane.cell.metadata import BrokerImage, TopicImage
from data_plane.cell.partition_state import next_epochs
from data_plane.server.cell_admin_listing import write_topic
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from data_plane.wire.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from data_plane.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from data_plane.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from data_plane.wire.records import NewRecord, build_batch
from data_plane.wire.registry import ApiKey
from tests.broker.admin_player import TOPIC
from tests.broker.broker_player import NODE_ID, NOW_MS
from tests.features.test_subscriptions import Player

OTHER = NODE_ID + 1
FEATURES_OF_ALL = (*SUPPORTED_FEATURES, FeatureRange(VIRTUAL_TOPICS, 0, 1))


@pytest.fixture
def player() -> Player:
    player = Player()
    player.subscribe()
    return player


def pay(player: Player) -> TopicImage:
    return player.services.image.topics_of("default")["pay"]


def change_own(player: Player, own_index: int, **fields: Any) -> None:
    topic = pay(player)
    old = topic.partitions[own_index]
    changed = next_epochs(old, replace(old, **fields))
    player.commit(ChangePartition(topic.topic_id, own_index, changed))


@pytest.mark.parametrize("index", range(4))
def test_no_broker_takes_records(player: Player, index: int) -> None:
    """Also one that leads none of the subscription's own partitions: to be asked for the leader
    again and again is no answer."""
    for own_index in range(2):
        fields = {"replicas": (OTHER,), "isr": (OTHER,), "leader": OTHER}
        change_own(player, own_index, **fields)
    batch = build_batch([NewRecord(NOW_MS, None, b"1", ())])
    answer = player.produce("pay", [], index=index, batch=batch).response
    ((result,),) = (topic.partition_responses for topic in answer.responses)
    assert result.error_code == ErrorCode.INVALID_RECORD
    expected = "Topic 'pay' reads from another one: produce to its source."
    if index % 2:
        # Which takes nacks, where there are retries.
        expected = (
            "Topic 'pay' reads from another one, to which records are produced. What its readers "
            "nack needs the feature tidewheel.retries at level 1."
        )
    assert result.error_message == expected


def test_nor_does_one_that_has_too_few_replicas_in_sync(player: Player) -> None:
    """Who would be told that would try again."""
    player.alter(TOPIC, "pay", ("min.insync.replicas", 0, "2"))
    for own_index in range(2):
        change_own(player, own_index, replicas=(NODE_ID, OTHER), isr=(NODE_ID,))
    batch = build_batch([NewRecord(NOW_MS, None, b"1", ())])
    for index in range(4):
        answer = player.produce("pay", [], index=index, batch=batch, acks=-1).response
        ((result,),) = (topic.partition_responses for topic in answer.responses)
        assert result.error_code == ErrorCode.INVALID_RECORD


def test_a_partition_that_is_not_there_is_unknown_to_producers(player: Player) -> None:
    batch = build_batch([NewRecord(NOW_MS, None, b"1", ())])
    answer = player.produce("pay", [], index=4, batch=batch).response
    ((result,),) = (topic.partition_responses for topic in answer.responses)
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def elected(player: Player, wanted: list[TopicPartitions] | None) -> dict[str, dict[int, int]]:
    request = ElectLeadersRequest(election_type=0, topic_partitions=wanted)
    answer = player.ask(ApiKey.ELECT_LEADERS, 2, request)
    return {
        result.topic: {one.partition_id: one.error_code for one in result.partition_result}
        for result in answer.replica_election_results
    }


def test_leaders_are_elected_at_the_source(player: Player) -> None:
    wanted = [TopicPartitions(topic="pay", partitions=[0, 1, 2, 3])]
    assert elected(player, wanted) == {
        "pay": dict.fromkeys(range(4), int(ErrorCode.INVALID_REQUEST))
    }


def test_an_election_of_all_names_what_clients_see(player: Player) -> None:
    change_own(player, 1, replicas=(OTHER, NODE_ID))
    found = elected(player, None)
    assert found["pay"] == {3: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_its_partitions_are_moved_with_the_source_only(player: Player) -> None:
    player.commit(RegisterBroker(BrokerImage(OTHER, "other", 9092, features=FEATURES_OF_ALL)))
    wanted = {"pay": {0: [OTHER], 1: [OTHER], 4: [OTHER]}}
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(partition_index=index, replicas=replicas)
                    for index, replicas in partitions.items()
                ],
            )
            for name, partitions in wanted.items()
        ]
    )
    (answer,) = player.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, request).responses
    assert [
        (one.partition_index, one.error_code, one.error_message) for one in answer.partitions
    ] == [
        (0, ErrorCode.INVALID_REQUEST, "pay-0 is orders-0: reassign that."),
        (1, ErrorCode.INVALID_REQUEST, "pay-1 goes with orders-0: reassign that."),
        (4, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition pay:4."),
    ]
    assert all(one.adding_replicas == () for one in pay(player).partitions)


def test_reassignments_name_what_clients_see(player: Player) -> None:
    change_own(player, 0, replicas=(NODE_ID, OTHER), adding_replicas=(OTHER,))

    def listed(*indexes: int) -> list[tuple[str, list[int]]]:
        topics = [ListPartitionReassignmentsTopics(name="pay", partition_indexes=list(indexes))]
        request = ListPartitionReassignmentsRequest(topics=topics if indexes else None)
        answer = player.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, request)
        return [
            (topic.name, [one.partition_index for one in topic.partitions])
            for topic in answer.topics
        ]

    assert listed() == [("pay", [1])]
    assert listed(0, 1, 2, 3, 4) == [("pay", [1])]
    assert listed(0, 2) == []


def test_logs_are_those_of_the_odd_partitions(player: Player) -> None:
    topic = AlterReplicaLogDirTopic(name="pay", partitions=list(range(5)))
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/data", topics=[topic])])
    (result,) = player.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, request).results
    assert [one.error_code for one in result.partitions] == [
        ErrorCode.REPLICA_NOT_AVAILABLE,
        0,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_control_plane_is_told_what_clients_see(player: Player) -> None:
    """And may declare it: a declared topic has as many as are listed."""
    image = player.services.image
    assert write_topic(image, pay(player)).partitions == 4
    assert write_topic(image, image.topics_of("default")["orders"]).partitions == 2
