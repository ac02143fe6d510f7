"""The share of the event loop that requests may take before timers and threads have their turn.

The loop looks at its timers once an iteration, and an iteration reads every socket that has
something. Forty connections with a request of a quarter of a second each made ten seconds of one
iteration: heartbeats are sent by a timer, so the broker was taken for dead. Here requests get
SHARE_MS of an iteration, and one more pass of one connection; who comes later waits in a queue, is
not read meanwhile, and has its turn in the next iteration, first come first served.

Exactly when an iteration began only a callback knows, which costs one. So it is asked for when
requests have come for MARK_MS; until then time counts from the last one.

Deliberately absent: how long one request may take, which is the handlers' business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

SHARE_MS = 20
MARK_MS = 10


class Waiting(Protocol):
    """Somebody with requests that were received and not handled."""

    def take_turn(self) -> None:
        """Handle some of them, and come back if some are left."""


class LoopShare:
    """That of one kind of connections. `call_soon` calls back in the loop's next iteration."""

    __slots__ = ("_call_soon", "_is_marked", "_now_ms", "_since_ms", "_waiting", "is_over")

    def __init__(
        self, now_ms: Callable[[], int], call_soon: Callable[[Callable[[], None]], None]
    ) -> None:
        self._now_ms = now_ms
        self._call_soon = call_soon
        self._since_ms = 0
        # Whether time counts from the beginning of an iteration, and its end will be noted.
        self._is_marked = False
        self._waiting: deque[Waiting] = deque()
        # As it was when somebody asked last.
        self.is_over = False

    def __len__(self) -> int:
        return len(self._waiting)

    def is_used_up(self, now_ms: int) -> bool:
        """Whether requests that come now have to wait. Those that wait already come first anyway,
        at the beginning of the next iteration."""
        if self.is_over:
            return True
        elapsed_ms = now_ms - self._since_ms
        if self._is_marked:
            self.is_over = elapsed_ms > SHARE_MS
        elif elapsed_ms > MARK_MS:
            self._mark(now_ms)
        return self.is_over

    def wait(self, waiting: Waiting) -> None:
        """Have it called once in the next iteration, or as soon as it is its turn."""
        self._waiting.append(waiting)
        if not self._is_marked:
            self._mark(self._now_ms())

    def _mark(self, now_ms: int) -> None:
        self._since_ms = now_ms
        self._is_marked = True
        self._call_soon(self._iteration_began)

    def _iteration_began(self) -> None:
        self._is_marked = self.is_over = False
        self._since_ms = now_ms = self._now_ms()
        if not self._waiting:
            return
        self._mark(now_ms)
        waiting = self._waiting
        for _ in range(len(waiting)):
            waiting.popleft().take_turn()
            self.is_over = self._now_ms() - now_ms > SHARE_MS
            if self.is_over:
                break
