"""Metadata, DescribeTopicPartitions and DescribeCluster, answered as Apache Kafka answers them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from data_plane.wire.errors import ErrorCode
from data_plane.wire.headers import RequestHeader, encode_request_header
from data_plane.wire.messages.describe_cluster_request import DescribeClusterRequest
from data_plane.wire.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from data_plane.wire.messages.metadata_request import (
    MetadataRequest,
    MetadataRequestTopic,
    encode_metadata_request,
)
from data_plane.wire.primitives import Writer
from data_plane.wire.registry import ApiKey
from tests.broker.admin_player import AdminPlayer, new_topic
from tests.broker.broker_player import CORRELATION_ID, NODE_ID

E = ErrorCode
TOPIC_BITS, CLUSTER_BITS, NOT_ASKED = 3576, 8096, -(1 << 31)


def metadata(
    player: AdminPlayer,
    version: int,
    names: Sequence[str | UUID | None] | None,
    *,
    create: bool = False,
    operations: bool = False,
) -> Any:
    topics = None
    if names is not None:
        topics = [
            MetadataRequestTopic(name=None, topic_id=name)
            if isinstance(name, UUID)
            else MetadataRequestTopic(name=name)
            for name in names
        ]
    request = MetadataRequest(topics=topics)
    if version >= 4:
        request.allow_auto_topic_creation = create
    if version >= 8:
        request.include_topic_authorized_operations = operations
    if 8 <= version <= 10:
        request.include_cluster_authorized_operations = operations
    return player.ask(ApiKey.METADATA, version, request)


def errors(response: Any) -> list[tuple[str | None, int]]:
    return [(topic.name, topic.error_code) for topic in response.topics]


@pytest.fixture
def player() -> AdminPlayer:
    player = AdminPlayer({"auto.create.topics.enable": "true", "num.partitions": "2"})
    player.create(new_topic("t", 2), new_topic("u"))
    return player


@pytest.mark.parametrize("version", range(14))
def test_every_version_describes_a_topic(player: AdminPlayer, version: int) -> None:
    response = metadata(player, version, ["t"])
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (NODE_ID, "127.0.0.1", 9092)
    (topic,) = response.topics
    assert (topic.name, topic.error_code) == ("t", 0)
    assert [partition.partition_index for partition in topic.partitions] == [0, 1]
    for partition in topic.partitions:
        assert (partition.error_code, partition.leader_id) == (0, NODE_ID)
        assert (partition.replica_nodes, partition.isr_nodes) == ([NODE_ID], [NODE_ID])
        assert partition.leader_epoch == (0 if version >= 7 else -1)
    if version >= 1:
        assert response.controller_id == NODE_ID
    if version >= 2:
        assert response.cluster_id == "cluster"
    if version >= 10:
        assert topic.topic_id == player.services.image.topics_of("default")["t"].topic_id


@pytest.mark.parametrize(
    ("version", "names", "expected"),
    [
        (0, [], ["t", "u"]),
        (1, [], []),
        (1, None, ["t", "u"]),
        (13, None, ["t", "u"]),
        (13, [], []),
        (12, ["u", "t", "u"], ["u", "t"]),
    ],
)
def test_which_topics_are_listed(
    player: AdminPlayer, version: int, names: list[str] | None, expected: list[str]
) -> None:
    assert errors(metadata(player, version, names)) == [(name, 0) for name in expected]


def test_topics_by_id(player: AdminPlayer) -> None:
    topic_id = player.services.image.topics_of("default")["t"].topic_id
    assert errors(metadata(player, 12, [topic_id])) == [("t", 0)]
    (topic,) = metadata(player, 12, [UUID(int=5)], operations=True).topics
    assert (topic.name, topic.topic_id, topic.error_code) == (
        None,
        UUID(int=5),
        E.UNKNOWN_TOPIC_ID,
    )
    assert topic.topic_authorized_operations == NOT_ASKED
    assert errors(metadata(player, 12, [None])) == [("", E.INVALID_REQUEST)]
    # Before version 12 topics have to be named, although the field for the id is there.
    (topic,) = metadata(player, 11, [topic_id]).topics
    assert (topic.name, topic.topic_id, topic.error_code) == ("", topic_id, E.INVALID_REQUEST)
    # Among ids, what has only a name is passed over.
    assert errors(metadata(player, 12, ["u", topic_id])) == [("t", 0)]


def test_authorized_operations_are_told_when_asked_for(player: AdminPlayer) -> None:
    response = metadata(player, 10, ["t", "nosuch"], operations=True)
    assert response.cluster_authorized_operations == CLUSTER_BITS
    assert [topic.topic_authorized_operations for topic in response.topics] == [TOPIC_BITS] * 2
    response = metadata(player, 10, ["t"])
    assert response.cluster_authorized_operations == NOT_ASKED
    assert response.topics[0].topic_authorized_operations == NOT_ASKED


def test_a_missing_topic_is_made_while_the_client_is_told_to_ask_again(
    player: AdminPlayer,
) -> None:
    response = metadata(player, 12, ["new", "t", "bad name"], create=True)
    assert errors(response) == [
        ("t", 0),
        ("new", E.UNKNOWN_TOPIC_OR_PARTITION),
        ("bad name", E.INVALID_TOPIC_EXCEPTION),
    ]
    (topic,) = metadata(player, 12, ["new"]).topics
    assert (topic.error_code, len(topic.partitions)) == (0, 2)


def test_nothing_is_made_unless_broker_and_client_want_it(player: AdminPlayer) -> None:
    assert errors(metadata(player, 12, ["new"])) == [("new", E.UNKNOWN_TOPIC_OR_PARTITION)]
    assert "new" not in player.services.image.topics_of("default")
    without = AdminPlayer({"auto.create.topics.enable": "false"})
    metadata(without, 12, ["new"], create=True)
    assert without.services.image.topics_of("default") == {}


def test_a_topic_that_collides_is_not_made(player: AdminPlayer) -> None:
    player.create(new_topic("a.b"))
    assert errors(metadata(player, 12, ["a_b"], create=True)) == [
        ("a_b", E.UNKNOWN_TOPIC_OR_PARTITION)
    ]
    assert errors(metadata(player, 12, ["a_b"])) == [("a_b", E.UNKNOWN_TOPIC_OR_PARTITION)]


def test_old_clients_always_want_it_made(player: AdminPlayer) -> None:
    metadata(player, 1, ["old"])
    assert "old" in player.services.image.topics_of("default")


def test_bytes_behind_a_request_are_passed_over(player: AdminPlayer) -> None:
    # librdkafka 2.16 sends three of them when it asks for all topics.
    writer = Writer()
    encode_request_header(
        writer,
        RequestHeader(api_key=3, api_version=12, correlation_id=CORRELATION_ID, client_id="c"),
    )
    encode_metadata_request(writer, MetadataRequest(topics=None), 12)
    writer.buf += bytes(3)
    pending = player.send_bytes(ApiKey.METADATA, 12, writer.buf)
    assert errors(pending.response) == [("t", 0), ("u", 0)]


# DescribeTopicPartitions


def describe(
    player: AdminPlayer,
    names: Sequence[str],
    limit: int = 2000,
    cursor: tuple[str, int] | None = None,
) -> tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    response = player.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
    after = response.next_cursor
    return (
        [
            (topic.name, topic.error_code, [p.partition_index for p in topic.partitions])
            for topic in response.topics
        ],
        None if after is None else (after.topic_name, after.partition_index),
    )


@pytest.fixture
def paged() -> AdminPlayer:
    player = AdminPlayer()
    player.create(new_topic("a.b"), new_topic("p1", 3), new_topic("t1"))
    return player


UNKNOWN, INVALID_NAME, INVALID = 3, 17, 42


@pytest.mark.parametrize(
    ("names", "limit", "cursor", "topics", "after"),
    [
        (["p1"], 2000, None, [("p1", 0, [0, 1, 2])], None),
        ([], 2000, None, [("a.b", 0, [0]), ("p1", 0, [0, 1, 2]), ("t1", 0, [0])], None),
        (
            ["p1", "nosuch", "bad name", "a.b"],
            2000,
            None,
            [
                ("a.b", 0, [0]),
                ("bad name", INVALID_NAME, []),
                ("nosuch", UNKNOWN, []),
                ("p1", 0, [0, 1, 2]),
            ],
            None,
        ),
        (["p1", "a.b", "t1"], 2, None, [("a.b", 0, [0]), ("p1", 0, [0])], ("p1", 1)),
        ([], 2, ("p1", 1), [("p1", 0, [1, 2])], ("t1", 0)),
        (["p1", "t1"], 2, ("p1", 1), [("p1", 0, [1, 2])], ("t1", 0)),
        (["p1", "t1"], 1, ("p1", 9), [("p1", 0, []), ("t1", 0, [0])], None),
        (["t1", "p1"], 2, ("nosuch", 0), [("t1", INVALID, []), ("p1", INVALID, [])], None),
        (["t1"], 0, None, [("t1", 0, [0])], None),
        (["p1"], -1, None, [("p1", 0, [0])], ("p1", 1)),
        (["t1"], 5, ("t1", -1), [("t1", INVALID, [])], None),
        (["p1", "p1"], 3, None, [("p1", 0, [0, 1, 2])], None),
        (["p1", "t1"], 3, None, [("p1", 0, [0, 1, 2])], ("t1", 0)),
    ],
)
def test_pages_as_apache_kafka(
    paged: AdminPlayer,
    names: list[str],
    limit: int,
    cursor: tuple[str, int] | None,
    topics: list[tuple[str, int, list[int]]],
    after: tuple[str, int] | None,
) -> None:
    assert describe(paged, names, limit, cursor) == (topics, after)


def test_following_the_cursor_sees_every_partition_once() -> None:
    player = AdminPlayer({"max.request.partition.size.limit": "4"})
    player.create(*(new_topic(f"t{n}", n) for n in range(1, 8)))
    seen: list[tuple[str, int]] = []
    cursor = None
    while True:
        topics, cursor = describe(player, [], 2000, cursor)
        page = [(name, index) for name, _, indexes in topics for index in indexes]
        assert len(page) <= 4
        seen += page
        if cursor is None:
            break
    assert seen == [(f"t{n}", index) for n in range(1, 8) for index in range(n)]


# DescribeCluster


@pytest.mark.parametrize("version", range(3))
def test_the_cluster(version: int) -> None:
    player = AdminPlayer()
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    response = player.ask(ApiKey.DESCRIBE_CLUSTER, version, request)
    assert (response.error_code, response.error_message) == (0, None)
    assert (response.cluster_id, response.controller_id) == ("cluster", NODE_ID)
    assert [broker.broker_id for broker in response.brokers] == [NODE_ID]
    assert response.cluster_authorized_operations == CLUSTER_BITS


@pytest.mark.parametrize(
    ("endpoint_type", "code", "message"),
    [
        (
            2,
            E.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of "
            "type CONTROLLER",
        ),
        (3, E.UNSUPPORTED_ENDPOINT_TYPE, "Unsupported endpoint type 3"),
    ],
)
def test_controllers_are_not_asked_here(endpoint_type: int, code: ErrorCode, message: str) -> None:
    response = AdminPlayer().ask(
        ApiKey.DESCRIBE_CLUSTER, 2, DescribeClusterRequest(endpoint_type=endpoint_type)
    )
    assert (response.error_code, response.error_message) == (code, message)
    assert (response.brokers, response.cluster_id) == ([], "")
