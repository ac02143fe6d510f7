"""The share of the event loop that requests may take before timers and threads have their turn.

The loop looks at its timers once an iteration, and an iteration reads every socket that has
something. Forty connections with a request of a quarter of a second each made ten seconds of one
iteration: heartbeats are sent by a timer, so the broker was taken for dead. Here requests get
SHARE_MS of an iteration, and one more pass of one connection; who comes later waits in a queue, is
not read meanwhile, and has its turn in the next iteration, first come first served.

What counts is the time of turns (turns.py): while the loop waits for sockets nobody has to.
Exactly when an iteration began only a callback knows, which costs one. So it is asked for when
turns have taken MARK_MS; until then time counts from the last one.

Deliberately absent: how long one request may take, which is the handlers' business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from data_plane.broker.request.turns import Turns

SHARE_MS = 20
MARK_MS = 10

_NS_PER_MS = 1_000_000


class Waiting(Protocol):
    """Somebody with requests that were received and not handled."""

    def take_turn(self) -> None:
        """Handle some of them, and come back if some are left."""


class LoopShare:
    """That of one kind of connections. `call_soon` calls back in the loop's next iteration.

    Until `Turns.busy_ns` reaches `look_at_ns` nobody needs to ask."""

    __slots__ = ("_call_soon", "_is_marked", "_turns", "_waiting", "is_over", "look_at_ns")

    def __init__(self, turns: Turns, call_soon: Callable[[Callable[[], None]], None]) -> None:
        self._turns = turns
        self._call_soon = call_soon
        # Whether time counts from the beginning of an iteration, and its end will be noted.
        self._is_marked = False
        self._waiting: deque[Waiting] = deque()
        self.look_at_ns = 0
        # As it was when somebody asked last.
        self.is_over = False

    def __len__(self) -> int:
        return len(self._waiting)

    def is_used_up(self) -> bool:
        """Whether requests that come now have to wait. Those that wait already come first anyway,
        at the beginning of the next iteration."""
        if self._turns.busy_ns >= self.look_at_ns:
            if self._is_marked:
                self.is_over = True
            else:
                self._mark()
        return self.is_over

    def wait(self, waiting: Waiting) -> None:
        """Have it called once in the next iteration, or as soon as it is its turn."""
        self._waiting.append(waiting)
        if not self._is_marked:
            self._mark()

    def _mark(self) -> None:
        self.look_at_ns = self._turns.busy_ns + SHARE_MS * _NS_PER_MS
        self._is_marked = True
        self._call_soon(self._iteration_began)

    def _iteration_began(self) -> None:
        self._is_marked = self.is_over = False
        self.look_at_ns = self._turns.busy_ns + MARK_MS * _NS_PER_MS
        if not self._waiting:
            return
        self._mark()
        waiting = self._waiting
        for _ in range(len(waiting)):
            waiting.popleft().take_turn()
            self.is_over = self._turns.busy_ns >= self.look_at_ns
            if self.is_over:
                break
