"""The timing wheel against a heap."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from features.delayed.wheel import DUE_END_MS, LEVELS, SLOTS, TimingWheel

# Around the ends of slots, and anywhere.
STEPS = st.one_of(
    st.sampled_from([SLOTS**level + step for level in range(LEVELS - 1) for step in (-1, 0, 1)]),
    st.integers(0, 1 << 36),
)


class AgainstAHeap(RuleBasedStateMachine):
    """What is due comes out of both, at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_700_000_000_000
        self.wheel = TimingWheel(self.now_ms)
        self.heap: list[tuple[int, int]] = []
        self.removed: set[int] = set()
        self.due: dict[int, int] = {}
        self.next_entry = 0

    @rule(step=STEPS, is_past=st.booleans())
    def add(self, step: int, is_past: bool) -> None:
        due_ms = max(0, self.now_ms - step) if is_past else self.now_ms + step
        self.wheel.add(due_ms, self.next_entry)
        heapq.heappush(self.heap, (due_ms, self.next_entry))
        self.due[self.next_entry] = due_ms
        self.next_entry += 1

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.due:
            entry = data.draw(st.sampled_from(sorted(self.due)))
            self.wheel.remove(self.due.pop(entry), entry)
            self.removed.add(entry)

    @rule(step=STEPS)
    def advance(self, step: int) -> None:
        self.now_ms = min(self.now_ms + step, DUE_END_MS - 1)
        self.wheel.advance(self.now_ms)
        while self.heap and self.heap[0][1] in self.removed:
            heapq.heappop(self.heap)
        expected = sorted(entry for entry in self.due if self.due[entry] <= self.now_ms)
        assert sorted(self.wheel.ready) == expected

    @rule()
    def advance_to_the_next(self) -> None:
        """As a timer does: it never overshoots, and gets there in a step for each level."""
        later = [due_ms for due_ms in self.due.values() if due_ms > self.now_ms]
        if not later or self.wheel.ready:
            return
        for _ in range(LEVELS):
            next_ms = self.wheel.next_ms
            assert next_ms is not None
            assert self.now_ms < next_ms <= min(later)
            self.now_ms = next_ms
            self.wheel.advance(next_ms)
            if self.wheel.ready:
                break
        assert self.now_ms == min(later)
        assert set(self.wheel.ready) == {
            entry for entry, due_ms in self.due.items() if due_ms == min(later)
        }

    @invariant()
    def counts(self) -> None:
        assert self.wheel.count == len(self.due)


AgainstAHeap.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestAgainstAHeap = AgainstAHeap.TestCase


def test_the_worked_example() -> None:
    wheel = TimingWheel(0x010205)
    for due_ms in (0x010209, 0x0103F0, 0x020000, 0x010204):
        wheel.add(due_ms, due_ms)
    assert list(wheel.ready) == [0x010204]
    wheel.remove(0x010204, 0x010204)
    assert wheel.next_ms == 0x010209
    wheel.advance(0x010209)
    assert list(wheel.ready) == [0x010209]
    wheel.remove(0x010209, 0x010209)
    # The slot begins earlier than what is in it is due.
    assert wheel.next_ms == 0x010300
    wheel.advance(0x010300)
    assert not wheel.ready
    assert wheel.next_ms == 0x0103F0
    wheel.advance(0x02FFFF)
    assert wheel.first_ready(5) == [(0x0103F0, 0x0103F0), (0x020000, 0x020000)]


@given(st.lists(st.integers(0, 1 << 40), max_size=200), st.integers(0, 1 << 40))
def test_what_comes_due_together_is_in_order(dues: list[int], now_ms: int) -> None:
    wheel = TimingWheel()
    for entry, due_ms in enumerate(dues):
        # None is due yet.
        wheel.add(due_ms + 1, entry)
    wheel.advance(now_ms)
    expected = sorted((due_ms + 1, entry) for entry, due_ms in enumerate(dues) if due_ms < now_ms)
    assert wheel.first_ready(len(dues)) == expected


def test_time_does_not_go_back() -> None:
    wheel = TimingWheel(1000)
    wheel.add(1500, 1)
    wheel.advance(1500)
    wheel.advance(100)
    wheel.add(1400, 2)
    assert set(wheel.ready) == {1, 2}


def test_what_is_not_there_cannot_be_removed() -> None:
    wheel = TimingWheel()
    wheel.add(5, 1)
    with pytest.raises(KeyError):
        wheel.remove(5, 2)
