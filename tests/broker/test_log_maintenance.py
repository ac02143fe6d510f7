"""Background work of the logs: who waits for whom, and what of it that fails is told."""

from __future__ import annotations

import errno
from dataclasses import replace

from data_plane.broker.replicas.log_maintenance import TICK_INTERVAL_MS, LogMaintenance
from data_plane.log.lanes import Lane
from data_plane.log.log import Log
from data_plane.log.sim_file_system import Fault
from tests.broker.broker_player import BrokerPlayer
from tests.broker.doubles import QueueExecutor
from tests.log.one_log import batch_of


class Player(BrokerPlayer):
    """A broker whose lanes run what they are told to."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes = {lane: QueueExecutor() for lane in Lane}
        self.maintenance = LogMaintenance(self.services, self.lanes)
        self.maintenance.start(self.now_ms)

    def tick(self) -> None:
        self.now_ms += TICK_INTERVAL_MS
        self.maintenance.tick(self.now_ms)

    def run(self, *lanes: Lane) -> None:
        for lane in lanes:
            while self.lanes[lane].queue:
                self.lanes[lane].run_one()

    def until_compaction(self) -> Log:
        """Have a table with much to do compacted next; the lane has the job and does not run it."""
        self.create_topic("table", 1, configs={"cleanup.policy": "compact"})
        log = self.partition("table").log
        log.update_config(replace(log.config, segment_bytes=200, min_cleanable_dirty_ratio=0.01))
        for _ in range(10):
            self.produce("table", [], batch=batch_of(bytes(100), keys=[b"k"]))
        while not log.compacting:
            self.run(*Lane)
            self.tick()
        return log

    def events(self) -> list[str]:
        return [event for _, event, _ in self.log.events]


def test_a_cleaner_at_work_holds_up_neither_flushes_nor_deletions() -> None:
    player = Player()
    table = player.until_compaction()
    player.create_topic("plain", 1, configs={"flush.ms": "1"})
    player.create_topic("gone", 1)
    player.produce("gone", [b"v"])
    player.produce("plain", [b"v"])
    gone = player.partition("gone").log
    player.logs.delete(gone.topic_id, 0, player.now_ms - gone.config.file_delete_delay_ms)
    for _ in range(3):
        player.tick()
        player.run(Lane.FLUSH, Lane.DELETION)
    assert player.lanes[Lane.CLEANER].queue, "it is at work all the while"
    assert player.partition("plain").log.recovery_point == 1
    assert str(gone.topic_id) not in player.fs.list_directory(f"{gone.log_directory.path}/topics")
    player.run(Lane.CLEANER)
    assert table.cleaner_offset > 0


def test_a_disk_that_fails_at_the_end_of_a_job_is_told() -> None:
    player = Player()
    player.until_compaction()
    player.fs.faults.append(Fault("rename", ".cleaned", errno.EIO))
    player.run(Lane.CLEANER)
    assert player.fs.faults == []
    assert "log_job_failed" in player.events()
    player.tick()
    assert "log_directory_offline" in player.events()


def test_a_stop_ends_long_jobs() -> None:
    player = Player()
    assert not player.logs.directories[0].stop_sign.is_up
    player.maintenance.stop(player.now_ms)
    assert player.logs.directories[0].stop_sign.is_up
