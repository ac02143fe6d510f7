"""The steady clock and the one that people set."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from data_plane.server.clock import Clock


class Machine:
    """Its wall clock, which can be set, and the time that passes."""

    def __init__(self, ms: int) -> None:
        self.ms = ms
        self.elapsed_ms = 77

    def pass_time(self, ms: int) -> None:
        self.ms += ms
        self.elapsed_ms += ms

    def clock(self) -> Clock:
        return Clock(lambda: self.ms * 1_000_000, lambda: self.elapsed_ms * 1_000_000)


def test_steady_time_begins_with_the_wall_clock_and_is_never_set() -> None:
    machine = Machine(1_000)
    clock = machine.clock()
    assert (clock.now_ms(), clock.ahead_ms()) == (1_000, 0)
    machine.pass_time(9_000)
    assert (clock.now_ms(), clock.ahead_ms()) == (10_000, 0)
    machine.ms = 500_000
    assert (clock.now_ms(), clock.ahead_ms()) == (10_000, 490_000)
    machine.pass_time(1)
    machine.ms = 3
    assert (clock.now_ms(), clock.ahead_ms()) == (10_001, -9_998)


def test_time_that_passed_while_the_clock_was_set_back_has_passed() -> None:
    """A process that was stopped meanwhile has no lease any more."""
    machine = Machine(100_000)
    clock = machine.clock()
    machine.pass_time(4_000)
    machine.ms = 50_000
    assert clock.now_ms() == 104_000


def test_a_reader_that_is_held_up_does_not_take_the_wall_clock_for_ahead() -> None:
    """A message that is due then would be delivered early."""
    ns, held_up_ns = 1_000_000_000, iter([0, 0, 700_000, 9_000_000, 300_000, 2_000_000, 0, 900_000])

    def elapsed_ns() -> int:
        nonlocal ns
        ns += next(held_up_ns)
        return ns

    clock = Clock(lambda: elapsed_ns() + 500_000, elapsed_ns)
    assert clock.ahead_ms() == -1, "the last reading was held up least: 0.9 ms"


def test_the_machine_s_own_clocks() -> None:
    clock = Clock()
    before_ms = time.time_ns() // 1_000_000
    assert before_ms <= clock.now_ms() <= time.time_ns() // 1_000_000 + 1
    assert abs(clock.ahead_ms()) < 1000
    # What counts the time that passes counts it also while the process, or the machine, sleeps.
    elapsed = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    before_ns = time.clock_gettime_ns(elapsed)
    assert before_ns <= clock._elapsed_ns() <= time.clock_gettime_ns(elapsed)


@given(st.lists(st.tuples(st.integers(0, 10_000_000), st.integers(0, 1_000)), min_size=1))
def test_it_shows_what_has_passed_whatever_the_wall_clock_does(
    steps: list[tuple[int, int]],
) -> None:
    machine = Machine(steps[0][0])
    clock = machine.clock()
    expected_ms = clock.now_ms()
    for ms, passed_ms in steps:
        machine.pass_time(passed_ms)
        machine.ms = ms
        expected_ms += passed_ms
        assert clock.now_ms() == expected_ms
        assert clock.now_ms() + clock.ahead_ms() == ms
