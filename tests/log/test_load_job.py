"""A log that takes long to load is loaded by a thread: what it is then, who comes in between."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from data_plane.log.lanes import Lane
from data_plane.log.log_directory import BYTES_LOADED_AT_ONCE_MAX, ENTRIES_LOADED_AT_ONCE_MAX
from data_plane.log.log_summary import LogSummary
from tests.log.one_log import DATA, START_MS, TOPIC_ID, OneLog, batch_of


def killed(records_count: int = 40, segment_bytes: int = 4096) -> OneLog:
    """A log that the checkpoint vouches for, and that nobody has used since a kill."""
    one = OneLog(segment_bytes=segment_bytes)
    for sequence in range(records_count):
        one.append(batch_of(bytes(90), timestamps=[START_MS], producer=(5, 0, sequence)))
    one.checkpoint()
    one.kill()
    assert not one.log.is_loaded
    assert one.manager.recovered_logs == 0
    one.log.log_directory.bytes_loaded_at_once_max = 0
    return one


def count_reads(one: OneLog, call: Callable[[], object]) -> int:
    """How often `call` opens or reads a file."""
    calls: list[str] = []
    check_fault = one.fs.check_fault

    def noting(operation: str, path: str) -> object:
        calls.append(operation)
        return check_fault(operation, path)

    one.fs.check_fault = noting  # type: ignore[method-assign, assignment]
    try:
        call()
    finally:
        one.fs.check_fault = check_fault  # type: ignore[method-assign]
    return len(calls)


def state_of(one: OneLog) -> object:
    log = one.log
    return (
        one.offsets(),
        log.log_start_offset,
        log.log_end_offset,
        log.high_watermark,
        log.recovery_point,
        log.producers.snapshot(),
        [(segment.base_offset, segment.size, segment.sealed) for segment in log.segments],
        log.epochs.entries,
        log.active.first_append_ms,
        log.summary(),
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_thread_loads_what_the_loop_would(seed: int) -> None:
    records_count = random.Random(seed).randrange(1, 100)
    one = killed(records_count)
    one.log.load()
    expected = state_of(one)
    one.kill()
    one.log.log_directory.bytes_loaded_at_once_max = 0
    job = one.log.load_job()
    assert one.log.load_job() is job
    assert job.lane is Lane.CLEANER
    assert count_reads(one, job.run) > 0
    assert not one.log.is_loaded
    assert len(one.log.log_directory.open_files) == 0
    assert count_reads(one, job.finish) == 0
    assert one.log.is_loaded
    assert len(one.log.log_directory.open_files) == 1
    assert state_of(one) == expected
    one.append(batch_of(b"x", timestamps=[START_MS], producer=(5, 0, records_count)))


def test_what_loads_quickly_needs_no_thread() -> None:
    one = killed()
    assert one.log.needs_long_load
    directory = one.log.log_directory
    directory.bytes_loaded_at_once_max = BYTES_LOADED_AT_ONCE_MAX
    assert not one.log.needs_long_load
    summary = one.log.opened_from
    assert isinstance(summary, LogSummary)
    one.log.opened_from = summary._replace(active_size=BYTES_LOADED_AT_ONCE_MAX + 1)
    assert one.log.needs_long_load
    one.log.opened_from = one.log.opened_from._replace(has_tail_files=True)
    assert not one.log.needs_long_load
    one.log.opened_from = summary._replace(fold_entries_count=ENTRIES_LOADED_AT_ONCE_MAX + 1)
    assert one.log.needs_long_load
    one.log.load()
    assert not one.log.needs_long_load
    assert one.log.summary().fold_entries_count == 1


def test_checkpoints_of_before_are_read() -> None:
    fields = [0] * (len(LogSummary._fields) - 1)
    assert LogSummary(*fields).fold_entries_count == 0  # type: ignore[arg-type]


def test_who_needs_the_log_at_once_loads_it_and_the_thread_finds_nothing_to_do() -> None:
    one = killed()
    job = one.log.load_job()
    one.append(batch_of(b"x", timestamps=[START_MS], producer=(5, 0, 40)))
    end = one.log.log_end_offset
    assert count_reads(one, job.run) == 0
    job.finish()
    assert one.log.log_end_offset == end
    assert one.offsets()[-1] == 40


def test_who_needs_the_log_takes_what_a_thread_has_loaded() -> None:
    one = killed()
    job = one.log.load_job()
    job.run()
    assert count_reads(one, one.log.load) == 0
    segments = one.log.segments
    job.finish()
    assert one.log.segments is segments


def test_a_log_that_is_deleted_meanwhile_stays_deleted() -> None:
    for runs_first in (True, False):
        one = killed()
        log, job = one.log, one.log.load_job()
        if runs_first:
            job.run()
        one.manager.delete(TOPIC_ID, 0, one.now_ms)
        if not runs_first:
            job.run()
        job.finish()
        assert not log.is_loaded
        assert len(log.log_directory.open_files) == 0
        assert one.manager.directories[0].failure is None


def test_retention_has_long_loads_done_by_a_thread() -> None:
    one = killed()
    one.now_ms += 1
    one.set_config(retention_bytes=100)
    one.manager._maintenance.begin()
    jobs = list(one.manager.tick(one.now_ms))
    assert not one.log.is_loaded
    for job in jobs:
        job.run()
        job.finish()
    assert one.log.is_loaded
    one.log.high_watermark = one.log.log_end_offset
    one.manager.tick(one.now_ms + 1)
    assert one.log.log_start_offset > 0
    assert one.manager.directories[0].path == str(DATA)
