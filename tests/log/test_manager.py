"""The log manager: directories, partitions that come and go, starts and stops, failing disks."""

from __future__ import annotations

import errno
import random
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from data_plane.log import maintenance
from data_plane.log.checkpoints import decode_value, encode_value
from data_plane.log.config import LogConfig
from data_plane.log.errors import DirectoryLocked, LogDirFailure, UnknownPartition
from data_plane.log.file_system import File, SyncSite
from data_plane.log.flush import FlushJob
from data_plane.log.log import Log
from data_plane.log.maintenance import MaintenanceConfig
from data_plane.log.manager import LogManager
from data_plane.log.retention import SegmentDeletionJob, files_to_delete, segment_deletion_job
from data_plane.log.sim_file_system import Fault, SimFileSystem
from data_plane.wire.errors import ErrorCode
from tests.log.one_log import SMALL, START_MS, OneLog, batch_of
from tests.log.world import read_all

TOPIC_ID = UUID(int=21)
FAR = 1 << 62


def started(
    fs: SimFileSystem,
    directories: tuple[str, ...] = ("/data",),
    *,
    config: LogConfig = SMALL,
    open_segments_max: int = 100,
    now_ms: int = START_MS,
) -> LogManager:
    manager = LogManager(
        [Path(one) for one in directories],
        default_config=config,
        fs=fs,
        now_ms=now_ms,
        open_segments_max=open_segments_max,
        maintenance=MaintenanceConfig(scrub_interval_ms=-1),
    )
    assert manager.start(now_ms) == []
    return manager


def add(log: Log, value: bytes = b"v", now_ms: int = START_MS) -> None:
    buf = batch_of(value, timestamps=[now_ms])
    log.append_as_leader(buf, 0, len(buf), leader_epoch=0, now_ms=now_ms)
    log.advance_high_watermark(log.log_end_offset)


def add_durably(log: Log) -> None:
    add(log)
    log.flush()


def run(manager: LogManager, now_ms: int) -> int:
    """Run all jobs that are due now; returns how many."""
    jobs = manager.tick(now_ms)
    for job in jobs:
        try:
            job.run()
        except LogDirFailure:
            assert manager.offline_directories()
        finally:
            job.finish()
    return len(jobs)


def test_logs_are_made_found_and_found_again() -> None:
    fs = SimFileSystem()
    manager = started(fs)
    for partition in range(3):
        add(manager.create(TOPIC_ID, "flights", partition), b"%d" % partition)
    with pytest.raises(UnknownPartition):
        manager.get(TOPIC_ID, 3)
    for is_clean in (True, False):
        manager.close(START_MS, clean=is_clean)
        fs.process_death()
        manager = started(fs)
        assert manager.recovered_logs == (0 if is_clean else 3)
        assert manager.partition_ids() == [(TOPIC_ID, partition) for partition in range(3)]
        for partition in range(3):
            log = manager.get(TOPIC_ID, partition)
            assert (log.topic, log.partition, log.log_end_offset) == ("flights", partition, 1)
            assert b"%d" % partition in read_all(log)[0]
            add(log)
            assert log.log_end_offset == 2
            log.truncate_to(1)


def test_a_start_tells_how_many_logs_are_open_and_which_had_to_recover() -> None:
    fs = SimFileSystem()
    manager = started(fs, ("/data", "/more"))
    for partition in range(5):
        add(manager.create(TOPIC_ID, "flights", partition))
    told: list[tuple[str, int, int, int]] = []
    for is_clean in (False, True):
        manager.close(START_MS, clean=is_clean)
        fs.process_death()
        manager = LogManager([Path("/data"), Path("/more")], default_config=SMALL, fs=fs)
        told.clear()
        manager.start(START_MS, lambda *found: told.append(found))
        assert told == [
            (path, opened, total, 0 if is_clean else opened)
            for path, total in (("/data", 3), ("/more", 2))
            for opened in range(1, total + 1)
        ]


def test_after_a_clean_stop_no_log_is_looked_at() -> None:
    fs = SimFileSystem()
    manager = started(fs)
    for partition in range(5):
        log = manager.create(TOPIC_ID, "flights", partition)
        for _ in range(30):
            add(log, bytes(100))
    manager.close(START_MS)
    fs.process_death()
    fs.faults = [Fault(kind, "Partition-", errno.EIO) for kind in ("open", "read", "sync")]
    manager = started(fs)
    for log in manager.logs():
        assert not log.is_loaded
        assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (0, 30, 0)
        assert log.high_watermark == 30
        assert log.size_bytes > 3000
    fs.faults = []
    assert len(read_all(manager.get(TOPIC_ID, 4))) == 30
    assert [log.is_loaded for log in manager.logs()] == [False] * 4 + [True]


def test_two_processes_do_not_share_a_directory() -> None:
    fs = SimFileSystem()
    first = started(fs)
    second = LogManager([Path("/other"), Path("/data")], default_config=SMALL, fs=fs)
    with pytest.raises(DirectoryLocked, match="/data"):
        second.start(START_MS)
    # The one that gave up left nothing locked.
    third = started(fs, ("/other",))
    third.close(START_MS)
    first.close(START_MS)
    started(fs).close(START_MS)


def test_new_logs_go_where_there_are_fewest() -> None:
    fs = SimFileSystem()
    manager = started(fs, ("/a", "/b"))
    for partition in range(6):
        manager.create(TOPIC_ID, "flights", partition)
    places = [str(log.directory).split("/")[1] for log in manager.logs()]
    assert sorted(places) == ["a"] * 3 + ["b"] * 3
    for log in manager.logs():
        if str(log.directory).startswith("/b"):
            manager.delete(TOPIC_ID, log.partition, START_MS)
    assert str(manager.create(TOPIC_ID, "flights", 9).directory).startswith("/b")


def test_a_deleted_log_is_gone_at_once_and_its_files_later() -> None:
    fs = SimFileSystem()
    config = replace(SMALL, file_delete_delay_ms=5000)
    manager = started(fs, config=config)
    add(manager.create(TOPIC_ID, "flights", 0))
    add(manager.create(TOPIC_ID, "flights", 1))
    topic_folder = f"/data/topics/{TOPIC_ID}"
    manager.delete(TOPIC_ID, 0, START_MS)
    with pytest.raises(UnknownPartition):
        manager.get(TOPIC_ID, 0)
    run(manager, START_MS)
    run(manager, START_MS + 4999)
    names = fs.list_directory(topic_folder)
    assert len(names) == 2
    assert sum(name.endswith("-delete") for name in names) == 1
    # It may come back under its name meanwhile.
    add(manager.create(TOPIC_ID, "flights", 0), b"second life")
    run(manager, START_MS + 5000)
    assert fs.list_directory(topic_folder) == ["Partition-0", "Partition-1"]
    assert b"second life" in read_all(manager.get(TOPIC_ID, 0))[0]
    for partition in (0, 1):
        manager.delete(TOPIC_ID, partition, START_MS + 6000)
    run(manager, START_MS + 11_000)
    assert fs.list_directory("/data/topics") == []


def test_a_log_comes_while_the_last_other_one_of_its_topic_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs = SimFileSystem()
    manager = started(fs)
    add(manager.create(TOPIC_ID, "flights", 0))
    manager.delete(TOPIC_ID, 0, START_MS)
    make_directory = fs.make_directory
    made: list[str] = []

    def make_and_remove(path: str) -> bool:
        is_new = make_directory(path)
        made.append(path)
        if len(made) == 1:
            # The thread takes the deleted one's folder, and that of the topic.
            run(manager, START_MS)
            assert fs.list_directory("/data/topics") == []
        return is_new

    monkeypatch.setattr(fs, "make_directory", make_and_remove)
    add_durably(manager.create(TOPIC_ID, "flights", 1))
    assert manager.directories[0].failure is None
    assert fs.list_directory(f"/data/topics/{TOPIC_ID}") == ["Partition-1"]


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_deleted_log_does_not_take_the_place_of_its_successor(is_elsewhere: bool) -> None:
    """Its folder had no time to be synced under its new name. The successor may be elsewhere."""
    directories = ("/a", "/b") if is_elsewhere else ("/a",)
    survivors = 0
    for seed in range(40):
        fs = SimFileSystem()
        manager = started(fs, directories)
        add_durably(manager.create(TOPIC_ID, "flights", 0))
        before = manager.create(TOPIC_ID, "flights", 1)
        add_durably(before)
        for partition in (0, 1):
            manager.delete(TOPIC_ID, partition, START_MS)
        after = manager.create(TOPIC_ID, "flights", 1)
        assert (after.directory != before.directory) == is_elsewhere
        add(after, b"of the second life")
        fs.power_loss(random.Random(seed))
        manager = started(fs, directories)
        if (TOPIC_ID, 1) in manager.partition_ids():
            found = read_all(manager.get(TOPIC_ID, 1))
            assert all(b"of the second life" in data for data in found), f"seed {seed}"
            survivors += bool(found)
    assert survivors


@pytest.mark.parametrize("kind", ["flush", "deletion"])
def test_a_deletion_under_a_running_job_leaves_the_directory_online(kind: str) -> None:
    fs = SimFileSystem()
    manager = started(fs, config=replace(SMALL, file_delete_delay_ms=0))
    log = manager.create(TOPIC_ID, "flights", 0)
    kept = manager.create(TOPIC_ID, "flights", 1)
    while len(log.segments) < 3:
        add_durably(log)
    log.delete_records(-1)
    job: FlushJob | SegmentDeletionJob | None
    if kind == "deletion":
        log.flush()
        log.apply_retention(START_MS)
        job = segment_deletion_job(log, START_MS)
    else:
        job = log.flush_job()
    assert job is not None
    manager.delete(TOPIC_ID, 0, START_MS)
    job.run()
    job.finish()
    run(manager, START_MS)
    assert manager.directories[0].failure is None
    add_durably(kept)
    assert fs.list_directory(f"/data/topics/{TOPIC_ID}") == ["Partition-1"]


def test_a_deletion_is_finished_after_a_restart() -> None:
    fs = SimFileSystem()
    manager = started(fs)
    add(manager.create(TOPIC_ID, "flights", 0))
    manager.delete(TOPIC_ID, 0, START_MS)
    fs.process_death()
    manager = started(fs)
    assert manager.partition_ids() == []
    run(manager, START_MS)
    assert fs.list_directory("/data/topics") == []


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failing_disk_goes_offline_alone(operation: str, number: int) -> None:
    fs = SimFileSystem()
    manager = started(fs, ("/a", "/b"))
    for partition in range(4):
        add(manager.create(TOPIC_ID, "flights", partition))
    bad = [log for log in manager.logs() if str(log.directory).startswith("/a")]
    good = [log for log in manager.logs() if log not in bad]
    assert len(bad) == len(good) == 2
    fs.faults.append(Fault(operation, "/a/", number, partial_bytes=20))
    with pytest.raises(LogDirFailure, match="/a is offline") as failure:
        add_durably(bad[0])
    assert failure.value.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [directory.path for directory in manager.offline_directories()] == ["/a"]
    # The whole directory answers so from then on, though the disk works again.
    for log in bad:
        with pytest.raises(LogDirFailure):
            add(log)
        with pytest.raises(LogDirFailure):
            log.read(0, 100, max_offset=FAR, at_least_one_batch=True)
        with pytest.raises(LogDirFailure):
            log.delete_records(1)
        with pytest.raises(LogDirFailure):
            manager.delete(TOPIC_ID, log.partition, START_MS)
    for log in good:
        add(log)
        log.flush()
        assert len(read_all(log)) == 2
    assert str(manager.create(TOPIC_ID, "flights", 9).directory).startswith("/b")
    for tick in range(5):
        run(manager, START_MS + tick * 100_000)
    ends = {log.partition: log.log_end_offset for log in manager.logs()}
    manager.close(START_MS)
    fs.process_death()
    # After repair and restart all is there, and only the failed directory was not clean.
    manager = started(fs, ("/a", "/b"))
    assert {log.partition: log.log_end_offset for log in manager.logs()} == ends
    assert manager.recovered_logs <= 2
    for log in manager.logs():
        add(log)
        assert len(read_all(log)) == log.log_end_offset


def test_a_directory_that_is_broken_at_the_start_does_not_keep_others_down() -> None:
    fs = SimFileSystem()
    manager = started(fs, ("/a", "/b"))
    for partition in range(2):
        add(manager.create(TOPIC_ID, "flights", partition))
    manager.close(START_MS)
    fs.process_death()
    fs.faults.append(Fault("open", "/a/.lock", errno.EIO))
    manager = LogManager([Path("/a"), Path("/b")], default_config=SMALL, fs=fs)
    assert [failure.directory for failure in manager.start(START_MS)] == ["/a"]
    assert len(manager.logs()) == 1
    add(manager.logs()[0])
    manager.close(START_MS)
    fs.process_death()
    assert len(started(fs, ("/a", "/b")).logs()) == 2


def test_without_any_directory_creating_fails_cleanly() -> None:
    fs = SimFileSystem()
    manager = started(fs)
    fs.faults.append(Fault("create", "partition.json", errno.ENOSPC))
    with pytest.raises(LogDirFailure):
        manager.create(TOPIC_ID, "flights", 0)
    with pytest.raises(LogDirFailure):
        manager.create(TOPIC_ID, "flights", 0)
    assert manager.partition_ids() == []


def test_a_full_disk_takes_no_half_batch() -> None:
    one = OneLog()
    one.fill(3)
    one.log.flush()
    expected = read_all(one.log)
    one.fs.capacity_bytes = one.fs.used_bytes() + 50
    with pytest.raises(LogDirFailure, match="space"):
        one.fill(1)
    assert one.log.log_end_offset == 3
    assert one.fs.size(one.log.active.path()) == sum(map(len, expected))
    one.fs.capacity_bytes = None
    one.kill()
    assert read_all(one.log) == expected
    one.fill(1)
    assert one.offsets() == [0, 1, 2, 3]


def test_open_files_stay_below_the_maximum() -> None:
    fs = SimFileSystem()
    manager = started(fs, open_segments_max=4)
    open_files = manager.directories[0].open_files
    for partition in range(10):
        log = manager.create(TOPIC_ID, "flights", partition)
        for _ in range(40):
            add(log, bytes(100))
        assert len(open_files) <= 4
    assert sum(len(log.segments) for log in manager.logs()) > 20
    for log in manager.logs():
        add(log)
        assert len(read_all(log)) == 41
        log.flush()
        assert len(open_files) <= 4
    opened = [s for log in manager.logs() for s in log.segments if s.file is not None]
    assert len(opened) <= 4
    manager.close(START_MS)
    assert [s for log in manager.logs() for s in log.segments if s.file is not None] == []
    assert len(open_files) == 0


def test_more_segments_are_flushed_than_may_be_open() -> None:
    """As after a kill -9, when a log has thousands that nobody has synced."""
    fs = SimFileSystem()
    manager = started(fs, open_segments_max=4)
    open_files = manager.directories[0].open_files
    log = manager.create(TOPIC_ID, "flights", 0)
    while len(log.segments) < 12:
        add(log, bytes(100))
    other = manager.create(TOPIC_ID, "flights", 1)
    while len(other.segments) < 3:
        add(other, bytes(100))
    job = log.flush_job()
    assert job is not None
    assert len(open_files) <= 4
    count = len(read_all(other))
    job.run()
    job.finish()
    assert log.recovery_point == log.log_end_offset
    expected = read_all(log)
    fs.process_death()
    fs.power_loss(random.Random(1))
    manager = started(fs, open_segments_max=4)
    assert read_all(manager.get(TOPIC_ID, 0)) == expected
    assert len(read_all(manager.get(TOPIC_ID, 1))) <= count


@pytest.mark.parametrize("by_retention", [True, False])
def test_a_segment_that_somebody_removed_is_not_taken_for_synced(
    by_retention: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = SimFileSystem()
    manager = started(fs, open_segments_max=4)
    log = manager.create(TOPIC_ID, "flights", 0)
    while len(log.segments) < 12:
        add(log, bytes(100))
    job = log.flush_job()
    assert job is not None
    first = log.segments[0]
    open_file = fs.open

    def open_after_removal(path: str, *, create: bool = False, write: bool = True) -> File:
        if path == first.path() and not first.retired:
            for gone in files_to_delete(log, [first]):
                fs.unlink(gone)
        return open_file(path, create=create, write=write)

    if by_retention:
        monkeypatch.setattr(fs, "open", open_after_removal)
        job.run()
    else:
        fs.unlink(first.path())
        with pytest.raises(LogDirFailure, match=f"{first.path()} is gone"):
            job.run()
    job.finish()
    assert log.recovery_point == (log.log_end_offset if by_retention else 0)


def test_files_that_a_flush_uses_stay_open_and_others_may_be_opened() -> None:
    manager = started(SimFileSystem(), open_segments_max=3)
    open_files = manager.directories[0].open_files
    log = manager.create(TOPIC_ID, "flights", 0)
    while len(log.segments) < 3:
        add(log, bytes(100))
    assert len(open_files) == 3
    job = log.flush_job()
    assert job is not None
    other = manager.create(TOPIC_ID, "flights", 1)
    add(other)
    assert len(read_all(other)) == 1
    assert all(segment.file is not None for segment in log.segments)
    job.run()
    job.finish()
    add(manager.create(TOPIC_ID, "flights", 2))
    assert len(open_files) == 3
    assert log.recovery_point == log.log_end_offset


def test_a_flush_keeps_the_files_of_a_log_that_is_deleted_open() -> None:
    """Else the worker thread would sync through a descriptor that is closed, or another file's."""
    manager = started(SimFileSystem())
    log = manager.create(TOPIC_ID, "flights", 0)
    add(log)
    job = log.flush_job()
    assert job is not None
    manager.delete(TOPIC_ID, 0, START_MS)
    assert log.active.file is not None
    job.run()
    job.finish()
    assert manager.offline_directories() == []


def test_strange_folders_are_left_alone() -> None:
    fs = SimFileSystem()
    manager = started(fs)
    add(manager.create(TOPIC_ID, "flights", 0))
    manager.close(START_MS)
    fs.process_death()
    fs.make_directory("/data/topics/lost+found")
    fs.make_directory(f"/data/topics/{TOPIC_ID}/Partition-x")
    fs.open("/data/topics/note.txt", create=True).write_at(0, b"mine")
    manager = started(fs)
    assert manager.partition_ids() == [(TOPIC_ID, 0)]
    assert fs.read_file("/data/topics/note.txt") == b"mine"
    assert "Partition-x" in fs.list_directory(f"/data/topics/{TOPIC_ID}")


def clean_epoch(fs: SimFileSystem, directories: tuple[str, ...]) -> int | None:
    """What a start would learn."""
    manager = LogManager([Path(one) for one in directories], default_config=SMALL, fs=fs)
    manager.lock()
    epoch = manager.clean_broker_epoch()
    manager.close(START_MS, clean=False)
    return epoch


def test_a_clean_stop_names_its_broker_epoch() -> None:
    fs = SimFileSystem()
    directories = ("/a", "/b")
    assert clean_epoch(fs, directories) is None, "there was no life before"
    started(fs, directories).close(START_MS, broker_epoch=17)
    assert clean_epoch(fs, directories) == 17
    assert clean_epoch(fs, directories) == 17, "looking takes nothing away"


def test_a_killed_process_names_its_broker_epoch_while_the_machine_goes_on() -> None:
    fs = SimFileSystem()
    directories = ("/a", "/b")
    started(fs, directories).close(START_MS, broker_epoch=17)
    # Killed before it was registered: the life of the last one went on.
    started(fs, directories)
    fs.process_death()
    assert clean_epoch(fs, directories) == 17
    manager = LogManager([Path(one) for one in directories], default_config=SMALL, fs=fs)
    manager.lock()
    manager.set_broker_epoch(18)
    assert manager.start(START_MS) == []
    fs.process_death()
    assert clean_epoch(fs, directories) == 18
    fs.power_loss(random.Random(1))
    assert clean_epoch(fs, directories) is None, "the page cache is gone"
    started(fs, directories)
    fs.process_death()
    assert clean_epoch(fs, directories) is None, "and no later life brings it back"


def test_a_process_that_is_killed_soon_after_a_clean_stop_names_its_own_epoch() -> None:
    fs = SimFileSystem()
    started(fs, ("/a",)).close(START_MS, broker_epoch=17)
    manager = LogManager([Path("/a")], default_config=SMALL, fs=fs)
    manager.lock()
    manager.set_broker_epoch(18)
    assert manager.start(START_MS) == []
    fs.process_death()
    assert clean_epoch(fs, ("/a",)) == 18


def test_a_directory_that_fails_during_its_checkpoint_has_none_that_vouches_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The checkpoint that another thread was writing comes after the one that was withdrawn."""
    fs = SimFileSystem()
    manager = LogManager([Path("/a")], default_config=SMALL, fs=fs)
    manager.lock()
    manager.set_broker_epoch(18)
    assert manager.start(START_MS) == []
    (directory,) = manager.directories
    job = manager.checkpoint_job(directory)
    rename = fs.rename

    def fail_before(source: str, target: str) -> None:
        monkeypatch.setattr(fs, "rename", rename)
        directory.fail(OSError(errno.EIO, "a sector"))
        rename(source, target)

    monkeypatch.setattr(fs, "rename", fail_before)
    job.run()
    job.finish()
    fs.process_death()
    assert clean_epoch(fs, ("/a",)) is None


def test_no_bit_of_a_small_file_flips_unseen() -> None:
    data = encode_value({"offset": 12})
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError):  # noqa: PT011 -- whatever is wrong with it
            decode_value(bytes(flipped))


def test_logs_that_are_closed_together_have_their_epochs_synced_then_named_then_that_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs = SimFileSystem()
    manager = LogManager([Path("/data")], default_config=SMALL, fs=fs, stop_together_min=1)
    assert manager.start(START_MS) == []
    log = manager.create(TOPIC_ID, "flights", 0)
    add_durably(log)
    buf = batch_of(b"v", timestamps=[START_MS])
    log.append_as_leader(buf, 0, len(buf), leader_epoch=1, now_ms=START_MS)
    done: list[str] = []
    rename, sync_all = fs.rename, fs.sync_all

    def rename_noted(source: str, target: str) -> None:
        done.append(target.rpartition("/")[2])
        rename(source, target)

    def sync_all_noted(path: str, site: SyncSite) -> None:
        done.append("sync")
        sync_all(path, site)

    monkeypatch.setattr(fs, "rename", rename_noted)
    monkeypatch.setattr(fs, "sync_all", sync_all_noted)
    manager.close(START_MS)
    assert done == ["sync", "leader-epoch.checkpoint", "sync", "clean-shutdown"]


def test_a_directory_that_failed_is_not_closed_cleanly() -> None:
    fs = SimFileSystem()
    manager = started(fs)
    manager.directories[0].fail(OSError(errno.EIO, "a sector"))
    manager.close(START_MS, broker_epoch=17)
    assert "clean-shutdown" not in fs.list_directory("/data")


def test_a_stop_was_clean_only_if_all_directories_have_its_mark() -> None:
    fs = SimFileSystem()
    started(fs, ("/a", "/b")).close(START_MS)
    manager = LogManager([Path("/a"), Path("/b")], default_config=SMALL, fs=fs)
    assert manager.was_stopped_cleanly()
    fs.unlink("/b/clean-shutdown")
    assert not manager.was_stopped_cleanly()


def test_so_many_logs_are_loaded_for_retention_in_one_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance, "LOADS_PER_TICK_MAX", 2)
    fs = SimFileSystem()
    config = replace(SMALL, retention_ms=1000)
    manager = started(fs, config=config)
    for partition in range(5):
        add(manager.create(TOPIC_ID, "flights", partition))
    manager.close(START_MS)
    fs.process_death()
    late_ms = START_MS + 2000
    manager = started(fs, config=config, now_ms=late_ms)
    for loaded_count in (2, 4, 5):
        manager.tick(late_ms)
        assert sum(log.is_loaded for log in manager.logs()) == loaded_count


def test_a_log_that_is_deleted_before_its_turn_is_looked_at_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is no folder any more in which it could begin a segment."""
    monkeypatch.setattr(maintenance, "LOGS_PER_TICK_MAX", 1)
    fs = SimFileSystem()
    manager = started(fs, config=replace(SMALL, segment_ms=1000))
    for partition in range(3):
        add(manager.create(TOPIC_ID, "flights", partition))
    late_ms = START_MS + 2000
    manager.tick(late_ms)
    for partition in range(3):
        manager.delete(TOPIC_ID, partition, late_ms)
    for _ in range(3):
        manager.tick(late_ms)
    assert manager.offline_directories() == []


def test_a_directory_that_failed_vouches_for_nothing_though_the_machine_goes_on() -> None:
    fs = SimFileSystem()
    manager = LogManager([Path("/a")], default_config=SMALL, fs=fs)
    manager.lock()
    manager.set_broker_epoch(18)
    assert manager.start(START_MS) == []
    manager.create(TOPIC_ID, "flights", 0, SMALL)
    manager.directories[0].fail(OSError(errno.EIO, "a sector"))
    fs.process_death()
    assert clean_epoch(fs, ("/a",)) is None
    again = started(fs, ("/a",))
    assert again.partition_ids() == [(TOPIC_ID, 0)]


@pytest.mark.parametrize("what", ["lost", "not closed", "another life", "unreadable", "no epoch"])
def test_a_stop_counts_as_clean_only_if_every_directory_says_so(what: str) -> None:
    fs = SimFileSystem()
    started(fs, ("/a", "/b")).close(START_MS, broker_epoch=17)
    match what:
        case "lost":
            assert clean_epoch(fs, ("/a", "/new")) is None
            return
        case "not closed":
            started(fs, ("/b",))
            fs.power_loss(random.Random(1))
        case "another life":
            started(fs, ("/b",)).close(START_MS, broker_epoch=18)
        case "unreadable":
            fs.faults.append(Fault("read", "/b/clean-shutdown", errno.EIO))
        case "no epoch":
            started(fs, ("/a", "/b")).close(START_MS)
    assert clean_epoch(fs, ("/a", "/b")) is None
