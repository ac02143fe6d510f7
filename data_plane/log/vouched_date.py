"""The date at which records were appended, for those that do not say it themselves.

How old a record without a timestamp is, and how long a producer has been silent, is measured from
the append. A date that was wrong then makes it seem older than it is, for as long as it is kept. So
an append is noted by a date that somebody vouches for (broker/request/wall_clock.py); while
nobody does, it is known only that the record was there when somebody looked, by a date that was
vouched for then.

Deliberately absent: clocks, and how it is found out whether a date is right.
"""

from __future__ import annotations

# Of an append: nobody vouched for the date.
UNKNOWN_MS = -2


class VouchedDate:
    """One for all logs of a broker, brought up to date by whoever knows."""

    __slots__ = ("offset_ms",)

    def __init__(self, offset_ms: int | None = None) -> None:
        # What to add to the steady time, None while nobody vouches for a date: UNKNOWN_MS then.
        self.offset_ms = offset_ms
