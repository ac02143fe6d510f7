"""Offsets further apart than a segment can hold: compaction leaves such gaps, and followers
get over them, whatever comes between."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from data_plane.log.config import INT32_MAX
from data_plane.log.errors import LogDirFailure
from data_plane.log.sim_file_system import Fault, PowerLoss
from data_plane.wire.records import read_batch_header
from tests.log.one_log import OneLog, batch_of
from tests.log.test_compaction import compact, compacted_log, put, settle


def at(offset: int, *values: bytes) -> bytearray:
    """A batch of the leader's."""
    batch = batch_of(*(values or (b"x",)), keys=[b"k"] * max(1, len(values)))
    batch[0:8] = offset.to_bytes(8, "big")
    return batch


def follow(one: OneLog, *batches: bytes | bytearray) -> None:
    data = b"".join(batches)
    one.log.append_as_follower(data, 0, len(data), now_ms=one.now_ms)
    one.log.advance_high_watermark(one.log.log_end_offset)


def check(log: OneLog, offsets: list[int]) -> None:
    log.log.advance_high_watermark(log.log.log_end_offset)
    assert log.offsets() == offsets
    for before, behind in pairwise(offsets):
        for wanted in {before + 1, (before + behind) // 2 + 1, behind}:
            for read in (log.log.read, log.log.read_cold):
                found = read(wanted, 1, max_offset=1 << 62, at_least_one_batch=True)
                assert read_batch_header(bytes(found.buffers[0]), 0).base_offset == behind
    for segment in log.log.segments:
        inside = [one for one in offsets if segment.base_offset <= one < segment.next_offset]
        assert not inside or inside[-1] - segment.base_offset <= INT32_MAX


@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize("gap", [INT32_MAX - 1, INT32_MAX, INT32_MAX + 1, 1 << 40])
def test_a_follower_stores_what_is_far_behind_its_end(before: int, gap: int) -> None:
    one = OneLog()
    offsets = [*range(before), before + gap, before + gap + 1]
    follow(one, *map(at, range(before)))
    follow(one, at(before + gap))
    follow(one, at(before + gap + 1))
    check(one, offsets)
    assert one.log.log_end_offset == before + gap + 2
    for restart in (one.restart, one.kill, one.restart):
        restart()
        check(one, offsets)
    one.checkpoint()
    one.lose_power(random.Random(1))
    check(one, offsets)


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_gaps_may_lie_within_what_one_fetch_brings(chunk: int) -> None:
    steps = [
        1,
        INT32_MAX,
        1,
        INT32_MAX - 1,
        INT32_MAX + 1,
        5,
        INT32_MAX // 2,
        INT32_MAX // 2,
        1 << 35,
    ]
    offsets = [0]
    for step in steps:
        offsets += [offsets[-1] + step, offsets[-1] + step + 1]
    one = OneLog()
    for first in range(0, len(offsets), chunk):
        follow(one, *map(at, offsets[first : first + chunk]))
    check(one, offsets)
    one.kill()
    check(one, offsets)


def test_what_compaction_leaves_comes_over_to_a_follower() -> None:
    leader = compacted_log(segment_bytes=400)
    put(leader, (b"cold", b"1"))
    for _ in range(3):
        follow(leader, at(leader.log.log_end_offset + INT32_MAX - 1))
        settle(leader)
    put(leader, (b"end", b"1"))
    assert compact(leader)
    offsets = leader.offsets()
    assert len(offsets) == 3
    assert offsets[1] - offsets[0] > 2 * INT32_MAX
    for max_bytes in (1, 1 << 20):
        follower = compacted_log(segment_bytes=400)
        while follower.log.log_end_offset < leader.log.log_end_offset:
            read = leader.log.read_cold(
                follower.log.log_end_offset, max_bytes, max_offset=1 << 62, at_least_one_batch=True
            )
            follow(follower, *map(bytes, read.buffers))
        check(follower, offsets)


@pytest.mark.parametrize("offset", [2, 3, 1 << 33, (1 << 40) - 1, 1 << 40, (1 << 40) + 1])
def test_a_truncation_anywhere_about_a_gap(offset: int) -> None:
    far = 1 << 40
    one = OneLog()
    offsets = [0, 1, 2, far, far + 1]
    follow(one, *map(at, offsets))
    one.checkpoint()
    one.log.truncate_to(offset)
    kept = [one_offset for one_offset in offsets if one_offset < offset]
    check(one, kept)
    assert kept[-1] < one.log.log_end_offset <= offset
    one.lose_power(random.Random(1))
    check(one, kept)
    following = [one.log.log_end_offset, far + 5, far + 6]
    follow(one, *map(at, following))
    one.checkpoint()
    one.lose_power(random.Random(2))
    check(one, kept + following)


@pytest.mark.parametrize("how", ["kill", "power loss"])
def test_a_crash_at_any_step_of_getting_over_a_gap(how: str) -> None:
    far = 1 << 40
    offsets = [0, 1, 2, far, far + 1, far + 2]
    step = 0
    is_over = False
    found = set()
    while not is_over:
        one = OneLog(segment_bytes=300)
        follow(one, *map(at, offsets[:2]))
        one.checkpoint()
        follow(one, at(2))
        one.fs.power_loss_at = one.fs.operations + step
        try:
            for offset in offsets[3:]:
                follow(one, at(offset))
            is_over = True
        except PowerLoss:
            pass
        one.fs.power_loss_at = None
        if how == "kill":
            one.kill()
        else:
            one.lose_power(random.Random(step))
        one.log.advance_high_watermark(one.log.log_end_offset)
        stored = one.offsets()
        assert stored == offsets[: len(stored)]
        assert len(stored) >= (3 if how == "kill" else 2)
        found.add(len(stored))
        following = [max(one.log.log_end_offset, far + 9)]
        follow(one, *map(at, following))
        one.checkpoint()
        one.lose_power(random.Random(step))
        check(one, stored + following)
        step += 1
    assert len(found) > 1


def test_a_write_that_fails_behind_a_gap_leaves_no_log_whose_ends_disagree() -> None:
    one = OneLog()
    follow(one, at(0))
    one.fs.faults.append(Fault("write", f"{1 << 40:020d}.log", 12))
    with pytest.raises(LogDirFailure):
        follow(one, at(1 << 40))
    assert one.manager.offline_directories()
    one.kill()
    check(one, [0])


def test_a_roll_without_a_descriptor_left_leaves_the_active_segment_active() -> None:
    one = OneLog(segment_bytes=300)
    one.fill(2)
    one.fs.faults.append(Fault("create", f"{2:020d}.log", 24))
    with pytest.raises(LogDirFailure):
        one.log.roll()
    assert not one.manager.offline_directories()
    one.log.active.close_file()
    one.set_config(segment_bytes=2000)
    one.fill(3)
    check(one, [0, 1, 2, 3, 4])
