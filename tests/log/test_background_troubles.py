"""Background work in trouble: a disk that fails, a process without descriptors, a bug, a stop.

No trouble with one log or disk keeps the others from their turn, nothing counts as under way that
nobody runs, and what was nobody's fault is tried again.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from data_plane.log.compaction import CompactionJob
from data_plane.log.errors import LogDirFailure
from data_plane.log.file_system import Buffer
from data_plane.log.fold import FoldContext, FoldFactory, FrozenBytes, HoldsAll, StoredBatch
from data_plane.log.lanes import Job, Lane
from data_plane.log.log import Log
from data_plane.log.maintenance import MaintenanceConfig
from data_plane.log.manager import LogManager
from data_plane.log.scrubber import ScrubJob
from data_plane.log.sim_file_system import Fault, SimFileSystem
from tests.log.one_log import SMALL, START_MS, batch_of

CONFIG = MaintenanceConfig(
    retention_check_interval_ms=10_000,
    checkpoint_interval_ms=10_000,
    cleaner_backoff_ms=1_000,
    scrub_interval_ms=-1,
)
SCRUBBED = replace(CONFIG, scrub_interval_ms=50_000)
PLAIN = replace(SMALL, flush_ms=1_000)
TABLE = replace(
    SMALL,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.01,
    flush_ms=1_000,
)
TABLE_ID, PLAIN_ID = UUID(int=1), UUID(int=2)


class BrokenFold:
    """A fold with a bug: it cannot say what it knows of an odd number of batches."""

    extension = ".broken"

    def __init__(self, context: FoldContext) -> None:
        self.batches_count = 0

    def apply(self, batch: StoredBatch) -> None:
        self.batches_count += 1

    def __len__(self) -> int:
        return self.batches_count

    def held_from(self, start_offset: int) -> int | None:
        return None

    def freeze_held(self) -> HoldsAll:
        return HoldsAll()

    def freeze(self) -> FrozenBytes:
        return FrozenBytes(self.snapshot())

    def snapshot(self) -> bytes:
        if self.batches_count % 2:
            raise ZeroDivisionError("a feature's bug")
        return self.batches_count.to_bytes(8)

    def restore(self, pieces: Iterable[Buffer]) -> None:
        data = b"".join(pieces)
        self.batches_count = int.from_bytes(data)


class Disks:
    """A broker's logs on two disks: a table on /a, a plain log on /b (or both on the only one)."""

    def __init__(self, *paths: str, maintenance: MaintenanceConfig = CONFIG) -> None:
        self.fs = SimFileSystem()
        self.paths = [Path(path) for path in paths]
        self.maintenance = maintenance
        self.now_ms = START_MS
        self.folds: list[FoldFactory] = []
        self.start()
        self.manager.create(TABLE_ID, "table", 0, TABLE)
        self.manager.create(PLAIN_ID, "plain", 0, PLAIN)

    def start(self) -> None:
        self.manager = LogManager(
            self.paths,
            default_config=PLAIN,
            fs=self.fs,
            fold_factories=self.folds,
            now_ms=self.now_ms,
            maintenance=self.maintenance,
        )
        assert self.manager.start(self.now_ms) == []

    def restart(self) -> None:
        """A clean stop and a start; both logs are in use at once."""
        self.manager.close(self.now_ms)
        self.fs.process_death()
        self.start()
        for log, config in ((self.table, TABLE), (self.plain, PLAIN)):
            log.update_config(config)
            log.load()

    @property
    def table(self) -> Log:
        return self.manager.get(TABLE_ID, 0)

    @property
    def plain(self) -> Log:
        return self.manager.get(PLAIN_ID, 0)

    def add(self, log: Log, count: int = 1) -> None:
        for _ in range(count):
            buf = batch_of(bytes(150), keys=[b"k"], timestamps=[self.now_ms])
            log.append_as_leader(buf, 0, len(buf), leader_epoch=0, now_ms=self.now_ms)
            log.advance_high_watermark(log.log_end_offset)

    def due(self, wait_ms: int = 1_000) -> list[Job]:
        self.now_ms += wait_ms
        return self.manager.tick(self.now_ms)

    def run(self, wait_ms: int = 1_000) -> list[Exception]:
        """Tick, and run what is due, as the broker does; what the jobs raised."""
        errors: list[Exception] = []
        for job in self.due(wait_ms):
            try:
                job.run()
            except Exception as error:
                errors.append(error)
            job.finish()
        return errors

    def assert_plain_is_kept(self) -> None:
        """Its records are flushed in time, and segments go as retention says."""
        for _ in range(20):
            self.add(self.plain)
            self.run()
        assert self.plain.recovery_point >= self.plain.log_end_offset - 2
        self.plain.update_config(replace(PLAIN, retention_bytes=1))
        self.run(10_000)
        for _ in range(4):
            self.run()
        names = self.fs.list_directory(self.plain.folder)
        assert len([name for name in names if name.endswith(".log")]) <= 2


def offset_of_end(log: Log) -> int:
    return log.segments[-1].base_offset


@pytest.mark.parametrize("error_number", [errno.EMFILE, errno.ENOMEM], ids=errno.errorcode.get)
def test_a_cleaner_that_finds_no_descriptor_as_it_looks_costs_nobody_a_flush(
    error_number: int,
) -> None:
    disks = Disks("/data")
    disks.add(disks.table, 30)
    disks.restart()
    disks.add(disks.plain)
    disks.fs.faults.append(Fault("open", f"{TABLE_ID}/", error_number))
    assert disks.run(2_000) == []
    assert disks.fs.faults == [], "it was the look at the table that found none"
    assert disks.manager.offline_directories() == []
    disks.assert_plain_is_kept()
    assert disks.table.cleaner_offset == offset_of_end(disks.table), "and the table had its turn"


def test_a_bad_sector_in_an_index_costs_one_disk_and_no_other() -> None:
    disks = Disks("/a", "/b")
    disks.add(disks.table, 30)
    disks.restart()
    assert (disks.table.log_directory.path, disks.plain.log_directory.path) == ("/a", "/b")
    disks.fs.faults.append(Fault("read", ".timeindex", errno.EIO))
    disks.run(2_000)
    assert [one.path for one in disks.manager.offline_directories()] == ["/a"]
    with pytest.raises(LogDirFailure):
        disks.add(disks.table)
    disks.assert_plain_is_kept()


def test_a_checkpoint_that_meets_a_bad_sector_costs_one_disk_and_no_other() -> None:
    """Its summary says how old the first segment is, and that is in its index."""
    disks = Disks("/a", "/b")
    disks.add(disks.table, 30)
    disks.restart()
    for log in (disks.table, disks.plain):
        log.update_config(PLAIN)
    disks.fs.faults.append(Fault("read", ".timeindex", errno.EIO))
    disks.run(20_000)
    assert [one.path for one in disks.manager.offline_directories()] == ["/a"]
    disks.assert_plain_is_kept()


def test_a_stop_that_meets_a_bad_sector_closes_the_other_disks_in_good_order() -> None:
    disks = Disks("/a", "/b")
    disks.add(disks.table, 30)
    disks.restart()
    disks.fs.faults.append(Fault("read", ".timeindex", errno.EIO))
    disks.manager.close(disks.now_ms)
    assert "clean-shutdown" not in disks.fs.list_directory("/a")
    assert "clean-shutdown" in disks.fs.list_directory("/b")


def test_a_bug_met_with_one_log_keeps_no_other_from_its_turn() -> None:
    disks = Disks("/data")
    disks.folds = [BrokenFold]
    disks.restart()
    disks.table.update_config(replace(TABLE, segment_ms=5_000))
    disks.plain.update_config(replace(PLAIN, segment_bytes=1 << 20))
    disks.add(disks.table)
    disks.run(6_000)
    faults = disks.manager.take_faults()
    assert {fault.what for fault in faults} == {disks.table.folder}
    assert {type(fault.error) for fault in faults} == {ZeroDivisionError}
    assert disks.manager.take_faults() == []
    for _ in range(20):
        disks.add(disks.plain, 2)
        disks.run()
    assert disks.plain.recovery_point >= disks.plain.log_end_offset - 4


def test_files_that_could_not_be_removed_are_removed_later() -> None:
    disks = Disks("/data")
    disks.add(disks.plain, 30)
    disks.run()
    disks.run()
    disks.plain.update_config(replace(PLAIN, retention_bytes=1))
    disks.plain.apply_retention(disks.now_ms)
    disks.add(disks.plain)
    disks.plain.flush()
    disks.add(disks.plain)
    pending_deletion = list(disks.plain.pending_deletion or ())
    assert pending_deletion
    disks.fs.faults.append(Fault("create", "log-start", errno.EMFILE))
    (job,) = [one for one in disks.due(1) if one.lane is Lane.DELETION]
    with pytest.raises(LogDirFailure):
        job.run()
    job.finish()
    assert disks.manager.offline_directories() == []
    for _ in range(3):
        disks.run()
    names = disks.fs.list_directory(disks.plain.folder)
    assert not {segment.path().rpartition("/")[2] for segment, _ in pending_deletion} & set(names)
    assert disks.plain.pending_deletion is None


def scrub_job(disks: Disks) -> Job:
    (job,) = [one for one in disks.due(0) if one.lane is Lane.CLEANER]
    assert isinstance(getattr(job, "job", None), ScrubJob)
    return job


def test_what_the_scrubber_could_not_open_is_checked_later_in_the_same_round() -> None:
    disks = Disks("/data", maintenance=SCRUBBED)
    disks.add(disks.plain, 30)
    disks.manager.close(disks.now_ms)
    disks.fs.process_death()
    path = f"{disks.plain.folder}/{0:020d}.log"
    disks.fs.flip_bit(path, 90)
    disks.start()
    disks.plain.load()
    job = scrub_job(disks)
    disks.fs.faults.append(Fault("open", ".log", errno.EMFILE))
    with pytest.raises(LogDirFailure):
        job.run()
    job.finish()
    for _ in range(3):
        disks.run()
    assert [found.path for found in disks.manager.take_corruption_reports()] == [path]


# What is long ends at its next step when the broker stops.


def compaction(disks: Disks) -> Job:
    """The compaction of a table with much to do, handed out and not run."""
    disks.add(disks.table, 100)
    for _ in range(10):
        for job in disks.due():
            if isinstance(getattr(job, "job", None), CompactionJob):
                return job
            job.run()
            job.finish()
    pytest.fail("nothing was compacted")


def test_a_compaction_ends_when_the_broker_stops_and_is_made_after_the_next_start() -> None:
    disks = Disks("/data")
    job = compaction(disks)
    disks.manager.stop_jobs()
    job.run()
    job.finish()
    names = disks.fs.list_directory(disks.table.folder)
    assert not [name for name in names if name.endswith(".cleaned")]
    assert (disks.table.cleaner_offset, disks.table.is_uncleanable) == (-1, False)
    disks.restart()
    for _ in range(5):
        disks.run()
    assert disks.table.cleaner_offset == offset_of_end(disks.table)


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_compaction_ends_in_its_midst(pieces: int) -> None:
    disks = Disks("/data")
    job = compaction(disks)
    path = disks.table.segments[pieces].path()
    stop_at(disks, path)
    job.run()
    job.finish()
    assert disks.table.cleaner_offset == -1
    assert disks.manager.offline_directories() == []


def stop_at(disks: Disks, stopped_at: str) -> None:
    """The sign goes up as that file is opened."""
    check = disks.fs.check_fault

    def checking(operation: str, path: str) -> Fault | None:
        if operation == "open" and path == stopped_at:
            disks.manager.stop_jobs()
        return check(operation, path)

    disks.fs.check_fault = checking  # type: ignore[method-assign]


def test_a_scrub_ends_when_the_broker_stops() -> None:
    disks = Disks("/data", maintenance=SCRUBBED)
    disks.add(disks.plain, 30)
    disks.restart()
    job = scrub_job(disks)
    stop_at(disks, disks.plain.segments[1].path())
    job.run()
    job.finish()
    # The first one is done; the second one has ended where the sign went up.
    assert [segment.unverified_end > 0 for segment in disks.plain.segments[:3]] == [
        False,
        True,
        True,
    ]


def test_a_deletion_of_many_files_ends_when_the_broker_stops_and_goes_on_at_the_next_start() -> (
    None
):
    disks = Disks("/data")
    disks.add(disks.plain, 60)
    disks.manager.delete(PLAIN_ID, 0, disks.now_ms)
    (job,) = [one for one in disks.due() if one.lane is Lane.DELETION]
    disks.manager.stop_jobs()
    job.run()
    job.finish()
    (topic,) = [name for name in disks.fs.list_directory("/data/topics") if name == str(PLAIN_ID)]
    assert disks.fs.list_directory(f"/data/topics/{topic}")
    disks.manager.close(disks.now_ms)
    disks.fs.process_death()
    disks.start()
    disks.run()
    assert topic not in disks.fs.list_directory("/data/topics")


def test_flushes_of_many_logs_end_when_the_broker_stops_and_the_stop_makes_them() -> None:
    disks = Disks("/data")
    disks.run()
    disks.add(disks.plain)
    disks.add(disks.table)
    (job,) = [one for one in disks.due() if one.lane is Lane.FLUSH]
    disks.manager.stop_jobs()
    job.run()
    job.finish()
    assert (disks.plain.recovery_point, disks.table.recovery_point) == (0, 0)
    disks.restart()
    assert (disks.plain.recovery_point, disks.table.recovery_point) == (1, 1)


def test_segments_that_a_stop_left_undone_are_still_on_the_list() -> None:
    disks = Disks("/data")
    disks.add(disks.plain, 30)
    for _ in range(2):
        disks.run()
    disks.plain.update_config(replace(PLAIN, retention_bytes=1))
    disks.plain.apply_retention(disks.now_ms)
    disks.add(disks.plain)
    disks.plain.flush()
    disks.add(disks.plain)
    (job,) = [one for one in disks.due(1) if one.lane is Lane.DELETION]
    pending_deletion = list(disks.plain.pending_deletion or ())
    disks.manager.stop_jobs()
    job.run()
    job.finish()
    assert disks.plain.pending_deletion == pending_deletion != []
    for segment, _ in pending_deletion:
        assert disks.fs.size(segment.path()) == segment.size
