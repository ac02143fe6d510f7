"""For how long brokers have been dead, over several controllers."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from data_plane.cell.death_times import STEP_MS_MAX, STEP_MS_MIN, DeathTimes
from tests.cell.cell_images import broker

DEAD = (3, "3-a")
DELAY_MS = 600_000


def test_notes_come_in_steps_and_end_with_the_delay() -> None:
    times = DeathTimes()
    times.look({DEAD}, {3: broker(3)}, 5_000)
    assert times.notes(DELAY_MS, 5_000) == {DEAD: 0}
    assert times.notes(DELAY_MS, 14_999) == {DEAD: 0}
    assert times.notes(DELAY_MS, 15_000) == {DEAD: 10_000}
    assert times.lost(DELAY_MS, 5_000 + DELAY_MS - 1) == frozenset()
    for now_ms in (5_000 + DELAY_MS, 5_000 + 9 * DELAY_MS):
        assert times.lost(DELAY_MS, now_ms) == {DEAD}
        assert times.notes(DELAY_MS, now_ms) == {DEAD: DELAY_MS}


def test_steps_are_neither_too_short_nor_too_long() -> None:
    times = DeathTimes()
    times.look({DEAD}, {3: broker(3)}, 0)
    assert times.notes(10_000, STEP_MS_MIN) == {DEAD: STEP_MS_MIN}
    assert times.notes(10**9, STEP_MS_MAX) == {DEAD: STEP_MS_MAX}


def test_who_is_seen_alive_is_forgotten_and_another_process_is_another_one() -> None:
    times = DeathTimes()
    noted = {3: replace(broker(3), dead_ms=50_000)}
    times.look({DEAD}, noted, 0)
    assert times.notes(DELAY_MS, 0) == {DEAD: 50_000}
    times.look(set(), noted, 1_000)
    assert times.notes(DELAY_MS, 99_000) == {}
    times.look({(3, "3-b")}, noted, 100_000)
    assert times.notes(DELAY_MS, 100_000) == {(3, "3-b"): 0}


@given(
    reigns=st.lists(st.tuples(st.integers(0, 90_000), st.integers(0, 10**9)), max_size=30),
    delay_ms=st.sampled_from([1_000, 60_000, DELAY_MS]),
)
def test_nobody_is_lost_before_he_was_seen_dead_for_the_delay_in_sum(
    reigns: list[tuple[int, int]], delay_ms: int
) -> None:
    """Each reign watches for so long; before it, nobody watches, and its clock starts anywhere."""
    known = broker(3)
    step_ms = max(STEP_MS_MIN, min(delay_ms // 60, STEP_MS_MAX))
    watched_ms = 0
    for watches_ms, clock_ms in reigns:
        times = DeathTimes()
        times.look({DEAD}, {3: known}, clock_ms)
        watched_ms += watches_ms
        note_ms = times.notes(delay_ms, clock_ms + watches_ms)[DEAD]
        assert note_ms >= known.dead_ms or known.dead_ms == delay_ms
        assert note_ms >= min(known.dead_ms + watches_ms - step_ms, delay_ms), "a step at most"
        known = replace(known, dead_ms=max(known.dead_ms, note_ms))
        is_lost = DEAD in times.lost(delay_ms, clock_ms + watches_ms)
        assert known.dead_ms <= watched_ms
        assert not is_lost or watched_ms >= delay_ms
