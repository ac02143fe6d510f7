"""The date at which records were appended, for those that do not say it themselves.

How old a record without a timestamp is, and how long a producer has been silent, is measured from
the append. A date that was wrong then makes it seem older than it is, for as long as it is kept. So
an append is noted by a date that somebody vouches for (broker/request/wall_clock.py); while
nobody does, it is known only that the record was there when somebody looked, by a date that was
vouched for then.

The last such date is kept in the checkpoint of each data directory (directory_checkpoint.py), and
beside it the date of the machine's boot as it follows from it. While nobody vouches for one, the
one before stays there: a clock that is wrong never gets into it. What the next start makes of it
says wall_clock.py. In the same boot it knows from the elapsed time what date it has to be, however
long no process was there; after another one it can only say how far it is from the last date.

Deliberately absent: clocks, and how it is found out whether a date is right.
"""

from __future__ import annotations

# Of an append: nobody vouched for the date.
UNKNOWN_MS = -2


class VouchedDate:
    """One for all logs of a broker, brought up to date by whoever knows."""

    __slots__ = ("_booted_ms", "boot_date_ms", "last_ms", "offset_ms")

    def __init__(self, offset_ms: int | None = None, booted_ms: int | None = None) -> None:
        """`booted_ms`: what the steady clock would have shown at the machine's boot, None where
        nobody knows."""
        self._booted_ms = booted_ms
        # What to add to the steady time, None while nobody vouches for a date: UNKNOWN_MS then.
        self.offset_ms = offset_ms
        # The last date that was vouched for, by this process or by those before it; None: never.
        self.last_ms: int | None = None
        # The date of this boot of the machine, by the last date that was vouched for in it.
        self.boot_date_ms: int | None = None

    def look(self, offset_ms: int | None, now_ms: int) -> None:
        """What is vouched for now, at the steady time `now_ms`."""
        self.offset_ms = offset_ms
        if offset_ms is not None:
            self.last_ms = now_ms + offset_ms
            if self._booted_ms is not None:
                self.boot_date_ms = self._booted_ms + offset_ms

    def learn(self, last_ms: int | None, boot_date_ms: int | None) -> None:
        """At the start: what a directory's checkpoint says; the second, if it is of this boot. The
        latest of all directories counts: one of them may have been away for a while."""
        if last_ms is not None and (self.last_ms is None or last_ms > self.last_ms):
            self.last_ms, self.boot_date_ms = last_ms, boot_date_ms

    def known_offset_ms(self, now_ms: int) -> int | None:
        """What to add to the steady time by what processes before this one knew; where they knew it
        in another boot, as if none had passed since. None: they knew nothing."""
        if self.boot_date_ms is not None and self._booted_ms is not None:
            return self.boot_date_ms - self._booted_ms
        return None if self.last_ms is None else self.last_ms - now_ms
