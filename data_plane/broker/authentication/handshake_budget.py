"""How many SASL handshakes a broker begins in a second; more wait for their turn.

Thousands of clients that connect again at once would otherwise keep the loop busy with nothing but
their proofs, and everybody else waits. A burst is let through, then they come at a steady rate, in
the order in which they asked.

Whoever has gone meanwhile takes nobody's turn.

Deliberately absent: clocks. Callers pass `now_ms`, and call `run` when it is due.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

HANDSHAKES_PER_SECOND = 1_000
BURST = 200
# Those that wait; a client beyond is sent away, and connects again.
WAITING_MAX = 20_000


class HandshakeBudget:
    """That of one broker. `schedule` has `run` called at a time."""

    def __init__(self, schedule: Callable[[int, Callable[[int], None]], object]) -> None:
        self._schedule = schedule
        # In thousandths of a handshake, as of `_counted_ms`.
        self._left = BURST * 1000
        self._counted_ms: int | None = None
        self._queue: deque[tuple[Callable[[], bool], Callable[[], None]]] = deque()

    def __len__(self) -> int:
        """Handshakes that wait."""
        return len(self._queue)

    def begin(self, is_wanted: Callable[[], bool], start: Callable[[], None], now_ms: int) -> bool:
        """Call `start` now or when it is its turn, unless it `is_wanted` no longer. False when too
        many wait already."""
        self._count(now_ms)
        if not self._queue and self._left >= 1000:
            self._left -= 1000
            start()
            return True
        if len(self._queue) >= WAITING_MAX:
            return False
        self._queue.append((is_wanted, start))
        if len(self._queue) == 1:
            self._schedule(self._due_ms(now_ms), self.run)
        return True

    def run(self, now_ms: int) -> None:
        """Start those whose turn it is."""
        self._count(now_ms)
        while self._queue and self._left >= 1000:
            is_wanted, start = self._queue.popleft()
            if is_wanted():
                self._left -= 1000
                start()
        if self._queue:
            self._schedule(self._due_ms(now_ms), self.run)

    def _count(self, now_ms: int) -> None:
        if self._counted_ms is not None:
            earned = (now_ms - self._counted_ms) * HANDSHAKES_PER_SECOND
            self._left = min(BURST * 1000, self._left + earned)
        self._counted_ms = now_ms

    def _due_ms(self, now_ms: int) -> int:
        missing = 1000 - self._left
        return now_ms + max(1, -(-missing // HANDSHAKES_PER_SECOND))
