"""A hierarchical timing wheel: which of many entries are due, at a constant cost for each.

As Varghese and Lauck describe it (1987), with LEVELS wheels of 256 slots. A slot of the lowest one
is a millisecond, one of the next 256 ms, then 65.5 s, 4.7 h, 50 days, 35 years. An entry lies in
the wheel of the first level at which its time differs from now, so that it moves down at most once
a level, when time comes to its slot. Worked example, in hexadecimal, at now = 0x010205:

    due       differs from now    level  slot
    0x010209  in the last byte    0      0x09    due when time comes there
    0x0103f0  in the middle byte  1      0x03    at 0x010300 it moves to level 0, slot 0xf0
    0x020000  in the first byte   2      0x02    at 0x020000 it is due at once
    0x010204  it is past          ready

Nobody turns the wheels tick by tick: a bit for each occupied slot tells where the next one is. All
of a lower level comes before anything of a higher one, since it shares more bytes with now.

Invariants
- What is in `level` k has the bytes above k in common with now, and a greater byte k.
- `ready` has exactly what was due when time was last told, in the order of (due, entry) at which it
  came due; it stays there until it is removed.

Deliberately absent: a clock, and what becomes of an entry that is due.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

SLOT_BITS: Final = 8
SLOTS: Final = 1 << SLOT_BITS
LEVELS: Final = 6
# Times are below it: the year 10889.
DUE_END_MS: Final = 1 << (SLOT_BITS * LEVELS)

_SLOT_MASK: Final = SLOTS - 1


class TimingWheel:
    """Entries are numbers, each in it once, with the time when it is due."""

    __slots__ = ("_now_ms", "_occupied", "_slots", "count", "ready")

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        # Entries and when they are due, by level and by the number of the slot since the beginning
        # of time. Made when needed: most logs never have any.
        self._slots: dict[tuple[int, int], dict[int, int]] = {}
        # A bit for each slot of a level.
        self._occupied: list[int] = []
        self.ready: dict[int, int] = {}
        self.count = 0

    def add(self, due_ms: int, entry: int) -> None:
        """`entry` is in no wheel yet, `due_ms` below DUE_END_MS."""
        assert 0 <= due_ms < DUE_END_MS
        self.count += 1
        self._place(due_ms, entry)

    def remove(self, due_ms: int, entry: int) -> None:
        """It was added with this time."""
        self.count -= 1
        if self.ready.pop(entry, None) is not None:
            return
        for level in range(LEVELS):
            number = due_ms >> (SLOT_BITS * level)
            slot = self._slots.get((level, number))
            if slot is not None and slot.pop(entry, None) is not None:
                if not slot:
                    self._vacate(level, number)
                return
        raise KeyError(entry)

    def advance(self, now_ms: int) -> None:
        """It is `now_ms`: what is due by then becomes ready. Time that goes back is passed over."""
        if now_ms <= self._now_ms:
            return
        while True:
            found = self._next_slot()
            if found is None:
                break
            level, number = found
            starts_ms = number << (SLOT_BITS * level)
            if starts_ms > now_ms:
                break
            self._now_ms = starts_ms
            slot = self._slots[level, number]
            self._vacate(level, number)
            for due_ms, entry in sorted((due_ms, entry) for entry, due_ms in slot.items()):
                self._place(due_ms, entry)
        self._now_ms = now_ms

    @property
    def next_ms(self) -> int | None:
        """Nothing more becomes ready before; what is ready was due at `ready`'s times. None when
        the wheels are empty. The beginning of a slot, so perhaps earlier than what is in it."""
        if self.ready:
            return next(iter(self.ready.values()))
        return self.later_ms

    @property
    def later_ms(self) -> int | None:
        """As `next_ms`, of what is not ready."""
        found = self._next_slot()
        if found is None:
            return None
        level, number = found
        return number << (SLOT_BITS * level)

    @property
    def first_ms(self) -> int | None:
        """When the first entry is or was due, to the millisecond: looks through a slot."""
        if self.ready:
            return min(self.ready.values())
        found = self._next_slot()
        return None if found is None else min(self._slots[found].values())

    def first_ready(self, count: int) -> list[tuple[int, int]]:
        """(due, entry) of the first so many that are ready."""
        return [(due_ms, entry) for entry, due_ms in islice(self.ready.items(), count)]

    def _place(self, due_ms: int, entry: int) -> None:
        now_ms = self._now_ms
        if due_ms <= now_ms:
            self.ready[entry] = due_ms
            return
        level = ((due_ms ^ now_ms).bit_length() - 1) // SLOT_BITS
        number = due_ms >> (SLOT_BITS * level)
        slot = self._slots.get((level, number))
        if slot is None:
            self._slots[level, number] = {entry: due_ms}
            if not self._occupied:
                self._occupied = [0] * LEVELS
            self._occupied[level] |= 1 << (number & _SLOT_MASK)
        else:
            slot[entry] = due_ms

    def _vacate(self, level: int, number: int) -> None:
        del self._slots[level, number]
        self._occupied[level] &= ~(1 << (number & _SLOT_MASK))

    def _next_slot(self) -> tuple[int, int] | None:
        """(level, number) of the slot that time comes to first."""
        for level, bits in enumerate(self._occupied):
            if bits:
                lowest = (bits & -bits).bit_length() - 1
                above = self._now_ms >> (SLOT_BITS * (level + 1))
                return level, (above << SLOT_BITS) | lowest
        return None
