"""Timers on a heap, where moving a timer into the future costs one attribute.

Nearly every heartbeat of every group postpones a session timer that never fires. A timer's entry
therefore stays where it is in the heap when the timer is postponed or cancelled; the entry is
looked at once more when its old time comes, and then moved or dropped. Only bringing a timer
forward pushes a second entry, and the older one is recognized as stale.

    schedule(t, 10)   heap: (10, t)          t.due_ms = 10
    schedule(t, 40)   heap: (10, t)          t.due_ms = 40      no heap operation
    expire(10)        heap: (40, t)          nothing fires
    expire(40)        heap: ()               t fires

Invariants
- Between calls, a timer with `due_ms` set has one live heap entry, at or before `due_ms`.
- `next_deadline_ms()` is never later than the earliest due timer; it may be earlier (a spurious
  wake-up that costs one heap operation).
- The heap holds at most one live entry per timer plus one stale entry per time that a timer was
  brought forward and its old time has not yet passed.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush, heapreplace

TimerAction = Callable[[int], None]


class Timer:
    """One thing that may have to happen later; `action(now_ms)` runs when it is due."""

    __slots__ = ("action", "due_ms", "heap_ms")

    def __init__(self, action: TimerAction) -> None:
        self.action = action
        self.due_ms: int | None = None
        self.heap_ms: int | None = None

    def cancel(self) -> None:
        """Never fires until it is scheduled again. Cancelling an idle timer does nothing."""
        self.due_ms = None


class Deadlines:
    """All timers of one coordinator."""

    __slots__ = ("_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._sequence = 0

    def schedule(self, timer: Timer, due_ms: int) -> None:
        """Let `timer` fire at `due_ms`, instead of whenever it was to fire before."""
        timer.due_ms = due_ms
        heap_ms = timer.heap_ms
        if heap_ms is None or due_ms < heap_ms:
            self._push(timer, due_ms)

    def next_deadline_ms(self) -> int | None:
        """When to call `expire` next, or None while nothing is scheduled."""
        heap = self._heap
        while heap:
            heap_ms, _, timer = heap[0]
            if timer.heap_ms == heap_ms and timer.due_ms is not None:
                return heap_ms
            self._drop_first()
        return None

    def expire(self, now_ms: int) -> None:
        """Run the actions of all timers due at `now_ms`, in the order of their due times.

        What an action schedules runs in a later call, even when it is due already: a timer that
        schedules itself for now cannot hold the loop. What an action cancels does not run.
        """
        heap = self._heap
        due: list[tuple[int, int, Timer]] = []
        while heap and heap[0][0] <= now_ms:
            heap_ms, _, timer = heap[0]
            if timer.heap_ms != heap_ms or timer.due_ms is None:
                self._drop_first()
            elif timer.due_ms > now_ms:
                timer.heap_ms = timer.due_ms
                self._sequence += 1
                heapreplace(heap, (timer.due_ms, self._sequence, timer))
            else:
                heappop(heap)
                timer.heap_ms = None
                due.append((timer.due_ms, len(due), timer))
        # Entries of postponed timers come up at their old times.
        due.sort()
        for _, _, timer in due:
            # An earlier action may have cancelled this timer or scheduled it anew.
            if timer.due_ms is not None and timer.heap_ms is None:
                timer.due_ms = None
                timer.action(now_ms)

    def __len__(self) -> int:
        """Heap entries, stale ones included: what the memory bound is about."""
        return len(self._heap)

    def _push(self, timer: Timer, due_ms: int) -> None:
        timer.heap_ms = due_ms
        self._sequence += 1
        heappush(self._heap, (due_ms, self._sequence, timer))

    def _drop_first(self) -> None:
        heap_ms, _, timer = heappop(self._heap)
        if timer.heap_ms == heap_ms:
            timer.heap_ms = None
