"""When a segment is sealed, and when records leave the log at its start or its end."""

from __future__ import annotations

import contextlib
import errno
import random
from functools import partial
from typing import Any

import pytest

from data_plane.log import reads
from data_plane.log.cold_files import Retired
from data_plane.log.config import INT32_MAX
from data_plane.log.errors import AppendError, LogDirFailure, OffsetOutOfRange
from data_plane.log.flush import FlushJob
from data_plane.log.retention import SegmentDeletionJob, segment_deletion_job
from data_plane.log.segment import Segment
from data_plane.log.segment_checks import load_indexes
from data_plane.log.sim_file_system import Fault, PowerLoss
from data_plane.wire.errors import ErrorCode
from tests.log.one_log import START_MS, OneLog, batch_of

BATCH_BYTES = len(batch_of(bytes(100), timestamps=[START_MS]))


def bases(one: OneLog) -> list[int]:
    return [segment.base_offset for segment in one.log.segments]


def fixed_fill(one: OneLog, count: int) -> None:
    """Batches of exactly BATCH_BYTES."""
    for _ in range(count):
        one.append(batch_of(bytes(100), timestamps=[START_MS]))


# The four roll rules


def test_a_segment_is_filled_up_to_segment_bytes() -> None:
    one = OneLog(segment_bytes=4 * BATCH_BYTES)
    fixed_fill(one, 4)
    assert bases(one) == [0]
    fixed_fill(one, 1)
    assert bases(one) == [0, 4]
    smaller = OneLog(segment_bytes=4 * BATCH_BYTES - 1)
    fixed_fill(smaller, 4)
    assert bases(smaller) == [0, 3]


def test_a_batch_that_no_segment_can_hold_is_refused() -> None:
    one = OneLog(segment_bytes=500)
    one.fill(1)
    with pytest.raises(AppendError) as refused:
        one.append(batch_of(bytes(600)))
    assert refused.value.error_code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert (one.log.log_end_offset, len(one.log.segments)) == (1, 1)


def test_a_segment_is_rolled_when_its_first_append_is_segment_ms_ago() -> None:
    one = OneLog(segment_ms=1000, segment_jitter_ms=100)
    one.now_ms += 10_000
    one.fill(1)
    one.now_ms += 899
    one.fill(1)
    assert bases(one) == [0]
    one.now_ms += 1
    one.fill(1)
    assert bases(one) == [0, 2]


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_the_age_of_a_segment_outlives_a_restart(how: str) -> None:
    one = OneLog(segment_ms=1000)
    one.fs.now_ms = one.now_ms
    one.fill(1)
    one.checkpoint()
    one.now_ms += 600
    getattr(one, how)()
    one.now_ms += 399
    one.fill(1)
    assert bases(one) == [0]
    one.now_ms += 1
    one.fill(1)
    assert bases(one) == [0, 2]


@pytest.mark.parametrize("how", ["restart", "kill", "truncate"])
def test_a_segment_is_as_old_as_its_first_record_not_as_its_file(how: str) -> None:
    one = OneLog(segment_ms=1000)
    one.fs.now_ms = one.now_ms
    one.fill(1)
    one.now_ms += 600
    one.fs.now_ms = one.now_ms
    one.fill(2)
    one.checkpoint()
    if how == "truncate":
        one.log.truncate_to(2)
    else:
        if how == "kill":
            # What was checkpointed a while ago is recovered, and otherwise left alone.
            one.fill(1)
        getattr(one, how)()
    one.now_ms += 399
    one.fill(1)
    assert bases(one) == [0]
    one.now_ms += 1
    end_offset = one.log.log_end_offset
    one.fill(1)
    assert bases(one) == [0, end_offset]


def test_a_segment_of_unknown_age_is_as_old_as_its_last_write() -> None:
    """The directory's checkpoint does not know of it yet."""
    one = OneLog(segment_ms=1000)
    one.fs.now_ms = one.now_ms
    one.fill(1)
    one.kill()
    one.now_ms += 999
    one.fill(1)
    assert bases(one) == [0]
    one.now_ms += 1
    one.fill(1)
    assert bases(one) == [0, 2]


@pytest.mark.parametrize(("limit_bytes", "entries"), [(80, 10), (36, 3)])
def test_a_segment_is_rolled_when_an_index_is_full(limit_bytes: int, entries: int) -> None:
    """An entry of the offset index has 8 bytes, one of the time index 12."""
    one = OneLog(segment_bytes=1 << 20, segment_index_bytes=limit_bytes, index_interval_bytes=0)
    for index in range(60):
        # Only for the smaller limit do timestamps increase and the time index grow.
        one.now_ms = START_MS + index * (entries == 3)
        one.fill(1)
    sealed = one.log.segments[:-1]
    assert len(sealed) >= 4
    for segment in sealed:
        file = segment.open_file()
        load_indexes(segment, file)
        assert segment.offset_index is not None
        assert segment.time_index is not None
        assert len(segment.offset_index.encode()) <= limit_bytes
        # Sealing adds the largest timestamp.
        assert len(segment.time_index.encode()) <= limit_bytes + 12
        assert max(len(segment.offset_index), len(segment.time_index)) >= entries


def test_a_segment_is_rolled_before_a_relative_offset_exceeds_32_bits() -> None:
    one = OneLog(segment_bytes=1 << 20)
    far = batch_of(b"x")
    far[0:16] = INT32_MAX.to_bytes(8, "big") + far[8:12] + bytes(4)
    one.fill(1)
    one.log.append_as_follower(far, 0, len(far), now_ms=one.now_ms)
    assert bases(one) == [0]
    one.log.advance_high_watermark(one.log.log_end_offset)
    one.fill(1)
    assert bases(one) == [0, INT32_MAX + 1]
    assert one.offsets() == [0, INT32_MAX, INT32_MAX + 1]
    one.kill()
    assert one.offsets() == [0, INT32_MAX, INT32_MAX + 1]


# Retention


def test_retention_by_time_drops_whole_old_segments_only() -> None:
    one = OneLog(segment_bytes=4 * BATCH_BYTES + 50)
    for _ in range(12):
        one.fill(1)
        one.now_ms += 10
    assert bases(one) == [0, 4, 8]
    one.set_config(retention_ms=1000)
    # The newest record of the first segment has START_MS + 30.
    assert one.log.apply_retention(START_MS + 1030) == 0
    assert one.log.apply_retention(START_MS + 1031) == 1
    assert one.log.log_start_offset == 4
    assert one.offsets() == list(range(4, 12))
    with pytest.raises(OffsetOutOfRange) as refused:
        one.log.read(3, 1, max_offset=99, at_least_one_batch=True)
    assert (refused.value.log_start_offset, refused.value.log_end_offset) == (4, 12)
    assert one.log.apply_retention(START_MS + 100_000) == 2
    assert (one.log.log_start_offset, one.log.log_end_offset, one.log.size_bytes) == (12, 12, 0)
    one.fill(1)
    assert one.offsets() == [12]


def test_a_young_record_keeps_its_old_neighbours() -> None:
    one = OneLog(segment_bytes=4 * BATCH_BYTES, retention_ms=1000)
    for timestamp in (START_MS, START_MS + 5000, START_MS, START_MS):
        one.append(batch_of(b"x", timestamps=[timestamp]))
    one.log.roll()
    assert one.log.apply_retention(START_MS + 6000) == 0
    assert one.log.apply_retention(START_MS + 6001) == 1


def test_no_segment_goes_from_behind_one_that_stays() -> None:
    one = OneLog(segment_bytes=BATCH_BYTES, retention_ms=1000)
    for timestamp in (START_MS + 5000, START_MS, START_MS):
        one.append(batch_of(bytes(100), timestamps=[timestamp]))
    assert bases(one) == [0, 1, 2]
    assert one.log.apply_retention(START_MS + 6000) == 0
    assert one.offsets() == [0, 1, 2]


def test_retention_does_not_move_the_log_start_back() -> None:
    one = OneLog(segment_bytes=4 * BATCH_BYTES)
    fixed_fill(one, 12)
    one.log.delete_records(6)
    assert one.log.apply_retention(one.now_ms) == 1
    assert bases(one) == [4, 8]
    assert one.log.log_start_offset == 6
    one.kill()
    assert one.offsets() == list(range(6, 12))


def test_the_high_watermark_does_not_go_back() -> None:
    one = OneLog()
    one.fill(3)
    one.log.advance_high_watermark(2)
    assert one.log.high_watermark == 3


@pytest.mark.parametrize(("limit", "dropped"), [(11, 0), (8, 1), (7, 1), (4, 2), (0, 3), (-1, 0)])
def test_retention_by_bytes_keeps_at_least_that_much(limit: int, dropped: int) -> None:
    one = OneLog(segment_bytes=4 * BATCH_BYTES)
    fixed_fill(one, 12)
    one.set_config(retention_bytes=limit * BATCH_BYTES if limit >= 0 else -1)
    assert one.log.apply_retention(one.now_ms) == dropped
    assert one.log.log_start_offset == 4 * dropped
    assert one.log.size_bytes == (12 - 4 * dropped) * BATCH_BYTES


def test_retention_never_passes_the_high_watermark() -> None:
    one = OneLog(segment_bytes=4 * BATCH_BYTES)
    for _ in range(12):
        one.append(batch_of(bytes(100)), commit=False)
    one.set_config(retention_bytes=0, retention_ms=0)
    late_ms = START_MS + 10_000_000
    assert one.log.apply_retention(late_ms) == 0
    one.log.advance_high_watermark(7)
    assert one.log.apply_retention(late_ms) == 1
    assert one.log.log_start_offset == 4
    one.log.advance_high_watermark(12)
    assert one.log.apply_retention(late_ms) == 2


def test_a_compacted_topic_has_no_retention_unless_it_asks_for_both() -> None:
    one = OneLog(segment_bytes=400, retention_ms=0, cleanup_policy=frozenset({"compact"}))
    for _ in range(8):
        one.append(batch_of(bytes(100), keys=[b"k"]))
    assert one.log.apply_retention(START_MS + 1000) == 0
    one.set_config(cleanup_policy=frozenset({"compact", "delete"}))
    assert one.log.apply_retention(START_MS + 1000) > 0


# DeleteRecords


def test_delete_records_hides_single_records() -> None:
    one = OneLog()
    one.append(batch_of(b"0", b"1", b"2", b"3"))
    one.fill(2)
    assert one.log.delete_records(2) == 2
    assert one.offsets() == [2, 3, 4, 5]
    assert one.log.delete_records(1) == 2, "it does not move back"
    assert one.log.delete_records(-1) == 6
    assert one.offsets() == []
    for offset in (-2, 7):
        with pytest.raises(OffsetOutOfRange):
            one.log.delete_records(offset)
    one.fill(1)
    assert one.offsets() == [6]


def test_delete_records_stops_at_the_high_watermark() -> None:
    one = OneLog()
    one.fill(3)
    one.append(batch_of(b"x"), commit=False)
    with pytest.raises(OffsetOutOfRange):
        one.log.delete_records(4)
    assert one.log.delete_records(-1) == 3


@pytest.mark.parametrize("operation", ["create", "write", "rename"])
@pytest.mark.parametrize("way", ["delete_records", "retention"])
def test_a_log_start_that_the_disk_does_not_take_is_nobody_s(operation: str, way: str) -> None:
    """It is told to clients and followers, and would be another one after the next start."""
    one = OneLog(segment_bytes=4 * BATCH_BYTES, retention_ms=500)
    fixed_fill(one, 12)
    one.now_ms += 1000
    one.fs.faults.append(Fault(operation, "log-start-unsynced", errno.EIO))
    move = one.log.apply_retention if way == "retention" else one.log.delete_records
    with pytest.raises(LogDirFailure):
        move(one.now_ms if way == "retention" else 6)
    assert one.log.log_start_offset == 0
    assert one.log.segments[0].base_offset == 0
    one.kill()
    assert one.log.log_start_offset == 0
    assert one.offsets() == list(range(12))


@pytest.mark.parametrize("is_checkpointed", [False, True])
@pytest.mark.parametrize("how", ["restart", "kill", "lose_power"])
def test_a_log_start_lasts(how: str, is_checkpointed: bool) -> None:
    one = OneLog(segment_bytes=4 * BATCH_BYTES)
    fixed_fill(one, 12)
    if is_checkpointed:
        one.checkpoint()
    one.log.delete_records(6)
    if how == "lose_power":
        one.log.flush()
        one.lose_power(random.Random(3))
    else:
        getattr(one, how)()
    assert one.log.log_start_offset == 6
    assert one.offsets() == list(range(6, 12))


def test_a_log_start_that_moves_during_a_flush_lasts_too() -> None:
    """The flush has made an earlier one durable, and must not take away what notes this one."""
    one = OneLog()
    fixed_fill(one, 12)
    one.log.delete_records(3)
    job = one.log.flush_job()
    assert job is not None
    job.run()
    one.log.delete_records(6)
    job.finish()
    one.kill()
    assert one.log.log_start_offset == 6
    assert one.offsets() == list(range(6, 12))


def test_an_earlier_flush_that_ends_later_does_not_move_the_log_start_back() -> None:
    one = OneLog()
    fixed_fill(one, 12)
    jobs = []
    for log_start in (3, 6):
        one.log.delete_records(log_start)
        job = one.log.flush_job()
        assert job is not None
        jobs.append(job)
    for job in reversed(jobs):
        job.run()
    for job in jobs:
        job.finish()
    one.lose_power(random.Random(1))
    assert one.log.log_start_offset == 6


def test_damage_below_a_durable_log_start_costs_nothing_above_it() -> None:
    """The checkpoint is older than both, and would have the log end where it is damaged."""
    one = OneLog()
    fixed_fill(one, 10)
    one.log.delete_records(6)
    one.log.flush()
    one.fs.flip_bit(one.log.active.path(), 2 * BATCH_BYTES + 100)
    one.lose_power(random.Random(1))
    assert one.log.log_start_offset == 6
    assert one.log.log_end_offset == 10


@pytest.mark.parametrize("seed", range(5))
def test_producers_whose_records_went_before_a_kill_outlive_the_next_power_loss(seed: int) -> None:
    """Nobody had synced the snapshot that the log begins at."""
    one = OneLog(segment_bytes=4 * BATCH_BYTES)
    for sequence in range(4):
        one.append(batch_of(bytes(100), timestamps=[START_MS], producer=(5, 0, sequence)))
    fixed_fill(one, 2)
    one.log.delete_records(4)
    assert one.log.apply_retention(one.now_ms) == 1
    one.kill()
    producers = one.log.producers.snapshot()
    one.log.flush()
    one.log.delete_pending_segments()
    one.lose_power(random.Random(seed))
    assert one.offsets() == [4, 5]
    assert one.log.producers.snapshot() == producers


def test_producers_below_the_log_start_are_found_in_their_records_while_these_are_there() -> None:
    """The snapshot that stands for them is lost."""
    one = OneLog(segment_bytes=4 * BATCH_BYTES)
    for sequence in range(4):
        one.append(batch_of(bytes(100), timestamps=[START_MS], producer=(5, 0, sequence)))
    fixed_fill(one, 2)
    one.log.delete_records(4)
    one.log.flush()
    producers = one.log.producers.snapshot()
    for name in one.names(".snapshot"):
        one.unlink(name)
    one.kill()
    assert one.offsets() == [4, 5]
    assert one.log.producers.snapshot() == producers


def test_files_go_when_what_stands_for_them_is_synced() -> None:
    """The snapshot behind them has what they gave to the producers."""
    one = OneLog(segment_bytes=4 * BATCH_BYTES)
    fixed_fill(one, 2)
    one.log.flush()
    fixed_fill(one, 10)
    one.log.delete_records(8)
    assert one.log.apply_retention(one.now_ms) == 2
    assert segment_deletion_job(one.log, one.now_ms) is None
    one.log.flush()
    assert segment_deletion_job(one.log, one.now_ms) is not None


@pytest.mark.parametrize("seed", range(5))
def test_files_go_when_the_log_start_behind_them_is_durable(seed: int) -> None:
    """Else a power loss could leave a log that does not begin where it says."""
    one = OneLog(segment_bytes=4 * BATCH_BYTES)
    fixed_fill(one, 12)
    one.log.flush()
    one.log.delete_records(8)
    assert one.log.apply_retention(one.now_ms) == 2
    job = segment_deletion_job(one.log, one.now_ms)
    assert job is not None
    job.run()
    job.finish()
    one.lose_power(random.Random(seed))
    assert one.offsets() == [8, 9, 10, 11]


def test_segments_dropped_later_go_later() -> None:
    one = OneLog(segment_bytes=4 * BATCH_BYTES, file_delete_delay_ms=500)
    fixed_fill(one, 16)
    for log_start in (4, 8):
        one.log.delete_records(log_start)
        assert one.log.apply_retention(one.now_ms) == 1
        one.log.flush()
        one.now_ms += 200
    for left in ([4, 8, 12], [8, 12]):
        one.now_ms = START_MS + (500 if 4 in left else 700)
        job = segment_deletion_job(one.log, one.now_ms)
        assert job is not None
        job.run()
        job.finish()
        assert one.names(".log") == [f"{base:020d}.log" for base in left]
    assert not one.log.pending_deletion


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_epochs_that_were_cut_off_do_not_come_back(how: str) -> None:
    """Whether the cut lies within a segment or between two; their file is older than the cut."""
    for offset in (4, 6):
        one = OneLog(segment_bytes=4 * BATCH_BYTES)
        for epoch, count in ((1, 4), (3, 2), (7, 4)):
            one.epoch = epoch
            fixed_fill(one, count)
        one.checkpoint()
        one.log.truncate_to(offset)
        expected = [(1, 0), (3, 4)] if offset == 6 else [(1, 0)]
        assert one.log.epochs.entries == expected
        getattr(one, how)()
        assert one.log.end_offset_for_epoch(expected[-1][0]) == (expected[-1][0], offset)
        assert one.log.epochs.entries == expected


def test_segments_below_the_log_start_go_and_their_files_after_the_delay() -> None:
    one = OneLog(segment_bytes=4 * BATCH_BYTES, file_delete_delay_ms=500)
    fixed_fill(one, 12)
    one.log.delete_records(8)
    assert one.log.apply_retention(one.now_ms) == 2
    assert bases(one) == [8]
    one.log.flush()
    assert segment_deletion_job(one.log, one.now_ms + 499) is None
    assert len(one.names(".log")) == 3
    job = segment_deletion_job(one.log, one.now_ms + 500)
    assert job is not None
    job.run()
    job.finish()
    assert one.names(".log") == ["00000000000000000008.log"]
    assert [name for name in one.names() if name[:20].isdigit() and int(name[:20]) < 8] == []
    one.kill()
    assert one.offsets() == [8, 9, 10, 11]


# Truncation


def test_truncation_drops_whole_batches_from_the_offset_on() -> None:
    one = OneLog(segment_bytes=400)
    for first in range(0, 12, 2):
        one.epoch = first // 4
        one.append(batch_of(b"%d" % first * 40, b"%d" % (first + 1) * 40))
    one.log.truncate_to(7)
    assert one.offsets() == list(range(6))
    assert one.log.log_end_offset == one.log.high_watermark == 6
    assert one.log.latest_epoch == 1
    assert one.log.end_offset_for_epoch(1) == (1, 6)
    one.log.truncate_to(100)
    assert one.log.log_end_offset == 6
    one.fill(1)
    one.kill()
    assert one.offsets() == list(range(7))


@pytest.mark.parametrize("log_start", [0, 4, 6])
def test_truncation_to_the_log_start_leaves_an_empty_log(log_start: int) -> None:
    one = OneLog(segment_bytes=4 * BATCH_BYTES)
    fixed_fill(one, 12)
    one.log.delete_records(log_start)
    one.log.truncate_to(log_start)
    assert (one.log.log_start_offset, one.log.log_end_offset) == (log_start, log_start)
    one.fill(1)
    one.kill()
    assert one.offsets() == [log_start]


def test_truncation_to_where_a_snapshot_is_lost_makes_producers_of_their_batches() -> None:
    one = one_with_a_producer()
    offset = one.log.segments[1].base_offset
    for name in one.names(".snapshot"):
        one.unlink(name)
    one.log.truncate_to(offset)
    assert one.log.log_end_offset == offset
    assert one.log.producers.producers[5].last_sequence == offset - 1


def test_truncation_leaves_no_snapshot_behind_the_end() -> None:
    """The next start would take up producers from it."""
    for offset in range(1, 6):
        one = OneLog(segment_bytes=BATCH_BYTES)
        for sequence in range(6):
            one.append(batch_of(bytes(100), timestamps=[START_MS], producer=(5, 0, sequence)))
        one.log.truncate_to(offset)
        assert max(int(name[:20]) for name in one.names(".snapshot")) == offset
        one.fill(1)
        one.kill()
        assert one.log.producers.producers[5].last_sequence == offset - 1


def test_truncation_of_the_batch_in_which_the_log_starts_leaves_an_empty_log() -> None:
    one = OneLog()
    one.append(batch_of(b"0", b"1", b"2", b"3"))
    one.log.delete_records(2)
    one.log.truncate_to(3)
    assert (one.log.log_start_offset, one.log.log_end_offset) == (2, 2)
    one.fill(1)
    for restart in (one.kill, one.restart):
        restart()
        assert one.offsets() == [2]


def test_starting_anew_elsewhere() -> None:
    one = OneLog(segment_bytes=4 * BATCH_BYTES)
    fixed_fill(one, 12)
    one.log.truncate_fully_and_start_at(1000)
    assert one.offsets() == []
    assert (one.log.log_start_offset, one.log.high_watermark) == (1000, 1000)
    one.fill(2)
    for restart in (one.kill, one.restart):
        restart()
        assert one.offsets() == [1000, 1001]
    assert one.names(".log") == [f"{1000:020d}.log"]


def one_with_a_producer() -> OneLog:
    """Several segments, each with a snapshot in front of it."""
    one = OneLog(segment_bytes=2 * BATCH_BYTES)
    for sequence in range(7):
        one.append(batch_of(bytes(100), timestamps=[START_MS], producer=(5, 0, sequence)))
    one.log.flush()
    assert len(one.names(".snapshot")) >= 3
    return one


@pytest.mark.parametrize("how", ["restart", "kill", "lose_power"])
def test_a_log_that_begins_anew_knows_no_producer_of_before(how: str) -> None:
    """Otherwise a retry would be acknowledged with the offset of a record that is gone."""
    one = one_with_a_producer()
    one.log.truncate_fully_and_start_at(1000)
    if how == "restart":
        one.restart()
    elif how == "kill":
        one.kill()
    else:
        one.lose_power(random.Random(1))
    assert one.log.producers.producers == {}
    again = one.append(batch_of(bytes(100), timestamps=[START_MS], producer=(5, 0, 6)))
    assert (again.first_offset, again.duplicate) == (1000, False)


@pytest.mark.parametrize("how", ["kill", "lose_power"])
@pytest.mark.parametrize("offset", [4, 1000])
def test_a_crash_while_a_log_begins_anew_leaves_nothing_of_records_that_are_gone(
    how: str, offset: int
) -> None:
    one = one_with_a_producer()
    first = one.fs.operations
    one.log.truncate_fully_and_start_at(offset)
    last = one.fs.operations
    anew_count = 0
    for step in range(first, last + 1):
        one = one_with_a_producer()
        one.fs.power_loss_at = step
        with contextlib.suppress(PowerLoss):
            one.log.truncate_fully_and_start_at(offset)
        one.fs.power_loss_at = None
        restarts = [one.kill, one.restart, one.kill]
        if how == "lose_power":
            restarts = [partial(one.lose_power, random.Random(step + n)) for n in range(3)]
        for restart in restarts:
            restart()
            if not one.offsets():
                anew_count += 1
                assert one.log.producers.producers == {}, step
                assert one.log.latest_epoch == -1, step
    assert anew_count > 3


def emptied_in_a_new_epoch() -> OneLog:
    """Retention has dropped all that it held; the file of its epochs has the first one alone."""
    one = OneLog(segment_bytes=4 * BATCH_BYTES, file_delete_delay_ms=60_000)
    one.epoch = 2
    fixed_fill(one, 2)
    one.checkpoint()
    one.epoch = 5
    fixed_fill(one, 2)
    one.set_config(retention_ms=0)
    one.now_ms += 1000
    assert one.log.apply_retention(one.now_ms) == 1
    assert (one.log.log_start_offset, one.log.log_end_offset, one.log.latest_epoch) == (4, 4, 5)
    return one


def test_a_log_that_retention_has_emptied_knows_its_last_epoch_after_a_kill() -> None:
    """To its leader it would seem to have left the log where an older epoch ended."""
    one = emptied_in_a_new_epoch()
    for _ in range(2):
        one.kill()
        assert (one.log.log_start_offset, one.log.log_end_offset) == (4, 4)
        assert one.log.latest_epoch == 5


def test_a_log_that_retention_has_emptied_knows_its_last_epoch_after_a_power_loss() -> None:
    emptied_count = 0
    for step in range(40):
        one = emptied_in_a_new_epoch()
        one.fs.power_loss_at = one.fs.operations + step % 20
        with contextlib.suppress(PowerLoss):
            one.log.flush()
        one.lose_power(random.Random(step))
        assert one.log.log_end_offset in (2, 3, 4)
        if one.log.log_start_offset == 4:
            emptied_count += 1
            assert one.log.latest_epoch == 5, step
    assert emptied_count > 3


def test_a_log_that_begins_anew_has_no_epochs_of_before() -> None:
    """It would say of itself that it has records of these epochs."""
    one = OneLog(segment_bytes=4 * BATCH_BYTES)
    for epoch in (2, 4, 7):
        one.epoch = epoch
        fixed_fill(one, 4)
    one.log.flush()
    one.log.truncate_fully_and_start_at(5)
    assert one.log.latest_epoch == -1
    one.kill()
    assert one.offsets() == []
    assert one.log.latest_epoch == -1
    one.epoch = 6
    fixed_fill(one, 1)
    for restart in (None, one.restart, one.kill):
        if restart is not None:
            restart()
        assert one.offsets() == [5]
        assert one.log.epochs.entries == [(6, 5)]


def one_with_two_dropped_segments() -> OneLog:
    """Their files are still there."""
    one = OneLog(segment_bytes=4 * BATCH_BYTES)
    fixed_fill(one, 12)
    one.log.flush()
    one.log.advance_high_watermark(12)
    one.set_config(retention_bytes=4 * BATCH_BYTES)
    assert one.log.apply_retention(one.now_ms) == 2
    return one


@pytest.mark.parametrize("job_runs", ["never", "before", "after"])
@pytest.mark.parametrize("kind", ["deletion", "flush"])
def test_starting_anew_where_retention_has_left_files(kind: str, job_runs: str) -> None:
    """As a follower of a leader whose log is shorter than what this one's retention has dropped."""
    one = one_with_two_dropped_segments()
    job: SegmentDeletionJob | FlushJob | None
    job = segment_deletion_job(one.log, one.now_ms) if kind == "deletion" else one.log.flush_job()
    assert job is not None
    if job_runs == "before":
        job.run()
    one.log.truncate_fully_and_start_at(0)
    one.append(batch_of(b"new"))
    if job_runs == "after":
        job.run()
    job.finish()
    assert not one.log.pending_deletion
    assert one.names(".log") == [f"{0:020d}.log"]
    for restart in (one.kill, one.restart):
        restart()
        assert [record.value for record in one.records()] == [b"new"]
        assert (one.log.log_start_offset, one.log.log_end_offset) == (0, 1)


def test_a_deletion_under_way_leaves_a_log_alone_that_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has listed what it will unlink when the new segment takes the name of an old one."""
    one = one_with_two_dropped_segments()
    job = segment_deletion_job(one.log, one.now_ms)
    assert job is not None
    list_directory = one.fs.list_directory

    def begin_anew_after(path: str) -> list[str]:
        monkeypatch.setattr(one.fs, "list_directory", list_directory)
        names = list_directory(path)
        one.log.truncate_fully_and_start_at(0)
        one.append(batch_of(b"new"))
        return names

    monkeypatch.setattr(one.fs, "list_directory", begin_anew_after)
    job.run()
    job.finish()
    assert one.names(".log") == [f"{0:020d}.log"]
    one.kill()
    assert [record.value for record in one.records()] == [b"new"]


def test_a_read_that_retention_overtakes_is_out_of_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker thread has the segments in hand while the loop drops the first of them, and their
    files go: the reader is told, and does not get later records in their place."""
    one = OneLog(segment_bytes=4 * BATCH_BYTES)
    fixed_fill(one, 12)
    one.log.advance_high_watermark(12)
    one.set_config(retention_bytes=4 * BATCH_BYTES)
    original = reads.read_segment_cold
    calls: list[int] = []

    def overtaken(segment: Segment, *arguments: Any) -> Any:
        calls.append(segment.base_offset)
        if len(calls) == 1:
            assert one.log.apply_retention(one.now_ms) == 2
            raise Retired
        return original(segment, *arguments)

    monkeypatch.setattr(reads, "read_segment_cold", overtaken)
    with pytest.raises(OffsetOutOfRange):
        one.log.read_cold(1, 1000, max_offset=12, at_least_one_batch=True)
    assert calls == [0]


def tick(one: OneLog, minutes: int) -> None:
    for _ in range(minutes):
        one.now_ms += 60_000
        for job in one.manager.tick(one.now_ms):
            job.run()
            job.finish()


@pytest.mark.parametrize("how", ["nothing", "kill", "restart"])
@pytest.mark.parametrize("comes_one_more", [False, True])
def test_the_files_of_an_idle_log_go_when_all_of_it_has_expired(
    how: str, comes_one_more: bool
) -> None:
    one = OneLog(retention_ms=1000, file_delete_delay_ms=90_000, segment_ms=1 << 50)
    for index in range(3):
        one.append(batch_of(b"secret", timestamps=[one.now_ms], producer=(7, 0, index)))
    tick(one, 6)
    assert one.log.log_start_offset == 3
    assert one.names(".log") == [f"{0:020d}.log", f"{3:020d}.log"]
    one.checkpoint()
    if how != "nothing":
        getattr(one, how)()
    if comes_one_more:
        one.set_config(retention_ms=-1)
        one.append(batch_of(b"kept", timestamps=[one.now_ms]))
    tick(one, 6)
    assert one.names(".log") == [f"{3:020d}.log"]
    assert one.names(".snapshot") == [f"{3:020d}.snapshot"]
    one.lose_power(random.Random(1))
    assert one.log.log_start_offset == 3
    assert one.log.producers.producers[7].last_sequence == 2


def test_files_wait_for_the_snapshot_behind_them_to_be_durable() -> None:
    one = OneLog(retention_ms=1000)
    one.append(batch_of(b"v", timestamps=[one.now_ms], producer=(7, 0, 0)))
    # The flush comes first, and ends where the segment is sealed later.
    one.log.flush()
    one.now_ms += 1001
    assert one.log.apply_retention(one.now_ms) == 1
    assert one.log.recovery_point == one.log.log_start_offset == 1
    assert segment_deletion_job(one.log, one.now_ms) is None
    flush = one.log.flush_job()
    assert flush is not None
    assert segment_deletion_job(one.log, one.now_ms) is None
    flush.run()
    assert segment_deletion_job(one.log, one.now_ms) is None
    flush.finish()
    job = segment_deletion_job(one.log, one.now_ms)
    assert job is not None
    job.run()
    job.finish()
    one.lose_power(random.Random(1))
    assert (one.log.log_start_offset, one.log.log_end_offset) == (1, 1)
    assert one.log.producers.producers[7].last_sequence == 0


def test_snapshots_that_clean_stops_have_left_go_with_their_segment() -> None:
    one = OneLog(segment_bytes=8 << 20, max_message_bytes=2 << 20)
    for _ in range(2):
        one.append(batch_of(bytes(1 << 20)))
        one.restart()
    assert len(one.names(".snapshot")) == 2
    one.log.roll()
    one.log.delete_records(-1)
    one.log.apply_retention(one.now_ms)
    one.log.flush()
    one.log.delete_pending_segments()
    assert one.names(".snapshot") == [f"{2:020d}.snapshot"]
