"""What was commanded lately, so that a command that is sent again is done and not too late.

Each outcome is a digest of what was said, with the leader's date when it was judged. What is said
again counts from then. The log's time is the newest of these dates: nothing goes by a clock
when a fold applies it.

Invariants
- At most OUTCOMES_MAX, the last ones, and none an hour older than the newest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

OUTCOMES_MAX: Final = 16_384
KEPT_MS: Final = 3600 * 1000


def outcome_of(header: tuple[bytes, bytes], due_ms: int | None) -> int:
    """What stands for a command: its header, and the time to which it moves."""
    key, value = header
    time = b"" if due_ms is None else b"%d" % due_ms
    said = b"%b %b %b" % (key, time, value)
    return int.from_bytes(blake2b(said, digest_size=8).digest())


class Outcomes:
    """See the module."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        """(digest, date in ms), the oldest first."""
        self._order = deque(entries)
        self._dates_ms: dict[int, int] = dict(self._order)

    def __contains__(self, outcome: int) -> bool:
        return outcome in self._dates_ms

    def note(self, outcome: int, date_ms: int) -> None:
        order, dates = self._order, self._dates_ms
        if dates.get(outcome) == date_ms:
            return
        dates[outcome] = date_ms
        order.append((outcome, date_ms))
        # Dates of several leaders may be out of order: what is older than its predecessor waits.
        while len(order) > OUTCOMES_MAX or order[0][1] < date_ms - KEPT_MS:
            first, first_ms = order.popleft()
            # It may have been said again since.
            if dates[first] == first_ms:
                del dates[first]

    def entries(self) -> list[tuple[int, int]]:
        """All of them, in their order."""
        return list(self._order)

    def copy(self) -> Outcomes:
        return Outcomes(self._order)
