"""Which offset may be committed when messages finish out of order.

A `CommitWatermark` follows one partition. Messages start in offset order and finish in any order;
`position` is the offset after the longest finished prefix, so committing it never skips a message
that is still being processed. Offsets may have gaps (compaction, transactions).

    started 5 6 9; finished 6      -> position None (5 is not done)
    finished 5                     -> position 7
    finished 9                     -> position 10
"""

from __future__ import annotations

from collections import deque


class CommitWatermark:
    """The commit position of one partition."""

    __slots__ = ("_finished", "_running", "position")

    def __init__(self) -> None:
        self._running: deque[int] = deque()
        self._finished: set[int] = set()
        self.position: int | None = None

    def __len__(self) -> int:
        """Offsets held: started and not yet below the position."""
        return len(self._running)

    def started(self, offset: int) -> None:
        """A message was handed out; offsets only go up."""
        assert not self._running or offset > self._running[-1], "offsets start in order"
        self._running.append(offset)

    def finished(self, offset: int) -> bool:
        """A message is done; returns whether the position moved."""
        self._finished.add(offset)
        moved = False
        while self._running and self._running[0] in self._finished:
            done = self._running.popleft()
            self._finished.remove(done)
            self.position = done + 1
            moved = True
        return moved
