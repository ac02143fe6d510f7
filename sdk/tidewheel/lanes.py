"""Which message may be handled next, so that concurrency keeps the order of every key.

Messages of one key form a lane: they are handled one at a time, in the order they came. Lanes do
not wait for each other. A message without a key is a lane of its own. Of all that may be handled
the oldest goes first: what is finished then has few gaps, and few messages are delivered again
after a stop. This is a plain data structure: who runs what, and how many at once, is up to the
caller.

    add a1 a2 b1        -> take a1, take b1, take nothing (a2 waits for a1)
    done a              -> take a2
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class KeyLanes(Generic[T]):
    """Queued items by lane. Every `take` must be followed by one `done` of its lane, or
    `put_back`."""

    __slots__ = ("_busy", "_early_numbers", "_numbers", "_queues", "_ready", "_size")

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._early_numbers = itertools.count(-1, -1)
        self._queues: dict[Hashable, deque[tuple[int, T]]] = {}
        # A heap. Numbers are unique, so lanes are never compared.
        self._ready: list[tuple[int, Hashable]] = []
        self._busy: set[Hashable] = set()
        self._size = 0

    def __len__(self) -> int:
        """Items waiting, those that are being handled not counted."""
        return self._size

    @property
    def ready_count(self) -> int:
        """Lanes from which an item can be taken now."""
        return len(self._ready)

    def add(self, item: T, lane: Hashable | None) -> None:
        """Queue an item at the end of its lane; lane None is a lane nobody else shares."""
        if lane is None:
            lane = object()
        number = next(self._numbers)
        queue = self._queues.get(lane)
        if queue is None:
            self._queues[lane] = deque(((number, item),))
            if lane not in self._busy:
                heapq.heappush(self._ready, (number, lane))
        else:
            queue.append((number, item))
        self._size += 1

    def take(self) -> tuple[Hashable, T] | None:
        """The oldest item that may be handled, and its lane; None when there is none."""
        if not self._ready:
            return None
        _, lane = heapq.heappop(self._ready)
        queue = self._queues[lane]
        _, item = queue.popleft()
        if not queue:
            del self._queues[lane]
        self._busy.add(lane)
        self._size -= 1
        return lane, item

    def done(self, lane: Hashable) -> None:
        """The item taken from this lane is handled: the next of the lane may go."""
        self._busy.remove(lane)
        if lane in self._queues:
            heapq.heappush(self._ready, (self._queues[lane][0][0], lane))

    def waiting(self, lane: Hashable) -> int:
        """Items that wait in this lane."""
        return len(self._queues.get(lane, ()))

    def put_back(self, item: T, lane: Hashable) -> None:
        """The item taken from this lane is not handled after all: it is the lane's first again, and
        older than all that wait."""
        number = next(self._early_numbers)
        self._queues.setdefault(lane, deque()).appendleft((number, item))
        self._size += 1
        self.done(lane)

    def discard(self, unwanted: Callable[[T], bool]) -> list[T]:
        """Take waiting items out for good; those that are being handled stay."""
        dropped: list[T] = []
        for lane in list(self._queues):
            queue = self._queues[lane]
            kept = deque(entry for entry in queue if not unwanted(entry[1]))
            if len(kept) == len(queue):
                continue
            dropped.extend(item for _, item in queue if unwanted(item))
            if kept:
                self._queues[lane] = kept
            else:
                del self._queues[lane]
        waiting = ((queue[0][0], lane) for lane, queue in self._queues.items())
        self._ready = [entry for entry in waiting if entry[1] not in self._busy]
        heapq.heapify(self._ready)
        self._size -= len(dropped)
        return dropped
