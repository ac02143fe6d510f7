"""What worker threads read while the loop deletes a log, cuts it or replaces its segments."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from data_plane.log.errors import LogDeleted, LogDirFailure
from data_plane.log.log import Log
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import iter_batch_headers
from tests.log.one_log import START_MS, TOPIC_ID, OneLog, batch_of

BATCHES = 60
FAR = 1 << 62


def read_first(log: Log) -> object:
    result = log.read_cold(0, 1, max_offset=FAR, at_least_one_batch=True)
    return next(iter_batch_headers(result.buffers[0], 0, result.size)).base_offset


def find_by_time(log: Log) -> object:
    found = log.offset_for_timestamp(START_MS, max_offset=FAR)
    return None if found is None else found[0]


def find_newest(log: Log) -> object:
    found = log.max_timestamp_offset(max_offset=FAR)
    return None if found is None else found[0]


READS = pytest.mark.parametrize("read", [read_first, find_by_time, find_newest])


class Meanwhile:
    """Does something on the loop right before a worker opens a file, once."""

    def __init__(self, one: OneLog, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]):
        self._open = one.fs.open
        self._act: Callable[[], None] | None = act
        monkeypatch.setattr(one.fs, "open", self._act_and_open)

    @property
    def is_done(self) -> bool:
        return self._act is None

    def _act_and_open(self, path: str, *, create: bool = False, write: bool = True) -> object:
        if not write and self._act is not None:
            act, self._act = self._act, None
            act()
        return self._open(path, create=create, write=write)


def started_again() -> OneLog:
    """A log of several segments, of which this process has read nothing yet."""
    one = OneLog()
    one.fill(BATCHES)
    one.restart()
    one.log.load()
    assert len(one.log.segments) > 3
    return one


@READS
@pytest.mark.timeout(20)
def test_a_deleted_log_is_read_no_more(read: Callable[[Log], object]) -> None:
    one = started_again()
    assert read(one.log) == 0
    one.manager.delete(TOPIC_ID, 0, one.now_ms)
    with pytest.raises(LogDeleted, match="was deleted") as raised:
        read(one.log)
    assert raised.value.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert one.manager.directories[0].failure is None


@READS
@pytest.mark.timeout(20)
def test_a_deletion_during_a_read_is_no_fault_of_the_disk(
    read: Callable[[Log], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = started_again()
    meanwhile = Meanwhile(one, monkeypatch, lambda: one.manager.delete(TOPIC_ID, 0, one.now_ms))
    with pytest.raises(LogDeleted):
        read(one.log)
    assert meanwhile.is_done
    assert one.manager.directories[0].failure is None


@READS
@pytest.mark.timeout(20)
def test_a_log_that_is_cut_during_a_read_is_read_as_it_is_now(
    read: Callable[[Log], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = started_again()

    def begin_anew() -> None:
        one.log.truncate_fully_and_start_at(0)
        one.fill(1)

    meanwhile = Meanwhile(one, monkeypatch, begin_anew)
    assert read(one.log) == 0
    assert meanwhile.is_done
    assert one.manager.directories[0].failure is None


@READS
@pytest.mark.timeout(20)
def test_a_log_that_is_made_anew_during_a_read_is_not_read_in_the_place_of_the_deleted_one(
    read: Callable[[Log], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files have the names of those that are gone."""
    one = started_again()

    def make_anew() -> None:
        one.manager.delete(TOPIC_ID, 0, one.now_ms)
        successor = one.manager.create(TOPIC_ID, "flights", 0, one.config)
        buf = batch_of(b"another log")
        successor.append_as_leader(buf, 0, len(buf), leader_epoch=0, now_ms=one.now_ms)

    meanwhile = Meanwhile(one, monkeypatch, make_anew)
    with pytest.raises(LogDeleted):
        read(one.log)
    assert meanwhile.is_done
    assert one.manager.take_corruption_reports() == []


@READS
@pytest.mark.timeout(20)
def test_a_swap_of_compacted_segments_during_a_read_is_not_taken_for_damage(
    read: Callable[[Log], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = started_again()
    one.set_config(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01)
    one.log.advance_high_watermark(one.log.log_end_offset)
    job = one.log.compaction_job(one.now_ms)
    assert job is not None
    job.run()
    meanwhile = Meanwhile(one, monkeypatch, job.finish)
    # Records without a key do not stay.
    assert read(one.log) == one.log.active.base_offset
    assert meanwhile.is_done
    assert one.manager.take_corruption_reports() == []


@READS
@pytest.mark.timeout(20)
def test_a_mapped_segment_that_is_cut_during_a_read_is_not_taken_for_damaged(
    read: Callable[[Log], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shorter file takes its place, which has not what the reader looks for."""
    one = started_again()

    def cut() -> None:
        one.log.segments[0].ever_mapped = True
        one.log.truncate_to(2)

    meanwhile = Meanwhile(one, monkeypatch, cut)
    assert read(one.log) == 0
    assert meanwhile.is_done
    assert one.manager.take_corruption_reports() == []


@READS
@pytest.mark.timeout(20)
def test_a_replacement_that_fails_ends_the_reads(read: Callable[[Log], object]) -> None:
    one = started_again()
    # As a swap does it whose disk fails halfway: the segments are retired and still listed.
    for segment in one.log.segments:
        segment.retired = True
    one.manager.directories[0].fail(OSError("the disk is gone"))
    with pytest.raises(LogDirFailure):
        read(one.log)
