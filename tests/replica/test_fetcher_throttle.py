"""Replicas that are being added come at a limited rate, until somebody waits for them."""

from __future__ import annotations

import pytest

from data_plane.log.errors import LogError
from data_plane.replica.fetcher import BACKOFF_MS_MIN, THROTTLED_PAUSE_MS_MAX
from data_plane.replica.throttle import UNLIMITED_BYTES_PER_S, Throttle
from tests.replica.fetcher_pair import A, Pair, named
from tests.replica.leader_model import RECORD_BYTES


def test_a_replica_that_is_added_comes_at_the_given_rate() -> None:
    rate = 160  # ten records a second
    pair = Pair()
    pair.throttle.set_rate(rate, pair.now_ms)
    pair.leader.records_per_partition_max = 2
    added = pair.add(A, 0, records=100, is_throttled=True)
    pair.leader.high_watermarks[(A, 0)] = 100
    plain = pair.add(A, 1, records=100)
    started_ms = pair.now_ms
    while len(added.log.epochs) < 100:
        if pair.exchange() is None or not pair.leader.requests[-1].topics:
            pair.wait(10)
    elapsed_s = (pair.now_ms - started_ms) / 1000
    # One second's worth and a response may come ahead.
    assert 8.5 <= elapsed_s <= 10.1
    assert plain.log.epochs == [0] * 100
    pair.fetcher.set_throttled(A, 0, False)
    pair.leader.logs[(A, 0)].epochs += [0] * 100
    pair.leader.high_watermarks[(A, 0)] = 200
    pair.wait(1100)
    before_ms = pair.now_ms
    pair.settle()
    assert len(added.log.epochs) == 200
    assert pair.now_ms - before_ms < 200


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_replica_that_has_joined_the_isr_waits_for_no_bucket(is_paused: bool) -> None:
    """Producers wait for it from then on."""
    pair = Pair()
    pair.throttle.set_rate(RECORD_BYTES, pair.now_ms)
    added = pair.add(A, 0, records=5, is_throttled=True)
    pair.add(A, 1, records=5, is_throttled=True)
    pair.leader.high_watermarks = {(A, 0): 7, (A, 1): 7}
    pair.exchange()
    assert pair.throttle.wait_ms(pair.now_ms) > 1000
    if is_paused:
        pair.exchange()
        assert named(pair) == []
        assert pair.fetcher.paused_count == 2
    pair.leader.logs[(A, 0)].epochs += [0, 0]
    pair.fetcher.set_throttled(A, 0, False)
    pair.exchange()
    assert named(pair) == [(A, 0, 5)]
    assert added.log.epochs == [0] * 7
    assert pair.fetcher.paused_count == 1


def test_a_replica_that_has_what_is_committed_waits_for_no_bucket() -> None:
    """Its leader may have proposed it for the ISR, and waits for it from then on."""
    pair = Pair()
    pair.throttle.set_rate(RECORD_BYTES, pair.now_ms)
    added = pair.add(A, 0, records=5, is_throttled=True)
    behind = pair.add(A, 1, records=5, is_throttled=True)
    pair.leader.high_watermarks = {(A, 0): 5, (A, 1): 6}
    pair.exchange()
    assert pair.throttle.wait_ms(pair.now_ms) > 1000
    for _ in range(3):
        pair.leader.logs[(A, 0)].epochs.append(0)
        pair.leader.logs[(A, 1)].epochs.append(0)
        pair.exchange()
    assert (added.log.end, behind.log.end) == (8, 5)
    # What it lacks from now on is committed without it.
    pair.leader.logs[(A, 0)].epochs += [0, 0]
    pair.leader.high_watermarks[(A, 0)] = 10
    pair.leader.records_per_partition_max = 1
    pair.exchange()
    assert added.log.end == 9
    pair.exchange()
    assert added.log.end == 9
    assert pair.fetcher.paused_count == 2


def test_a_failing_replica_that_joins_the_isr_rests_all_the_same() -> None:
    pair = Pair()
    replica = pair.add(A, 0, records=5, is_throttled=True)
    replica.fails_with = LogError("the disk is gone")
    pair.exchange()
    assert pair.problems.pop().pause_ms == BACKOFF_MS_MIN
    pair.fetcher.set_throttled(A, 0, False)
    assert pair.request() is None
    assert pair.fetcher.next_deadline_ms() == pair.now_ms + BACKOFF_MS_MIN


def test_a_higher_rate_is_noticed_within_a_second_however_much_was_taken() -> None:
    pair = Pair()
    pair.throttle.set_rate(1, pair.now_ms)
    replica = pair.add(A, 0, records=5, is_throttled=True)
    pair.leader.high_watermarks[(A, 0)] = 6
    pair.exchange()
    pair.exchange()
    pair.leader.logs[(A, 0)].epochs.append(0)
    for _ in range(3):
        assert pair.request() is None
        assert pair.fetcher.next_deadline_ms() == pair.now_ms + THROTTLED_PAUSE_MS_MAX
        pair.wait(THROTTLED_PAUSE_MS_MAX)
    assert pair.request() is None
    pair.throttle.set_rate(UNLIMITED_BYTES_PER_S, pair.now_ms)
    pair.wait(THROTTLED_PAUSE_MS_MAX)
    pair.exchange()
    assert replica.log.epochs == [0] * 6


def test_throttle_at_its_edges() -> None:
    throttle = Throttle(1000, 0)
    assert throttle.wait_ms(0) == 0
    throttle.take(999, 0)
    assert throttle.wait_ms(0) == 0
    throttle.take(1, 0)
    assert throttle.wait_ms(0) == 1
    throttle.take(499, 0)
    assert throttle.wait_ms(0) == 500
    assert throttle.wait_ms(499) == 1
    assert throttle.wait_ms(500) == 0
    assert throttle.wait_ms(100_000) == 0
    throttle.take(2000, 100_000)
    assert throttle.wait_ms(100_000) == 1001, "it holds no more than a second's worth"
    throttle.set_rate(UNLIMITED_BYTES_PER_S, 100_000)
    throttle.take(1 << 40, 100_000)
    assert throttle.wait_ms(100_000) == 0
    throttle.set_rate(0, 100_000)
    assert throttle.wait_ms(200_000) == 1000
