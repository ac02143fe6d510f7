"""A process that has no descriptor or no memory left at any moment of any operation of a log.

That is no fault of the disk, and fails the call alone: the log is as before, in memory and on the
disk, and goes on. Where the operation was in the midst of changing both, the directory is offline,
and the next start finds what a kill at that moment would have left.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from data_plane.log.errors import LogDirFailure
from data_plane.log.sim_file_system import Fault
from data_plane.wire.records import Record
from tests.log.one_log import START_MS, TOPIC_ID, OneLog, batch_of

TRUNCATED_TO = 20
BEGUN_AT = 40


class Scarce:
    """Lets operation number `number` of the file system find nothing left; `has_struck` since."""

    def __init__(self, log: OneLog, number: int, error_number: int) -> None:
        self.has_struck = False
        self._left = number
        self._error_number = error_number
        self._fs = log.fs
        self._check = log.fs.check_fault
        log.fs.check_fault = self.check  # type: ignore[method-assign]

    def check(self, operation: str, path: str) -> Fault | None:
        # A process without descriptors can open nothing; without memory nothing may work.
        if operation == "open" or self._error_number != errno.EMFILE:
            if self._left == 0 and not self.has_struck:
                self.has_struck = True
                raise OSError(self._error_number, os.strerror(self._error_number), path)
            self._left -= 1
        return self._check(operation, path)

    def end(self) -> None:
        self._fs.check_fault = self._check  # type: ignore[method-assign]


def append(log: OneLog, count: int) -> None:
    for _ in range(count):
        offset = log.log.log_end_offset
        value = b"%d" % offset
        key = b"%d" % (offset % 5)
        log.append(batch_of(value.ljust(100, b"."), keys=[key], producer=(7, 0, offset)))


def newest(records: list[Record]) -> dict[bytes | None, Record]:
    """The last record of each key."""
    return {record.key: record for record in records}


def truncate_within_a_segment(log: OneLog) -> None:
    log.log.truncate_to(TRUNCATED_TO)


def truncate_between_segments(log: OneLog) -> None:
    log.log.truncate_to(log.log.segments[-1].base_offset)


def begin_anew(log: OneLog) -> None:
    log.log.truncate_fully_and_start_at(BEGUN_AT)


def append_and_roll(log: OneLog) -> None:
    append(log, 9)


def delete_records(log: OneLog) -> None:
    log.log.delete_records(15)


def retain(log: OneLog) -> None:
    log.set_config(retention_bytes=1500)
    log.log.apply_retention(log.now_ms)


def flush(log: OneLog) -> None:
    log.checkpoint()


def compact(log: OneLog) -> None:
    log.set_config(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01)
    log.log.roll()
    log.checkpoint()
    job = log.log.compaction_job(log.now_ms)
    assert job is not None
    try:
        job.run()
    finally:
        job.finish()


def make_log() -> OneLog:
    log = OneLog(segment_bytes=1200)
    for log.epoch in range(3):
        append(log, 9)
    return log


@pytest.mark.parametrize("error_number", [errno.EMFILE, errno.ENOMEM], ids=errno.errorcode.get)
@pytest.mark.parametrize(
    "change",
    [
        truncate_within_a_segment,
        truncate_between_segments,
        begin_anew,
        append_and_roll,
        delete_records,
        retain,
        flush,
        compact,
    ],
    ids=lambda change: change.__name__,
)
def test_memory_and_disk_stay_the_same(change: Callable[[OneLog], None], error_number: int) -> None:
    for number in range(200):
        log = make_log()
        before = log.records()
        scarce = Scarce(log, number, error_number)
        try:
            change(log)
        except LogDirFailure:
            assert scarce.has_struck
        scarce.end()
        if not scarce.has_struck:
            assert number, "the change opens nothing and does nothing"
            return
        if log.log.log_directory.failure is None:
            # It goes on where it says that it ends, and the disk has what memory has.
            end_offset = log.log.log_end_offset
            append(log, 3)
            log.log.flush()
            now = log.records()
            assert [record.offset for record in now[-3:]] == [*range(end_offset, end_offset + 3)]
            log.kill()
            assert log.records() == now
        else:
            log.kill()
            found = log.records()
            if change is compact:
                assert newest(found) == newest(before)
            else:
                assert found == before[: len(found)]
                assert log.log.log_end_offset in (len(before), len(found) or BEGUN_AT)
        append(log, 1)
    pytest.fail("there is no end to it")


@pytest.mark.parametrize("error_number", [errno.EMFILE, errno.ENOMEM], ids=errno.errorcode.get)
def test_a_directory_that_is_not_read_to_its_end_at_a_start_is_offline(error_number: int) -> None:
    offline = 0
    for number in range(200):
        log = make_log()
        before = log.records()
        log.fs.process_death()
        scarce = Scarce(log, number, error_number)
        manager = log.make_manager()
        failures = manager.start(START_MS)
        scarce.end()
        if not scarce.has_struck:
            break
        assert len(failures) == len(manager.offline_directories())
        offline += len(failures)
        if not failures:
            assert len(manager.logs()) == 1
        # Nothing is lost by it: the next start has all, and knows that a kill has lost nothing.
        log.kill()
        assert log.records() == before
    assert offline


@pytest.mark.parametrize("is_cut", [True, False])
def test_what_a_failed_write_has_left_is_cut_off_or_never_written_behind(is_cut: bool) -> None:
    log = make_log()
    before = log.records()
    log.fs.faults.append(Fault("write", ".log", errno.ENOMEM, partial_bytes=50))
    if not is_cut:
        log.fs.faults.append(Fault("truncate", ".log", errno.ENOMEM))
    with pytest.raises(LogDirFailure):
        append(log, 1)
    assert (log.log.log_directory.failure is None) is is_cut
    if is_cut:
        append(log, 1)
        before = log.records()
    log.kill()
    assert log.records() == before


def test_a_log_that_could_not_be_taken_away_is_no_part_of_its_successor() -> None:
    log = make_log()
    before = log.records()
    log.fs.faults.append(Fault("rename", "Partition-0", errno.ENOMEM))
    with pytest.raises(LogDirFailure):
        log.manager.delete(TOPIC_ID, 0, log.now_ms)
    with pytest.raises(LogDirFailure):
        log.manager.create(TOPIC_ID, "flights", 0, log.config)
    log.kill()
    assert log.records() == before
