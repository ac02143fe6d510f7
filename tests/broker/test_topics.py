"""CreateTopics, DeleteTopics and CreatePartitions, answered as Apache Kafka answers them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest

from data_plane.broker.topics.auto_creation import auto_creation_of
from data_plane.cell.authors import KAFKA_SOURCE, Author
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from data_plane.wire.messages.create_topics_request import CreateTopicsRequest
from data_plane.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from data_plane.wire.registry import ApiKey
from tests.broker.admin_player import ZERO_ID, AdminPlayer, Outcome, new_topic
from tests.broker.broker_player import NODE_ID, BrokerPlayer

E = ErrorCode
LONG_NAME = "x" * 249


def test_a_topic_is_made_durable_before_the_answer() -> None:
    player = AdminPlayer()
    pending = player.send(
        ApiKey.CREATE_TOPICS,
        7,
        _create_request("orders"),
    )
    assert not pending.is_answered
    assert "orders" not in player.services.image.topics_of("default")
    player.run_jobs()
    (result,) = pending.response.topics
    assert player.services.store.read().topics_of("default")["orders"].topic_id == result.topic_id
    assert player.produce("orders", [b"1"]).is_answered


def _create_request(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[new_topic(name)])


def test_the_answer_describes_the_topic() -> None:
    player = AdminPlayer({"num.partitions": "3", "log.retention.hours": "1"})
    (result,) = player.create(new_topic("orders", -1, -1, configs={"segment.bytes": "2000000"}))
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    assert result.configs is not None
    configs = {config.name: (config.value, config.config_source) for config in result.configs}
    assert list(configs) == sorted(configs)
    assert configs["segment.bytes"] == ("2000000", 1)
    assert configs["retention.ms"] == ("3600000", 5)
    assert configs["cleanup.policy"] == ("delete", 5)


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_of_create_and_delete(version: int) -> None:
    player = AdminPlayer()
    (result,) = player.create(new_topic("orders"), version=version)
    assert result.error_code == 0
    (again,) = player.create(new_topic("orders"), version=version)
    assert again.error_code == E.TOPIC_ALREADY_EXISTS
    delete_version = version - 1
    if delete_version >= 6:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")])
    else:
        request = DeleteTopicsRequest(topic_names=["orders"])
    (deleted,) = player.ask(ApiKey.DELETE_TOPICS, delete_version, request).responses
    assert (deleted.name, deleted.error_code) == ("orders", 0)
    assert player.services.image.topics_of("default") == {}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a" * 250, f"the length of '{'a' * 250}' is longer than the max allowed length 249"),
        (
            "a/b",
            "'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and "
            "'-'",
        ),
        (
            "ü",
            "'ü' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
        ),
    ],
)
def test_invalid_names_as_apache_kafka(name: str, words: str) -> None:
    expected = (E.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {words}")
    assert AdminPlayer().create_outcome(new_topic(name)) == expected


def test_nobody_makes_the_metadata_topic() -> None:
    broker = AdminPlayer()
    assert broker.create_outcome(new_topic("__cluster_metadata")) == (
        E.INVALID_REQUEST,
        "Creation of internal topic __cluster_metadata is prohibited.",
    )
    topics = broker.services.namespaces.names["default"].topics
    author = Author(KAFKA_SOURCE, "default", "User:alice")
    auto_creation_of(broker.services).create(["__cluster_metadata"], topics, author)
    broker.run_jobs()
    assert "__cluster_metadata" not in broker.services.image.topics_of("default")


def test_an_assignment_of_very_many_partitions_is_checked_in_passing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[int] = []

    def check(assignments: Sequence[Sequence[int]]) -> None:
        looked_at.append(len(assignments))

    monkeypatch.setattr("data_plane.broker.topics.create_topics.check_same_replication", check)
    partitions = [(index, [NODE_ID]) for index in range(1_000)]
    topic = new_topic("wide", -1, -1, assignments=partitions)
    assert AdminPlayer().create_outcome(topic) == (0, None)
    assert sum(looked_at) <= 2_000


def test_the_longest_name_is_allowed() -> None:
    assert AdminPlayer().create_outcome(new_topic(LONG_NAME)) == (0, None)


_NO_FACTOR = "Replication factor must be larger than 0, or -1 to use the default value."
_NO_COUNT = "Number of partitions was set to an invalid non-positive value."
_UNREACHABLE = (
    "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be "
    "reached because only 1 broker(s) are registered or some brokers have all their log "
    "directories cordoned."
)


@pytest.mark.parametrize(
    ("partitions", "replication", "outcome"),
    [
        (0, 1, (E.INVALID_PARTITIONS, _NO_COUNT)),
        (-2, 1, (E.INVALID_PARTITIONS, _NO_COUNT)),
        (-1, -1, (0, None)),
        (1, 0, (E.INVALID_REPLICATION_FACTOR, _NO_FACTOR)),
        (1, -2, (E.INVALID_REPLICATION_FACTOR, _NO_FACTOR)),
        (1, 2, (E.INVALID_REPLICATION_FACTOR, _UNREACHABLE)),
        (
            10_001,
            1,
            (E.POLICY_VIOLATION, "Excessively large number of partitions per request."),
        ),
        (10_000, 1, (0, None)),
    ],
)
def test_counts_as_apache_kafka(partitions: int, replication: int, outcome: Outcome) -> None:
    assert AdminPlayer().create_outcome(new_topic("t", partitions, replication)) == outcome


_SEQUENCE = "partitions should be a consecutive 0-based integer sequence"
_MANUAL = "The manual partition assignment includes"


@pytest.mark.parametrize(
    ("partitions", "replication", "assignments", "outcome"),
    [
        (-1, -1, [(0, [NODE_ID]), (1, [NODE_ID])], (0, None)),
        (
            -1,
            1,
            [(0, [NODE_ID])],
            (
                E.INVALID_REQUEST,
                "A manual partition assignment was specified, but replication factor was not set "
                "to -1.",
            ),
        ),
        (
            2,
            -1,
            [(0, [NODE_ID])],
            (
                E.INVALID_REQUEST,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            ),
        ),
        (-1, -1, [(0, [NODE_ID]), (2, [NODE_ID])], (E.INVALID_REPLICA_ASSIGNMENT, _SEQUENCE)),
        (-1, -1, [(1, [NODE_ID])], (E.INVALID_REPLICA_ASSIGNMENT, _SEQUENCE)),
        (
            -1,
            -1,
            [(0, [NODE_ID]), (0, [NODE_ID])],
            (
                E.INVALID_REPLICA_ASSIGNMENT,
                "Found multiple manual partition assignments for partition 0",
            ),
        ),
        (-1, -1, [(0, [])], (E.INVALID_REPLICA_ASSIGNMENT, f"{_MANUAL} an empty replica list.")),
        (
            -1,
            -1,
            [(0, [NODE_ID, NODE_ID])],
            (
                E.INVALID_REPLICA_ASSIGNMENT,
                f"{_MANUAL} the broker {NODE_ID} more than once.",
            ),
        ),
        (
            -1,
            -1,
            [(0, [8])],
            (
                E.INVALID_REPLICA_ASSIGNMENT,
                f"{_MANUAL} broker 8, but no such broker is registered.",
            ),
        ),
    ],
)
def test_manual_assignments_as_apache_kafka(
    partitions: int,
    replication: int,
    assignments: list[tuple[int, list[int]]],
    outcome: Outcome,
) -> None:
    topic = new_topic("t", partitions, replication, assignments)
    assert AdminPlayer().create_outcome(topic) == outcome


def _refused(value: str, name: str, why: str) -> Outcome:
    return E.INVALID_CONFIG, f"Invalid value {value} for configuration {name}: {why}"


@pytest.mark.parametrize(
    ("name", "value", "outcome"),
    [
        ("nope", "1", (E.INVALID_CONFIG, "Unknown topic config name: nope")),
        ("segment.bytes", "abc", _refused("abc", "segment.bytes", "Not a number of type INT")),
        ("segment.bytes", "5", _refused("5", "segment.bytes", "Value must be at least 1048576")),
        ("segment.bytes", " 2000000 ", (0, None)),
        ("segment.bytes", "2_000_000", None),
        (
            "retention.ms",
            None,
            (E.INVALID_CONFIG, "Null value not supported for topic configs: retention.ms"),
        ),
        ("retention.ms", "", _refused("", "retention.ms", "Not a number of type LONG")),
        ("retention.ms", "-2", _refused("-2", "retention.ms", "Value must be at least -1")),
        (
            "cleanup.policy",
            "foo",
            _refused("foo", "cleanup.policy", "String must be one of: compact, delete"),
        ),
        ("cleanup.policy", "compact, delete", (0, None)),
        ("cleanup.policy", "", (0, None)),
        (
            "compression.type",
            "zip",
            _refused(
                "zip",
                "compression.type",
                "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
            ),
        ),
        (
            "preallocate",
            "maybe",
            _refused("maybe", "preallocate", "Expected value to be either true or false"),
        ),
        ("preallocate", "TRUE", (0, None)),
        (
            "min.cleanable.dirty.ratio",
            "1.5",
            _refused("1.5", "min.cleanable.dirty.ratio", "Value must be no more than 1"),
        ),
        (
            "compression.gzip.level",
            "0",
            _refused("0", "compression.gzip.level", "Value must be between 1 and 9 or equal to -1"),
        ),
        (
            "leader.replication.throttled.replicas",
            "x",
            _refused(
                "[x]",
                "leader.replication.throttled.replicas",
                "leader.replication.throttled.replicas must be the literal '*' or a list of "
                "replicas in the following format: [partitionId]:[brokerId],"
                "[partitionId]:[brokerId],...",
            ),
        ),
        ("leader.replication.throttled.replicas", "*", (0, None)),
        ("leader.replication.throttled.replicas", "0:1,1:2", (0, None)),
        (
            "max.message.bytes",
            "99999999999",
            _refused("99999999999", "max.message.bytes", "Not a number of type INT"),
        ),
        (
            "remote.storage.enable",
            "true",
            (
                E.INVALID_CONFIG,
                "Tiered Storage functionality is disabled in the broker. Topic cannot be "
                "configured with remote log storage.",
            ),
        ),
        (
            "message.format.version",
            "2.8",
            (E.INVALID_CONFIG, "Unknown topic config name: message.format.version"),
        ),
        ("durability", "fsync", (0, None)),
    ],
)
def test_configs_as_apache_kafka(name: str, value: str | None, outcome: Outcome | None) -> None:
    topic = new_topic("t", configs={name: value})
    if outcome is None:
        outcome = _refused(str(value), name, "Not a number of type INT")
    assert AdminPlayer().create_outcome(topic) == outcome


def test_compaction_lags_must_not_contradict_each_other() -> None:
    configs: Mapping[str, str | None] = {
        "min.compaction.lag.ms": "500",
        "max.compaction.lag.ms": "5",
    }
    assert AdminPlayer().create_outcome(new_topic("t", configs=configs)) == (
        E.INVALID_CONFIG,
        "conflict topic config setting min.compaction.lag.ms (500) > max.compaction.lag.ms (5)",
    )


def test_names_that_differ_in_dots_and_underscores_collide() -> None:
    player = AdminPlayer()
    player.create(new_topic("a.b"))
    assert player.create_outcome(new_topic("a_b")) == (
        E.INVALID_TOPIC_EXCEPTION,
        "Topic 'a_b' collides with existing topic: a.b",
    )
    # Within one request Kafka lets both through.
    assert [result.error_code for result in player.create(new_topic("c.d"), new_topic("c_d"))] == [
        0,
        0,
    ]


def test_a_name_twice_in_one_request_is_refused_once_and_harms_no_other() -> None:
    player = AdminPlayer()
    results = player.create(new_topic("dup"), new_topic("dup"), new_topic("other"))
    assert {result.name: (result.error_code, result.error_message) for result in results} == {
        "dup": (E.INVALID_REQUEST, "Duplicate topic name."),
        "other": (0, None),
    }
    assert list(player.services.image.topics_of("default")) == ["other"]


def test_validate_only_makes_nothing() -> None:
    player = AdminPlayer()
    (result,) = player.create(new_topic("t"), validate_only=True)
    assert result.error_code == 0
    assert result.topic_id != ZERO_ID
    assert player.services.image.version == 0


def test_a_store_that_fails_is_a_retriable_error() -> None:
    player = AdminPlayer()
    pending = player.send(ApiKey.CREATE_TOPICS, 7, _create_request("t"))
    player.executor.queue[0] = (_fail, player.executor.queue[0][1])
    player.run_jobs()
    (result,) = pending.response.topics
    assert ErrorCode(result.error_code) is E.REQUEST_TIMED_OUT
    assert E.REQUEST_TIMED_OUT.retriable


def _fail() -> None:
    raise OSError("the disk is gone")


def test_each_topic_of_a_request_has_its_own_configurations() -> None:
    player = AdminPlayer()
    wanted = [new_topic(f"t{n}", configs={"retention.ms": str(n % 3)}) for n in range(100)]
    results = player.create(*wanted, new_topic("bad name"), new_topic("plain"))
    assert [result.name for result in results] == [f"t{n}" for n in range(100)] + [
        "bad name",
        "plain",
    ]
    for number, result in enumerate(results[:100]):
        assert result.configs is not None
        by_name = {config.name: config for config in result.configs}
        assert (by_name["retention.ms"].value, by_name["retention.ms"].config_source) == (
            str(number % 3),
            1,
        )
        assert by_name["segment.bytes"].config_source == 5
    assert results[100].configs == []


# DeleteTopics


def _delete(player: BrokerPlayer, *states: tuple[str | None, UUID]) -> list[tuple[object, ...]]:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states]
    )
    response = player.ask(ApiKey.DELETE_TOPICS, 6, request)
    return [(result.name, result.error_code, result.error_message) for result in response.responses]


def test_deletions_as_apache_kafka() -> None:
    player = AdminPlayer()
    one, two, three = player.create(new_topic("one"), new_topic("two"), new_topic("three"))
    nobody = UUID(int=77)
    assert _delete(
        player,
        ("nosuch", ZERO_ID),
        (None, nobody),
        ("one", UUID(int=78)),
        (None, ZERO_ID),
        ("two", ZERO_ID),
        ("two", ZERO_ID),
        (None, three.topic_id),
    ) == [
        (
            "nosuch",
            E.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        ),
        (None, E.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."),
        ("one", E.INVALID_REQUEST, "You may not specify both topic name and topic id."),
        (None, E.INVALID_REQUEST, "Neither topic name nor id were specified."),
        ("two", E.INVALID_REQUEST, "Duplicate topic name."),
        ("three", 0, None),
    ]
    assert sorted(player.services.image.topics_of("default")) == ["one", "two"]
    assert player.services.image.topics_by_id.keys() == {one.topic_id, two.topic_id}


_SUPPLIED = "The provided topic name maps to an ID that was already supplied."


@pytest.mark.parametrize(
    ("wanted", "answers"),
    [
        (["id", "name"], [("t", E.INVALID_REQUEST, _SUPPLIED)]),
        (["name", "id"], [("t", E.INVALID_REQUEST, _SUPPLIED)]),
        (
            ["id", "id", "name"],
            [
                (None, E.INVALID_REQUEST, "Duplicate topic id."),
                ("t", E.INVALID_REQUEST, _SUPPLIED),
            ],
        ),
    ],
)
def test_a_topic_by_name_and_by_id_stays_as_with_apache_kafka(
    wanted: list[str], answers: list[tuple[object, ...]]
) -> None:
    player = AdminPlayer()
    (topic,) = player.create(new_topic("t"))
    states = {"name": ("t", ZERO_ID), "id": (None, topic.topic_id)}
    assert _delete(player, *(states[how] for how in wanted)) == answers
    assert "t" in player.services.image.topics_of("default")


def test_the_refusal_of_a_name_whose_id_is_supplied_tells_the_id() -> None:
    player = AdminPlayer()
    (topic,) = player.create(new_topic("t"))
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name="t"), DeleteTopicState(topic_id=topic.topic_id)]
    )
    (result,) = player.ask(ApiKey.DELETE_TOPICS, 6, request).responses
    assert result.topic_id == topic.topic_id


def test_a_name_beside_the_same_name_with_an_id_is_not_twice() -> None:
    player = AdminPlayer()
    (topic,) = player.create(new_topic("t"))
    assert _delete(player, ("t", topic.topic_id), ("t", ZERO_ID)) == [
        ("t", E.INVALID_REQUEST, "You may not specify both topic name and topic id."),
        ("t", 0, None),
    ]


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, E.INVALID_REQUEST), (2, E.INVALID_REQUEST), (3, E.TOPIC_DELETION_DISABLED)],
)
def test_deletion_can_be_switched_off(version: int, code: ErrorCode) -> None:
    player = AdminPlayer({"delete.topic.enable": "false"})
    player.create(new_topic("t"))
    request = DeleteTopicsRequest(topic_names=["t"])
    (result,) = player.ask(ApiKey.DELETE_TOPICS, version, request).responses
    assert ErrorCode(result.error_code) is code
    assert "t" in player.services.image.topics_of("default")


def test_a_topic_made_anew_has_a_new_id_and_no_records() -> None:
    player = AdminPlayer()
    (first,) = player.create(new_topic("t"))
    player.produce("t", [b"old"])
    _delete(player, ("t", ZERO_ID))
    (second,) = player.create(new_topic("t"))
    assert second.topic_id != first.topic_id
    assert player.partition("t").log.log_end_offset == 0


# CreatePartitions


def _grow(
    player: BrokerPlayer,
    *topics: tuple[str, int, list[list[int]] | None],
    version: int = 3,
    validate_only: bool = False,
) -> list[tuple[object, ...]]:
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None
                if assignments is None
                else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments],
            )
            for name, count, assignments in topics
        ],
        validate_only=validate_only,
    )
    response = player.ask(ApiKey.CREATE_PARTITIONS, version, request)
    return [(result.name, result.error_code, result.error_message) for result in response.results]


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows(version: int) -> None:
    player = AdminPlayer()
    (created,) = player.create(new_topic("t", 2))
    assert _grow(player, ("t", 4, None), version=version) == [("t", 0, None)]
    topic = player.services.image.topics_of("default")["t"]
    assert (topic.topic_id, len(topic.partitions)) == (created.topic_id, 4)
    assert player.produce("t", [b"1"], index=3).is_answered


def test_where_groups_live_no_partition_is_added() -> None:
    """Their partition is a hash modulo the number of partitions: with another number groups and
    committed offsets would be looked for where they are not."""
    player = AdminPlayer()
    player.create_topic("__consumer_offsets", 2)
    ((_, code, message),) = _grow(player, ("__consumer_offsets", 4, None))
    assert code == E.INVALID_PARTITIONS
    assert message == (
        "Topic __consumer_offsets keeps its 2 partition(s): what is in them is found by their "
        "number."
    )
    assert len(player.services.image.topics_of("default")["__consumer_offsets"].partitions) == 2


_INVALID = E.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("name", "count", "assignments", "outcome"),
    [
        ("t", 3, None, (E.INVALID_PARTITIONS, "Topic already has 3 partition(s).")),
        (
            "t",
            2,
            None,
            (
                E.INVALID_PARTITIONS,
                "The topic t currently has 3 partition(s); 2 would not be an increase.",
            ),
        ),
        (
            "t",
            -1,
            None,
            (
                E.INVALID_PARTITIONS,
                "The topic t currently has 3 partition(s); -1 would not be an increase.",
            ),
        ),
        ("nosuch", 3, None, (E.UNKNOWN_TOPIC_OR_PARTITION, None)),
        ("t", 5, [[NODE_ID], [NODE_ID]], (0, None)),
        (
            "t",
            5,
            [[NODE_ID]],
            (
                _INVALID,
                "Attempted to add 2 additional partition(s), but only 1 assignment(s) were "
                "specified.",
            ),
        ),
        ("t", 4, [[9]], (_INVALID, f"{_MANUAL} broker 9, but no such broker is registered.")),
        ("t", 4, [[]], (_INVALID, f"{_MANUAL} an empty replica list.")),
        (
            "t",
            4,
            [[NODE_ID, NODE_ID]],
            (_INVALID, f"{_MANUAL} the broker {NODE_ID} more than once."),
        ),
    ],
)
def test_increases_as_apache_kafka(
    name: str, count: int, assignments: list[list[int]] | None, outcome: Outcome
) -> None:
    player = AdminPlayer()
    player.create(new_topic("t", 3))
    assert _grow(player, (name, count, assignments), validate_only=True) == [(name, *outcome)]
    assert len(player.services.image.topics_of("default")["t"].partitions) == 3


def test_growing_twice_in_one_request_is_refused() -> None:
    player = AdminPlayer()
    player.create(new_topic("t"))
    assert _grow(player, ("t", 2, None), ("t", 3, None)) == [
        ("t", E.INVALID_REQUEST, "Duplicate topic name.")
    ]


def test_one_request_adds_a_bounded_number_of_partitions() -> None:
    player = AdminPlayer()
    player.create(new_topic("t"))
    ((_, code, _message),) = _grow(player, ("t", 10_002, None), validate_only=True)
    assert code == E.POLICY_VIOLATION
    assert _grow(player, ("t", 10_001, None), validate_only=True) == [("t", 0, None)]
