"""The broker's timer heap."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.broker.request.timers import REBUILD_CANCELLED_MIN, Timer, TimerQueue


def test_timers_run_in_order_and_once() -> None:
    queue = TimerQueue()
    ran: list[str] = []
    queue.schedule(30, lambda now_ms: ran.append("c"))
    queue.schedule(10, lambda now_ms: ran.append("a"))
    queue.schedule(10, lambda now_ms: ran.append("b"))
    assert queue.next_deadline_ms() == 10
    queue.run_due(9)
    assert ran == []
    queue.run_due(10)
    assert ran == ["a", "b"]
    queue.run_due(100)
    queue.run_due(100)
    assert ran == ["a", "b", "c"]
    assert queue.next_deadline_ms() is None


def test_a_timer_may_cancel_another_of_the_same_pass() -> None:
    queue = TimerQueue()
    ran: list[str] = []
    timers: list[Timer] = []
    queue.schedule(1, lambda now_ms: timers[0].cancel())
    timers.append(queue.schedule(2, lambda now_ms: ran.append("cancelled")))
    queue.run_due(5)
    assert ran == []
    timers[0].cancel()
    assert queue.next_deadline_ms() is None


def test_a_timer_that_schedules_itself_for_now_waits_for_the_next_pass() -> None:
    queue = TimerQueue()
    runs: list[int] = []

    def again(now_ms: int) -> None:
        runs.append(now_ms)
        queue.schedule(now_ms, again)

    queue.schedule(1, again)
    queue.run_due(1)
    assert runs == [1]
    queue.run_due(2)
    assert runs == [1, 2]


def test_a_failing_timer_does_not_take_the_others_with_it() -> None:
    queue = TimerQueue()
    ran: list[int] = []

    def fail(now_ms: int) -> None:
        raise ValueError("a bug")

    queue.schedule(1, fail)
    queue.schedule(2, ran.append)
    with pytest.raises(ValueError, match="a bug"):
        queue.run_due(5)
    assert ran == [5]
    assert queue.next_deadline_ms() is None


def test_the_server_hears_of_an_earlier_deadline_only() -> None:
    queue = TimerQueue()
    heard: list[int] = []
    queue.on_earlier = heard.append
    queue.schedule(100, lambda now_ms: None)
    queue.schedule(200, lambda now_ms: None)
    queue.schedule(50, lambda now_ms: None)
    assert heard == [100, 50]


def test_cancelled_timers_do_not_pile_up() -> None:
    queue = TimerQueue()
    for _ in range(20):
        timers = [queue.schedule(10_000, lambda now_ms: None) for _ in range(REBUILD_CANCELLED_MIN)]
        for timer in timers:
            timer.cancel()
    assert len(queue) <= REBUILD_CANCELLED_MIN
    assert queue.next_deadline_ms() is None


def _note(ran: list[int], number: int, now_ms: int) -> None:
    ran.append(number)


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=60), st.integers(0, 25))
def test_against_a_list(entries: list[tuple[int, bool]], now_ms: int) -> None:
    queue = TimerQueue()
    ran: list[int] = []
    for number, (deadline_ms, is_cancelled) in enumerate(entries):
        timer = queue.schedule(deadline_ms, partial(_note, ran, number))
        if is_cancelled:
            timer.cancel()
    live = [(at_ms, n) for n, (at_ms, is_cancelled) in enumerate(entries) if not is_cancelled]
    assert queue.next_deadline_ms() == min((at_ms for at_ms, _ in live), default=None)
    queue.run_due(now_ms)
    assert ran == [n for at_ms, n in sorted(live) if at_ms <= now_ms]
    assert queue.next_deadline_ms() == min(
        (at_ms for at_ms, _ in live if at_ms > now_ms), default=None
    )
