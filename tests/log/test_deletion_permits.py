"""What maintenance leaves alone while it may delete nothing, or nothing by date."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from data_plane.log.maintenance import MaintenanceConfig
from data_plane.log.permit import PERMITTED, DeletionPermit
from tests.log.one_log import START_MS, OneLog, batch_of

NOTHING = DeletionPermit.refused("nobody has vouched for the image")
NOT_BY_DATE = DeletionPermit(why_not_by_date="the clock has jumped")
LATE_MS = START_MS + 1_000_000


def tick(one: OneLog, now_ms: int, permit: DeletionPermit, wall_ms: int | None = None) -> list[Any]:
    """A tick, with its jobs run."""
    jobs = one.manager.tick(now_ms, now_ms if wall_ms is None else wall_ms, permit)
    for job in jobs:
        job.run()
        job.finish()
    return jobs


def old_log(**settings: object) -> OneLog:
    """One log of three old segments that a start has found."""
    one = OneLog(maps_files=False, segment_bytes=500, **settings)
    one.fill(9)
    one.restart()
    one.manager._maintenance._config = replace(
        MaintenanceConfig(), retention_check_interval_ms=10**9, scrub_interval_ms=-1
    )
    one.manager._maintenance.begin()
    return one


@pytest.mark.parametrize("refusal", [NOTHING, NOT_BY_DATE])
def test_nothing_goes_by_date_until_it_may_and_then_it_goes_at_once(
    refusal: DeletionPermit,
) -> None:
    one = old_log(retention_ms=1000)
    for late_ms in range(LATE_MS, LATE_MS + 10_000, 1000):
        tick(one, late_ms, refusal)
    assert one.log.log_start_offset == 0
    tick(one, LATE_MS + 10_000, PERMITTED)
    assert one.log.log_start_offset == 9


def test_retention_by_size_needs_no_date() -> None:
    one = old_log(retention_bytes=100, retention_ms=1000)
    end_offset = one.log.log_end_offset
    tick(one, LATE_MS, NOTHING)
    assert one.log.log_start_offset == 0
    tick(one, LATE_MS, NOT_BY_DATE)
    assert 0 < one.log.log_start_offset < end_offset, "the newest segment is not too much"
    tick(one, LATE_MS + 1000, PERMITTED)
    assert one.log.log_start_offset == end_offset


def test_the_date_decides_and_not_how_long_the_broker_has_run() -> None:
    one = old_log(retention_ms=1000)
    tick(one, LATE_MS, PERMITTED, wall_ms=START_MS)
    assert one.log.log_start_offset == 0
    one.manager._maintenance.begin()
    tick(one, START_MS, PERMITTED, wall_ms=LATE_MS)
    assert one.log.log_start_offset == 9


@pytest.mark.parametrize("refusal", [NOTHING, NOT_BY_DATE])
def test_nothing_is_compacted_without_a_permit(refusal: DeletionPermit) -> None:
    one = OneLog(
        segment_bytes=500, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0
    )
    for _ in range(9):
        one.append(batch_of(bytes(100), keys=[b"k"]))
    one.checkpoint()
    for seconds in range(60):
        tick(one, START_MS + 1000 * seconds, refusal)
    assert one.offsets() == list(range(9))
    for seconds in range(60, 63):
        # A checkpoint comes first: only what it covers is rewritten.
        tick(one, START_MS + 1000 * seconds, PERMITTED)
    assert 0 not in one.offsets()


@pytest.mark.parametrize("refusal", [NOTHING, NOT_BY_DATE])
def test_no_producer_is_forgotten_without_a_permit(refusal: DeletionPermit) -> None:
    one = OneLog(producer_id_expiration_ms=1000)
    one.append(batch_of(b"x", producer=(7, 0, 0)))
    tick(one, LATE_MS, refusal)
    assert 7 in one.log.producers.producers
    tick(one, LATE_MS + 1000, PERMITTED)
    assert 7 not in one.log.producers.producers


def test_a_flush_by_age_does_not_wait_for_a_clock_that_was_set_back() -> None:
    one = OneLog(flush_ms=1000)
    buf = batch_of(b"x")
    one.log.append_as_leader(
        buf, 0, len(buf), leader_epoch=0, now_ms=START_MS, wall_ms=START_MS + 10**9
    )
    tick(one, START_MS + 1000, PERMITTED, wall_ms=START_MS)
    assert one.log.recovery_point == 1


def test_what_has_left_its_log_goes_without_a_permit() -> None:
    """It was decided when it was allowed."""
    one = old_log(retention_ms=1000)
    tick(one, LATE_MS, PERMITTED)
    one.checkpoint()
    tick(one, LATE_MS + 1000, NOTHING)
    assert f"{0:020d}.log" not in one.names()
