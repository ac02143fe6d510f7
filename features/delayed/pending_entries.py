"""What a pending set consists of, as it was at some time: see pending_set.py for what is where.

A frozen set is read in worker threads, whatever becomes of the set meanwhile.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from typing import NamedTuple

from data_plane.log.file_system import FileSystem
from features.delayed.runs import Entry, Run, entries_of


class OpenRun(NamedTuple):
    """A run of which the entries before `start` are pending no more, or near."""

    run: Run
    start: int

    @property
    def size(self) -> int:
        return self.run.size - self.start


class FrozenPending(NamedTuple):
    """A PendingSet as it was; `near` and `recent` by offset."""

    near: dict[int, int]
    recent: dict[int, int]
    runs: tuple[OpenRun, ...]
    done: frozenset[int]
    horizon: Entry | None
    stale: dict[Entry, int]


class Passed:
    """Which entries of runs are passed over; each stale one as often as there are of it."""

    def __init__(self, done: Collection[int], stale: dict[Entry, int]) -> None:
        self._done = done
        self._stale_left = dict(stale)
        self.done: set[int] = set()
        self.stale: dict[Entry, int] = {}

    def passes(self, entry: Entry) -> bool:
        left = self._stale_left.get(entry, 0)
        if left:
            self._stale_left[entry] = left - 1
            self.stale[entry] = self.stale.get(entry, 0) + 1
            return True
        if entry[1] in self._done:
            self.done.add(entry[1])
            return True
        return False


def entries_in(fs: FileSystem, folder: str, frozen: FrozenPending) -> Iterator[Entry]:
    """All that was pending, by (due, offset). In a worker thread; raises OSError."""
    in_memory = [
        sorted((due_ms, offset) for offset, due_ms in part.items())
        for part in (frozen.near, frozen.recent)
    ]
    passed = Passed(frozen.done, frozen.stale)
    in_runs = [
        (entry for entry in entries_of(fs, folder, run, start) if not passed.passes(entry))
        for run, start in frozen.runs
    ]
    return heapq.merge(*in_memory, *in_runs)
