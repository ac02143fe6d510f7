"""Requests for a log that a thread is loading: they wait, or are to be sent again, in order."""

from __future__ import annotations

import errno

import pytest

from data_plane.broker.coordinators.internal_topic import BrokerInternalTopic
from data_plane.broker.coordinators.offsets_topic import OFFSETS_TOPIC
from data_plane.broker.request.few_at_once import AT_ONCE_MAX
from data_plane.groups.config import GROUP_METADATA_TOPIC_NAME
from data_plane.log.sim_file_system import Fault
from data_plane.wire.errors import ErrorCode
from tests.broker.broker_player import BrokerPlayer, Pending, make_batch

PARTITIONS = AT_ONCE_MAX + 2


def killed(topic: str = "orders") -> BrokerPlayer:
    """A broker that was killed after a checkpoint; to load any of its logs takes long."""
    broker = BrokerPlayer()
    broker.create_topic(topic, PARTITIONS)
    for index in range(PARTITIONS):
        batch = make_batch([b"before"], producer_id=7, producer_epoch=0, base_sequence=0)
        partition = broker.partition(topic, index)
        partition.append_as_leader(batch, 0, len(batch), now_ms=broker.now_ms)
        partition.log.flush()
    directory = broker.logs.directories[0]
    job = broker.logs.checkpoint_job(directory)
    job.run()
    job.finish()
    broker.fs.process_death()
    again = BrokerPlayer(disk=broker.fs, image=broker.services.image)
    assert again.logs.recovered_logs == 0
    again.logs.directories[0].bytes_loaded_at_once_max = 0
    return again


@pytest.fixture
def broker() -> BrokerPlayer:
    return killed()


def code_of(pending: Pending) -> ErrorCode:
    return ErrorCode(pending.response.responses[0].partition_responses[0].error_code)


def offset_of(pending: Pending) -> int:
    offset = pending.response.responses[0].partition_responses[0].base_offset
    assert isinstance(offset, int)
    return offset


@pytest.mark.parametrize("version", [12, 13])
def test_a_produce_waits_and_its_connection_takes_nothing_else(
    broker: BrokerPlayer, version: int
) -> None:
    kept = []
    keep = broker.connection.keep
    broker.connection.keep = lambda *args: kept.append(keep(*args)) or kept[-1]  # type: ignore[func-returns-value]
    produce = broker.produce("orders", [b"x"], version=version)
    assert not produce.is_answered
    assert len(kept) == 1
    assert not broker.logs.logs()[0].is_loaded
    broker.run_jobs()
    assert code_of(produce) is ErrorCode.NONE
    assert offset_of(produce) == 1
    assert broker.partition("orders").log.log_end_offset == 2


def test_a_producers_batches_keep_their_order(broker: BrokerPlayer) -> None:
    first = make_batch([b"1"], producer_id=7, producer_epoch=0, base_sequence=1)
    produce = broker.produce("orders", [], batch=first)
    broker.run_jobs()
    second = make_batch([b"2"], producer_id=7, producer_epoch=0, base_sequence=2)
    assert offset_of(produce) == 1
    assert offset_of(broker.answered(broker.produce("orders", [], batch=second))) == 2
    repeated = broker.answered(broker.produce("orders", [], batch=first))
    assert offset_of(repeated) == 1


def test_a_fetch_is_to_be_sent_again(broker: BrokerPlayer) -> None:
    fetch = broker.fetch({("orders", 0): 0})
    (piece,) = fetch.response.responses[0].partitions
    assert piece.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.run_jobs()
    (piece,) = broker.answered(broker.fetch({("orders", 0): 0})).response.responses[0].partitions
    assert piece.error_code == ErrorCode.NONE
    assert piece.high_watermark == 1


def test_so_many_are_loaded_at_a_time(broker: BrokerPlayer) -> None:
    produces = [broker.produce("orders", [b"x"], index=index) for index in range(PARTITIONS)]
    assert len(broker.executor.queue) == AT_ONCE_MAX
    assert not any(produce.is_answered for produce in produces)
    broker.run_jobs()
    assert [code_of(produce) for produce in produces] == [ErrorCode.NONE] * PARTITIONS


def test_who_follows_hears_when_the_log_is_there(broker: BrokerPlayer) -> None:
    changed: list[tuple[object, int]] = []
    broker.services.partitions.on_roles_changed(lambda keys, now_ms: changed.extend(keys))
    topic = broker.services.image.topics_of("default")["orders"]
    assert broker.services.partitions.replica(topic.topic_id, 2) is None
    assert changed == []
    broker.run_jobs()
    assert changed == [(topic.topic_id, 2)]
    assert broker.services.partitions.replica(topic.topic_id, 2) is not None


def test_a_topic_that_is_deleted_meanwhile_is_unknown(broker: BrokerPlayer) -> None:
    produce = broker.produce("orders", [b"x"])
    broker.delete_topic(broker.services.image.topics_of("default")["orders"].topic_id)
    broker.run_jobs()
    assert code_of(produce) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("is_lasting", [False, True])
def test_a_load_that_fails_is_tried_once_more_when_somebody_asks(
    broker: BrokerPlayer, is_lasting: bool
) -> None:
    broker.fs.faults.append(Fault("open", ".log", errno.EMFILE, is_lasting=is_lasting))
    produce = broker.produce("orders", [b"x"])
    broker.run_jobs()
    expected = ErrorCode.KAFKA_STORAGE_ERROR if is_lasting else ErrorCode.NONE
    assert code_of(produce) is expected
    broker.fs.faults.clear()
    again = broker.produce("orders", [b"x"])
    broker.run_jobs()
    assert code_of(again) is ErrorCode.NONE


def test_a_coordinator_waits_for_the_log_that_it_is_to_read() -> None:
    broker = killed(GROUP_METADATA_TOPIC_NAME)
    done: list[ErrorCode] = []
    topic = BrokerInternalTopic(broker.services, OFFSETS_TOPIC)
    topic.when_committed(0, done.append)
    assert done == []
    broker.run_jobs()
    assert done == [ErrorCode.NONE]
    assert topic.reader(0) is not None
