"""An LRU of what is open: one descriptor, at most one mapping and the loaded indexes a segment.

Entries are closed by second chance: who uses one sets a flag, which costs next to nothing on the
hot path, and the sweep closes the first entry whose flag is down. A closed entry opens itself again
when it is next used. Used on the loop only; worker threads open descriptors of their own, or sync
through those that are open: such an entry is pinned and stays, and should all be pinned, there are
more than the maximum for a while.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

# A process here may hold 20,000 descriptors and 65,530 mappings; connections need their share.
# Python keeps a duplicate descriptor for each mapping, so an entry may cost two.
OPEN_SEGMENTS_MAX = 4096


class Closable(Protocol):
    """Something that can give back its descriptor."""

    recently_used: bool
    pins: int

    def close_file(self) -> None: ...


class OpenFiles:
    """Keeps at most `entries_max` entries open."""

    def __init__(self, entries_max: int = OPEN_SEGMENTS_MAX) -> None:
        assert entries_max >= 1
        self.entries_max = entries_max
        self._queue: deque[Closable] = deque()
        self._open: set[Closable] = set()

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, entry: Closable) -> None:
        """Count `entry`, which has just opened its file, and close others above the maximum."""
        entry.recently_used = True
        if entry in self._open:
            return
        while len(self._open) >= self.entries_max:
            if not self._close_one():
                break
        self._open.add(entry)
        self._queue.append(entry)

    def closed(self, entry: Closable) -> None:
        """Forget `entry`, which closed its file by itself. Unknown entries are fine."""
        if entry in self._open:
            self._open.discard(entry)
            self._queue.remove(entry)

    def _close_one(self) -> bool:
        """False when there is none that may be closed."""
        for _ in range(2 * len(self._queue)):
            entry = self._queue.popleft()
            if entry.recently_used or entry.pins:
                entry.recently_used = False
                self._queue.append(entry)
                continue
            self._open.discard(entry)
            entry.close_file()
            return True
        return False
