"""What runs in the background and when: flushes, checkpoints, retention, compaction, scrubbing."""

from __future__ import annotations

import errno
import random
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from data_plane.log.compaction import CompactionJob
from data_plane.log.config import LogConfig
from data_plane.log.directory_checkpoint import read_directory
from data_plane.log.errors import LogDirFailure
from data_plane.log.log import AppendResult, Log
from data_plane.log.maintenance import MaintenanceConfig
from data_plane.log.manager import LogManager
from data_plane.log.scrubber import ScrubJob
from data_plane.log.sim_file_system import Fault, SimFileSystem
from data_plane.log.vouched_date import VouchedDate
from tests.log.one_log import SMALL, START_MS, OneLog, batch_of
from tests.log.world import read_all

CONFIG = MaintenanceConfig(
    retention_check_interval_ms=10_000,
    checkpoint_interval_ms=20_000,
    producer_expiration_check_interval_ms=30_000,
    cleaner_backoff_ms=5_000,
    scrub_interval_ms=-1,
)
COMPACTED = replace(SMALL, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.3)


class Broker:
    """A manager whose jobs run at once when they are due, unless they are held back."""

    def __init__(
        self,
        config: LogConfig = SMALL,
        maintenance: MaintenanceConfig = CONFIG,
        vouched_date: VouchedDate | None = None,
    ) -> None:
        self.fs = SimFileSystem()
        self.now_ms = START_MS
        self.manager = LogManager(
            [Path("/data")],
            default_config=config,
            fs=self.fs,
            now_ms=self.now_ms,
            maintenance=maintenance,
            vouched_date=vouched_date,
        )
        assert self.manager.start(self.now_ms) == []

    def log(self, number: int, config: LogConfig | None = None) -> Log:
        return self.manager.create(UUID(int=number), f"topic-{number}", 0, config)

    def add(self, log: Log, key: bytes = b"k", value: bytes = bytes(100)) -> None:
        buf = batch_of(value, keys=[key], timestamps=[self.now_ms])
        log.append_as_leader(buf, 0, len(buf), leader_epoch=0, now_ms=self.now_ms)
        log.advance_high_watermark(log.log_end_offset)

    def due(self, wait_ms: int = 0) -> list[Any]:
        """The jobs that are due after `wait_ms`, neither run nor finished."""
        self.now_ms += wait_ms
        return self.manager.tick(self.now_ms)

    def run(self, wait_ms: int = 0) -> None:
        """Tick, and run what is due."""
        for job in self.due(wait_ms):
            job.run()
            job.finish()

    def run_without_descriptors(self, job: Any) -> None:
        """A flush that finds none left when it comes to its checkpoint of leader epochs."""
        self.fs.faults.append(Fault("create", "leader-epoch", errno.EMFILE))
        with pytest.raises(LogDirFailure):
            job.run()
        job.finish()

    def stored_recovery_point(self, log: Log) -> int:
        entry = read_directory(self.fs, "/data").logs.get(f"{log.topic_id}/{log.partition}")
        return entry.summary.recovery_point if entry is not None else -1


def test_flush_ms_bounds_how_long_a_record_waits() -> None:
    broker = Broker()
    log = broker.log(1, replace(SMALL, flush_ms=1000))
    other = broker.log(2)
    broker.run(25_000)
    for one in (log, other):
        broker.add(one)
    broker.run(999)
    assert (log.recovery_point, log.needs_flush) == (0, True)
    broker.run(1)
    broker.run()
    assert (log.recovery_point, log.needs_flush) == (1, False)
    assert other.recovery_point == 0, "its flush.ms is endless"
    # The clock starts again with the next record, and not with those that follow it.
    broker.run(60_000)
    broker.add(log)
    broker.run(999)
    broker.add(log)
    assert log.recovery_point == 1
    broker.run(1)
    broker.run()
    assert log.recovery_point == 3


def test_what_a_killed_process_has_not_flushed_is_flushed_after_the_start() -> None:
    one = OneLog(flush_ms=1000)
    one.fill(2)
    one.kill()
    for job in one.manager.tick(one.now_ms):
        job.run()
        job.finish()
    assert one.log.recovery_point == 2


def test_a_log_that_nobody_has_used_since_the_start_can_tell_whether_retention_is_due() -> None:
    one = OneLog()
    one.fill(30)
    one.restart()
    size = one.log.size_bytes
    assert not one.log.may_expire(one.now_ms)
    for settings, now_ms, expected in (
        ({"retention_ms": 1000}, START_MS + 1000, False),
        ({"retention_ms": 1000}, START_MS + 1001, True),
        ({"retention_bytes": size}, START_MS, False),
        ({"retention_bytes": size - 1}, START_MS, True),
        ({"retention_bytes": 0, "cleanup_policy": frozenset({"compact"})}, START_MS, False),
    ):
        one.log.update_config(replace(SMALL, **settings))
        assert one.log.may_expire(now_ms) is expected, settings
    assert not one.log.is_loaded


def test_a_checkpoint_knows_what_was_committed_of_a_log_that_nobody_has_read() -> None:
    one = OneLog()
    one.append(batch_of(b"a", b"b", b"c"), commit=False)
    one.restart()
    one.log.advance_high_watermark(2)
    assert not one.log.is_loaded
    job = one.manager.checkpoint_job(one.manager.directories[0])
    job.run()
    job.finish()
    one.kill()
    assert one.log.high_watermark == 2


def test_sealed_segments_are_flushed_without_being_asked() -> None:
    broker = Broker()
    log = broker.log(1)
    while len(log.segments) == 1:
        broker.add(log)
    end_offset = log.log_end_offset
    broker.run()
    broker.run()
    assert log.recovery_point == end_offset


def test_a_log_start_is_flushed_without_being_asked() -> None:
    broker = Broker()
    log = broker.log(1)
    for _ in range(3):
        broker.add(log)
    log.flush()
    log.delete_records(2)
    broker.run(1)
    assert (log.durable_log_start, log.needs_flush) == (2, False)


def test_a_flush_that_could_not_be_made_is_made_later() -> None:
    """For want of descriptors, which is no fault of the disk."""
    broker = Broker(replace(SMALL, flush_ms=1000))
    log = broker.log(1)
    broker.run()
    broker.add(log)
    (job,) = broker.due(1000)
    broker.run_without_descriptors(job)
    assert log.recovery_point == 0
    broker.run(1)
    assert (log.recovery_point, log.needs_flush) == (1, False)


def test_a_flush_that_fails_does_not_keep_others_from_theirs() -> None:
    """They come after it in the same job."""
    broker = Broker(replace(SMALL, flush_ms=0))
    logs = [broker.log(number) for number in (1, 2, 3)]
    broker.run()
    for log in logs:
        broker.add(log)
    (job,) = broker.due(1)
    broker.run_without_descriptors(job)
    assert [log.flushes for log in logs] == [[], [], []]
    broker.run(1)
    assert [log.recovery_point for log in logs] == [1, 1, 1]


def test_what_a_failed_flush_has_not_synced_is_left_to_the_next() -> None:
    one = OneLog()
    one.fill(3)
    one.log.roll()
    waiting = list(one.log.unsynced or ())
    assert waiting
    job = one.log.flush_job()
    assert job is not None
    one.fs.faults.append(Fault("open", ".index", errno.EMFILE))
    with pytest.raises(LogDirFailure):
        job.run()
    job.finish()
    assert one.log.unsynced == waiting


def test_a_flush_covers_what_was_there_when_it_began() -> None:
    """Group commit: appends during a sync wait for the next one."""
    one = OneLog()
    one.fill(3)
    first = one.log.flush_job()
    assert first is not None
    one.fill(2)
    second = one.log.flush_job()
    assert second is not None
    assert (first.target_offset, second.target_offset) == (3, 5)
    first.run()
    assert one.log.recovery_point == 0, "only finish, on the loop, moves it"
    first.finish()
    assert one.log.recovery_point == 3
    second.run()
    second.finish()
    assert one.log.recovery_point == 5
    assert one.log.flush_job() is None


@pytest.mark.parametrize("seed", range(5))
def test_a_flush_that_overtakes_an_earlier_one_does_its_part_too(seed: int) -> None:
    """It moves the recovery point over what that one was to make durable: the names of a new log,
    and what is left of a segment whose records go."""
    one = OneLog(segment_bytes=1000)
    for sequence in range(5):
        one.append(batch_of(bytes(100), producer=(5, 0, sequence)))
    one.log.roll()
    earlier = one.log.flush_job()
    one.log.delete_records(5)
    assert one.log.apply_retention(one.now_ms)
    one.append(batch_of(b"v"))
    later = one.log.flush_job()
    assert earlier is not None
    assert later is not None
    later.run()
    later.finish()
    one.log.delete_pending_segments()
    producers = one.log.producers.snapshot()
    one.lose_power(random.Random(seed))
    assert one.offsets() == [5]
    assert one.log.producers.snapshot() == producers


def test_a_flush_that_overlaps_with_a_truncation_vouches_for_no_more_than_is_left() -> None:
    one = OneLog()
    one.fill(5)
    job = one.log.flush_job()
    assert job is not None
    job.run()
    one.log.truncate_to(2)
    job.finish()
    assert one.log.recovery_point == one.log.log_end_offset == 2


def test_a_failed_flush_vouches_for_nothing() -> None:
    one = OneLog()
    one.fill(3)
    job = one.log.flush_job()
    assert job is not None
    one.fs.faults.append(Fault("sync", ".log", errno.EIO))
    with pytest.raises(LogDirFailure):
        job.run()
    job.finish()
    assert one.log.recovery_point == 0
    assert one.manager.offline_directories()


def test_one_flush_of_a_directory_is_under_way_at_a_time() -> None:
    broker = Broker(replace(SMALL, flush_ms=0))
    log = broker.log(1)
    broker.run()
    broker.add(log)
    held = broker.due()
    assert held
    broker.add(log)
    assert broker.due(1) == []
    for job in held:
        job.run()
        job.finish()
    broker.run()
    assert log.recovery_point == 2


def test_checkpoints_are_written_at_their_interval() -> None:
    broker = Broker()
    log = broker.log(1)
    broker.add(log)
    broker.run()
    log.flush()
    broker.run(19_999)
    assert broker.stored_recovery_point(log) == 0
    broker.run(1)
    assert broker.stored_recovery_point(log) == 1
    assert log.checkpointed_recovery_point == 1


def test_the_first_date_that_is_vouched_for_does_not_wait_for_the_interval() -> None:
    """Whoever is killed before would leave the next process without one."""
    broker = Broker()
    folder = broker.manager.directories[0].path
    broker.run()
    assert read_directory(broker.fs, folder).vouched_date_ms is None
    for passed_ms in (1, 2):
        broker.manager.vouched_date.look(70, START_MS + passed_ms)
        broker.run(1)
        assert read_directory(broker.fs, folder).vouched_date_ms == START_MS + 71


def test_the_first_date_of_a_boot_does_not_wait_for_the_interval() -> None:
    """What a process of another boot knew is less."""
    broker = Broker(vouched_date=VouchedDate(booted_ms=START_MS - 30))
    broker.manager.vouched_date.learn(START_MS - 2, None)
    broker.run()
    for passed_ms in (1, 2):
        broker.manager.vouched_date.look(70, START_MS + passed_ms)
        broker.run(1)
        found = read_directory(broker.fs, broker.manager.directories[0].path)
        assert (found.vouched_date_ms, found.boot_date_ms) == (START_MS + 71, START_MS + 40)


def test_a_cut_during_a_checkpoint_keeps_its_mark() -> None:
    """The checkpoint speaks of what was there when it began."""
    one = OneLog()
    one.fill(5)
    one.checkpoint()
    one.log.truncate_to(4)
    job = one.manager.checkpoint_job(one.manager.directories[0])
    job.run()
    one.log.truncate_to(2)
    one.fill(2)
    job.finish()
    assert one.names("truncation.checkpoint")
    one.kill()
    assert one.log.recovery_point == 2


def test_a_mark_of_a_cut_goes_with_the_next_checkpoint() -> None:
    one = OneLog()
    one.fill(5)
    one.log.truncate_to(2)
    assert one.names("truncation.checkpoint")
    for _ in range(2):
        one.checkpoint()
        assert one.names("truncation.checkpoint") == []
    assert one.manager.offline_directories() == []


def test_a_checkpoint_that_could_not_be_stored_changes_nothing() -> None:
    one = OneLog()
    one.fill(5)
    one.checkpoint()
    one.log.truncate_to(2)
    one.fill(2)
    one.log.flush()
    job = one.manager.checkpoint_job(one.manager.directories[0])
    one.fs.faults.append(Fault("create", "recovery-point", errno.EMFILE))
    with pytest.raises(LogDirFailure):
        job.run()
    job.finish()
    assert one.names("truncation.checkpoint")
    assert one.log.checkpointed_recovery_point == 2


def test_retention_runs_at_its_interval_and_files_go_after_their_delay() -> None:
    broker = Broker()
    log = broker.log(
        1, replace(SMALL, retention_ms=1000, segment_ms=1 << 40, file_delete_delay_ms=3000)
    )
    broker.run()
    while len(log.segments) < 4:
        broker.add(log)
    broker.run(9_999)
    assert log.log_start_offset == 0
    broker.run(1)
    assert log.log_start_offset == log.log_end_offset > 0, "the active segment is old, too"
    assert broker.manager.take_retained() == [log]
    assert broker.manager.take_retained() == []
    names = broker.fs.list_directory(log.folder)
    assert sum(name.endswith(".log") for name in names) == 5
    for _ in range(3):
        broker.run(900)
    assert len(broker.fs.list_directory(log.folder)) >= len(names)
    broker.add(log)
    log.flush()
    for _ in range(3):
        broker.run(300)
    names = broker.fs.list_directory(log.folder)
    assert [name for name in names if name.endswith(".log")] == [f"{log.log_start_offset:020d}.log"]


def test_an_idle_active_segment_is_rolled_by_its_age() -> None:
    broker = Broker()
    log = broker.log(1, replace(SMALL, segment_ms=7000))
    broker.add(log)
    broker.run(6999)
    assert len(log.segments) == 1
    broker.run(1)
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    broker.run(7000)
    assert len(log.segments) == 2, "an empty segment is not rolled"


def test_producers_expire_at_their_interval() -> None:
    broker = Broker()
    log = broker.log(1, replace(SMALL, producer_id_expiration_ms=15_000))
    buf = batch_of(b"v", timestamps=[broker.now_ms], producer=(7, 0, 0))
    log.append_as_leader(buf, 0, len(buf), leader_epoch=0, now_ms=broker.now_ms)
    broker.run(29_999)
    assert 7 in log.producers.producers
    broker.run(1)
    assert 7 not in log.producers.producers


def test_a_producer_of_old_timestamps_expires_by_when_it_wrote() -> None:
    """Events of last week are written today; a repeated batch must not be taken for a new one."""
    broker = Broker()
    log = broker.log(1, replace(SMALL, producer_id_expiration_ms=15_000))

    def append() -> AppendResult:
        buf = batch_of(b"v", timestamps=[1_000], producer=(7, 0, 0))
        return log.append_as_leader(buf, 0, len(buf), leader_epoch=0, now_ms=broker.now_ms)

    broker.run(29_999)
    assert not append().duplicate
    broker.run(1)
    assert append().duplicate
    broker.run(29_999)
    assert 7 in log.producers.producers
    broker.run(1)
    assert 7 not in log.producers.producers


def test_a_compacted_topic_does_not_wait_for_the_regular_checkpoint() -> None:
    broker = Broker(COMPACTED, replace(CONFIG, checkpoint_interval_ms=1 << 40))
    broker.run()
    log = broker.log(1)
    while len(log.segments) < 3:
        broker.add(log)
    broker.run(1)
    broker.run(1)
    assert log.recovery_point > 0
    assert log.checkpointed_recovery_point == 0
    broker.run(CONFIG.cleaner_backoff_ms)
    for _ in range(10):
        broker.run(200)
    assert log.checkpointed_recovery_point > 0
    sealed_end = log.segments[-1].base_offset
    assert [1 for data in read_all(log)] == [1] * (log.log_end_offset - sealed_end + 1)
    # Nor does it the next time.
    while log.log_end_offset < 200:
        broker.add(log)
    for _ in range(4):
        broker.run(CONFIG.cleaner_backoff_ms)
    assert log.cleaner_offset == log.segments[-1].base_offset


def test_the_cleaner_s_pause_can_change() -> None:
    """A shorter one ends the pause that has begun; a longer one begins with the next."""
    broker = Broker(COMPACTED)
    log = broker.log(1)
    broker.run(CONFIG.cleaner_backoff_ms)

    def cleaned_after(seconds: int) -> bool:
        before = log.cleaner_offset
        while log.log_end_offset - max(0, before) < 100:
            broker.add(log)
        for _ in range(seconds):
            broker.run(1_000)
        return log.cleaner_offset > before

    assert not cleaned_after(3)
    broker.manager.set_cleaner_backoff_ms(500, broker.now_ms)
    assert cleaned_after(3)
    broker.manager.set_cleaner_backoff_ms(60_000, broker.now_ms)
    broker.run(1_000)
    assert not cleaned_after(58)
    assert cleaned_after(3)


def test_the_dirtiest_log_is_compacted_first_and_one_at_a_time() -> None:
    broker = Broker(COMPACTED)
    logs = [broker.log(number) for number in (1, 2, 3)]
    for index in range(60):
        for log in logs:
            broker.add(log, b"key-%d" % (index % 30))
    broker.run()
    for _ in range(40):
        broker.run(3000)
    assert [log.cleaner_offset for log in logs] == [log.segments[-1].base_offset for log in logs]
    more = {0: 25, 1: 100, 2: 50}
    for index, count in more.items():
        for number in range(count):
            broker.add(logs[index], b"key-%d" % (number % 30))
    broker.run()
    order = []
    for _ in range(60):
        jobs = broker.due(1000)
        compactions = [
            job.job for job in jobs if isinstance(getattr(job, "job", None), CompactionJob)
        ]
        assert len(compactions) <= 1
        order += [logs.index(job.log) for job in compactions]
        if compactions:
            assert not [
                job
                for job in broker.due(5000)
                if isinstance(getattr(job, "job", None), CompactionJob)
            ]
        for job in jobs:
            job.run()
            job.finish()
    assert order[:3] == [1, 2, 0]


def test_the_scrubber_finds_damage_that_nobody_reads() -> None:
    broker = Broker(maintenance=replace(CONFIG, scrub_interval_ms=50_000))
    log = broker.log(1)
    while len(log.segments) < 4:
        broker.add(log)
    broker.run()
    path = log.segments[1].path()
    broker.manager.close(broker.now_ms)
    broker.fs.process_death()
    broker.fs.flip_bit(path, 90)
    manager = LogManager(
        [Path("/data")],
        default_config=SMALL,
        fs=broker.fs,
        now_ms=broker.now_ms,
        maintenance=replace(CONFIG, scrub_interval_ms=50_000),
    )
    assert manager.start(broker.now_ms) == []
    broker.manager = manager
    for _ in range(5):
        broker.run(1000)
    reports = manager.take_corruption_reports()
    assert [(report.path, report.position) for report in reports] == [(path, 0)]
    for _ in range(100):
        broker.run(1000)
    assert manager.take_corruption_reports() == [], "told once"


def test_the_scrubber_keeps_to_its_rate_and_rests_between_two_rounds() -> None:
    scrubbing = replace(CONFIG, scrub_interval_ms=500_000, scrub_bytes_per_second=100)
    manager = LogManager(
        [Path("/a"), Path("/b")],
        default_config=SMALL,
        fs=SimFileSystem(),
        now_ms=START_MS,
        maintenance=scrubbing,
    )
    assert manager.start(START_MS) == []
    log = manager.create(UUID(int=1), "topic", 0)
    while len(log.segments) < 4:
        buf = batch_of(bytes(100))
        log.append_as_leader(buf, 0, len(buf), leader_epoch=0, now_ms=START_MS)
    steps = []
    for seconds in range(600):
        for job in manager.tick(START_MS + 1000 * seconds):
            if isinstance(getattr(job, "job", None), ScrubJob):
                steps.append(seconds)
            job.run()
            job.finish()
    # One segment a step, each of which has earned its rest.
    rests = [-(-segment.size // 100) for segment in log.segments[:-1]]
    assert rests[0] > 10
    round_ = [0, rests[0], rests[0] + rests[1]]
    assert steps == [*round_, *(500 + seconds for seconds in round_)]


def test_what_is_written_right_after_a_start_is_old_one_interval_later_at_the_earliest() -> None:
    """A broker's first tick comes a moment after its start; what clients send until then may carry
    any timestamp."""
    broker = Broker(config=replace(SMALL, retention_ms=1_000))
    log = broker.log(1)
    buf = batch_of(b"v", timestamps=[START_MS - 5_000])
    log.append_as_leader(buf, 0, len(buf), leader_epoch=0, now_ms=START_MS)
    log.advance_high_watermark(1)
    broker.due(900)
    assert log.log_start_offset == 0
    broker.due(9_100)
    assert log.log_start_offset == 1
