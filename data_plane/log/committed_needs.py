"""What the folds of a log need, by what is settled: committed, and durable here.

A fold goes as far as the log does. What it lets go by a record that is not settled yet it needs
again when that one is truncated, or lost with power, and must not have been deleted meanwhile. So
the need is noted together with the log end, and counts when that much is settled:

    check 1   end 100, settled 90   needs 40 …    noted; nothing is known yet, all stays
    check 2   end 130, settled 120  needs 70 …    40 counts: 100 is settled; 70 is noted

- What counts is never above what the folds need now, and never above what they have needed at some
  log end that is settled. Later pins lie above both.
- In memory only: after a start all is needed, until what is stored then is settled.
"""

from __future__ import annotations

from typing import NamedTuple

from data_plane.log.fold import HoldingFold


class Thinned(NamedTuple):
    """What the last pass of thinning has left: bytes of segments below `end_offset`, for folds with
    so many entries. `goes_on`: it has ended before all that there was."""

    end_offset: int
    size_bytes: int
    entries_count: int
    goes_on: bool = False


class CommittedNeeds:
    """See the module. Offsets are those from which on the log is needed."""

    __slots__ = ("_counting", "_noted", "_noted_end", "folds", "thinned")

    def __init__(self) -> None:
        # Those of the log, while it is loaded, that hold on to records.
        self.folds: list[HoldingFold] = []
        # See thinning.py.
        self.thinned: Thinned | None = None
        self._counting = 0
        self._noted = 0
        # -1 without one.
        self._noted_end = -1

    def needed_from(self, now_needed: int, log_end_offset: int, settled_end: int) -> int:
        """`now_needed` is from where on the folds need the log now: its end, if they need none."""
        if settled_end >= log_end_offset:
            self._counting, self._noted_end = now_needed, -1
            return now_needed
        if 0 <= self._noted_end <= settled_end:
            self._counting, self._noted_end = self._noted, -1
        if self._noted_end < 0:
            self._noted, self._noted_end = now_needed, log_end_offset
        return min(self._counting, now_needed)

    def truncate(self, offset: int) -> None:
        """The log ends at `offset` now; other records may come in the place of what was above."""
        if self._noted_end > offset:
            self._noted_end = -1
        # What counted may have come from records that are gone: nothing is let go before it is
        # known to be settled again.
        self._counting = 0
