"""The timer heap against a table of due times."""

from __future__ import annotations

import gc
import weakref
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from data_plane.groups.deadlines import (
    EXPIRE_WORK_MAX,
    FAR_STEP_MS,
    FIRE_WORK,
    Deadlines,
    Timer,
)

STEPS = st.one_of(
    st.tuples(st.just("schedule"), st.integers(0, 5), st.integers(0, 3_000)),
    st.tuples(st.just("cancel"), st.integers(0, 5), st.just(0)),
    st.tuples(st.just("advance"), st.just(0), st.integers(0, 2_000)),
)


def _note(fired: list[int], index: int, now_ms: int) -> None:
    fired.append(index)


def fired_never(now_ms: int) -> None:
    raise AssertionError("this was cancelled, or another action took its place")


@given(st.lists(STEPS, max_size=60))
def test_timers_fire_once_when_due(steps: list[tuple[str, int, int]]) -> None:
    deadlines = Deadlines()
    fired: list[int] = []
    timers = [Timer() for _ in range(6)]
    due: dict[int, int] = {}
    now_ms = 0
    for kind, index, value in steps:
        if kind == "schedule":
            action = partial(_note, fired, index)
            deadlines.schedule(timers[index], now_ms + value, action)
            due[index] = now_ms + value
        elif kind == "cancel":
            timers[index].cancel()
            due.pop(index, None)
        else:
            now_ms += value
            fired.clear()
            deadlines.expire(now_ms)
            expected = {each for each, due_ms in due.items() if due_ms <= now_ms}
            assert sorted(fired) == sorted(expected)
            assert [due[each] for each in fired] == sorted(due[each] for each in fired)
            for each in expected:
                del due[each]
        next_ms = deadlines.next_deadline_ms()
        if due:
            assert next_ms is not None
            assert next_ms <= min(due.values())
        else:
            assert next_ms is None


def test_postponing_takes_no_memory() -> None:
    deadlines = Deadlines()
    timer = Timer()
    for now_ms in range(1_000):
        deadlines.schedule(timer, now_ms + 45_000, fired_never)
    assert len(deadlines) == 2, "a timer and its slot"


def test_what_an_action_schedules_for_now_runs_in_the_next_call() -> None:
    deadlines = Deadlines()
    fired: list[int] = []

    def again(now_ms: int) -> None:
        fired.append(now_ms)
        deadlines.schedule(timer, now_ms, again)

    timer = Timer()
    deadlines.schedule(timer, 5, again)
    deadlines.expire(5)
    assert fired == [5]
    assert deadlines.next_deadline_ms() == 5


def test_an_action_can_cancel_and_postpone_what_is_due_with_it() -> None:
    deadlines = Deadlines()
    fired: list[str] = []

    def first(now_ms: int) -> None:
        fired.append("first")
        cancelled.cancel()
        deadlines.schedule(postponed, now_ms + 10, lambda now_ms: fired.append("postponed"))

    cancelled, postponed = Timer(), Timer()
    deadlines.schedule(Timer(), 1, first)
    deadlines.schedule(cancelled, 2, fired_never)
    deadlines.schedule(postponed, 3, fired_never)
    deadlines.expire(3)
    assert fired == ["first"]
    deadlines.expire(13)
    assert fired == ["first", "postponed"]


def test_a_postponed_timer_fires_after_those_due_before_it() -> None:
    deadlines = Deadlines()
    fired: list[str] = []
    postponed = Timer()
    deadlines.schedule(postponed, 1, fired_never)
    deadlines.schedule(Timer(), 5, lambda now_ms: fired.append("other"))
    deadlines.schedule(postponed, 9, lambda now_ms: fired.append("postponed"))
    deadlines.expire(10)
    assert fired == ["other", "postponed"]


def test_what_is_left_of_an_earlier_time_does_not_stop_a_timer() -> None:
    fired: list[int] = []
    deadlines = Deadlines()
    timer = Timer()
    deadlines.schedule(timer, 40, fired.append)
    deadlines.schedule(timer, 10, fired.append)
    deadlines.expire(10)
    deadlines.schedule(timer, 60, fired.append)
    for now_ms in (40, 59, 60):
        deadlines.expire(now_ms)
    assert fired == [10, 60]


def test_timers_that_are_due_together_fire_in_parts_and_in_order() -> None:
    deadlines = Deadlines()
    fired: list[int] = []
    count = 3 * EXPIRE_WORK_MAX // FIRE_WORK
    for index in range(count):
        deadlines.schedule(Timer(), 10_000 + index // 100, partial(_note, fired, index))
    calls = 0
    while (deadline_ms := deadlines.next_deadline_ms()) is not None and deadline_ms <= 20_000:
        before = len(fired)
        deadlines.expire(20_000)
        calls += 1
        assert len(fired) - before <= EXPIRE_WORK_MAX // FIRE_WORK
    assert fired == list(range(count))
    assert calls == 3


def test_moving_many_postponed_timers_is_done_in_parts() -> None:
    deadlines = Deadlines()
    timers = [Timer() for _ in range(3 * EXPIRE_WORK_MAX)]
    for timer in timers:
        deadlines.schedule(timer, 10_000, fired_never)
        deadlines.schedule(timer, 50_000, fired_never)
    for parts_left in (2, 1, 0):
        deadlines.expire(10_000)
        still = sum(timer.slot_ms is not None and timer.slot_ms <= 10_000 for timer in timers)
        assert still == parts_left * EXPIRE_WORK_MAX


def test_timers_that_come_and_go_leave_nothing_but_slots() -> None:
    deadlines = Deadlines()
    timeout_ms = 30 * 60 * 1000
    for now_ms in range(100_000):
        timer = Timer()
        deadlines.schedule(timer, now_ms + timeout_ms, fired_never)
        timer.cancel()
    assert len(deadlines) <= 100_000 // FAR_STEP_MS + 1


def test_a_timer_that_is_not_scheduled_refers_to_nothing() -> None:
    class Owner:
        def __init__(self) -> None:
            self.timer = Timer()

        def act(self, now_ms: int) -> None:
            pass

    deadlines = Deadlines()
    cancelled, fired = Owner(), Owner()
    deadlines.schedule(cancelled.timer, 10, cancelled.act)
    deadlines.schedule(fired.timer, 5, fired.act)
    cancelled.timer.cancel()
    deadlines.expire(5)
    owners = [weakref.ref(cancelled), weakref.ref(fired)]
    # Nothing but their own references may free them. What a collection finds says nothing: other
    # tests leave garbage, too.
    gc.disable()
    try:
        del cancelled, fired
        assert [owner() for owner in owners] == [None, None]
    finally:
        gc.enable()
