"""Who waits until an offset is reached, in the order of the offsets.

A waiter that has got its answer otherwise (its time was up, its connection is gone) cancels, and
keeps nothing alive from then on. What is left of it leaves the queue with its offset, or as soon as
the cancelled ones are the majority: so a queue whose offsets are never reached is never longer than
twice those who still wait, or QUEUE_ENTRIES_KEPT.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable

from data_plane.wire.errors import ErrorCode

Done = Callable[[ErrorCode], None]

QUEUE_ENTRIES_KEPT = 64
"""Below this many entries cancelled ones may be the majority: clearing them costs more."""


class Waiter:
    """One that waits. `cancel` is idempotent, and harmless after the call."""

    __slots__ = ("_waiters", "callback", "offset")

    def __init__(self, waiters: OffsetWaiters, offset: int, callback: Done) -> None:
        self._waiters = waiters
        self.offset = offset
        self.callback: Done | None = callback

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._waiters.count_cancelled()


class OffsetWaiters:
    """Callbacks by offset. Each one is called once, by `release` or by `fail`, unless cancelled."""

    __slots__ = ("_cancelled_count", "queue")

    def __init__(self) -> None:
        self.queue: deque[Waiter] = deque()
        self._cancelled_count = 0

    def add(self, offset: int, callback: Done) -> Waiter:
        queue = self.queue
        waiter = Waiter(self, offset, callback)
        if queue and offset < queue[-1].offset:
            # A duplicate that waits for its original, which others came after.
            insort(queue, waiter, key=lambda waiter: waiter.offset)
        else:
            queue.append(waiter)
        return waiter

    def release(self, end_offset: int) -> None:
        """Everything below `end_offset` has what it waits for."""
        # Callbacks may cancel, which may make the queue anew.
        while self.queue and self.queue[0].offset < end_offset:
            self._call(self.queue.popleft(), ErrorCode.NONE)

    def fail(self, error: ErrorCode) -> None:
        """Nobody will get what he waits for."""
        queue, self.queue = self.queue, deque()
        for waiter in queue:
            self._call(waiter, error)

    def _call(self, waiter: Waiter, error: ErrorCode) -> None:
        callback = waiter.callback
        if callback is None:
            self._cancelled_count -= 1
        else:
            waiter.callback = None
            callback(error)

    def count_cancelled(self) -> None:
        self._cancelled_count += 1
        queue = self.queue
        if len(queue) > QUEUE_ENTRIES_KEPT and self._cancelled_count * 2 > len(queue):
            self.queue = deque(waiter for waiter in queue if waiter.callback is not None)
            self._cancelled_count -= len(queue) - len(self.queue)
