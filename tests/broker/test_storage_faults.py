"""Slow, failing and corrupt disks, as producers and consumers meet them."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from data_plane.broker.replicas.stray_logs import delete_strays
from data_plane.log.sim_file_system import Fault
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.describe_topic_partitions_request import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from data_plane.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from data_plane.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from data_plane.wire.registry import ApiKey
from tests.broker.admin_player import AdminPlayer
from tests.broker.broker_player import NOW_MS, BrokerPlayer, values_of
from tests.broker.test_fetch import parts
from tests.broker.test_produce import only


def restarted(old: BrokerPlayer) -> BrokerPlayer:
    """A broker on the same disk and metadata, after a clean stop."""
    old.logs.close(old.now_ms)
    return BrokerPlayer(disk=old.fs, image=old.services.image)


@pytest.fixture
def broker() -> BrokerPlayer:
    player = BrokerPlayer()
    player.create_topic("orders", 2)
    return player


def fill(broker: BrokerPlayer) -> None:
    for index in (0, 1):
        for number in range(3):
            broker.produce("orders", [b"%d" % number], index=index)


def test_cold_records_are_read_off_the_loop(broker: BrokerPlayer) -> None:
    fill(broker)
    broker = restarted(broker)
    broker.fs.is_cache_cold = True
    wanted = {("orders", 0): 1, ("orders", 1): 0}
    poll = broker.fetch(wanted, max_wait_ms=500, isolation_level=1)
    assert not poll.is_answered
    assert len(broker.executor.queue) == 1
    broker.run_jobs()
    found = parts(poll.response)
    assert values_of(found[0].records)[-1] == (2, b"2")
    assert values_of(found[1].records) == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert found[0].aborted_transactions == []


def test_a_cold_read_in_a_session_goes_on_where_it_was(broker: BrokerPlayer) -> None:
    fill(broker)
    broker = restarted(broker)
    broker.fs.is_cache_cold = True
    poll = broker.fetch({("orders", 0): 0}, session_epoch=0)
    broker.run_jobs()
    response: Any = poll.response
    assert len(values_of(only(response).records)) == 3
    poll = broker.fetch({("orders", 0): 3}, session_id=response.session_id, session_epoch=1)
    broker.run_jobs()
    assert poll.response.responses == []


def test_a_cold_read_that_fails_is_an_error_of_its_partition(broker: BrokerPlayer) -> None:
    fill(broker)
    broker = restarted(broker)
    broker.fs.is_cache_cold = True
    poll = broker.fetch({("orders", 0): 0}, max_wait_ms=500)
    broker.fs.faults.append(Fault("open", "Partition-0", errno.EIO))
    broker.run_jobs()
    part = only(poll.response)
    assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (part.high_watermark, values_of(part.records)) == (-1, [])


def test_a_failed_write_is_told_and_stores_nothing(broker: BrokerPlayer) -> None:
    fill(broker)
    broker.fs.faults.append(Fault("write", "Partition-0", errno.ENOSPC, partial_bytes=20))
    answer = only(broker.produce("orders", [b"lost"]).response)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    directory = broker.logs.directories[0].path
    assert answer.error_message is not None
    assert f"log directory {directory} is offline" in answer.error_message
    assert "make room" in answer.error_message
    assert broker.partition("orders").high_watermark == 3
    # The directory is offline; its other partitions say so, too.
    answer = only(broker.produce("orders", [b"lost"], index=1).response)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    part = only(broker.fetch({("orders", 0): 0}, max_wait_ms=500).response)
    assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_nobody_is_sent_to_the_end_of_what_cannot_be_read(broker: BrokerPlayer) -> None:
    """Whoever wants to read until there would wait for ever."""
    fill(broker)
    broker.fs.faults.append(Fault("write", "Partition-0", errno.ENOSPC))
    broker.produce("orders", [b"lost"])
    for timestamp in (-1, -2, -3, 0):
        wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name="orders", partitions=[wanted])]
        )
        answer = broker.ask(ApiKey.LIST_OFFSETS, 7, request).topics[0].partitions[0]
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_clients_see_that_a_failed_disk_leads_nothing() -> None:
    broker = AdminPlayer()
    broker.create_topic("orders")
    request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
    before = broker.ask(ApiKey.METADATA, 12, request).topics[0].partitions[0]
    assert (before.leader_id, before.offline_replicas) == (broker.services.node_id, [])
    broker.fs.faults.append(Fault("write", "Partition-0", errno.ENOSPC))
    broker.produce("orders", [b"lost"])
    many = [MetadataRequestTopic(name="x" * 200)] * 1_000
    small = [MetadataRequestTopic(name="orders")]
    for topics in (small, small + many):
        asked = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        pending = broker.answered(broker.send(ApiKey.METADATA, 12, asked))
        (topic,) = (topic for topic in pending.response.topics if topic.name == "orders")
        partition = topic.partitions[0]
        assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert (partition.leader_id, partition.offline_replicas) == (-1, [broker.services.node_id])
    described = broker.ask(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        DescribeTopicPartitionsRequest(topics=[TopicRequest(name="orders")]),
    )
    partition = described.topics[0].partitions[0]
    assert (partition.leader_id, partition.offline_replicas) == (-1, [broker.services.node_id])


def test_a_failed_sync_is_never_an_acknowledgement(broker: BrokerPlayer) -> None:
    broker.create_topic("ledger", configs={"durability": "fsync"})
    pending = broker.produce("ledger", [b"a"])
    poll = broker.fetch({("ledger", 0): 0}, max_wait_ms=500)
    broker.fs.faults.append(Fault("sync", "Partition-0", errno.EIO))
    broker.run_jobs()
    assert only(pending.response).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert only(poll.response).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    answer = only(broker.produce("ledger", [b"b"]).response)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert any(event == "sync_failed" for _, event, _ in broker.log.events)


def test_a_corrupt_batch_is_not_served(broker: BrokerPlayer) -> None:
    fill(broker)
    broker = restarted(broker)
    path = f"{broker.logs.get(*broker.logs.partition_ids()[0]).folder}/{0:020d}.log"
    broker.fs.flip_bit(path, 65)  # in the first batch
    broker.fs.is_cache_cold = True
    index = broker.logs.partition_ids()[0][1]
    poll = broker.fetch({("orders", index): 0}, max_wait_ms=500)
    broker.run_jobs()
    part = only(poll.response)
    assert part.error_code == ErrorCode.CORRUPT_MESSAGE
    assert values_of(part.records) == []


@pytest.mark.parametrize("timestamp", [NOW_MS, -3])
def test_a_search_by_time_in_a_corrupt_batch_concerns_its_partition_alone(
    broker: BrokerPlayer, timestamp: int
) -> None:
    fill(broker)
    broker = restarted(broker)
    (topic_id, bad), (_, good) = broker.logs.partition_ids()
    path = f"{broker.logs.get(topic_id, bad).folder}/{0:020d}.log"
    broker.fs.flip_bit(path, 61, 6)  # In the size of the first record.
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name="orders",
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                    for index in (bad, good)
                ],
            )
        ],
    )
    (topic,) = broker.ask(ApiKey.LIST_OFFSETS, 7, request).topics
    assert [(part.error_code, part.offset) for part in topic.partitions] == [
        (ErrorCode.CORRUPT_MESSAGE, -1),
        (0, 0),
    ]


def test_logs_of_topics_that_are_gone_are_deleted_at_start(broker: BrokerPlayer) -> None:
    fill(broker)
    topic_id = broker.services.image.topics_of("default")["orders"].topic_id
    broker.logs.close(broker.now_ms)
    # The metadata commit of the deletion was the last thing that happened.
    survivor = BrokerPlayer(disk=broker.fs)
    services = survivor.services
    deleted = delete_strays(survivor.logs, services.image, services.node_id, survivor.now_ms)
    assert sorted(deleted) == [(topic_id, 0), (topic_id, 1)]
    assert survivor.logs.partition_ids() == []
