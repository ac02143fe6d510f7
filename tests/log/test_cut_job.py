"""A tail that a thread cuts: the log is then what a cut on the loop makes of it, or untouched."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from data_plane.log.batch_walk import BadRange
from data_plane.log.cut_job import CutJob
from data_plane.log.errors import LogDirFailure
from data_plane.log.sim_file_system import Fault
from tests.log.one_log import START_MS, TOPIC_ID, OneLog, batch_of

PRODUCERS = 3
BATCHES = 40
# Within the first, a middle and the last segment, and between two: see `filled`.
WITHIN = [1, 15, 37]


def filled(*, is_mapped: bool = True, writes_late: bool = False) -> OneLog:
    """Several segments with producers; any cut of it is one for a thread."""
    one = OneLog(maps_files=True)
    directory = one.log.log_directory
    directory.bytes_loaded_at_once_max = 0
    if writes_late:
        directory.entries_written_at_once_max = 0
    for number in range(BATCHES):
        one.epoch = number // 13
        producer = (number % PRODUCERS, 0, number // PRODUCERS)
        one.append(batch_of(bytes(90), timestamps=[START_MS + number], producer=producer))
    assert len(one.log.segments) > 3
    if is_mapped:
        for segment in one.log.segments:
            assert segment._map() is not None
    return one


def bases(one: OneLog) -> list[int]:
    return [segment.base_offset for segment in one.log.segments]


def state_of(one: OneLog) -> object:
    log = one.log
    return (
        one.offsets(),
        log.log_start_offset,
        log.log_end_offset,
        log.high_watermark,
        log.recovery_point,
        log.size_bytes,
        log.producers.snapshot(),
        log.epochs.entries,
        [(segment.base_offset, segment.size, segment.sealed) for segment in log.segments],
        log.active.max_timestamp,
        log.active.first_append_ms,
        log.active.offset_index.encode() if log.active.offset_index else None,
        log.active.time_index.encode() if log.active.time_index else None,
        log.summary(),
    )


def on_disk(one: OneLog) -> dict[str, bytes]:
    return {name: one.content(name) for name in one.names()}


def cut(one: OneLog, offset: int) -> bool:
    assert one.log.needs_long_cut(offset)
    job = one.log.cut_job(offset)
    job.run()
    is_cut = job.finish()
    job.tidy()
    return is_cut


@pytest.mark.parametrize("writes_late", [False, True])
@pytest.mark.parametrize("is_mapped", [False, True])
@pytest.mark.parametrize("offset", [*WITHIN, -1, -2])
def test_a_thread_cuts_as_the_loop_does(offset: int, is_mapped: bool, writes_late: bool) -> None:
    one = filled(is_mapped=is_mapped, writes_late=writes_late)
    other = filled(is_mapped=is_mapped, writes_late=writes_late)
    offset = bases(one)[offset] if offset < 0 else offset
    assert cut(one, offset)
    other.log.truncate_to(offset)
    assert one.log.log_end_offset == offset
    assert state_of(one) == state_of(other)
    assert on_disk(one) == on_disk(other)
    for log in (one, other):
        log.fill(30)
        log.log.flush()
        log.kill()
    assert state_of(one) == state_of(other)
    assert one.offsets() == [*range(offset + 30)]


def test_without_its_snapshots_a_log_ends_between_two_segments() -> None:
    one, other = filled(), filled()
    offset = bases(one)[-1]
    for log in (one, other):
        for name in log.names(".snapshot"):
            log.unlink(name)
    assert cut(one, offset)
    other.log.truncate_to(offset)
    assert state_of(one) == state_of(other)
    assert on_disk(one) == on_disk(other)


def test_small_cuts_need_no_thread() -> None:
    one = filled()
    directory = one.log.log_directory
    directory.bytes_loaded_at_once_max = one.log.segments[0].size
    assert not one.log.needs_long_cut(1)
    directory.bytes_loaded_at_once_max -= 1
    assert one.log.needs_long_cut(1)
    # To end anew, or not at all, needs no look at what is there.
    assert not one.log.needs_long_cut(0)
    assert not one.log.needs_long_cut(BATCHES)
    directory.bytes_loaded_at_once_max = 1 << 20
    directory.entries_loaded_at_once_max = PRODUCERS
    assert not one.log.needs_long_cut(1)
    directory.entries_loaded_at_once_max = PRODUCERS - 1
    assert one.log.needs_long_cut(1)


@pytest.mark.parametrize("offset", WITHIN)
def test_the_loop_neither_reads_nor_copies_a_segment(offset: int) -> None:
    one = filled()
    job = one.log.cut_job(offset)
    job.run()
    touched: list[tuple[str, str]] = []
    check_fault = one.fs.check_fault

    def noting(operation: str, path: str) -> object:
        touched.append((operation, path.rpartition("/")[2]))
        return check_fault(operation, path)

    one.fs.check_fault = noting  # type: ignore[method-assign, assignment]
    assert job.finish()
    one.fs.check_fault = check_fault  # type: ignore[method-assign]
    assert ("rename", f"{one.log.active.base_offset:020d}.log.1.copy") in touched
    of_data = {operation for operation, name in touched if ".log" in name or ".snapshot" in name}
    assert of_data <= {"rename", "unlink", "open"}


def append(one: OneLog) -> None:
    one.fill(1)


def roll(one: OneLog) -> None:
    one.log.roll()


def retain(one: OneLog) -> None:
    one.set_config(retention_bytes=one.log.size_bytes - one.log.segments[0].size)
    assert one.log.apply_retention(one.now_ms)


def cut_lower(one: OneLog) -> None:
    one.log.truncate_to(20)


def cut_higher(one: OneLog) -> None:
    one.log.truncate_to(39)


def begin_anew(one: OneLog) -> None:
    one.log.truncate_fully_and_start_at(7)


def unload(one: OneLog) -> None:
    one.log.flush()
    one.log.unload()


def test_a_log_that_was_unloaded_knows_which_files_others_may_have_mapped() -> None:
    one = filled()
    one.log.flush()
    one.log.unload()
    segment = next(one for one in one.log.segments if one.base_offset <= 15 < one.next_offset)
    inode = one.fs._file(segment.path())
    assert cut(one, 15)
    assert one.fs._file(segment.path()) is not inode, "a mapped file was cut"


def delete_records(one: OneLog) -> None:
    one.log.delete_records(37)


def compact(one: OneLog) -> None:
    one.set_config(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01)
    one.checkpoint()
    job = one.log.compaction_job(one.now_ms)
    assert job is not None
    job.run()
    job.finish()


@pytest.mark.parametrize(
    "change",
    [
        append,
        roll,
        retain,
        cut_lower,
        cut_higher,
        begin_anew,
        unload,
        delete_records,
    ],
    ids=lambda change: change.__name__,
)
@pytest.mark.parametrize("comes_first", [False, True])
def test_a_log_that_has_changed_meanwhile_is_not_cut(
    change: Callable[[OneLog], None], comes_first: bool
) -> None:
    one, other = filled(), filled()
    job = one.log.cut_job(37)
    if comes_first:
        change(one)
        job.run()
    else:
        job.run()
        change(one)
    change(other)
    assert not job.finish()
    job.tidy()
    assert state_of(one) == state_of(other)
    assert on_disk(one) == on_disk(other)
    if one.log.log_start_offset > 0 or one.log.log_end_offset <= 30 or change is unload:
        return
    # Who still wants it asks again.
    assert cut(one, 30)
    assert one.offsets() == [*range(30)]


def delete(one: OneLog) -> None:
    one.manager.delete(TOPIC_ID, 0, one.now_ms)


@pytest.mark.parametrize("loses_snapshots", [False, True])
@pytest.mark.parametrize(
    "change",
    [append, roll, retain, cut_lower, begin_anew, delete_records, delete],
    ids=lambda change: change.__name__,
)
def test_the_loop_may_change_the_log_at_every_moment(
    change: Callable[[OneLog], None], loses_snapshots: bool
) -> None:
    other = filled()
    change(other)
    if change is not delete:
        expected = state_of(other)
    for moment in range(200):
        one = filled()
        if loses_snapshots:
            for name in one.names(".snapshot"):
                one.unlink(name)
        job = one.log.cut_job(37)
        at_moment = Interrupt(one, moment, change)
        job.run()
        at_moment.end()
        if not at_moment.has_come:
            assert moment > 10
            return
        assert not job.finish()
        job.tidy()
        assert one.log.log_directory.failure is None
        if change is not delete:
            assert state_of(one) == expected
            assert one.names(".copy") == []
    pytest.fail("there is no end to it")


class Interrupt:
    """Lets the loop do something right before the disk's call number `moment`."""

    def __init__(self, one: OneLog, moment: int, change: Callable[[OneLog], None]) -> None:
        self.one = one
        self.left = moment
        self.change = change
        self.has_come = False
        self._check_fault = one.fs.check_fault
        one.fs.check_fault = self._noting  # type: ignore[method-assign]

    def _noting(self, operation: str, path: str) -> Fault | None:
        self.left -= 1
        if self.left < 0 and not self.has_come:
            self.has_come = True
            self.change(self.one)
        return self._check_fault(operation, path)

    def end(self) -> None:
        self.one.fs.check_fault = self._check_fault  # type: ignore[method-assign]


def test_a_log_that_was_compacted_meanwhile_is_not_cut() -> None:
    one = filled()
    job = one.log.cut_job(37)
    job.run()
    before = one.log.segments
    compact(one)
    assert one.log.segments is not before
    assert not job.finish()
    job.tidy()
    assert one.log.log_end_offset == BATCHES
    assert one.names(".copy") == []


@pytest.mark.parametrize("runs_first", [False, True])
def test_a_log_that_was_deleted_meanwhile(runs_first: bool) -> None:
    one = filled()
    job = one.log.cut_job(15)
    if runs_first:
        job.run()
    one.manager.delete(TOPIC_ID, 0, one.now_ms)
    if not runs_first:
        job.run()
    assert not job.finish()
    job.tidy()
    assert one.log.log_directory.failure is None


def test_what_was_mapped_meanwhile_is_copied_the_next_time() -> None:
    one = filled(is_mapped=False)
    job = one.log.cut_job(1)
    job.run()
    view = one.log.segments[0]._map()
    assert view is not None
    assert not job.finish()
    job.tidy()
    assert one.log.log_end_offset == BATCHES
    # The simulated disk would refuse to cut the mapped file.
    assert cut(one, 1)
    assert one.offsets() == [0]


def test_nothing_is_cut_by_a_batch_that_nobody_has_checked() -> None:
    one = filled()
    segment = one.log.segments[0]
    position = segment.position_of(segment.open_file().read_at, 2)
    one.fs.flip_bit(segment.path(), position + 70, 3)
    one.log.doubt(2)
    assert not cut(one, 5)
    assert segment.bad_ranges is not None
    assert [bad.start for bad in segment.bad_ranges] == [position]
    assert segment.unverified_end == 0
    assert len(one.manager.take_corruption_reports()) == 1
    assert one.log.log_end_offset == BATCHES


def test_bad_ranges_that_are_known_stay_known_below_the_cut() -> None:
    one, other = filled(), filled()
    for log in (one, other):
        segment = log.log.segments[0]
        file = segment.open_file()
        start, end = (segment.position_of(file.read_at, offset) for offset in (2, 3))
        log.fs.flip_bit(segment.path(), start + 70, 3)
        segment.add_bad_ranges([BadRange(start, end, "flipped")])
    assert cut(one, 6)
    other.log.truncate_to(6)
    assert one.log.active.bad_ranges == other.log.active.bad_ranges
    assert one.log.active.bad_ranges is not None
    assert one.log.log_end_offset == other.log.log_end_offset == 6


@pytest.mark.parametrize("loses_power", [False, True])
@pytest.mark.parametrize("offset", WITHIN)
def test_a_start_in_between_finds_the_log_as_it_was(offset: int, loses_power: bool) -> None:
    one = filled()
    one.checkpoint()
    before = one.offsets()
    one.log.cut_job(offset).run()
    assert len(one.names(".copy")) == 1
    if loses_power:
        one.lose_power(random.Random(1))
    else:
        one.kill()
    assert one.offsets() == before
    assert one.names(".copy") == []


@pytest.mark.parametrize("operation", ["open", "write", "sync"])
def test_a_disk_that_fails_is_offline_and_the_log_as_it_was(operation: str) -> None:
    one = filled()
    one.fs.faults.append(Fault(operation, ".copy", errno.EIO))
    job = one.log.cut_job(15)
    with pytest.raises(LogDirFailure):
        job.run()
    assert one.log.log_directory.failure is not None
    assert not job.finish()
    job.tidy()
    one.kill()
    assert one.offsets() == [*range(BATCHES)]


def test_a_process_out_of_descriptors_tries_again() -> None:
    one = filled()
    one.fs.faults.append(Fault("open", ".copy", errno.EMFILE))
    job = one.log.cut_job(15)
    with pytest.raises(LogDirFailure):
        job.run()
    assert not job.finish()
    job.tidy()
    assert one.log.log_directory.failure is None
    assert cut(one, 15)
    assert one.offsets() == [*range(15)]


def test_a_broker_that_stops_waits_for_no_copy() -> None:
    one = filled()
    one.manager.stop_jobs()
    job: CutJob = one.log.cut_job(15)
    job.run()
    assert not job.finish()
    job.tidy()
    assert one.names(".copy") == []
    assert one.log.log_end_offset == BATCHES
