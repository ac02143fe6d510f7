"""KeyLanes against a naive model: order per key, independence, nothing lost or doubled."""

from __future__ import annotations

from collections.abc import Hashable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tidewheel.lanes import KeyLanes


class LanesMachine(RuleBasedStateMachine):
    """Adds, takes, finishes and discards at random; the model is a plain list per key."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes: KeyLanes[tuple[str | None, int]] = KeyLanes()
        self.waiting: list[tuple[str | None, int]] = []
        self.running: list[tuple[Hashable, tuple[str | None, int]]] = []
        self.next_number = 0

    @rule(key=st.sampled_from(["a", "b", "c", None]))
    def add(self, key: str | None) -> None:
        item = (key, self.next_number)
        self.next_number += 1
        self.lanes.add(item, key)
        self.waiting.append(item)

    def takeable(self) -> list[tuple[str | None, int]]:
        busy = {item[0] for _, item in self.running if item[0] is not None}
        seen: set[str] = set()
        heads = []
        for item in self.waiting:
            key = item[0]
            if key is None:
                heads.append(item)
            elif key not in seen:
                seen.add(key)
                if key not in busy:
                    heads.append(item)
        return heads

    @rule()
    def take(self) -> None:
        taken = self.lanes.take()
        if taken is None:
            assert self.takeable() == []
            return
        lane, item = taken
        assert item == self.takeable()[0], "the oldest first"
        self.waiting.remove(item)
        self.running.append((lane, item))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.running) - 1))
        lane, _ = self.running.pop(index)
        self.lanes.done(lane)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def put_back(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.running) - 1))
        lane, item = self.running.pop(index)
        self.lanes.put_back(item, lane)
        self.waiting.insert(0, item)
        assert (
            self.lanes.waiting(lane)
            == sum(1 for key, _ in self.waiting if key is not None and key == lane)
            or item[0] is None
        )

    @rule(remainder=st.integers(0, 2))
    def discard(self, remainder: int) -> None:
        dropped = self.lanes.discard(lambda item: item[1] % 3 == remainder)
        expected = [item for item in self.waiting if item[1] % 3 == remainder]
        # Which is older than which, what was put back says, and not its number.
        assert set(dropped) == set(expected)
        assert len(dropped) == len(expected)
        self.waiting = [item for item in self.waiting if item[1] % 3 != remainder]

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.lanes) == len(self.waiting)
        assert self.lanes.ready_count == len(self.takeable())


TestKeyLanes = LanesMachine.TestCase


def test_the_example_of_the_module() -> None:
    lanes: KeyLanes[str] = KeyLanes()
    for item, lane in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        lanes.add(item, lane)
    assert lanes.take() == ("a", "a1")
    assert lanes.take() == ("b", "b1")
    assert lanes.take() is None
    lanes.done("a")
    assert lanes.take() == ("a", "a2")
