"""The clock that never runs backwards."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from data_plane.server.clock import Clock


class Wall:
    def __init__(self, ms: int) -> None:
        self.ms = ms

    def ns(self) -> int:
        return self.ms * 1_000_000


def test_it_follows_the_wall_clock_forward() -> None:
    wall = Wall(1_000)
    clock = Clock(wall.ns)
    assert clock.now_ms() == 1_000
    wall.ms = 500_000
    assert clock.now_ms() == 500_000


def test_after_a_step_back_it_goes_on_at_half_speed_until_the_wall_has_caught_up() -> None:
    wall = Wall(100_000)
    clock = Clock(wall.ns)
    clock.now_ms()
    wall.ms = 90_000
    assert clock.now_ms() == 100_000
    wall.ms = 94_000
    assert clock.now_ms() == 102_000
    wall.ms = 150_000
    assert clock.now_ms() == 150_000


@given(st.lists(st.integers(0, 10_000_000), min_size=1))
def test_it_never_runs_backwards(walls: list[int]) -> None:
    wall = Wall(walls[0])
    clock = Clock(wall.ns)
    last = 0
    for ms in walls:
        wall.ms = ms
        now_ms = clock.now_ms()
        assert now_ms >= last
        last = now_ms
