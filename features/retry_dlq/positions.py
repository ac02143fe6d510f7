"""Offsets that were nacked, each with the offset of what was stored for it, in bounded memory.

    recent   as they came, at most RUN_ENTRIES; then they become a run
    runs     sorted by the nacked offset and immutable: in memory, or files (delayed/runs.py)
    floor    what lies below it is forgotten, wherever its entry still stands

    upkeep   eight runs of a size are merged into one, on the disk
             a run of which half is below the floor, by its keys, is written anew without that

Upkeep and look-ups read and write files, so they are for threads: an `UpkeepJob`, and a frozen set.
The loop goes on meanwhile, and what is added while a job runs is there when it ends.

Invariants
- An offset is in the set from when it was added until the floor is above it, in whatever form.
- A run on the disk is durable before this set refers to it, and is not removed while this set, a
  frozen one or a snapshot in the folder does.
- The state is what was added and the floor. How it is divided may differ between replicas.

Deliberately absent: the log (nacks.py), when upkeep is done, snapshots.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from data_plane.log.file_system import FileSystem
from features.delayed.runs import (
    Entry,
    FileRun,
    Run,
    entries_of,
    find_keys,
    memory_run,
    write_run,
)
from features.run_merging import NamedInSnapshots, enough_of_a_size, write_merged

RUN_SUFFIX: Final = ".nacked-run"
RUN_ENTRIES: Final = 4_096
# So many runs of a size are merged, so at most so many are in memory but while a job runs.
RUNS_MERGED: Final = 8


class FrozenPositions(NamedTuple):
    """A set as it was; `recent` by nacked offset."""

    recent: dict[int, int]
    runs: tuple[Run, ...]
    floor: int

    def find(self, fs: FileSystem, folder: str, offsets: Iterable[int]) -> set[int]:
        """Which of these were in it. In a worker thread; raises OSError."""
        wanted = {offset for offset in offsets if offset >= self.floor}
        found = wanted & self.recent.keys()
        left = sorted(wanted - found)
        for run in reversed(self.runs):
            if not left:
                break
            in_run = find_keys(fs, folder, run, left)
            if in_run:
                found |= in_run
                left = [offset for offset in left if offset not in in_run]
        return found


def entries_in(fs: FileSystem, folder: str, frozen: FrozenPositions) -> Iterator[Entry]:
    """All that was in it. In a worker thread; raises OSError."""
    parts = [entries_of(fs, folder, run, 0) for run in frozen.runs]
    for entry in heapq.merge(sorted(frozen.recent.items()), *parts):
        if entry[0] >= frozen.floor:
            yield entry


class Positions:
    """See the module. On the loop, but for `UpkeepJob.run`."""

    __slots__ = (
        "_folder",
        "_frozen",
        "_fs",
        "_is_job_running",
        "_recent",
        "_run_entries",
        "_runs_merged",
        "floor",
        "runs",
    )

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        *,
        run_entries: int = RUN_ENTRIES,
        runs_merged: int = RUNS_MERGED,
    ) -> None:
        self._fs = fs
        self._folder = folder
        self._run_entries, self._runs_merged = run_entries, runs_merged
        self._recent: dict[int, int] = {}
        self.runs: tuple[Run, ...] = ()
        self.floor = 0
        # Sets that are frozen, and perhaps looked at.
        self._frozen: list[FrozenPositions] = []
        self._is_job_running = False

    def __len__(self) -> int:
        """How many it has; some below the floor may still count."""
        return len(self._recent) + sum(run.size for run in self.runs)

    def add(self, offset: int, stored_at: int) -> None:
        """`offset`, which is not in the set, was nacked, and what was stored for it is at
        `stored_at`."""
        if offset < self.floor:
            return
        self._recent[offset] = stored_at
        if len(self._recent) >= self._run_entries:
            self.runs = (*self.runs, memory_run(sorted(self._recent.items())))
            self._recent = {}

    def forget_below(self, floor: int) -> None:
        if floor <= self.floor:
            return
        self.floor = floor
        self._recent = {offset: at for offset, at in self._recent.items() if offset >= floor}
        self.runs = tuple(run for run in self.runs if run.key_max >= floor)

    @property
    def lowest_stored(self) -> int | None:
        """Nothing of what it has was stored below; None when it has nothing."""
        lowest = [run.offset_min for run in self.runs]
        if self._recent:
            lowest.append(min(self._recent.values()))
        return min(lowest, default=None)

    @property
    def lowest_offset(self) -> int | None:
        """No offset in it is below; None when it has nothing."""
        lowest = [max(run.key_min, self.floor) for run in self.runs]
        lowest += [min(self._recent)] if self._recent else []
        return min(lowest, default=None)

    # Frozen, and restored

    def freeze(self) -> FrozenPositions:
        """As it is now; what is recent is copied. `thaw` it when nobody needs it."""
        frozen = FrozenPositions(self._recent.copy(), self.runs, self.floor)
        self._frozen.append(frozen)
        return frozen

    def thaw(self, frozen: FrozenPositions) -> None:
        """Its runs need not stay for its sake."""
        self._frozen = [one for one in self._frozen if one is not frozen]

    def restore(self, frozen: FrozenPositions) -> None:
        """Be what it says; this set is empty, and its files are open."""
        self._recent, self.runs, self.floor = dict(frozen.recent), frozen.runs, frozen.floor

    # Upkeep

    @property
    def wants_upkeep(self) -> bool:
        return not self._is_job_running and bool(self._to_merge())

    def _to_merge(self) -> tuple[Run, ...]:
        found = enough_of_a_size(self.runs, self._run_entries, self._runs_merged)
        if found:
            return found
        for run in self.runs:
            if 2 * (self.floor - run.key_min) > run.key_max - run.key_min:
                return (run,)
        return ()

    def upkeep_job(self, named_in_snapshots: NamedInSnapshots) -> UpkeepJob | None:
        """What is to be done now, one at a time; None for nothing."""
        if not self.wants_upkeep:
            return None
        self._is_job_running = True
        return UpkeepJob(self._fs, self._folder, self._to_merge(), self.floor, named_in_snapshots)

    def kept_names(self) -> set[str]:
        """Of the run files that this set refers to, or a frozen one."""
        runs = [*self.runs, *(run for frozen in self._frozen for run in frozen.runs)]
        return {run.name for run in runs if isinstance(run, FileRun)}

    def finish(self, job: UpkeepJob) -> None:
        """Take over what it has done; of a job that has failed, nothing."""
        self._is_job_running = False
        if not job.is_done:
            return
        left = [run for run in self.runs if run not in job.merged]
        if job.result is not None and job.result.key_max >= self.floor:
            left.append(job.result)
        self.runs = tuple(left)


class UpkeepJob:
    """`run` in a thread, then `Positions.finish` on the loop, whatever came of it."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        merged: tuple[Run, ...],
        floor: int,
        named_in_snapshots: NamedInSnapshots,
    ) -> None:
        """`merged` become one, without what is below `floor`."""
        self._fs = fs
        self._folder = folder
        self.merged = merged
        self._floor = floor
        self._named_in_snapshots = named_in_snapshots
        # Names of files that stay; the caller's to fill in before it runs.
        self.kept_names: set[str] = set()
        self.is_done = False
        self.result: FileRun | None = None

    def run(self) -> None:
        """Raises OSError."""
        self.result = write_merged(
            self._fs,
            self._folder,
            RUN_SUFFIX,
            self.kept_names,
            self._named_in_snapshots,
            self._write,
        )
        self.is_done = True

    def _write(self) -> FileRun | None:
        parts = [entries_of(self._fs, self._folder, run, 0) for run in self.merged]
        entries = (entry for entry in heapq.merge(*parts) if entry[0] >= self._floor)
        return write_run(self._fs, self._folder, entries, RUN_SUFFIX)
