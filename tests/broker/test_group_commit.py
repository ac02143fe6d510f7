"""Group commit: one sync in flight per disk, the next one takes all that waited."""

from __future__ import annotations

import errno

from data_plane.broker.replicas.fsync_batches import RETRY_MS
from data_plane.log.sim_file_system import Fault
from data_plane.wire.errors import ErrorCode
from tests.broker.broker_player import BrokerPlayer
from tests.broker.test_produce import only


def test_one_sync_at_a_time_and_the_next_takes_all_that_waited() -> None:
    broker = BrokerPlayer()
    broker.create_topic("ledger", 4, configs={"durability": "fsync"})
    pending = [broker.produce("ledger", [b"a"], index=index) for index in range(4)]
    assert len(broker.executor.queue) == 1
    broker.executor.run_one()
    assert [one.is_answered for one in pending] == [True, False, False, False]
    assert len(broker.executor.queue) == 1
    broker.executor.run_one()
    assert all(one.is_answered for one in pending)
    assert not broker.executor.queue


def test_records_that_come_during_a_sync_wait_for_the_next() -> None:
    broker = BrokerPlayer()
    broker.create_topic("ledger", configs={"durability": "fsync"})
    first = broker.produce("ledger", [b"a"])
    work, on_done = broker.executor.queue.popleft()
    result = work()
    # On the disk, but the loop has not heard of it.
    second = broker.produce("ledger", [b"b"])
    on_done(result, None)
    assert first.is_answered
    assert not second.is_answered
    broker.run_jobs()
    assert second.is_answered


def test_a_log_found_unsynced_at_the_start_is_synced_before_it_is_read() -> None:
    broker = BrokerPlayer()
    topic_id = broker.create_topic("ledger")
    broker.produce("ledger", [b"a"])
    broker.configure_topic("ledger", durability="fsync")
    broker.logs.close(broker.now_ms, clean=False)
    again = BrokerPlayer(disk=broker.fs, image=broker.services.image)
    assert again.services.partitions.get(topic_id, 0) is not None
    partition = again.partition("ledger")
    assert (partition.high_watermark, partition.log.log_end_offset) == (0, 1)
    again.run_jobs()
    assert partition.high_watermark == 1


def test_a_topic_deleted_while_it_waits_for_its_turn_is_left_out() -> None:
    broker = BrokerPlayer()
    broker.create_topic("ledger", configs={"durability": "fsync"})
    gone = broker.create_topic("gone", configs={"durability": "fsync"})
    broker.produce("ledger", [b"a"])
    waiting = broker.produce("gone", [b"a"])
    broker.delete_topic(gone)
    assert waiting.is_answered
    last = broker.produce("ledger", [b"b"])
    broker.run_jobs()
    assert last.is_answered
    assert not broker.executor.queue


def test_a_sync_without_descriptors_is_made_again_and_its_records_are_acknowledged() -> None:
    broker = BrokerPlayer()
    broker.create_topic("ledger", configs={"durability": "fsync"})
    fault = Fault("open", "", errno.EMFILE, is_lasting=True)
    pending = broker.produce("ledger", [b"a"])
    broker.fs.faults.append(fault)
    broker.run_jobs()
    assert not pending.is_answered
    assert broker.logs.offline_directories() == []
    broker.pass_time(RETRY_MS)
    broker.run_jobs()
    assert not pending.is_answered
    broker.fs.faults.remove(fault)
    broker.pass_time(RETRY_MS)
    broker.run_jobs()
    assert only(pending.response).error_code == ErrorCode.NONE
    assert broker.partition("ledger").high_watermark == 1


def test_a_topic_deleted_before_its_sync_is_made_again_is_left_alone() -> None:
    broker = BrokerPlayer()
    topic_id = broker.create_topic("ledger", configs={"durability": "fsync"})
    broker.produce("ledger", [b"a"])
    broker.fs.faults.append(Fault("open", "", errno.EMFILE))
    broker.run_jobs()
    broker.delete_topic(topic_id)
    broker.pass_time(RETRY_MS)
    assert not broker.executor.queue
