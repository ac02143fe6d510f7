"""Who is dead, by the controller's clock."""

from __future__ import annotations

from dataclasses import replace

from data_plane.cell.liveness import LivenessTracker, Observed
from data_plane.cell.metadata_store import BrokerSession
from tests.cell.cell_images import broker

TIMEOUT_MS = 2_000
BROKERS = {1: broker(1), 2: broker(2)}
ONE, TWO = (1, "1-a"), (2, "2-a")


def look(tracker: LivenessTracker, now_ms: int, **renewals: int) -> Observed:
    """`look(tracker, 0, one=1, two=5)`: what the store says of brokers 1 and 2."""
    numbers = {"one": 1, "two": 2}
    sessions = {
        numbers[name]: BrokerSession(numbers[name], f"{numbers[name]}-a", count)
        for name, count in renewals.items()
    }
    return tracker.look(BROKERS, sessions, TIMEOUT_MS, now_ms)


def test_a_broker_is_alive_once_it_was_seen_to_renew_and_dead_after_one_timeout() -> None:
    tracker = LivenessTracker()
    assert look(tracker, 0, one=1, two=7) == Observed()
    assert look(tracker, 500, one=2, two=7).alive == {ONE}
    for now_ms in (1_000, 1_500, 1_999):
        observed = look(tracker, now_ms, one=3 + now_ms, two=7)
        assert observed.dead == frozenset()
    observed = look(tracker, 2_000, one=9_000, two=7)
    assert observed == Observed(frozenset({ONE}), frozenset({TWO}))
    # And back again.
    assert look(tracker, 2_500, one=9_001, two=8).alive == {ONE, TWO}


def test_the_next_verdict_is_when_the_first_timeout_would_be_over() -> None:
    tracker = LivenessTracker()
    assert tracker.next_verdict_ms(TIMEOUT_MS) is None
    look(tracker, 0, one=1, two=7)
    assert tracker.next_verdict_ms(TIMEOUT_MS) == 2_000
    look(tracker, 700, one=2, two=7)
    look(tracker, 1_400, one=3, two=7)
    assert tracker.next_verdict_ms(TIMEOUT_MS) == 2_000, "of the one that stands still"
    assert look(tracker, 2_000, one=4, two=7).dead == {TWO}
    assert tracker.next_verdict_ms(TIMEOUT_MS) == 4_000, "the dead need no other look"


def test_a_broker_without_any_session_dies_too() -> None:
    tracker = LivenessTracker()
    for now_ms in range(0, 2_000, 500):
        assert look(tracker, now_ms, one=now_ms).dead == frozenset()
    assert look(tracker, 2_000, one=2_000).dead == {TWO}


def test_after_a_gap_nobody_is_dead_or_alive_until_seen_again() -> None:
    tracker = LivenessTracker()
    look(tracker, 0, one=1, two=1)
    look(tracker, 500, one=2, two=2)
    # The store was away for 1,001 ms: all counters stood still meanwhile.
    assert look(tracker, 1_501, one=2, two=2) == Observed()
    for now_ms in (2_000, 2_500, 3_000, 3_500):
        assert look(tracker, now_ms, one=2, two=2) == Observed()
    assert look(tracker, 3_501, one=2, two=3) == Observed(frozenset({TWO}), frozenset({ONE}))


def test_a_gap_of_just_half_a_timeout_is_none() -> None:
    tracker = LivenessTracker()
    for now_ms in (0, 1_000):
        assert look(tracker, now_ms, one=1).dead == frozenset()
    assert look(tracker, 2_000, one=1).dead == {ONE, TWO}


def test_a_look_becomes_old() -> None:
    tracker = LivenessTracker()
    assert not tracker.is_current(TIMEOUT_MS, 0)
    look(tracker, 0, one=1)
    assert tracker.is_current(TIMEOUT_MS, 1_000)
    assert not tracker.is_current(TIMEOUT_MS, 1_001)


def test_the_session_of_another_incarnation_keeps_nobody_alive() -> None:
    tracker = LivenessTracker()
    observed = Observed()
    for step in range(5):
        sessions = {1: BrokerSession(1, "1-b", step)}
        observed = tracker.look({1: broker(1)}, sessions, TIMEOUT_MS, step * 500)
    assert observed == Observed(dead=frozenset({ONE}))


def test_a_broker_that_registers_anew_starts_a_new_time() -> None:
    tracker = LivenessTracker()
    for now_ms in (0, 1_000):
        look(tracker, now_ms, two=now_ms)
    again = {1: replace(broker(1), incarnation_id="1-b"), 2: broker(2)}
    observed = tracker.look(again, {}, TIMEOUT_MS, 2_000)
    assert (1, "1-b") not in observed.dead
    assert ONE not in observed.dead
