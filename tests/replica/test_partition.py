"""The single-replica partition: what is committed, who waits, who is told."""

from __future__ import annotations

import errno
from pathlib import Path
from uuid import UUID

import pytest

from data_plane.cell.metadata import PartitionImage
from data_plane.log.config import LogConfig
from data_plane.log.cut_job import CutJob
from data_plane.log.errors import LogDirFailure
from data_plane.log.manager import LogManager
from data_plane.log.sim_file_system import Fault, SimFileSystem
from data_plane.replica.leadership import ReplicationSettings
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import NewRecord, build_batch

NOW_MS = 1_700_000_000_000
TOPIC_ID = UUID(int=1)
NODE_ID = 7


class Counting:
    """A watcher that counts."""

    def __init__(self) -> None:
        self.count = 0

    def partition_changed(self) -> None:
        self.count += 1


class Played:
    """A partition over a real log; syncs happen when `sync` is called."""

    def __init__(self, config: LogConfig | None = None) -> None:
        self.fs = SimFileSystem()
        logs = LogManager([Path("/data")], fs=self.fs, default_config=config or LogConfig())
        logs.start(NOW_MS)
        self.syncs: list[Partition] = []
        log = logs.create(TOPIC_ID, "orders", 0)
        self.partition = Partition("default", "orders", 0, log, NODE_ID, self)
        self.lead(0)
        self.outcomes: list[tuple[int, ErrorCode]] = []

    def lead(self, leader_epoch: int) -> None:
        state = PartitionImage((NODE_ID,), (NODE_ID,), NODE_ID, leader_epoch)
        self.partition.follow_image(state, ReplicationSettings(), NOW_MS)

    # The host

    replica_lag_time_max_ms = 30_000
    is_image_old = False

    def wall_ms(self, now_ms: int) -> int:
        return now_ms

    def request_sync(self, partition: Partition) -> None:
        self.syncs.append(partition)

    def request_cut(self, partition: Partition, job: CutJob) -> None:
        raise AssertionError("it follows nobody")

    def may_join_isr(self, node_id: int, broker_epoch: int) -> bool:
        raise AssertionError("there are no followers")

    def isr_may_grow(self, partition: Partition) -> None:
        raise AssertionError("there are no followers")

    # What happens

    def append(self, count: int = 1) -> int:
        """Append `count` records; returns the last offset."""
        batch = build_batch([NewRecord(NOW_MS, None, b"v")] * count)
        result = self.partition.append_as_leader(batch, 0, len(batch), now_ms=NOW_MS)
        return result.last_offset

    def wait_for(self, offset: int) -> None:
        self.partition.when_committed(offset, lambda error: self.outcomes.append((offset, error)))

    def sync(self) -> None:
        partition = self.syncs.pop()
        end_offset = partition.log.log_end_offset
        partition.log.flush()
        partition.sync_finished(end_offset)


DURABLE = LogConfig(durability_fsync=True)


def test_without_syncs_everything_appended_is_committed() -> None:
    played = Played()
    played.wait_for(played.append(3))
    assert played.outcomes == [(2, ErrorCode.NONE)]
    assert played.partition.high_watermark == 3
    assert played.partition.log.high_watermark == 3
    assert not played.syncs


def test_durable_records_are_committed_by_the_sync_in_order() -> None:
    played = Played(DURABLE)
    for _ in range(3):
        played.wait_for(played.append())
    assert played.partition.high_watermark == 0
    assert len(played.syncs) == 1
    played.sync()
    assert played.outcomes == [(0, ErrorCode.NONE), (1, ErrorCode.NONE), (2, ErrorCode.NONE)]
    assert not played.syncs


def test_a_sync_commits_what_it_covered_and_the_rest_asks_for_another() -> None:
    played = Played(DURABLE)
    first = played.append()
    partition = played.syncs.pop()
    partition.log.flush()
    end_offset = partition.log.log_end_offset
    second = played.append()
    played.wait_for(first)
    played.wait_for(second)
    partition.sync_finished(end_offset)
    assert played.outcomes == [(first, ErrorCode.NONE)]
    assert played.syncs == [partition]
    played.sync()
    assert played.outcomes[1:] == [(second, ErrorCode.NONE)]


def test_a_failed_sync_fails_what_waits_and_everything_after() -> None:
    played = Played(DURABLE)
    played.wait_for(played.append())
    watcher = Counting()
    played.partition.watchers[watcher] = None
    played.partition.sync_failed(ErrorCode.KAFKA_STORAGE_ERROR)
    played.wait_for(0)
    assert played.outcomes == [(0, ErrorCode.KAFKA_STORAGE_ERROR)] * 2
    assert played.partition.high_watermark == 0
    assert watcher.count == 1


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_closing_answers_everybody_once(error: ErrorCode) -> None:
    played = Played(DURABLE)
    played.wait_for(played.append())
    played.partition.close(error)
    assert played.outcomes == [(0, error)]
    played.partition.close(error)
    assert played.outcomes == [(0, error)]


def test_watchers_hear_of_commits_log_starts_and_epochs() -> None:
    played = Played()
    watcher = Counting()
    played.partition.watchers[watcher] = None
    played.append()
    assert watcher.count == 1
    played.partition.log_start_changed()
    assert watcher.count == 2
    played.lead(0)
    assert watcher.count == 2
    played.lead(1)
    assert watcher.count == 3
    del played.partition.watchers[watcher]
    played.append()
    assert watcher.count == 3


def test_watchers_of_durable_partitions_hear_after_the_sync_only() -> None:
    played = Played(DURABLE)
    watcher = Counting()
    played.partition.watchers[watcher] = None
    played.append()
    assert watcher.count == 0
    played.sync()
    assert watcher.count == 1


def test_a_follower_that_begins_anew_on_a_full_disk_knows_of_no_more_than_it_has() -> None:
    """Its log began within the leader's batch, which is stored whole, and then is not."""
    played = Played()
    played.append(3)
    partition = played.partition
    partition.log.delete_records(3)
    following = PartitionImage((NODE_ID, 8), (NODE_ID, 8), 8, 1)
    partition.follow_image(following, ReplicationSettings(), NOW_MS)
    assert partition.high_watermark == 3
    batch = bytearray(build_batch([NewRecord(NOW_MS, None, b"v")] * 4, base_offset=1))
    played.fs.faults.append(Fault("write", f"{1:020d}.log", errno.ENOSPC))
    with pytest.raises(LogDirFailure):
        partition.append_as_follower(
            batch,
            0,
            len(batch),
            leader_epoch=1,
            leader_high_watermark=5,
            leader_log_start=3,
            now_ms=NOW_MS,
        )
    assert partition.log.log_end_offset == 1
    assert partition.high_watermark == partition.log.high_watermark == 1
