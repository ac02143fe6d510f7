"""What retention reads of segments that nobody has used since the start: the end of an index."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from data_plane.log.compaction import compaction_priority
from data_plane.log.errors import LogDirFailure
from data_plane.log.file_system import File
from data_plane.log.indexes import TIME_ENTRY
from data_plane.log.log_summary import LogSummary
from data_plane.log.maintenance import MaintenanceConfig
from data_plane.log.segment_age import AgeJob
from data_plane.log.segment_checks import largest_timestamp
from data_plane.log.sim_file_system import Fault
from tests.log.one_log import START_MS, OneLog, batch_of

SEGMENT_RECORDS = 40
RETENTION_INTERVAL_MS = MaintenanceConfig().retention_check_interval_ms


def restarted(timestamps_start_ms: int = START_MS) -> OneLog:
    """A log of several sealed segments, whose indexes have an entry for every second record."""
    one = OneLog(segment_bytes=SEGMENT_RECORDS * 200, index_interval_bytes=200)
    for number in range(4 * SEGMENT_RECORDS):
        one.append(batch_of(bytes(100), timestamps=[timestamps_start_ms + number]))
    one.log.flush()
    one.restart()
    one.log.load()
    one.log.advance_high_watermark(one.log.log_end_offset)
    return one


def bytes_read(one: OneLog, suffix: str, call: Callable[[], object]) -> int:
    """How much `call` reads of files with that suffix."""
    read = 0
    real_read_file, real_open = one.fs.read_file, one.fs.open

    def read_file(path: str) -> bytes:
        nonlocal read
        data = real_read_file(path)
        read += len(data) if path.endswith(suffix) else 0
        return data

    def open_(path: str, *, create: bool = False, write: bool = True) -> object:
        return Counting(path, real_open(path, create=create, write=write))

    class Counting:
        def __init__(self, path: str, file: File) -> None:
            self._path = path
            self._file = file

        def read_at(self, position: int, size: int) -> object:
            nonlocal read
            data = self._file.read_at(position, size)
            read += len(data) if self._path.endswith(suffix) else 0
            return data

        def __getattr__(self, name: str) -> object:
            return getattr(self._file, name)

    one.fs.read_file, one.fs.open = read_file, open_  # type: ignore[method-assign, assignment]
    try:
        call()
    finally:
        del one.fs.read_file, one.fs.open
    return read


def test_retention_reads_two_entries_of_each_segment_that_it_looks_at() -> None:
    one = restarted()
    sealed = len(one.log.segments) - 1
    one.set_config(retention_ms=1_000)
    gone: list[int] = []
    look = lambda: gone.append(one.log.apply_retention(START_MS + 1_000_000))  # noqa: E731
    assert len(one.content(one.names(".timeindex")[0])) > 10 * TIME_ENTRY.size
    assert bytes_read(one, "index", look) <= sealed * 2 * TIME_ENTRY.size
    assert gone[0] >= sealed


def test_nothing_that_is_young_goes_by_the_end_of_an_index() -> None:
    one = restarted()
    first = one.log.segments[0]
    youngest_ms = START_MS + first.next_offset - 1
    one.set_config(retention_ms=1_000)
    assert one.log.apply_retention(youngest_ms + 1_000) == 0
    assert largest_timestamp(first) == youngest_ms
    assert first.max_timestamp_offset == first.next_offset - 1
    assert first.offset_index is None
    assert one.log.apply_retention(youngest_ms + 1_001) == 1


DAMAGES = pytest.mark.parametrize("damage", ["zeros", "foreign", "odd", "empty", "missing"])


def spoil(one: OneLog, damage: str) -> None:
    """Something happens to the time index of the first segment."""
    first = one.log.segments[0]
    name = one.names(".timeindex")[0]
    path = f"{one.log.folder}/{name}"
    data = one.content(name)
    file = one.fs.open(path)
    if damage == "zeros":
        file.write_at(len(data) - TIME_ENTRY.size, bytes(TIME_ENTRY.size))
    elif damage == "foreign":
        entry = TIME_ENTRY.pack(START_MS + 10_000, first.next_offset + 5)
        file.write_at(len(data) - TIME_ENTRY.size, entry)
    elif damage == "odd":
        file.truncate(len(data) - 1)
    elif damage == "empty":
        file.truncate(0)
    else:
        one.unlink(name)
    file.close()


@DAMAGES
def test_an_end_that_is_not_sound_has_the_indexes_made_anew(damage: str) -> None:
    one = restarted()
    spoil(one, damage)
    first = one.log.segments[0]
    youngest_ms = START_MS + first.next_offset - 1
    assert largest_timestamp(first) == youngest_ms
    assert first.offset_index is not None


@DAMAGES
def test_retention_leaves_a_time_index_that_is_not_sound_to_a_thread(damage: str) -> None:
    one = restarted()
    spoil(one, damage)
    segments = one.log.segments
    youngest_ms = START_MS + segments[0].next_offset - 1
    one.set_config(retention_ms=1_000)
    one.now_ms = youngest_ms + 1_001
    due: list[Any] = []
    assert bytes_read(one, ".log", lambda: due.extend(ages_due(one))) == 0
    assert one.log.segments is segments
    # It is looked at again when the thread is done, and not sent there twice.
    assert bytes_read(one, ".log", lambda: due.extend(ages_due(one))) == 0
    (job,) = due
    assert bytes_read(one, ".log", job.run) >= segments[0].size
    job.finish()
    assert bytes_read(one, ".log", lambda: due.extend(ages_due(one))) == 0
    assert one.log.segments == segments[1:]
    assert due == [job]
    assert not one.log.wants_ages
    assert all(one.offset_index is None for one in segments[:-1]), "nobody reads them"


def test_a_thread_that_fails_is_asked_again_in_the_next_round() -> None:
    one = restarted()
    spoil(one, "missing")
    one.set_config(retention_ms=1_000)
    one.now_ms = START_MS + 1_000_000
    (job,) = ages_due(one)
    one.fs.faults.append(Fault("open", ".log", errno.EMFILE))
    with pytest.raises(LogDirFailure):
        job.run()
    one.fs.faults.clear()
    job.finish()
    assert ages_due(one) == []
    assert one.log.log_start_offset == 0
    one.now_ms += RETENTION_INTERVAL_MS
    (job,) = ages_due(one)
    job.run()
    job.finish()
    assert ages_due(one) == []
    assert one.log.log_start_offset == one.log.log_end_offset


def test_a_checkpoint_says_that_it_does_not_know() -> None:
    one = restarted()
    spoil(one, "missing")
    found: list[LogSummary] = []
    assert bytes_read(one, ".log", lambda: found.append(one.log.summary())) == 0
    assert found[0].first_segment_timestamp == -1


def test_compaction_leaves_it_to_a_thread_too() -> None:
    one = restarted()
    spoil(one, "missing")
    one.set_config(
        cleanup_policy=frozenset({"compact"}),
        min_compaction_lag_ms=1_000,
        min_cleanable_dirty_ratio=0.01,
    )
    one.checkpoint()
    one.now_ms = START_MS + 1_000_000
    priorities: list[float] = []
    look = lambda: priorities.append(compaction_priority(one.log, one.now_ms))  # noqa: E731
    assert bytes_read(one, ".log", look) == 0
    (job,) = ages_due(one)
    job.run()
    job.finish()
    assert bytes_read(one, ".log", look) == 0
    assert priorities[0] == 0.0 < priorities[1]


def test_without_a_lag_compaction_need_not_know() -> None:
    one = restarted()
    one.set_config(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01)
    one.checkpoint()
    assert bytes_read(one, "index", lambda: compaction_priority(one.log, one.now_ms)) == 0
    assert compaction_priority(one.log, one.now_ms) > 0.0


def ages_due(one: OneLog) -> list[Any]:
    """The jobs that walk through segments, of those that one tick hands out."""
    jobs: list[Any] = one.manager.tick(one.now_ms)
    return [job for job in jobs if isinstance(job.job, AgeJob)]
