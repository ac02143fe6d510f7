"""How often a partition's reading was begun at one offset and ended by a death: pure.

A handler that kills its process (out of memory, a crash in C) raises nothing, so nothing is nacked,
and the next process gets the same messages. What is known of that stands in the metadata of the
group's committed offset:

    ""            whoever read it last has ended as it should
    "tw:run:2"    the second run begun at this offset runs, or has died
    "tw:alone:9"  records run one at a time, 9 more of them; none is in hand
    "tw:hand:1:9" the record at this offset is in hand, alone, for the first time

    run:3 and begun again       three deaths at one offset: records run alone from here on
    hand:1:9 and begun again    it died alone with this record: once may be chance
    hand:2:9 and begun again    twice: this record is the killer, and becomes a dead letter

Invariants
- What ends as it should counts as no death, and progress forgets all deaths before.
- Only a record that was in hand alone is ever called the killer.

Deliberately absent: commits (killers.py), and what other partitions know.
"""

from __future__ import annotations

import re
from typing import Final

DEATHS_MAX: Final = 3
"""Deaths at one offset, after which records run alone."""
KILLS_MAX: Final = 2
"""Deaths with one record in hand, alone, after which it is a dead letter."""
ALONE_RECORDS: Final = 1_000
"""So many run alone. A killer further on has let the committed offset come nearer by then, and is
found in another round."""

_METADATA: Final = re.compile(r"tw:(?:run:(\d{1,6})|alone:(\d{1,6})|hand:(\d{1,6}):(\d{1,6}))")


class Resumes:
    """What is known of one partition, from when it is assigned until it goes.

    Args:
        committed: the group's committed offset, and its metadata; None when there is none.
        offset: of the first record that is read.
    """

    def __init__(self, committed: tuple[int, str] | None, offset: int) -> None:
        self._deaths = self._kills = self.alone_left = 0
        at, metadata = committed or (0, "")
        match = _METADATA.fullmatch(metadata)
        if match is not None and at <= offset:
            run, alone, hand, left = (int(group or 0) for group in match.groups())
            self._deaths, self.alone_left = run, alone or left
            # Of a record that is gone by now nothing follows for the next one.
            self._kills = hand if at == offset else 0
        self._offset = offset
        self._has_moved = False
        if self._deaths >= DEATHS_MAX:
            self._deaths, self.alone_left = 0, ALONE_RECORDS

    def kills(self, offset: int) -> int:
        """How many processes have died with the record at this offset in hand, alone."""
        return self._kills if offset == self._offset else 0

    def begun(self) -> str:
        """To be committed at the first offset, before anything of it is handled."""
        if self.alone_left:
            return self.ended(self.alone_left)
        return f"tw:run:{self._deaths + 1}"

    def taken_alone(self) -> None:
        """One more record is to run alone."""
        assert self.alone_left > 0
        self.alone_left -= 1

    def in_hand(self, offset: int, left: int) -> str:
        """To be committed at the offset of a record, before it is handled alone; `left` are to run
        alone, with it."""
        return f"tw:hand:{self.kills(offset) + 1}:{left}"

    def moved(self, left: int) -> str:
        """To be committed with an offset further on, with so many records left to run alone."""
        self._has_moved = True
        return f"tw:alone:{left}" if left else "tw:run:1"

    def ended(self, left: int) -> str:
        """To be committed last, when the partition goes as it should."""
        if self._has_moved:
            return f"tw:alone:{left}" if left else ""
        if self._kills:
            return f"tw:hand:{self._kills}:{left}"
        if left:
            return f"tw:alone:{left}"
        return f"tw:run:{self._deaths}" if self._deaths else ""
