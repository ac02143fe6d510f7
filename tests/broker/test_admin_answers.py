"""DeleteRecords, log directories, producers, elections, reassignments, as Apache Kafka answers."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest

from data_plane.log.sim_file_system import Fault
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
from data_plane.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from data_plane.wire.messages.describe_log_dirs_request import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from data_plane.wire.messages.describe_producers_request import (
    DescribeProducersRequest,
    TopicRequest,
)
from data_plane.wire.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from data_plane.wire.messages.describe_quorum_response import DescribeQuorumResponse
from data_plane.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from data_plane.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from data_plane.wire.records import NewRecord, build_batch
from data_plane.wire.registry import ApiKey
from tests.broker.admin_player import AdminPlayer, Outcome, new_topic
from tests.broker.broker_player import NODE_ID, NOW_MS

E = ErrorCode


@pytest.fixture
def player() -> AdminPlayer:
    player = AdminPlayer()
    player.create(new_topic("t", 2))
    return player


# DeleteRecords


def delete_records(
    player: AdminPlayer, name: str, *offsets: tuple[int, int], version: int = 2
) -> list[tuple[int, int, int]]:
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=name,
                partitions=[
                    DeleteRecordsPartition(partition_index=index, offset=offset)
                    for index, offset in offsets
                ],
            )
        ]
    )
    (topic,) = player.ask(ApiKey.DELETE_RECORDS, version, request).topics
    return [
        (partition.partition_index, partition.low_watermark, partition.error_code)
        for partition in topic.partitions
    ]


@pytest.mark.parametrize("version", range(3))
def test_records_below_an_offset_go(player: AdminPlayer, version: int) -> None:
    player.produce("t", [b"0", b"1", b"2"])
    assert delete_records(player, "t", (0, 2), version=version) == [(0, 2, 0)]
    assert player.partition("t").log.log_start_offset == 2
    # An offset below the log start is where the log starts.
    assert delete_records(player, "t", (0, 1), version=version) == [(0, 2, 0)]
    assert delete_records(player, "t", (0, -1), version=version) == [(0, 3, 0)]


def test_offsets_and_partitions_that_are_not_there(player: AdminPlayer) -> None:
    assert delete_records(player, "t", (0, -1), (1, 5), (9, 0)) == [
        (0, 0, 0),
        (1, -1, E.OFFSET_OUT_OF_RANGE),
        (9, -1, E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert delete_records(player, "t", (0, -2)) == [(0, -1, E.OFFSET_OUT_OF_RANGE)]
    assert delete_records(player, "nosuch", (0, 0)) == [(0, -1, E.UNKNOWN_TOPIC_OR_PARTITION)]


def test_the_brokers_own_records_stay(player: AdminPlayer) -> None:
    player.create(new_topic("__consumer_offsets"))
    assert delete_records(player, "__consumer_offsets", (0, 0)) == [
        (0, -1, E.INVALID_TOPIC_EXCEPTION)
    ]


def test_a_partition_named_twice_is_one(player: AdminPlayer) -> None:
    player.produce("t", [b"0", b"1", b"2"])
    assert delete_records(player, "t", (0, 1), (0, 2)) == [(0, 2, 0)]


# Log directories


def log_dirs(
    player: AdminPlayer, wanted: Sequence[tuple[str, list[int]]] | None, version: int = 4
) -> dict[tuple[str, int], int]:
    request = DescribeLogDirsRequest(
        topics=None
        if wanted is None
        else [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in wanted]
    )
    response = player.ask(ApiKey.DESCRIBE_LOG_DIRS, version, request)
    (directory,) = response.results
    assert (directory.error_code, directory.log_dir) == (0, "/data")
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in directory.topics
        for partition in topic.partitions
        if partition.offset_lag == 0 and not partition.is_future_key
    }


@pytest.mark.parametrize("version", range(1, 6))
def test_sizes_of_replicas_in_use_or_not(player: AdminPlayer, version: int) -> None:
    player.produce("t", [b"x" * 1000])
    size = player.partition("t").log.size_bytes
    assert size > 1000
    assert log_dirs(player, None, version) == {("t", 0): size, ("t", 1): 0}


def test_only_the_replicas_that_were_asked_for(player: AdminPlayer) -> None:
    assert log_dirs(player, [("t", [1, 7]), ("nosuch", [0])]) == {("t", 1): 0}
    assert log_dirs(player, []) == {}
    assert log_dirs(player, [("t", [])]) == {}


def test_a_directory_that_failed_says_so(player: AdminPlayer) -> None:
    player.logs.directories[0].fail(OSError(errno.EIO, "broken"))
    response = player.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=None))
    (directory,) = response.results
    assert (directory.error_code, directory.topics) == (E.KAFKA_STORAGE_ERROR, [])


def test_free_space_is_told_where_the_system_knows_it(player: AdminPlayer) -> None:
    def space() -> tuple[int, int]:
        response = player.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=None))
        (directory,) = response.results
        return directory.total_bytes, directory.usable_bytes

    def fail(path: str) -> tuple[int, int]:
        raise OSError(errno.EIO, path)

    assert space() == (-1, -1)
    player.services.measure_space = lambda path: (1000, len(path))
    assert space() == (1000, len("/data"))
    player.services.measure_space = fail
    assert space() == (-1, -1)


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_may_be_put_where_it_is(player: AdminPlayer, version: int) -> None:
    def alter(path: str, name: str, *indexes: int) -> list[int]:
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[AlterReplicaLogDirTopic(name=name, partitions=list(indexes))],
                )
            ]
        )
        (topic,) = player.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, version, request).results
        assert topic.topic_name == name
        return [partition.error_code for partition in topic.partitions]

    assert alter("/data", "t", 0, 9) == [0, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert alter("/data/", "t", 1) == [0]
    assert alter("/data", "nosuch", 0) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert alter("/elsewhere", "t", 0) == [E.LOG_DIR_NOT_FOUND]


# DescribeProducers


def test_who_has_been_writing(player: AdminPlayer) -> None:
    records = [NewRecord(timestamp=NOW_MS, key=None, value=b"x")] * 3
    batch = build_batch(records, producer_id=5, producer_epoch=2, base_sequence=0)
    player.produce("t", [], batch=batch)
    request = DescribeProducersRequest(
        topics=[
            TopicRequest(name="t", partition_indexes=[0, 1, 7]),
            TopicRequest(name="nosuch", partition_indexes=[0]),
            TopicRequest(name="bad name", partition_indexes=[0]),
        ]
    )
    topics = player.ask(ApiKey.DESCRIBE_PRODUCERS, 0, request).topics
    answers = [
        (topic.name, one.partition_index, one.error_code, one.error_message)
        for topic in topics
        for one in topic.partitions
    ]
    assert answers == [
        ("t", 0, 0, None),
        ("t", 1, 0, None),
        ("t", 7, E.UNKNOWN_TOPIC_OR_PARTITION, None),
        (
            "nosuch",
            0,
            E.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        ),
        (
            "bad name",
            0,
            E.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: 'bad name' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'",
        ),
    ]
    (state,) = topics[0].partitions[0].active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (5, 2, 2)
    assert (state.last_timestamp, state.coordinator_epoch, state.current_txn_start_offset) == (
        NOW_MS,
        -1,
        -1,
    )
    assert topics[0].partitions[1].active_producers == []


# Elections and reassignments


@pytest.mark.parametrize("version", range(3))
def test_no_election_is_needed_with_one_replica(player: AdminPlayer, version: int) -> None:
    request = ElectLeadersRequest(
        topic_partitions=[
            TopicPartitions(topic="t", partitions=[0, 9]),
            TopicPartitions(topic="nosuch", partitions=[0]),
        ]
    )
    response = player.ask(ApiKey.ELECT_LEADERS, version, request)
    assert [
        (topic.topic, one.partition_id, one.error_code, one.error_message)
        for topic in response.replica_election_results
        for one in topic.partition_result
    ] == [
        ("t", 0, E.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."),
        ("t", 9, E.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t-9"),
        ("nosuch", 0, E.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as nosuch"),
    ]


def test_an_election_everywhere_names_the_topics_and_no_partition(player: AdminPlayer) -> None:
    response = player.ask(ApiKey.ELECT_LEADERS, 2, ElectLeadersRequest(topic_partitions=None))
    assert [(one.topic, one.partition_result) for one in response.replica_election_results] == [
        ("t", [])
    ]


def test_an_unknown_kind_of_election(player: AdminPlayer) -> None:
    request = ElectLeadersRequest(
        election_type=7, topic_partitions=[TopicPartitions(topic="t", partitions=[0])]
    )
    response = player.ask(ApiKey.ELECT_LEADERS, 2, request)
    assert response.error_code == E.INVALID_REQUEST
    (one,) = response.replica_election_results[0].partition_result
    assert (one.error_code, one.error_message) == (E.INVALID_REQUEST, "Unknown election type 7")


_MANUAL = "The manual partition assignment includes"


@pytest.mark.parametrize(
    ("name", "index", "replicas", "outcome"),
    [
        ("t", 0, [NODE_ID], (0, None)),
        ("t", 0, None, (E.NO_REASSIGNMENT_IN_PROGRESS, None)),
        ("t", 0, [], (E.INVALID_REPLICA_ASSIGNMENT, f"{_MANUAL} an empty replica list.")),
        (
            "t",
            0,
            [NODE_ID, NODE_ID],
            (E.INVALID_REPLICA_ASSIGNMENT, f"{_MANUAL} the broker {NODE_ID} more than once."),
        ),
        (
            "t",
            0,
            [NODE_ID, 9],
            (
                E.INVALID_REPLICA_ASSIGNMENT,
                f"{_MANUAL} broker 9, but no such broker is registered.",
            ),
        ),
        (
            "t",
            9,
            [NODE_ID],
            (E.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition t:9."),
        ),
        (
            "nosuch",
            0,
            None,
            (E.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named nosuch."),
        ),
    ],
)
def test_reassignments_as_apache_kafka(
    player: AdminPlayer, name: str, index: int, replicas: list[int] | None, outcome: Outcome
) -> None:
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[ReassignablePartition(partition_index=index, replicas=replicas)],
            )
        ]
    )
    for version in (0, 1):
        response = player.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, request)
        assert (response.error_code, response.error_message) == (0, None)
        (one,) = response.responses[0].partitions
        assert (one.error_code, one.error_message) == outcome


def test_no_reassignment_is_ever_under_way(player: AdminPlayer) -> None:
    response = player.ask(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, ListPartitionReassignmentsRequest()
    )
    assert (response.error_code, response.error_message, response.topics) == (0, None, [])


def test_a_disk_that_fails_under_delete_records(player: AdminPlayer) -> None:
    player.produce("t", [b"0", b"1"])
    player.fs.faults.append(Fault("write", "log-start", errno.EIO))
    (answer,) = delete_records(player, "t", (0, 1))
    assert answer == (0, -1, E.KAFKA_STORAGE_ERROR)


# DescribeQuorum


def quorum(
    player: AdminPlayer, version: int, *topics: tuple[str, list[int]]
) -> DescribeQuorumResponse:
    request = DescribeQuorumRequest(
        topics=[
            TopicData(
                topic_name=name,
                partitions=[PartitionData(partition_index=index) for index in indexes],
            )
            for name, indexes in topics
        ]
    )
    response = player.ask(ApiKey.DESCRIBE_QUORUM, version, request)
    assert isinstance(response, DescribeQuorumResponse)
    return response


@pytest.mark.parametrize("version", range(3))
def test_one_broker_is_a_quorum(player: AdminPlayer, version: int) -> None:
    response = quorum(player, version, ("__cluster_metadata", [0]))
    assert (response.error_code, response.error_message) == (0, "")
    (partition,) = response.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (0, NODE_ID)
    assert partition.high_watermark == player.services.image.version + 1
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (NODE_ID, partition.high_watermark)
    assert [node.node_id for node in response.nodes] == ([NODE_ID] if version >= 2 else [])


def test_there_is_one_quorum_only(player: AdminPlayer) -> None:
    response = quorum(player, 2, ("__cluster_metadata", [0]), ("other", [0]))
    assert [
        (topic.topic_name, one.error_code) for topic in response.topics for one in topic.partitions
    ] == [
        ("__cluster_metadata", E.UNKNOWN_TOPIC_OR_PARTITION),
        ("other", E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert quorum(player, 2).topics == []
