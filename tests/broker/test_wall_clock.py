"""What date it is, and when nothing may be deleted because of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.broker.request.wall_clock import StoreOffset, WallClock

JUMP_MS = 60_000
SETTLE_MS = 300_000
DAY_MS = 24 * 3600 * 1000
BEGIN_MS = 1_790_000_000_000


class World:
    """A broker's clocks and its store's, in true time and with what they are off by."""

    def __init__(
        self,
        *,
        follows_store: bool = False,
        known_ms: int | None = BEGIN_MS,
        has_past: bool = True,
    ) -> None:
        """`known_ms`: the date that was vouched for before the start."""
        self.clock = WallClock(
            JUMP_MS,
            SETTLE_MS,
            follows_store=follows_store,
            known_offset_ms=None if known_ms is None else known_ms - BEGIN_MS,
            has_past=has_past,
        )
        self.now_ms = BEGIN_MS
        self.off_ms = 0
        self.store_off_ms = 0
        self.reaches_store = follows_store

    def pass_time(self, ms: int = 1000, *, off_ms: int | None = None) -> str:
        """Time passes in steps, with a look at the clocks in each; the doubt at the end."""
        if off_ms is not None:
            self.off_ms = off_ms
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            self.now_ms = min(end_ms, self.now_ms + 1000)
            self.clock.observe(self.now_ms, self.now_ms + self.off_ms)
            if self.reaches_store:
                store_ms = self.now_ms - 3 + self.store_off_ms
                self.clock.store_answered(store_ms, self.now_ms - 6, self.now_ms)
        return self.clock.doubt

    @property
    def date_ms(self) -> int:
        return self.clock.wall_ms(self.now_ms)


def settled() -> World:
    world = World()
    assert world.pass_time(SETTLE_MS + 1000) == ""
    return world


def in_cell() -> World:
    world = World(follows_store=True)
    assert world.pass_time() == ""
    return world


def test_the_date_follows_the_wall_clock_both_ways_and_at_once() -> None:
    world = settled()
    for off_ms in (30 * DAY_MS, -30 * DAY_MS, 0):
        world.pass_time(1, off_ms=off_ms)
        assert world.date_ms == world.now_ms + off_ms


def test_alone_a_clock_is_trusted_when_it_has_stood_since_the_start() -> None:
    world = World()
    assert "since the start" in world.pass_time(SETTLE_MS)
    assert world.pass_time(1000) == ""


def test_alone_a_wrong_clock_that_is_mended_after_the_start_must_stand_again() -> None:
    world = World()
    world.pass_time(SETTLE_MS - 1000, off_ms=30 * DAY_MS)
    assert world.pass_time(SETTLE_MS, off_ms=0)
    assert world.pass_time(1000) == ""


@pytest.mark.parametrize("jump_ms", [30 * DAY_MS, -30 * DAY_MS, JUMP_MS + 1, -JUMP_MS - 1])
def test_alone_a_jump_is_not_trusted_until_it_goes_back_or_has_stood(jump_ms: int) -> None:
    world = settled()
    assert f"jumped by {jump_ms} ms" in world.pass_time(1000, off_ms=jump_ms)
    assert world.pass_time(1000, off_ms=0) == ""
    assert world.pass_time(SETTLE_MS, off_ms=jump_ms)
    assert world.pass_time(1000) == ""
    assert world.pass_time(1000, off_ms=0), "back is a jump now"


def test_alone_each_jump_begins_the_wait_anew() -> None:
    world = settled()
    for hours in range(1, 9):
        assert world.pass_time(SETTLE_MS - 1000, off_ms=hours * DAY_MS)
    assert world.pass_time(2000) == ""


def test_drift_and_small_steps_are_followed() -> None:
    world = settled()
    for second in range(3600):
        # As fast as clocks are ever slewed.
        assert world.pass_time(1000, off_ms=second * 80) == "", second
    assert world.pass_time(1000, off_ms=world.off_ms + JUMP_MS - 5000) == ""


def test_many_small_steps_in_a_row_are_a_jump() -> None:
    world = settled()
    doubts = [world.pass_time(1000, off_ms=steps * 20_000) for steps in range(1, 10)]
    assert doubts[0] == ""
    assert doubts[-1] != ""


def test_in_a_cell_the_date_is_not_known_before_the_store_has_answered() -> None:
    world = World(follows_store=True)
    world.reaches_store = False
    assert "not been compared" in world.pass_time(10 * SETTLE_MS)
    world.reaches_store = True
    assert world.pass_time() == ""


@pytest.mark.parametrize("off_ms", [30 * DAY_MS, -30 * DAY_MS])
def test_in_a_cell_a_start_with_a_wrong_clock_waits_until_it_is_mended(off_ms: int) -> None:
    world = World(follows_store=True)
    word = "ahead of" if off_ms > 0 else "behind"
    assert word in world.pass_time(10 * SETTLE_MS, off_ms=off_ms)
    assert world.pass_time(1000, off_ms=0) == ""


def test_in_a_cell_a_jump_is_not_trusted_however_long_it_stands() -> None:
    world = in_cell()
    assert "ahead of" in world.pass_time(10 * SETTLE_MS, off_ms=JUMP_MS + 1)
    assert world.pass_time(1000, off_ms=JUMP_MS - 1) == ""


def test_in_a_cell_a_jump_is_seen_while_the_store_is_away() -> None:
    world = in_cell()
    world.reaches_store = False
    assert world.pass_time(DAY_MS) == ""
    assert world.pass_time(1000, off_ms=DAY_MS)


def test_a_jump_of_the_machine_that_has_both_clocks_is_not_trusted_either() -> None:
    world = in_cell()
    world.store_off_ms = 30 * DAY_MS
    assert world.pass_time(SETTLE_MS, off_ms=30 * DAY_MS)
    world.store_off_ms = 0
    assert world.pass_time(2000, off_ms=0) == ""
    world.store_off_ms = 30 * DAY_MS
    assert world.pass_time(SETTLE_MS, off_ms=30 * DAY_MS)
    assert world.pass_time(2000) == "", "it has stood"


MONTH_MS = 30 * DAY_MS
# What is known at a start of a date that was right when the last process ended.
KNOWN = [BEGIN_MS, BEGIN_MS - 50_000, BEGIN_MS - 20 * 60_000, BEGIN_MS - MONTH_MS, None]


@pytest.mark.parametrize("known_ms", KNOWN)
@pytest.mark.parametrize("off_ms", [40 * DAY_MS, -40 * DAY_MS])
def test_a_start_while_the_clocks_of_broker_and_store_are_wrong_believes_neither(
    known_ms: int | None, off_ms: int
) -> None:
    world = World(follows_store=True, known_ms=known_ms)
    world.store_off_ms = off_ms
    for _ in range(SETTLE_MS // 1000):
        assert world.pass_time(1000, off_ms=off_ms) != ""
        assert vouched_date_ms(world) is None
    world.store_off_ms = 0
    is_close = known_ms is not None and BEGIN_MS - known_ms < JUMP_MS
    assert (world.pass_time(3000, off_ms=0) == "") is is_close
    # The 20 minutes that nobody knows of may be an error as well: it has to stand.
    assert world.pass_time(SETTLE_MS) == ""
    assert vouched_date_ms(world) == world.date_ms


def test_a_start_close_to_the_date_that_was_known_waits_for_nothing() -> None:
    world = World(follows_store=True, known_ms=BEGIN_MS - 50_000)
    assert world.pass_time() == ""
    # And the time that nobody knew of is none that it has jumped by.
    assert world.pass_time(1000, off_ms=JUMP_MS - 5000) == ""


@pytest.mark.parametrize("known_ms", [BEGIN_MS - MONTH_MS, None])
def test_after_a_month_without_it_or_from_an_earlier_version_a_right_clock_has_to_stand(
    known_ms: int | None,
) -> None:
    world = World(follows_store=True, known_ms=known_ms)
    assert world.pass_time(SETTLE_MS) != ""
    assert world.clock.is_settling_at_start
    assert world.pass_time(2000) == ""
    assert not world.clock.is_settling_at_start


def test_a_store_that_is_away_while_the_first_answer_has_to_stand() -> None:
    world = World(follows_store=True, known_ms=None)
    world.pass_time(2000)
    world.reaches_store = False
    assert world.pass_time(2 * SETTLE_MS)
    assert vouched_date_ms(world) is None
    world.reaches_store = True
    assert world.pass_time() == ""


def test_where_nothing_is_that_a_date_could_take_the_first_answer_counts() -> None:
    for known_ms in (None, BEGIN_MS - MONTH_MS):
        world = World(follows_store=True, known_ms=known_ms, has_past=False)
        assert world.pass_time() == ""
        world.store_off_ms = MONTH_MS
        assert world.pass_time(1000, off_ms=MONTH_MS)
        world.store_off_ms = 0
        assert world.pass_time(1000, off_ms=0) == ""


def test_the_offset_to_the_store_has_one_home() -> None:
    world = in_cell()
    world.pass_time(1000, off_ms=70)
    measured = StoreOffset(ahead_ms=70, uncertainty_ms=3, measured_ms=world.now_ms - 3)
    assert world.clock.store_offset == measured
    world.reaches_store = False
    world.pass_time(5000)
    assert world.clock.store_offset == measured


def vouched_date_ms(world: World) -> int | None:
    offset_ms = world.clock.vouched_offset_ms
    return None if offset_ms is None else world.now_ms + offset_ms


@pytest.mark.parametrize("off_ms", [0, 30_000, -30_000, 3 * DAY_MS, -3 * DAY_MS])
def test_in_a_cell_the_store_s_date_is_vouched_for_whatever_the_broker_s_clock_shows(
    off_ms: int,
) -> None:
    world = World(follows_store=True)
    world.reaches_store = False
    world.pass_time(off_ms=off_ms)
    assert vouched_date_ms(world) is None
    world.reaches_store = True
    world.pass_time()
    dated_ms = vouched_date_ms(world)
    assert dated_ms is not None
    # Without a doubt it is the one that deletion goes by.
    is_exact = world.clock.doubt == ""
    assert dated_ms == world.date_ms if is_exact else abs(dated_ms - world.now_ms) < 10
    world.store_off_ms = -3 * DAY_MS
    world.pass_time()
    assert vouched_date_ms(world) is None


def test_alone_no_date_is_vouched_for_while_there_is_a_doubt() -> None:
    world = World()
    assert vouched_date_ms(world) is None
    world.pass_time(SETTLE_MS - 1000)
    assert vouched_date_ms(world) is None
    world.pass_time(2000)
    assert vouched_date_ms(world) == world.date_ms
    world.pass_time(1000, off_ms=-3 * DAY_MS)
    assert vouched_date_ms(world) is None
    world.pass_time(1000, off_ms=0)
    assert vouched_date_ms(world) == world.date_ms


def test_an_answer_that_took_longer_than_a_jump_says_nothing() -> None:
    world = World(follows_store=True)
    world.reaches_store = False
    world.pass_time()
    world.clock.store_answered(world.now_ms, world.now_ms - 2 * JUMP_MS - 2, world.now_ms)
    assert world.clock.doubt
    assert world.clock.store_offset is None


def test_without_bounds_whatever_it_shows_is_trusted() -> None:
    clock = WallClock()
    for off_ms in (0, DAY_MS, -DAY_MS):
        clock.observe(BEGIN_MS, BEGIN_MS + off_ms)
        assert clock.doubt == ""
        assert clock.wall_ms(BEGIN_MS) == BEGIN_MS + off_ms


GLITCHES = st.lists(
    st.tuples(
        st.integers(1, SETTLE_MS // 1000 - 2),
        st.one_of(st.integers(JUMP_MS + 6_000, 400 * DAY_MS), st.integers(-400 * DAY_MS, -70_000)),
        st.integers(1, 600),
        st.booleans(),
    ),
    max_size=8,
)


@given(GLITCHES, st.booleans())
def test_no_glitch_shorter_than_the_wait_is_ever_trusted(
    glitches: list[tuple[int, int, int, bool]], follows_store: bool
) -> None:
    """Whoever deletes by a trusted date deletes by the true one, give or take the bound; and once
    the clocks are right, dates are trusted again."""
    world = in_cell() if follows_store else settled()
    for seconds, off_ms, right_seconds, is_shared in glitches:
        world.off_ms = off_ms
        world.store_off_ms = off_ms if is_shared else 0
        for _ in range(seconds):
            assert world.pass_time(1000) != ""
        world.off_ms = world.store_off_ms = 0
        for _ in range(min(right_seconds, 20)):
            assert world.pass_time(1000) == ""
