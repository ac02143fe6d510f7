"""Where a damaged log stops being good, what is noted of it, and cutting it there."""

from __future__ import annotations

import copy
import errno
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.log.damage import NOT_DAMAGED, first_damaged_offset, note_damage
from data_plane.log.errors import LogDirFailure
from data_plane.log.log import Log
from data_plane.log.scrubber import ScrubJob
from data_plane.log.sim_file_system import Fault, SimFileSystem
from tests.log.one_log import OneLog
from tests.log.test_compaction import compact, compacted_log, put, settle
from tests.log.test_corruption import BATCH_BYTES, END_OFFSET, filled, reopened, served

SEGMENT_BATCHES = 10
# Base offset and leader epoch have no checksum.
FIRST_CHECKED_BYTE = 16


def flip(fs: SimFileSystem, offset: int, byte: int) -> None:
    base = offset // SEGMENT_BATCHES * SEGMENT_BATCHES
    (topic,) = fs.list_directory("/data/topics")
    path = f"/data/topics/{topic}/Partition-0/{base:020d}.log"
    fs.flip_bit(path, (offset - base) * BATCH_BYTES + byte, 3)


def scrub(log: Log) -> None:
    job = ScrubJob([(log, segment) for segment in log.segments if segment.sealed])
    job.run()
    job.finish()


@pytest.fixture(scope="module")
def disk() -> SimFileSystem:
    return filled(is_clean=True)[0]


@given(
    damaged=st.lists(st.integers(0, END_OFFSET - 1), min_size=1, max_size=4, unique=True),
    byte=st.integers(FIRST_CHECKED_BYTE, BATCH_BYTES - 1),
    log_start=st.integers(0, END_OFFSET - 1),
)
@settings(max_examples=150, deadline=None)
def test_a_log_is_cut_before_its_first_damaged_batch(
    disk: SimFileSystem, damaged: list[int], byte: int, log_start: int
) -> None:
    fs = copy.deepcopy(disk)
    for offset in damaged:
        flip(fs, offset, byte)
    one = reopened(fs)
    log = one.log
    log.load()
    log.advance_high_watermark(log.log_end_offset)
    log.delete_records(log_start)
    scrub(log)
    first = min((offset for offset in damaged if offset >= log_start), default=None)
    if first is None:
        assert first_damaged_offset(log) is None
        return
    found = first_damaged_offset(log)
    assert found is not None
    # Damaged neighbours are one piece, and nobody can tell where the second one begins.
    assert log_start <= found
    assert set(range(found, first)) <= set(damaged)
    before = served(log)
    log.truncate_to(found)
    assert first_damaged_offset(log) is None
    assert log.log_end_offset == found
    kept = {offset: data for offset, data in before.items() if log_start <= offset < found}
    assert served(log) == kept
    one.fill(1)
    assert sorted(served(log)) == [*sorted(kept), found]


def test_damaged_neighbours_are_cut_off_together(disk: SimFileSystem) -> None:
    fs = copy.deepcopy(disk)
    for offset in (12, 13):
        flip(fs, offset, 100)
    one = reopened(copy.deepcopy(fs))
    one.log.load()
    one.log.advance_high_watermark(one.log.log_end_offset)
    scrub(one.log)
    assert first_damaged_offset(one.log) == 12
    one.log.delete_records(13)
    assert first_damaged_offset(one.log) == 13, "it begins below the log start"
    one = reopened(fs)
    one.log.load()
    scrub(one.log)
    one.log.truncate_to(13)
    assert first_damaged_offset(one.log) is None
    assert one.log.log_end_offset == 12


def test_what_is_noted_outlives_the_process_and_the_clean_stop() -> None:
    one = OneLog()
    one.fill(3, 100)
    note_damage(one.log, 2)
    one.manager.close(one.now_ms)
    one.fs.process_death()
    one.open()
    assert one.log.damaged_from == 2
    note_damage(one.log, NOT_DAMAGED)
    one.fs.process_death()
    one.open()
    assert one.log.damaged_from == NOT_DAMAGED


def test_what_could_not_be_noted_is_noted_at_the_next_try() -> None:
    one = OneLog()
    one.fill(3, 100)
    one.fs.faults.append(Fault("create", "damaged-logs", errno.EMFILE))
    with pytest.raises(LogDirFailure):
        note_damage(one.log, 2)
    assert one.log.damaged_from == NOT_DAMAGED
    note_damage(one.log, 2)
    one.kill()
    assert one.log.damaged_from == 2


def test_a_log_made_anew_is_sound() -> None:
    one = OneLog()
    one.fill(3, 100)
    note_damage(one.log, 2)
    topic_id: UUID = one.log.topic_id
    one.manager.delete(topic_id, 0, one.now_ms)
    one.manager.create(topic_id, "topic", 0)
    one.fs.process_death()
    one.open()
    assert one.manager.get(topic_id, 0).damaged_from == NOT_DAMAGED


def test_a_sync_that_was_under_way_says_nothing_of_what_came_after_a_cut() -> None:
    one = OneLog()
    one.fill(5)
    job = one.log.flush_job()
    assert job is not None
    one.log.truncate_to(2)
    one.fill(6)
    job.run()
    job.finish()
    assert one.log.recovery_point == 2


def test_compaction_gives_no_new_checksum_to_what_has_gone_bad_under_this_process() -> None:
    one = compacted_log(segment_bytes=600)
    for index in range(20):
        put(one, (b"key-%d" % (index % 2), bytes(80)), (b"other-%d" % index, b"stays"))
    settle(one)
    path = one.log.segments[1].path()
    one.fs.flip_bit(path, 100)
    before = one.fs.read_file(path)
    assert compact(one)
    assert one.fs.read_file(path) == before
    assert {report.path for report in one.manager.take_corruption_reports()} == {path}
    assert first_damaged_offset(one.log) == one.log.segments[1].base_offset
