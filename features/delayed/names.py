"""Where messages are that a command may name: by their ids, and by offsets of those that moved.

    message at 100, due at 5000, tw-id: order-7     ─► mark(order-7), 5000 → 100
    100 moves from 5000 to 9000                     ─► mark(order-7), 9000 → 100
                                                       mark(#100),    9000 → 100

An entry is a pair of numbers: key, offset. The key is a mark of MARK_BITS, by a digest of the name,
before the time when the message is due. So all of a name stand together, and an entry says itself
when it is out of date. Different names may have the same mark: what is found is to be verified.

    recent   as they came, at most RUN_ENTRIES; then they become a run
    runs     sorted and immutable; eight of a size are merged into one, on the disk, by a thread
    old      what was due KEPT_MS before anything that is pending is left out when runs are merged

Invariants
- Each pending message that has a name is in it, with the time when it is due.
- A run on the disk is durable before this index refers to it, and is not removed while this index,
  a frozen one or a snapshot in the folder does.

Deliberately absent: whether a message is pending (pending_set.py), and its name, which stands in
the record.
"""

from __future__ import annotations

import heapq
from hashlib import blake2b
from typing import Final, NamedTuple

from data_plane.log.file_system import FileSystem
from features.delayed.run_search import RunSearch
from features.delayed.runs import Entry, FileRun, Run, entries_of, memory_run, write_run
from features.run_merging import NamedInSnapshots, enough_of_a_size, write_merged

RUN_SUFFIX: Final = ".delayed-names"
RUN_ENTRIES: Final = 4_096
RUNS_MERGED: Final = 8
# Of what is delivered or cancelled: as long as outcomes are remembered.
KEPT_MS: Final = 3600 * 1000
MARK_BITS: Final = 22
DUE_BITS: Final = 42
# Times are at most this: the year 2109.
DUE_MAX_MS: Final = (1 << DUE_BITS) - 1
# Messages of a name that a command may concern.
FOUND_MAX: Final = 10_000


def offset_name(offset: int) -> bytes:
    """What stands for a message that has moved; no message has such an id's mark but by chance."""
    return b"#%d" % offset


def _key_of(name: bytes, due_ms: int) -> int:
    mark = int.from_bytes(blake2b(name, digest_size=4).digest()) >> (32 - MARK_BITS)
    return (mark << DUE_BITS) | due_ms


class FrozenNames(NamedTuple):
    """An index as it was."""

    recent: tuple[Entry, ...]
    runs: tuple[Run, ...]


class NameSearch:
    """Of a frozen index; in a worker thread, to be closed. Raises OSError."""

    def __init__(self, fs: FileSystem, folder: str, frozen: FrozenNames) -> None:
        runs = list(frozen.runs)
        if frozen.recent:
            runs.append(memory_run(sorted(frozen.recent)))
        self._searches = [RunSearch(fs, folder, run) for run in runs]

    def close(self) -> None:
        for search in self._searches:
            search.close()

    def find(self, name: bytes, from_ms: int = 0, found_max: int = FOUND_MAX) -> list[Entry]:
        """(due, offset) of those that may have this name and are or were due at `from_ms` or
        later, by time; some `found_max` and one more, where there are more."""
        first, last = _key_of(name, from_ms), _key_of(name, DUE_MAX_MS)
        found: set[Entry] = set()
        for search in self._searches:
            for key, offset in search.entries(search.place_of((first, 0))):
                if key > last or len(found) > found_max:
                    break
                found.add((key & DUE_MAX_MS, offset))
        return sorted(found)


class Names:
    """See the module. On the loop, but for `NamesJob.run`."""

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
        self._recent: list[Entry] = []
        self.runs: tuple[Run, ...] = ()
        self._frozen: list[FrozenNames] = []
        self._is_job_running = False
        # How many were in runs when all were merged last.
        self._merged_size = 0

    def __len__(self) -> int:
        return len(self._recent) + self._in_runs

    @property
    def _in_runs(self) -> int:
        return sum(run.size for run in self.runs)

    def add(self, name: bytes, due_ms: int, offset: int) -> None:
        """The message at `offset`, which has this name, is due at `due_ms`."""
        self._recent.append((_key_of(name, due_ms), offset))
        if len(self._recent) >= self._run_entries:
            self.runs = (*self.runs, memory_run(sorted(self._recent)))
            self._recent = []

    # Frozen, and restored

    def freeze(self) -> FrozenNames:
        """As it is now. `thaw` it when nobody needs it."""
        frozen = FrozenNames(tuple(self._recent), self.runs)
        self._frozen.append(frozen)
        return frozen

    def thaw(self, frozen: FrozenNames) -> None:
        """Its runs need not stay for its sake."""
        self._frozen = [one for one in self._frozen if one is not frozen]

    def restore(self, frozen: FrozenNames) -> None:
        """Be what it says; this index is empty, and its files are open."""
        self._recent, self.runs = list(frozen.recent), frozen.runs
        self._merged_size = self._in_runs

    # Upkeep

    @property
    def wants_upkeep(self) -> bool:
        return not self._is_job_running and bool(self._to_merge())

    def _to_merge(self) -> tuple[Run, ...]:
        if self._in_runs > 2 * self._merged_size + 2 * self._runs_merged * self._run_entries:
            return self.runs
        return enough_of_a_size(self.runs, self._run_entries, self._runs_merged)

    def upkeep_job(
        self, first_due_ms: int | None, named_in_snapshots: NamedInSnapshots
    ) -> NamesJob | None:
        """What is to be done now, one at a time; None for nothing. Nothing is pending that is due
        before `first_due_ms`, or nothing at all when it is None."""
        if not self.wants_upkeep:
            return None
        self._is_job_running = True
        floor_ms = DUE_MAX_MS + 1 if first_due_ms is None else first_due_ms - KEPT_MS
        runs = [*self.runs, *(run for frozen in self._frozen for run in frozen.runs)]
        kept_names = {run.name for run in runs if isinstance(run, FileRun)}
        merged = self._to_merge()
        job = NamesJob(self._fs, self._folder, merged, floor_ms, kept_names, named_in_snapshots)
        job.is_of_all = len(merged) == len(self.runs)
        return job

    def finish(self, job: NamesJob) -> None:
        """Take over what it has done; of a job that has failed, nothing."""
        self._is_job_running = False
        if not job.is_done:
            return
        left = [run for run in self.runs if run not in job.merged]
        if job.result is not None:
            left.append(job.result)
        self.runs = tuple(left)
        if job.is_of_all:
            self._merged_size = 0 if job.result is None else job.result.size


class NamesJob:
    """`run` in a thread, then `Names.finish` on the loop, whatever came of it."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        merged: tuple[Run, ...],
        floor_ms: int,
        kept_names: set[str],
        named_in_snapshots: NamedInSnapshots,
    ) -> None:
        """`merged` become one, without what was due before `floor_ms`. Files of `kept_names`
        stay."""
        self._fs = fs
        self._folder = folder
        self.merged = merged
        self._floor_ms = floor_ms
        self._kept_names = kept_names
        self._named_in_snapshots = named_in_snapshots
        self.is_of_all = False
        self.is_done = False
        self.result: FileRun | None = None

    def run(self) -> None:
        """Raises OSError."""
        self.result = write_merged(
            self._fs,
            self._folder,
            RUN_SUFFIX,
            self._kept_names,
            self._named_in_snapshots,
            self._write,
        )
        self.is_done = True

    def _write(self) -> FileRun | None:
        parts = [entries_of(self._fs, self._folder, run, 0) for run in self.merged]
        entries = (
            entry for entry in heapq.merge(*parts) if entry[0] & DUE_MAX_MS >= self._floor_ms
        )
        return write_run(self._fs, self._folder, entries, RUN_SUFFIX)
