"""Which records of a log are held for what is pending, by offset: asked by threads that rewrite
segments, front to back.

    pending     by due time, in memory and in runs on the disk: in no order of offsets
    window      the blocks of 65,536 offsets from the one asked for on, as many as fit into
                WINDOW_BYTES_MAX; of each the places that are held
    needs       a look at the current block's places; behind the window all is read again

So what it takes in memory does not grow with how much is pending, and the runs are read once for
some millions of pending messages.

Invariants
- It goes by what was pending when it was made. The runs stay on the disk until it is closed, but
  for a cut of the log: then what is asked by it is overtaken, too (Retired).
- It holds no record that readers see.

Deliberately absent: facts, which the log's batches tell by themselves (DelayedMessages.facts_in).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from data_plane.log.cold_files import Retired
from data_plane.log.file_system import FileSystem
from features.delayed.pending_entries import FrozenPending, Passed
from features.delayed.pending_set import PendingSet
from features.delayed.runs import entries_of

BLOCK_BITS: Final = 16
WINDOW_BYTES_MAX: Final = 16 << 20
# A place takes two bytes, a block about so many more.
PLACE_BYTES: Final = 2
BLOCK_BYTES: Final = 200

_PLACES: Final = 1 << BLOCK_BITS


class HeldMessages:
    """The RecordHold of what is pending now. Made and closed on the loop."""

    def __init__(self, fs: FileSystem, folder: str, pending: PendingSet) -> None:
        self._fs = fs
        self._folder = folder
        self._pending = pending
        self._state: FrozenPending | None = pending.freeze()
        self._window = Window(0, 0)
        # The block that was asked for last: a byte for each place, 1 where it is held.
        self._number = -1
        self._places = bytearray()

    def holds(self, offset: int) -> bool:
        """As `needs`."""
        return self.needs(offset)

    def needs(self, offset: int) -> bool:
        """Raises OSError, and Retired when the log was cut and the runs have gone."""
        number = offset >> BLOCK_BITS
        if number != self._number:
            self._turn_to(number)
        return bool(self._places[offset & (_PLACES - 1)])

    def _turn_to(self, number: int) -> None:
        if not self._window.first <= number < self._window.end:
            # Not two of them at a time.
            self._window = Window(0, 0)
            self._window = self._read(number)
        self._places = self._window.places_of(number)
        self._number = number

    def _read(self, first: int) -> Window:
        assert self._state is not None, "nobody asks a hold that is closed"
        window = Window(first, 1 << (64 - BLOCK_BITS))
        try:
            window.add(_offsets_in(self._fs, self._folder, self._state, first << BLOCK_BITS))
        except FileNotFoundError as error:
            raise Retired(str(error)) from error
        return window

    def close(self) -> None:
        if self._state is not None:
            self._pending.thaw(self._state)
            self._state = None
            self._window = Window(0, 0)


def _offsets_in(fs: FileSystem, folder: str, frozen: FrozenPending, lowest: int) -> Iterator[int]:
    """Those that were pending, in no order; all from `lowest` on, perhaps others. Raises
    OSError."""
    passed = Passed(frozen.done, frozen.stale)
    in_runs = (
        entry[1]
        for run, start in frozen.runs
        if run.offset_max >= lowest
        for entry in entries_of(fs, folder, run, start)
        if not passed.passes(entry)
    )
    return chain(frozen.near, frozen.recent, in_runs)


class Window:
    """The offsets that are held in the blocks [first, end): as many as it has room for."""

    __slots__ = ("_blocks", "_bytes", "end", "first")

    def __init__(self, first: int, end: int) -> None:
        self.first = first
        self.end = end
        self._blocks: dict[int, array[int]] = {}
        self._bytes = 0

    def add(self, offsets: Iterable[int]) -> None:
        """Take those that lie in it; where they are too many, it ends earlier."""
        first, end, blocks = self.first, self.end, self._blocks
        for offset in offsets:
            number = offset >> BLOCK_BITS
            if not first <= number < end:
                continue
            block = blocks.get(number)
            if block is None:
                block = blocks[number] = array("H")
                self._bytes += BLOCK_BYTES
            block.append(offset & (_PLACES - 1))
            self._bytes += PLACE_BYTES
            if self._bytes > WINDOW_BYTES_MAX:
                self._shorten()
                end = self.end

    def _shorten(self) -> None:
        """Drop blocks from the end until half of it is left, but never the first one."""
        for number in sorted(self._blocks, reverse=True):
            if self._bytes <= WINDOW_BYTES_MAX // 2 or number == self.first:
                return
            self._bytes -= BLOCK_BYTES + PLACE_BYTES * len(self._blocks.pop(number))
            self.end = number

    def places_of(self, number: int) -> bytearray:
        """Of a block: a byte for each place, 1 where it is held."""
        places = bytearray(_PLACES)
        for place in self._blocks.get(number, ()):
            places[place] = 1
        return places
