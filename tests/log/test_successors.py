"""A log that is made in the place of a deleted one, of the same topic, before the directory's next
checkpoint: what that checkpoint says of the old log is not taken for the new one."""

from __future__ import annotations

import random

import pytest

from tests.log.one_log import TOPIC_ID, OneLog, batch_of


def make_anew(one: OneLog) -> None:
    one.manager.delete(TOPIC_ID, 0, one.now_ms)
    one.log = one.manager.create(TOPIC_ID, "flights", 0, one.config)


def put(one: OneLog, count: int) -> None:
    """Records that nobody has committed yet."""
    for _ in range(count):
        one.append(batch_of(b"new"), commit=False)


def a_successor() -> OneLog:
    """Three records as before, none of them synced or committed; those of before were."""
    one = OneLog(file_delete_delay_ms=60_000)
    one.fill(3)
    one.checkpoint()
    make_anew(one)
    put(one, 3)
    return one


def assert_nothing_is_vouched_for(one: OneLog) -> None:
    assert one.log.log_end_offset == 3
    assert one.log.recovery_point == 0
    assert one.log.high_watermark == 0


def test_a_kill_leaves_it_as_unsynced_and_uncommitted_as_it_was() -> None:
    one = a_successor()
    one.kill()
    assert_nothing_is_vouched_for(one)


@pytest.mark.parametrize("seed", range(10))
def test_what_power_loss_has_torn_is_looked_through(seed: int) -> None:
    one = a_successor()
    one.lose_power(random.Random(seed))
    found = one.records()
    assert [record.value for record in found] == [b"new"] * len(found)
    assert one.log.log_end_offset == len(found)


def test_a_checkpoint_under_way_at_its_making_speaks_of_the_old_one_too() -> None:
    one = OneLog(file_delete_delay_ms=60_000)
    one.fill(3)
    one.log.flush()
    job = one.manager.checkpoint_job(one.manager.directories[0])
    make_anew(one)
    put(one, 3)
    job.run()
    job.finish()
    one.kill()
    assert_nothing_is_vouched_for(one)


def test_the_second_successor_within_a_checkpoint() -> None:
    one = OneLog(file_delete_delay_ms=60_000)
    one.fill(3)
    one.log.flush()
    make_anew(one)
    one.fill(3)
    one.log.flush()
    job = one.manager.checkpoint_job(one.manager.directories[0])
    one.manager.delete(TOPIC_ID, 0, one.now_ms)
    job.run()
    job.finish()
    one.log = one.manager.create(TOPIC_ID, "flights", 0, one.config)
    put(one, 3)
    one.kill()
    assert_nothing_is_vouched_for(one)


def test_a_truncation_of_it_changes_nothing() -> None:
    one = a_successor()
    put(one, 1)
    one.log.truncate_to(3)
    one.kill()
    assert_nothing_is_vouched_for(one)


def test_from_its_first_checkpoint_on_it_is_a_log_like_any() -> None:
    one = a_successor()
    one.log.advance_high_watermark(2)
    one.checkpoint()
    assert one.names("truncation.checkpoint") == []
    put(one, 1)
    one.log.truncate_to(3)
    one.kill()
    assert one.log.recovery_point == 3
    assert one.log.high_watermark == 2


def test_a_log_that_is_the_first_one_needs_no_mark() -> None:
    one = OneLog()
    assert one.names("truncation.checkpoint") == []
    one.manager.delete(TOPIC_ID, 0, one.now_ms)
    job = one.manager.checkpoint_job(one.manager.directories[0])
    job.run()
    job.finish()
    one.log = one.manager.create(TOPIC_ID, "flights", 0, one.config)
    assert one.names("truncation.checkpoint") == []
