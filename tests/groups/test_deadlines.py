"""The timer heap against a table of due times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from data_plane.groups.deadlines import Deadlines, Timer

STEPS = st.one_of(
    st.tuples(st.just("schedule"), st.integers(0, 5), st.integers(0, 50)),
    st.tuples(st.just("cancel"), st.integers(0, 5), st.just(0)),
    st.tuples(st.just("advance"), st.just(0), st.integers(0, 30)),
)


@given(st.lists(STEPS, max_size=60))
def test_timers_fire_once_when_due(steps: list[tuple[str, int, int]]) -> None:
    deadlines = Deadlines()
    fired: list[int] = []
    timers = [Timer(lambda now_ms, i=i: fired.append(i)) for i in range(6)]  # type: ignore[misc]
    due: dict[int, int] = {}
    now_ms = 0
    for kind, index, value in steps:
        if kind == "schedule":
            deadlines.schedule(timers[index], now_ms + value)
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
    timer = Timer(lambda now_ms: None)
    for now_ms in range(1_000):
        deadlines.schedule(timer, now_ms + 45_000)
    assert len(deadlines) == 1


def test_what_an_action_schedules_for_now_runs_in_the_next_call() -> None:
    deadlines = Deadlines()
    fired: list[int] = []

    def again(now_ms: int) -> None:
        fired.append(now_ms)
        deadlines.schedule(timer, now_ms)

    timer = Timer(again)
    deadlines.schedule(timer, 5)
    deadlines.expire(5)
    assert fired == [5]
    assert deadlines.next_deadline_ms() == 5


def test_an_action_can_cancel_and_postpone_what_is_due_with_it() -> None:
    deadlines = Deadlines()
    fired: list[str] = []

    def first(now_ms: int) -> None:
        fired.append("first")
        cancelled.cancel()
        deadlines.schedule(postponed, now_ms + 10)

    timer = Timer(first)
    cancelled = Timer(lambda now_ms: fired.append("cancelled"))
    postponed = Timer(lambda now_ms: fired.append("postponed"))
    for due_ms, each in ((1, timer), (2, cancelled), (3, postponed)):
        deadlines.schedule(each, due_ms)
    deadlines.expire(3)
    assert fired == ["first"]
    deadlines.expire(13)
    assert fired == ["first", "postponed"]


def test_a_postponed_timer_fires_after_those_due_before_it() -> None:
    deadlines = Deadlines()
    fired: list[str] = []
    postponed = Timer(lambda now_ms: fired.append("postponed"))
    other = Timer(lambda now_ms: fired.append("other"))
    deadlines.schedule(postponed, 1)
    deadlines.schedule(other, 5)
    deadlines.schedule(postponed, 9)
    deadlines.expire(10)
    assert fired == ["other", "postponed"]


def test_what_is_left_of_an_earlier_time_does_not_stop_a_timer() -> None:
    fired: list[int] = []
    deadlines = Deadlines()
    timer = Timer(fired.append)
    deadlines.schedule(timer, 40)
    deadlines.schedule(timer, 10)
    deadlines.expire(10)
    deadlines.schedule(timer, 60)
    for now_ms in (40, 59, 60):
        deadlines.expire(now_ms)
    assert fired == [10, 60]
