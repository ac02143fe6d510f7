"""One timer of the loop, however many ask for it, and never before its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.server.tick_timer import TickTimer


class Handle:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class HandTurnedLoop:
    """A clock in microseconds, and what is to be called. As uvloop it counts delays in whole
    milliseconds, from the beginning of the one that runs; its own begin `phase_us` earlier."""

    def __init__(self, now_us: int = 0, phase_us: int = 0) -> None:
        self.now_us = now_us
        self.phase_us = phase_us
        self.calls: list[tuple[int, Callable[[], None], Handle]] = []

    def now_ms(self) -> int:
        return self.now_us // 1000

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Handle:
        handle = Handle()
        due_ms = (self.now_us + self.phase_us) // 1000 + round(delay_s * 1000)
        self.calls.append((due_ms * 1000 - self.phase_us, callback, handle))
        return handle

    def open_calls(self) -> list[tuple[int, Callable[[], None], Handle]]:
        return [call for call in self.calls if not call[2].is_cancelled]

    def turn_to(self, end_us: int) -> None:
        while due := [call for call in self.open_calls() if call[0] <= end_us]:
            call = min(due, key=lambda one: one[0])
            self.calls.remove(call)
            self.now_us = max(self.now_us, call[0])
            call[1]()
        self.now_us = end_us


def make_timer(loop: HandTurnedLoop, on_due: Callable[[], None]) -> TickTimer:
    return TickTimer(cast("asyncio.AbstractEventLoop", loop), cast("Any", loop), on_due)


def test_a_tick_that_is_not_the_timers_leaves_one_timer() -> None:
    loop = HandTurnedLoop()
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(loop.now_ms())
        timer.wake_at(loop.now_ms() + 100)

    timer = make_timer(loop, tick)
    timer.wake_at(50)
    timer.tick()
    loop.turn_to(1_000_000)
    assert len(loop.open_calls()) == 1
    assert len(ticks) == 10


def test_the_earliest_deadline_counts() -> None:
    loop = HandTurnedLoop()
    due: list[int] = []
    timer = make_timer(loop, lambda: due.append(loop.now_ms()))
    timer.wake_at(500)
    timer.wake_at(300)
    timer.wake_at(400)
    loop.turn_to(2_000_000)
    assert due == [301]
    timer.wake_at(2_500)
    timer.cancel()
    loop.turn_to(3_000_000)
    assert len(due) == 1


@pytest.mark.parametrize("ahead_ms", [-5, 0, 1, 2, 50])
@given(st.integers(0, 5_000_000), st.integers(0, 999))
def test_it_is_never_early_and_two_milliseconds_late_at_most(
    ahead_ms: int, now_us: int, phase_us: int
) -> None:
    loop = HandTurnedLoop(now_us, phase_us)
    due: list[int] = []
    timer = make_timer(loop, lambda: due.append(loop.now_us))
    deadline_ms = loop.now_ms() + ahead_ms
    timer.wake_at(deadline_ms)
    loop.turn_to(now_us + 60_000)
    (at_us,) = due
    assert at_us >= deadline_ms * 1000
    assert at_us <= max(deadline_ms * 1000, now_us) + 2000
