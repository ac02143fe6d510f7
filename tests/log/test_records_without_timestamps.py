"""Records without timestamps are as old as their append: a broker keeps that with the segment."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from data_plane.log.checkpoints import encode_value
from data_plane.log.loading import TAIL_FILES_BYTES_MIN
from data_plane.log.segment_age import AgeJob, append_ms
from data_plane.log.segment_checks import load_indexes, verify
from data_plane.log.vouched_date import UNKNOWN_MS
from tests.log.one_log import OneLog, batch_of

NOW_MS = 1_790_000_000_000
WEEK_MS = 7 * 24 * 3600 * 1000


def week_log(**settings: object) -> OneLog:
    one = OneLog()
    one.set_config(retention_ms=WEEK_MS, **settings)
    set_time(one, NOW_MS)
    return one


def set_time(one: OneLog, now_ms: int) -> None:
    one.now_ms = now_ms
    # Written to by whatever came last, a copying of the files, say: that is not to be relied on.
    one.fs.now_ms = 1000


def append(one: OneLog, count: int, timestamp_ms: int = -1) -> None:
    for _ in range(count):
        one.append(batch_of(b"v" * 150, keys=[b"k"], timestamps=[timestamp_ms]))


def seal(one: OneLog) -> None:
    one.log.roll()
    one.checkpoint()


def retain(one: OneLog) -> int:
    """What maintenance does at its look."""
    one.log.advance_high_watermark(one.log.log_end_offset)
    count = one.log.apply_retention(one.now_ms)
    if one.log.wants_ages:
        job = AgeJob(one.log, one.now_ms)
        job.run()
        job.finish()
        assert not one.log.wants_ages
        count += one.log.apply_retention(one.now_ms)
        assert not one.log.wants_ages
    return count


def vouch(one: OneLog, offset_ms: int | None) -> None:
    """How far the date is from `one.now_ms`; None: nobody knows."""
    one.manager.vouched_date.offset_ms = offset_ms


def nothing(one: OneLog) -> None:
    """No restart at all."""


def lose_power(one: OneLog) -> None:
    one.lose_power(random.Random(1))


RESTARTS = pytest.mark.parametrize(
    "restart", [nothing, OneLog.restart, OneLog.kill, lose_power], ids=lambda one: one.__name__
)


@RESTARTS
@pytest.mark.parametrize("ancient_ms", [None, 0, 1_000_000])
def test_they_stay_for_retention_ms_after_their_append(
    restart: Callable[[OneLog], None], ancient_ms: int | None
) -> None:
    one = week_log()
    append(one, 5)
    if ancient_ms is not None:
        append(one, 2, ancient_ms)
    # The time of the last append counts, not that of the first one.
    set_time(one, NOW_MS + 1000)
    append(one, 1)
    seal(one)
    assert len(one.names(".appendtime")) == 1
    restart(one)
    set_time(one, NOW_MS + 1000 + WEEK_MS)
    assert retain(one) == 0
    assert one.log.log_start_offset == 0
    set_time(one, one.now_ms + 1)
    assert retain(one) == 1
    assert one.log.log_start_offset == one.log.log_end_offset
    assert one.offsets() == []


@RESTARTS
def test_so_do_those_in_the_active_segment(restart: Callable[[OneLog], None]) -> None:
    one = week_log(segment_ms=1 << 50)
    append(one, 4)
    one.checkpoint()
    restart(one)
    one.now_ms = NOW_MS + WEEK_MS
    assert retain(one) == 0
    one.now_ms += 1
    assert retain(one) == 1


def test_the_time_a_clean_stop_has_kept_is_not_that_of_later_appends() -> None:
    one = week_log(segment_bytes=4 * TAIL_FILES_BYTES_MIN, segment_ms=1 << 50)
    one.set_config(max_message_bytes=2 * TAIL_FILES_BYTES_MIN)
    one.append(batch_of(bytes(TAIL_FILES_BYTES_MIN), timestamps=[-1]))
    append(one, 1, 1_000)
    one.restart()
    one.set_config(segment_bytes=4 * TAIL_FILES_BYTES_MIN, segment_ms=1 << 50)
    one.now_ms = NOW_MS + WEEK_MS
    assert retain(one) == 0
    append(one, 1)
    one.kill()
    for _ in range(2):
        # Of a log that had to recover nobody knows: it counts from the first look.
        one.now_ms += WEEK_MS
        assert retain(one) == 0
    one.now_ms += 1
    assert retain(one) == 1


@pytest.mark.parametrize("content", [None, b"", b"17\n", b"torn", encode_value(UNKNOWN_MS)])
def test_where_nobody_knows_they_count_from_the_first_look(content: bytes | None) -> None:
    """Not from the file's own time: a clock has stamped that, and nobody has vouched for it."""
    one = week_log()
    append(one, 5)
    seal(one)
    append(one, 5)
    seal(one)
    for name in one.names(".appendtime"):
        if content is None:
            one.unlink(name)
        else:
            file = one.fs.open(f"{one.log.folder}/{name}")
            file.truncate(0)
            file.write_at(0, content)
            file.close()
    one.restart()
    set_time(one, NOW_MS + WEEK_MS)
    assert retain(one) == 0
    # It is written down, and holds for what is behind the first that stays, too.
    one.restart()
    set_time(one, NOW_MS + 2 * WEEK_MS)
    assert retain(one) == 0
    set_time(one, one.now_ms + 1)
    assert retain(one) == 2


def test_power_loss_before_a_flush_leaves_no_time() -> None:
    for seed in range(20):
        one = week_log()
        append(one, 5)
        one.log.flush()
        one.log.roll()
        append(one, 1)
        one.lose_power(random.Random(seed))
        one.now_ms = NOW_MS + WEEK_MS
        assert retain(one) == 0, seed
        one.now_ms += WEEK_MS + 1
        assert retain(one) >= 1, seed


@RESTARTS
@pytest.mark.parametrize("is_sealed_before", [False, True])
def test_while_nobody_vouches_for_the_date_their_time_is_unknown(
    restart: Callable[[OneLog], None], is_sealed_before: bool
) -> None:
    one = week_log(segment_ms=1 << 50)
    # A clock that is days behind.
    set_time(one, NOW_MS - 3 * WEEK_MS)
    vouch(one, None)
    append(one, 5)
    if is_sealed_before:
        seal(one)
    one.log.flush()
    restart(one)
    set_time(one, NOW_MS)
    assert retain(one) == 0
    set_time(one, NOW_MS + WEEK_MS)
    assert retain(one) == 0
    set_time(one, one.now_ms + 1)
    assert retain(one) == 1


def test_the_date_that_is_vouched_for_counts_where_the_clock_is_wrong() -> None:
    one = week_log()
    set_time(one, NOW_MS - 3 * WEEK_MS)
    vouch(one, 3 * WEEK_MS)
    append(one, 5)
    seal(one)
    set_time(one, NOW_MS + WEEK_MS)
    assert retain(one) == 0
    set_time(one, one.now_ms + 1)
    assert retain(one) == 1


def test_a_later_append_with_a_date_dates_all_that_came_before() -> None:
    one = week_log()
    vouch(one, None)
    append(one, 2)
    vouch(one, 0)
    append(one, 1)
    seal(one)
    set_time(one, NOW_MS + WEEK_MS)
    assert retain(one) == 0
    set_time(one, one.now_ms + 1)
    assert retain(one) == 1


def test_what_is_appended_while_the_others_are_dated_stays_unknown() -> None:
    one = week_log(segment_ms=1 << 50)
    vouch(one, None)
    append(one, 2)
    assert one.log.apply_retention(one.now_ms) == 0
    job = AgeJob(one.log, one.now_ms)
    job.run()
    append(one, 1)
    job.finish()
    assert append_ms(one.log.active) is None


def test_a_cut_leaves_no_time_for_what_comes_then() -> None:
    one = week_log()
    append(one, 5)
    seal(one)
    one.log.truncate_to(3)
    assert one.names(".appendtime") == []


@pytest.mark.parametrize("timestamp_ms", [-1, 1_000])
def test_nor_is_a_producer_forgotten_by_a_date_that_nobody_vouched_for(timestamp_ms: int) -> None:
    """Its retry would be stored a second time."""
    one = week_log(producer_id_expiration_ms=WEEK_MS)
    set_time(one, NOW_MS - 3 * WEEK_MS)
    vouch(one, None)
    one.append(batch_of(b"v", timestamps=[timestamp_ms], producer=(7, 0, 0)))
    producers = one.log.producers
    assert producers.expire(NOW_MS, WEEK_MS) == 0
    assert producers.expire(NOW_MS + WEEK_MS - 1, WEEK_MS) == 0
    assert producers.expire(NOW_MS + WEEK_MS, WEEK_MS) == 1


def test_compaction_keeps_it() -> None:
    one = week_log()
    one.set_config(cleanup_policy=frozenset({"compact", "delete"}), min_cleanable_dirty_ratio=0.01)
    append(one, 3)
    seal(one)
    set_time(one, NOW_MS + 1000)
    append(one, 3)
    seal(one)
    set_time(one, NOW_MS + 5000)
    job = one.log.compaction_job(one.now_ms)
    assert job is not None
    job.run()
    job.finish()
    assert one.offsets() == [5]
    assert len(one.names(".appendtime")) == 1
    for restart in (nothing, OneLog.restart, OneLog.kill):
        restart(one)
        one.set_config()
        set_time(one, NOW_MS + 1000 + WEEK_MS)
        assert retain(one) == 0
    set_time(one, one.now_ms + 1)
    assert retain(one) == 1


def test_min_compaction_lag_protects_them() -> None:
    one = week_log(min_compaction_lag_ms=10_000, min_cleanable_dirty_ratio=0.01)
    one.set_config(cleanup_policy=frozenset({"compact"}))
    append(one, 3)
    seal(one)
    set_time(one, NOW_MS + 9_999)
    assert one.log.compaction_job(one.now_ms) is None
    set_time(one, NOW_MS + 10_000)
    assert one.log.compaction_job(one.now_ms) is not None


def test_nobody_keeps_a_time_for_records_that_have_one() -> None:
    one = week_log()
    append(one, 5)
    seal(one)
    one.log.truncate_to(0)
    append(one, 3)
    end = one.log.log_end_offset
    append(one, 3, NOW_MS)
    one.log.truncate_to(end)
    seal(one)
    assert len(one.names(".appendtime")) == 1
    one.log.truncate_to(1)
    one.log.truncate_fully_and_start_at(0)
    append(one, 5, NOW_MS)
    seal(one)
    assert one.names(".appendtime") == []


def test_their_segments_need_no_new_indexes_at_every_start() -> None:
    one = week_log()
    append(one, 9)
    seal(one)
    one.restart()
    segment = one.log.segments[0]
    before = one.content(one.names(".index")[0])
    file = segment.open_file()
    load_indexes(segment, file)
    assert segment.offset_index is not None
    assert segment.offset_index.encode() == before
    loaded = segment.offset_index
    assert verify(segment, file) == []
    assert segment.offset_index is loaded


def test_an_idle_log_of_them_is_left_alone_until_it_is_due() -> None:
    one = week_log()
    append(one, 9)
    seal(one)
    append(one, 1)
    one.restart()
    assert not one.log.is_loaded
    assert not one.log.may_expire(NOW_MS + WEEK_MS)
    assert one.log.may_expire(NOW_MS + WEEK_MS + 1)
