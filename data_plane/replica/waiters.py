"""Who waits until an offset is reached, in the order of the offsets."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable

from data_plane.wire.errors import ErrorCode

Done = Callable[[ErrorCode], None]


class OffsetWaiters:
    """Callbacks by offset. Each one is called once, by `release` or by `fail`."""

    __slots__ = ("queue",)

    def __init__(self) -> None:
        self.queue: deque[tuple[int, Done]] = deque()

    def add(self, offset: int, callback: Done) -> None:
        queue = self.queue
        if queue and offset < queue[-1][0]:
            # A duplicate that waits for its original, which others came after.
            insort(queue, (offset, callback), key=lambda waiter: waiter[0])
        else:
            queue.append((offset, callback))

    def release(self, end_offset: int) -> None:
        """Everything below `end_offset` has what it waits for."""
        queue = self.queue
        while queue and queue[0][0] < end_offset:
            queue.popleft()[1](ErrorCode.NONE)

    def fail(self, error: ErrorCode) -> None:
        """Nobody will get what he waits for."""
        queue, self.queue = self.queue, deque()
        for _, callback in queue:
            callback(error)
