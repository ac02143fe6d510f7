"""Deadlines of waiting requests: one heap for the whole broker.

The server sets a single loop timer at `next_deadline_ms`; `run_due` then calls what is due.
Cancelling is lazy: a cancelled timer stays in the heap until its deadline or until cancelled ones
are the majority, when the heap is rebuilt. So scheduling and cancelling, which every long poll
does, cost a heap push and a flag.

Deliberately absent: clocks (callers pass `now_ms`) and repetition (schedule again).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


def _tell_nobody(_what: object) -> None:
    pass


# Below this many dead entries a rebuild would cost more than they do.
REBUILD_CANCELLED_MIN = 128


class Timer:
    """One scheduled call. `cancel` is idempotent and harmless after the call."""

    __slots__ = ("_queue", "callback")

    def __init__(self, queue: TimerQueue, callback: Callable[[int], None]) -> None:
        self._queue = queue
        self.callback: Callable[[int], None] | None = callback

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._queue.count_cancelled()


class TimerQueue:
    """A heap of (deadline_ms, order of scheduling, timer)."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._order = count()
        self._cancelled_count = 0
        # Set by the server: told when a deadline becomes the earliest one.
        self.on_earlier: Callable[[int], None] | None = None

    def __len__(self) -> int:
        """Entries in the heap, cancelled ones included."""
        return len(self._heap)

    def schedule(self, deadline_ms: int, callback: Callable[[int], None]) -> Timer:
        """Have `callback(now_ms)` called once, not before `deadline_ms`."""
        timer = Timer(self, callback)
        heap = self._heap
        is_earlier = not heap or deadline_ms < heap[0][0]
        heapq.heappush(heap, (deadline_ms, next(self._order), timer))
        if is_earlier and self.on_earlier is not None:
            self.on_earlier(deadline_ms)
        return timer

    def next_deadline_ms(self) -> int | None:
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heapq.heappop(heap)
            self._cancelled_count -= 1
        return heap[0][0] if heap else None

    def run_due(self, now_ms: int, on_step: Callable[[object], None] = _tell_nobody) -> None:
        """Call what is due at `now_ms`. What the calls schedule runs in a later pass, so that a
        timer that schedules itself for now cannot hold the loop. When a call raises the others are
        made all the same, and then the first exception is raised. `on_step` is told of each one
        before it is made."""
        due: list[Timer] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            timer = heapq.heappop(heap)[2]
            if timer.callback is None:
                self._cancelled_count -= 1
            else:
                due.append(timer)
        failure: Exception | None = None
        for timer in due:
            callback = timer.callback
            if callback is None:
                # An earlier call of this pass has cancelled it.
                self._cancelled_count = max(0, self._cancelled_count - 1)
                continue
            timer.callback = None
            on_step(callback)
            try:
                callback(now_ms)
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def count_cancelled(self) -> None:
        self._cancelled_count += 1
        cancelled_count = self._cancelled_count
        if cancelled_count > REBUILD_CANCELLED_MIN and cancelled_count * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapq.heapify(self._heap)
            self._cancelled_count = 0
