"""The commit position never passes an unfinished message and always reaches the last finished."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidewheel.watermark import CommitWatermark


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int]]:
    """Offsets with gaps started in order and finished in any order, interleaved."""
    gaps = draw(st.lists(st.integers(1, 3), max_size=30))
    offsets = [sum(gaps[: index + 1]) for index in range(len(gaps))]
    events: list[tuple[str, int]] = []
    unstarted = list(offsets)
    running: list[int] = []
    while unstarted or running:
        if unstarted and (not running or draw(st.booleans())):
            offset = unstarted.pop(0)
            running.append(offset)
            events.append(("started", offset))
        else:
            offset = running.pop(draw(st.integers(0, len(running) - 1)))
            events.append(("finished", offset))
    return events


@given(histories())
def test_position_is_the_end_of_the_finished_prefix(events: list[tuple[str, int]]) -> None:
    watermark = CommitWatermark()
    started: list[int] = []
    finished: set[int] = set()
    for kind, offset in events:
        before = watermark.position
        if kind == "started":
            watermark.started(offset)
            started.append(offset)
        else:
            moved = watermark.finished(offset)
            finished.add(offset)
            assert moved == (watermark.position != before)
        prefix = []
        for candidate in started:
            if candidate not in finished:
                break
            prefix.append(candidate)
        assert watermark.position == (prefix[-1] + 1 if prefix else None)
        assert len(watermark) == len(started) - len(prefix)


def test_offsets_start_in_order() -> None:
    watermark = CommitWatermark()
    watermark.started(5)
    with pytest.raises(AssertionError):
        watermark.started(5)
