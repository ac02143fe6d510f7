"""ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import Any

import pytest

from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from data_plane.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from data_plane.wire.registry import ApiKey
from tests.broker.broker_player import NOW_MS, BrokerPlayer, make_batch

VERSIONS = range(1, 12)


@pytest.fixture
def broker() -> BrokerPlayer:
    player = BrokerPlayer()
    player.create_topic("orders")
    for number, timestamp in enumerate((100, 300, 200)):
        batch = make_batch([b"%d" % number], timestamp=NOW_MS + timestamp)
        player.produce("orders", [], batch=batch)
    return player


def list_offsets(
    broker: BrokerPlayer,
    timestamp: int,
    *,
    version: int = 11,
    topic: str = "orders",
    index: int = 0,
    replica_id: int = -1,
    **fields: Any,
) -> Any:
    wanted = ListOffsetsPartition(partition_index=index, timestamp=timestamp, **fields)
    request = ListOffsetsRequest(
        replica_id=replica_id, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
    )
    response = broker.ask(ApiKey.LIST_OFFSETS, version, request)
    return response.topics[0].partitions[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ends_in_every_version(broker: BrokerPlayer, version: int) -> None:
    latest = list_offsets(broker, -1, version=version)
    assert (latest.error_code, latest.offset, latest.timestamp) == (0, 3, -1)
    earliest = list_offsets(broker, -2, version=version)
    assert (earliest.error_code, earliest.offset, earliest.timestamp) == (0, 0, -1)


@pytest.mark.parametrize(
    ("after", "expected"), [(0, (0, 100)), (100, (0, 100)), (101, (1, 300)), (301, (-1, -1))]
)
def test_the_first_record_at_or_after_a_time(
    broker: BrokerPlayer, after: int, expected: tuple[int, int]
) -> None:
    answer = list_offsets(broker, NOW_MS + after)
    offset, timestamp = expected
    assert answer.error_code == 0
    assert answer.offset == offset
    assert answer.timestamp == (-1 if timestamp < 0 else NOW_MS + timestamp)


def test_the_largest_timestamp(broker: BrokerPlayer) -> None:
    answer = list_offsets(broker, -3)
    assert (answer.offset, answer.timestamp) == (1, NOW_MS + 300)


@pytest.mark.parametrize(
    ("timestamp", "first_version", "offset"), [(-3, 7, 1), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1)]
)
def test_special_timestamps_need_their_version(
    broker: BrokerPlayer, timestamp: int, first_version: int, offset: int
) -> None:
    before = list_offsets(broker, timestamp, version=first_version - 1)
    assert before.error_code == ErrorCode.UNSUPPORTED_VERSION
    since = list_offsets(broker, timestamp, version=first_version)
    assert (since.error_code, since.offset) == (0, offset)


def test_unknown_special_timestamps(broker: BrokerPlayer) -> None:
    assert list_offsets(broker, -7).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_an_empty_log_has_no_records(broker: BrokerPlayer) -> None:
    broker.create_topic("empty")
    for timestamp in (-3, 0, NOW_MS):
        answer = list_offsets(broker, timestamp, topic="empty")
        assert (answer.error_code, answer.offset, answer.timestamp) == (0, -1, -1)


@pytest.mark.parametrize(("topic", "index"), [("nowhere", 0), ("orders", 1), ("orders", -1)])
def test_unknown_partitions(broker: BrokerPlayer, topic: str, index: int) -> None:
    answer = list_offsets(broker, -1, topic=topic, index=index)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (answer.offset, answer.timestamp) == (-1, -1)


def test_leader_epochs_are_checked(broker: BrokerPlayer) -> None:
    broker.partition("orders").leader_epoch = 2
    for epoch, error in (
        (1, ErrorCode.FENCED_LEADER_EPOCH),
        (3, ErrorCode.UNKNOWN_LEADER_EPOCH),
        # -1 alone means that the client knows of none.
        (-2, ErrorCode.FENCED_LEADER_EPOCH),
    ):
        assert list_offsets(broker, -1, current_leader_epoch=epoch).error_code == error
    answer = list_offsets(broker, -1, current_leader_epoch=2)
    assert (answer.error_code, answer.leader_epoch) == (0, 2)


def test_followers_have_a_door_of_their_own(broker: BrokerPlayer) -> None:
    answer = list_offsets(broker, -1, replica_id=1)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_partition_named_twice(broker: BrokerPlayer) -> None:
    twice = [ListOffsetsPartition(partition_index=0, timestamp=-1) for _ in range(2)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="orders", partitions=twice)]
    )
    response = broker.ask(ApiKey.LIST_OFFSETS, 5, request)
    assert [one.error_code for one in response.topics[0].partitions] == [
        ErrorCode.INVALID_REQUEST
    ] * 2


def end_of_epoch(broker: BrokerPlayer, epoch: int, version: int = 4, **fields: Any) -> Any:
    request = OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                topic=fields.pop("topic", "orders"),
                partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=epoch, **fields)],
            )
        ]
    )
    if version >= 3:
        request.replica_id = -1
    response = broker.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request)
    return response.topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_an_epoch_ended(broker: BrokerPlayer, version: int) -> None:
    broker.partition("orders").leader_epoch = 5
    broker.produce("orders", [b"new"])
    for epoch, expected in ((0, (0, 3)), (3, (0, 3)), (5, (5, 4)), (6, (-1, -1))):
        answer = end_of_epoch(broker, epoch, version)
        assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, *expected)


def test_epoch_look_ups_can_fail(broker: BrokerPlayer) -> None:
    answer = end_of_epoch(broker, 0, topic="nowhere")
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = end_of_epoch(broker, 0, current_leader_epoch=9)
    assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize(("timestamp", "offset"), [(NOW_MS, 0), (-3, 1)])
def test_a_log_at_rest_is_loaded_before_the_search_leaves_the_loop(
    broker: BrokerPlayer, timestamp: int, offset: int
) -> None:
    log = broker.partition("orders").log
    log.flush()
    log.unload()
    assert not log.is_loaded
    answer = list_offsets(broker, timestamp)
    assert (answer.error_code, answer.offset) == (0, offset)
