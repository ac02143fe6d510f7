"""A large state is not written at a roll: the next flush does, before it vouches for anything."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.log import fold_snapshots
from data_plane.log.checkpoints import TEMPORARY_SUFFIX
from data_plane.log.file_system import Buffer, File
from data_plane.log.fold import SnapshotFile
from data_plane.log.fold_snapshots import PENDING_MAX
from data_plane.log.log_directory import ENTRIES_WRITTEN_AT_ONCE_MAX
from data_plane.log.producer_state import EXPIRED_SLICE_ENTRIES, ProducerStates
from tests.log.one_log import START_MS, OneLog, batch_of

PRODUCERS = ENTRIES_WRITTEN_AT_ONCE_MAX + 50
ROW_BYTES = 48


def write(one: OneLog, producer_id: int, sequence: int) -> None:
    one.append(batch_of(b"x", timestamps=[START_MS], producer=(producer_id, 0, sequence)))


def filled(producers_count: int = PRODUCERS) -> OneLog:
    one = OneLog(segment_bytes=1 << 20)
    for producer_id in range(producers_count):
        write(one, producer_id, 0)
    return one


def count_written(one: OneLog, call: Callable[[], object]) -> int:
    """How many bytes `call` writes into files."""
    written = 0
    real_open = one.fs.open

    class CountingFile:
        def __init__(self, file: File) -> None:
            self._file = file

        def write_at(self, position: int, data: Buffer) -> None:
            nonlocal written
            written += len(data)
            self._file.write_at(position, data)

        def __getattr__(self, name: str) -> object:
            return getattr(self._file, name)

    one.fs.open = lambda *args, **options: CountingFile(real_open(*args, **options))  # type: ignore
    try:
        call()
    finally:
        one.fs.open = real_open  # type: ignore[method-assign]
    return written


def test_a_roll_writes_nothing_of_a_large_state() -> None:
    one = filled()
    assert count_written(one, one.log.roll) < PRODUCERS * ROW_BYTES // 4
    assert one.names(".snapshot") == []
    few = filled(ENTRIES_WRITTEN_AT_ONCE_MAX)
    few.log.roll()
    assert len(few.names(".snapshot")) == 1


def test_the_flush_writes_what_was_there_at_the_roll() -> None:
    one = filled()
    one.log.roll()
    offset, before = one.log.log_end_offset, one.log.producers.snapshot()
    job = one.log.flush_job()
    assert job is not None
    for producer_id in range(0, PRODUCERS, 3):
        write(one, producer_id, 1)
    write(one, PRODUCERS, 0)
    after = one.log.producers.snapshot()
    job.run()
    assert one.log.recovery_point == 0
    assert one.content(f"{offset:020d}.snapshot") == before
    job.finish()
    assert one.log.recovery_point == offset
    assert one.log.pending_snapshots == ()
    assert one.log.producers.snapshot() == after
    one.restart()
    assert one.log.producers.snapshot() == after


@pytest.mark.parametrize("is_power_lost", [False, True])
def test_a_crash_before_the_flush_costs_no_producer(is_power_lost: bool) -> None:
    one = filled()
    one.log.flush()
    one.log.roll()
    write(one, 3, 1)
    after = one.log.producers.snapshot()
    if is_power_lost:
        before = ProducerStates()
        before.restore([after])
        one.lose_power(random.Random(5))
        assert len(one.log.producers) == PRODUCERS
    else:
        one.kill()
        assert one.log.producers.snapshot() == after


def test_segments_go_only_when_the_snapshot_behind_them_is_there() -> None:
    one = filled()
    one.log.roll()
    end = one.log.log_end_offset
    write(one, 1, 1)
    producers = one.log.producers.snapshot()
    one.log.delete_records(end)
    assert one.log.apply_retention(one.now_ms) == 1
    one.kill()
    assert one.log.log_start_offset == end
    assert one.log.producers.snapshot() == producers


def test_a_truncation_right_after_a_roll_keeps_the_producers_that_retention_took() -> None:
    one = filled()
    one.log.roll()
    end = one.log.log_end_offset
    write(one, 1, 1)
    producers = one.log.producers.snapshot()
    write(one, 2, 1)
    one.log.delete_records(end)
    assert one.log.apply_retention(one.now_ms) == 1
    one.log.high_watermark = end
    one.log.truncate_to(end + 1)
    assert one.log.producers.snapshot() == producers
    one.log.flush()
    one.kill()
    assert one.log.producers.snapshot() == producers


def test_a_state_that_was_cut_off_never_gets_its_name() -> None:
    """Not from a job that began before, and not from one that writes at that moment."""
    one = filled()
    one.log.roll()
    end = one.log.log_end_offset
    job = one.log.flush_job()
    assert job is not None
    one.log.high_watermark = 10
    one.log.truncate_to(10)
    job.run()
    job.finish()
    assert f"{end:020d}.snapshot" not in one.names()
    assert one.log.pending_snapshots == ()
    for producer_id in range(1_000, 1_000 + end - 10):
        write(one, producer_id, 0)
    one.log.roll()
    assert one.log.log_end_offset == end
    producers = one.log.producers.snapshot()
    one.log.flush()
    one.restart()
    assert one.log.producers.snapshot() == producers
    assert one.content(f"{end:020d}.snapshot") == producers


def test_cancelling_does_not_wait_for_who_writes() -> None:
    one = filled()
    one.log.roll()
    (pending,) = one.log.pending_snapshots
    frozen = pending._frozen

    class Interrupting:
        def write(self, file: SnapshotFile) -> None:
            frozen.write(file)
            pending.cancel()

        def close(self) -> None:
            frozen.close()

    pending._frozen = Interrupting()
    pending.write()
    assert not pending.is_written
    assert [name for name in one.names() if ".snapshot" in name] == []


def test_a_file_that_was_left_half_written_is_no_snapshot() -> None:
    one = filled()
    one.log.roll()
    (pending,) = one.log.pending_snapshots
    file = one.fs.open(pending.path + TEMPORARY_SUFFIX, create=True)
    file.write_at(0, b"half of it")
    file.close()
    producers = one.log.producers.snapshot()
    one.kill()
    assert one.log.producers.snapshot() == producers
    one.log.flush()
    assert [name for name in one.names() if name.endswith(TEMPORARY_SUFFIX)] == []


def test_no_more_than_so_many_states_are_held() -> None:
    one = filled()
    for sequence in range(1, PENDING_MAX + 4):
        one.log.roll()
        write(one, 0, sequence)
    assert len(one.log.pending_snapshots) == PENDING_MAX
    assert len(one.names(".snapshot")) == 3
    assert one.log.producers.producers.layers_count <= PENDING_MAX + 1
    one.log.flush()
    assert one.log.pending_snapshots == ()
    assert len(one.names(".snapshot")) == PENDING_MAX + 3


def test_a_stop_writes_what_is_held() -> None:
    one = filled()
    one.log.roll()
    producers = one.log.producers.snapshot()
    one.restart()
    assert one.log.producers.snapshot() == producers


def test_a_failed_flush_forgets_nothing() -> None:
    one = filled()
    one.log.roll()
    job = one.log.flush_job()
    assert job is not None
    job.finish()
    assert len(one.log.pending_snapshots) == 1
    one.log.flush()
    assert one.log.pending_snapshots == ()
    assert len(one.names(".snapshot")) == 1


@settings(max_examples=30)
@given(st.dictionaries(st.integers(0, 1 << 62), st.integers(0, 7), max_size=40), st.data())
def test_both_ways_of_writing_give_the_same_bytes(
    batches_by_producer: dict[int, int], data: st.DataObject
) -> None:
    one = OneLog(segment_bytes=1 << 20)
    for producer_id, batches_count in batches_by_producer.items():
        for sequence in range(batches_count):
            write(one, producer_id, sequence)
    slice_entries = data.draw(st.integers(1, 50))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("data_plane.log.producer_state.SORTED_SLICE_ENTRIES", slice_entries)
        patch.setattr("data_plane.log.producer_state.ROWS_PER_WRITE", slice_entries)
        frozen = one.log.producers.freeze()
        file = one.fs.open(f"{one.log.folder}/copy", create=True)
        frozen.write(file)
        frozen.close()
    assert bytes(file.read_at(0, file.size())) == one.log.producers.snapshot()


def test_producers_expire_in_slices_whatever_is_appended_in_between() -> None:
    one = filled(2 * EXPIRED_SLICE_ENTRIES + 10)
    producers = one.log.producers
    slices = producers.expire_in_slices(one.now_ms + 1_000, 1_000)
    assert next(slices) == EXPIRED_SLICE_ENTRIES
    first, new = 0, 5 * EXPIRED_SLICE_ENTRIES
    one.now_ms += 1
    write(one, first, 1)
    write(one, new, 0)
    assert sum(slices) == EXPIRED_SLICE_ENTRIES + 9
    assert set(producers.producers) == {first, new}


def test_names_are_those_of_the_fold() -> None:
    one = filled()
    (fold,) = one.log.folds
    assert fold_snapshots.snapshot_path(one.log, fold, 7).endswith("00000000000000000007.snapshot")
