"""Records without timestamps are as old as their append: a broker keeps that with the segment."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from data_plane.log.loading import TAIL_FILES_BYTES_MIN
from data_plane.log.segment_checks import verify
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
    one.log.advance_high_watermark(one.log.log_end_offset)
    return one.log.apply_retention(one.now_ms)


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
    append(one, 3)
    one.checkpoint()
    one.fs.now_ms = NOW_MS
    append(one, 1)
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
    one.fs.now_ms = one.now_ms
    append(one, 1)
    one.kill()
    one.now_ms += WEEK_MS
    assert retain(one) == 0
    one.now_ms += 1
    assert retain(one) == 1


@pytest.mark.parametrize("content", [None, b"", b"17\n", b"torn"])
def test_the_file_s_own_time_counts_where_no_other_is_known(content: bytes | None) -> None:
    one = week_log()
    one.fs.now_ms = NOW_MS
    append(one, 5)
    seal(one)
    name = one.names(".appendtime")[0]
    one.unlink(name)
    if content is not None:
        file = one.fs.open(f"{one.log.folder}/{name}", create=True)
        file.write_at(0, content)
    one.restart()
    one.now_ms = NOW_MS + WEEK_MS
    assert retain(one) == 0
    one.now_ms += 1
    assert retain(one) == 1


def test_power_loss_before_a_flush_leaves_the_file_s_own_time() -> None:
    for seed in range(20):
        one = week_log()
        one.fs.now_ms = NOW_MS
        append(one, 5)
        one.log.flush()
        one.log.roll()
        append(one, 1)
        one.lose_power(random.Random(seed))
        one.now_ms = NOW_MS + WEEK_MS
        assert retain(one) == 0, seed


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
    segment.load_indexes(file)
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
