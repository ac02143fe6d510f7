"""How many handshakes a broker begins in a second; more wait for their turn.

Thousands of clients that connect again at once would otherwise keep the loop busy with nothing but
their proofs, and everybody else waits. A burst is let through, then they come at a steady rate:
each address in its turn, so that one with thousands of clients does not keep a single client of
another one waiting.

What a handshake costs is counted in units: one of SASL is one, one of TLS is TLS_COST.

Invariants
- Those of one address begin in the order in which they asked.
- However many addresses ask for everything, there is room for one more: an address may have no more
  that wait than there is room left for.
- Whoever has gone meanwhile takes nobody's turn.

Deliberately absent: clocks. Callers pass `now_ms`, and call `run` when it is due.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

UNITS_PER_SECOND = 1_000
# Some 20 ms of the loop at most, before everybody else has a turn.
BURST = 60
# A signature, and the derivation of keys: a third of a millisecond to a whole one.
TLS_COST = 3
# Those that wait; a client beyond is sent away, and connects again.
WAITING_MAX = 20_000


class _Waiting(NamedTuple):
    is_wanted: Callable[[], bool]
    start: Callable[[], None]
    cost: int


class HandshakeBudget:
    """A budget of one broker. `schedule` has `run` called at a time."""

    def __init__(self, schedule: Callable[[int, Callable[[int], None]], object]) -> None:
        self._schedule = schedule
        # In thousandths of a unit, as of `_counted_ms`.
        self._left = BURST * 1000
        self._counted_ms: int | None = None
        # By address, in the order of their turns.
        self._queues: dict[str, deque[_Waiting]] = {}
        self._waiting_count = 0

    def __len__(self) -> int:
        """Handshakes that wait."""
        return self._waiting_count

    def begin(
        self,
        host: str,
        is_wanted: Callable[[], bool],
        start: Callable[[], None],
        now_ms: int,
        cost: int = 1,
    ) -> bool:
        """Call `start` now or when it is its turn, unless it `is_wanted` no longer. False when too
        many wait already."""
        self._count(now_ms)
        if not self._queues and self._left >= cost * 1000:
            self._left -= cost * 1000
            start()
            return True
        queue = self._queues.get(host)
        if (0 if queue is None else len(queue)) >= WAITING_MAX - self._waiting_count:
            return False
        is_first = not self._queues
        if queue is None:
            queue = self._queues[host] = deque()
        queue.append(_Waiting(is_wanted, start, cost))
        self._waiting_count += 1
        if is_first:
            self._schedule(self._due_ms(now_ms), self.run)
        return True

    def run(self, now_ms: int) -> None:
        """Start those whose turn it is."""
        self._count(now_ms)
        while self._queues:
            host, queue = next(iter(self._queues.items()))
            next_one = queue[0]
            is_wanted = next_one.is_wanted()
            if is_wanted and self._left < next_one.cost * 1000:
                break
            queue.popleft()
            self._waiting_count -= 1
            if is_wanted or not queue:
                # Its next one waits until all other addresses had their turns.
                del self._queues[host]
                if queue:
                    self._queues[host] = queue
            if is_wanted:
                self._left -= next_one.cost * 1000
                next_one.start()
        if self._queues:
            self._schedule(self._due_ms(now_ms), self.run)

    def _count(self, now_ms: int) -> None:
        if self._counted_ms is not None:
            earned = (now_ms - self._counted_ms) * UNITS_PER_SECOND
            self._left = min(BURST * 1000, self._left + earned)
        self._counted_ms = now_ms

    def _due_ms(self, now_ms: int) -> int:
        cost = next(iter(self._queues.values()))[0].cost
        missing = cost * 1000 - self._left
        return now_ms + max(1, -(-missing // UNITS_PER_SECOND))
