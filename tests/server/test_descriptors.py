"""Dividing file descriptors between connections and segments."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from data_plane.server.descriptors import (
    DESCRIPTORS_PER_SEGMENT,
    OPEN_SEGMENTS_MAX,
    OPEN_SEGMENTS_MIN,
    OTHER_DESCRIPTORS,
    divide,
)


def test_a_usual_limit_has_room_for_ten_thousand_connections() -> None:
    budget = divide(20_000)
    assert budget.open_segments_max == OPEN_SEGMENTS_MAX
    assert budget.connections_max > 10_000


@given(st.integers(OTHER_DESCRIPTORS + 2 * OPEN_SEGMENTS_MIN * DESCRIPTORS_PER_SEGMENT, 1 << 20))
def test_nothing_is_promised_twice(limit: int) -> None:
    budget = divide(limit)
    promised = budget.connections_max + budget.open_segments_max * DESCRIPTORS_PER_SEGMENT
    assert promised + OTHER_DESCRIPTORS <= limit


@given(st.integers(0, 1000))
def test_a_tiny_limit_still_serves_somebody(limit: int) -> None:
    budget = divide(limit)
    assert budget.open_segments_max >= OPEN_SEGMENTS_MIN
    assert budget.connections_max >= 1
