"""What is pending of one log: offsets, each with the time when it is due, in bounded memory.

    near     (due, offset) below the horizon: in the timing wheel, at most NEAR_MAX
    recent   at or above it, as they came, at most RUN_ENTRIES; then they become a run
    runs     at or above it, sorted and immutable; each is read from a position on
    done     offsets that are pending no more, while their entry is still in a run, or might be:
             a fact may speak of what this replica never had
    stale    entries in runs of offsets that are due at another time now, and how many of each

    move     ─► near or recent? out of there ── else its entry in a run is stale ─► add
    add      ─► below the horizon? near ──(too many)──► its later half is a run, the horizon falls
             └► else recent ──(too many)──► a run in memory
    upkeep   few are near: the next entries of all runs become near, the horizon rises
             eight runs of a size: they are merged into one, on the disk
             half of one is read, and it had the lowest offset: the rest is written anew

Upkeep reads and writes files, so it is a job for a thread (`UpkeepJob`). What is added and removed
while it runs is there when it ends.

Invariants
- All that is pending below the horizon is near; without a horizon everything is.
- A run on the disk is durable before this set refers to it, and is not removed while this set, a
  frozen one or a snapshot in the folder does.
- The state is what was added and not removed, in whatever form: nothing goes by a clock. How it is
  divided is of no consequence, and may differ between replicas.
- Of a pending offset there is one entry, beside stale ones. One that moved away and back may have
  the same entry in two runs: one of them is stale, whichever.

Deliberately absent: the log (fold.py), when upkeep is done (fold_upkeep.py), snapshots
(snapshot.py), offsets that are added again after they were removed.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator
from typing import Final
from weakref import WeakSet

from data_plane.log.file_system import FileSystem
from features.delayed.pending_entries import FrozenPending, OpenRun, Passed
from features.delayed.runs import (
    RUN_SUFFIX,
    Entry,
    FileRun,
    entries_of,
    memory_run,
    write_run,
)
from features.delayed.wheel import TimingWheel
from features.run_merging import NamedInSnapshots, enough_of_a_size, write_merged

# In the wheel: some 250 bytes each.
NEAR_MAX: Final = 8_192
# When fewer are near, upkeep brings as many more.
NEAR_LOW: Final = 2_048
RUN_ENTRIES: Final = 4_096
# So many runs of a size are merged.
RUNS_MERGED: Final = 8
# Entries of runs that are done or stale; beyond it all runs are merged.
DONE_MAX: Final = 32_768


class Watch:
    """Offsets that were removed or moved while somebody has it."""

    __slots__ = ("__weakref__", "touched")

    def __init__(self) -> None:
        self.touched: set[int] = set()


class PendingSet:
    """See the module. On the loop, but for `UpkeepJob.run`."""

    __slots__ = (
        "_done",
        "_done_max",
        "_folder",
        "_frozen",
        "_fs",
        "_horizon",
        "_is_job_running",
        "_near",
        "_near_low",
        "_near_max",
        "_recent",
        "_run_entries",
        "_runs_merged",
        "_stale",
        "_stale_count",
        "_watches",
        "runs",
        "wheel",
    )

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        *,
        near_max: int = NEAR_MAX,
        near_low: int = NEAR_LOW,
        run_entries: int = RUN_ENTRIES,
        runs_merged: int = RUNS_MERGED,
        done_max: int = DONE_MAX,
    ) -> None:
        self._fs = fs
        self._folder = folder
        self._near_max, self._near_low = near_max, near_low
        self._run_entries, self._runs_merged, self._done_max = run_entries, runs_merged, done_max
        self.wheel = TimingWheel()
        self._near: dict[int, int] = {}
        self._recent: dict[int, int] = {}
        self.runs: tuple[OpenRun, ...] = ()
        self._done: set[int] = set()
        self._stale: dict[Entry, int] = {}
        self._stale_count = 0
        self._horizon: Entry | None = None
        self._watches: WeakSet[Watch] = WeakSet()
        # States that are frozen, and perhaps not written yet.
        self._frozen: list[FrozenPending] = []
        self._is_job_running = False

    def __len__(self) -> int:
        # Fewer than there are while it has been told of offsets that no run has.
        over = len(self._done) + self._stale_count
        in_runs = max(0, sum(one.size for one in self.runs) - over)
        return len(self._near) + len(self._recent) + in_runs

    @property
    def is_empty(self) -> bool:
        """Whether nothing is pending, and no file is left to be looked through to know that."""
        return not (self._near or self._recent or self.runs)

    def add(self, due_ms: int, offset: int) -> None:
        """The record at `offset`, which is not in the set, is due at `due_ms`."""
        if self._horizon is None or (due_ms, offset) < self._horizon:
            self._bring_near(due_ms, offset)
            if len(self._near) > self._near_max:
                self._push_away()
            return
        self._recent[offset] = due_ms
        if len(self._recent) >= self._run_entries:
            entries = sorted((due_ms, offset) for offset, due_ms in self._recent.items())
            self.runs = (*self.runs, OpenRun(memory_run(entries), 0))
            self._recent = {}

    def remove(self, offset: int, due_ms: int | None = None) -> None:
        """It is pending no more, if it was; it was due at `due_ms`, if whoever says so knows."""
        self._touch(offset)
        near_ms = self._near.pop(offset, None)
        if near_ms is not None:
            self.wheel.remove(near_ms, offset)
        elif self._recent.pop(offset, None) is not None:
            return
        elif due_ms is not None:
            self._note_stale((due_ms, offset))
        else:
            ranges = ((one.run.offset_min, one.run.offset_max) for one in self.runs)
            if any(lowest <= offset <= highest for lowest, highest in ranges):
                self._done.add(offset)

    def move(self, offset: int, due_ms: int, new_due_ms: int) -> None:
        """It was due at `due_ms`, and is at `new_due_ms`."""
        self._touch(offset)
        near_ms = self._near.pop(offset, None)
        if near_ms is not None:
            self.wheel.remove(near_ms, offset)
        elif self._recent.pop(offset, None) is None:
            self._note_stale((due_ms, offset))
        self.add(new_due_ms, offset)

    def _note_stale(self, entry: Entry) -> None:
        if self._horizon is None or entry < self._horizon:
            # It is in no run; this replica never had it.
            return
        if any(
            one.run.key_min <= entry[0] <= one.run.key_max
            and one.run.offset_min <= entry[1] <= one.run.offset_max
            for one in self.runs
        ):
            self._stale[entry] = self._stale.get(entry, 0) + 1
            self._stale_count += 1

    def _forget_stale(self, counts: dict[Entry, int]) -> None:
        for entry, count in counts.items():
            left = self._stale[entry] - count
            self._stale_count -= count
            if left:
                self._stale[entry] = left
            else:
                del self._stale[entry]

    def near_due_ms(self, offset: int) -> int | None:
        """When it is due, if it is pending, and in the wheel."""
        return self._near.get(offset)

    def watch(self) -> Watch:
        """What happens to offsets from now on, for as long as somebody has it."""
        watch = Watch()
        self._watches.add(watch)
        return watch

    def _touch(self, offset: int) -> None:
        if self._watches:
            for watch in self._watches:
                watch.touched.add(offset)

    @property
    def lowest_offset(self) -> int | None:
        """Nothing below is pending; None when nothing is."""
        lowest = [one.run.offset_min for one in self.runs]
        lowest += (min(part) for part in (self._near, self._recent) if part)
        return min(lowest, default=None)

    @property
    def next_ms(self) -> int | None:
        """Nothing is due before; None when nothing is pending."""
        if self._near:
            return self.wheel.next_ms
        return None if self._horizon is None else self._horizon[0]

    @property
    def first_due_ms(self) -> int | None:
        """When the first is or was due, to the millisecond; None when nothing is pending."""
        if self._near:
            return self.wheel.first_ms
        return None if self._horizon is None else self._horizon[0]

    def _bring_near(self, due_ms: int, offset: int) -> None:
        self._near[offset] = due_ms
        self.wheel.add(due_ms, offset)

    def _push_away(self) -> None:
        """Too many are near: the later half is a run, which begins at the horizon."""
        entries = sorted((due_ms, offset) for offset, due_ms in self._near.items())
        later = entries[len(entries) // 2 :]
        for due_ms, offset in later:
            del self._near[offset]
            self.wheel.remove(due_ms, offset)
        self.runs = (*self.runs, OpenRun(memory_run(later), 0))
        self._horizon = later[0]

    # Frozen, and restored

    def freeze(self) -> FrozenPending:
        """As it is now; what is near and recent is copied. `thaw` it when nobody needs it."""
        done = frozenset(self._done)
        near, recent = self._near.copy(), self._recent.copy()
        frozen = FrozenPending(near, recent, self.runs, done, self._horizon, self._stale.copy())
        self._frozen.append(frozen)
        return frozen

    def thaw(self, frozen: FrozenPending) -> None:
        """Its runs need not stay for its sake."""
        self._frozen = [one for one in self._frozen if one is not frozen]

    def restore(self, frozen: FrozenPending) -> None:
        """Be what it says; this set is empty, and its files are open."""
        for offset, due_ms in frozen.near.items():
            self._bring_near(due_ms, offset)
        self._recent = dict(frozen.recent)
        self.runs, self._done, self._horizon = frozen.runs, set(frozen.done), frozen.horizon
        self._stale, self._stale_count = dict(frozen.stale), sum(frozen.stale.values())

    # Upkeep

    @property
    def wants_upkeep(self) -> bool:
        return not self._is_job_running and (self._wants_loading or bool(self._to_merge()))

    @property
    def _wants_loading(self) -> bool:
        return self._horizon is not None and len(self._near) < self._near_low

    def _to_merge(self) -> tuple[OpenRun, ...]:
        if len(self._done) + self._stale_count > self._done_max:
            return self.runs
        found = enough_of_a_size(self.runs, self._run_entries, self._runs_merged)
        return found or self._worn()

    def _worn(self) -> tuple[OpenRun, ...]:
        """A run of which half is read and which, by an offset that it may have had once, holds on
        to more of the log than all others. Each time it is written it is half as long."""
        lowest = min((one.run.offset_min for one in self.runs), default=0)
        for one in self.runs:
            if one.run.offset_min == lowest and 2 * one.start >= one.run.size:
                return (one,)
        return ()

    def upkeep_job(self, named_in_snapshots: NamedInSnapshots) -> UpkeepJob | None:
        """What is to be done now, one at a time; None for nothing. Loading goes first."""
        if not self.wants_upkeep:
            return None
        self._is_job_running = True
        merged = () if self._wants_loading else self._to_merge()
        kept = {one.run for one in self.runs if isinstance(one.run, FileRun)}
        for frozen in self._frozen:
            kept.update(one.run for one in frozen.runs if isinstance(one.run, FileRun))
        return UpkeepJob(
            self._fs,
            self._folder,
            self.runs,
            merged,
            frozenset(self._done),
            self._stale.copy(),
            self._near_low,
            {run.name for run in kept},
            named_in_snapshots,
        )

    def finish(self, job: UpkeepJob) -> None:
        """Take over what it has done; of a job that has failed, nothing."""
        self._is_job_running = False
        if not job.is_done:
            return
        if job.merged:
            self._take_merged(job)
        else:
            self._take_loaded(job)

    def _take_merged(self, job: UpkeepJob) -> None:
        left = [one for one in self.runs if one not in job.merged]
        if job.result is not None:
            left.append(OpenRun(job.result, 0))
        self.runs = tuple(left)
        # What was not in one of all runs is in none.
        is_all = len(job.merged) == len(job.runs)
        self._done -= job.done if is_all else job.passed.done
        self._forget_stale(job.stale if is_all else job.passed.stale)

    def _take_loaded(self, job: UpkeepJob) -> None:
        self._done -= job.passed.done
        self._forget_stale(job.passed.stale)
        self._horizon = horizon = job.horizon
        coming = list(job.loaded)
        left = [one for one in job.advanced if one.size]
        for one in self.runs[len(job.runs) :]:
            # Made of what is in memory while the job ran.
            below, rest = self._split(one, horizon)
            coming += below
            left += [rest] if rest.size else []
        self.runs = tuple(left)
        for offset, due_ms in list(self._recent.items()):
            if horizon is None or (due_ms, offset) < horizon:
                del self._recent[offset]
                coming.append((due_ms, offset))
        passed = Passed(self._done, self._stale)
        for due_ms, offset in sorted(coming):
            if not passed.passes((due_ms, offset)):
                self._bring_near(due_ms, offset)
        self._done -= passed.done
        self._forget_stale(passed.stale)
        if not self.runs:
            # No entry is left that would have to be passed over.
            self._done.clear()
            self._forget_stale(self._stale.copy())
        if len(self._near) > self._near_max:
            self._push_away()

    def _split(self, one: OpenRun, horizon: Entry | None) -> tuple[list[Entry], OpenRun]:
        """What of a run in memory lies below the horizon, and the rest."""
        entries = list(entries_of(self._fs, self._folder, one.run, one.start))
        end = len(entries) if horizon is None else bisect_left(entries, horizon)
        return entries[:end], OpenRun(one.run, one.start + end)


class UpkeepJob:
    """`run` in a thread, then `PendingSet.finish` on the loop, whatever came of it."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        runs: tuple[OpenRun, ...],
        merged: tuple[OpenRun, ...],
        done: frozenset[int],
        stale: dict[Entry, int],
        load_count: int,
        kept_names: set[str],
        named_in_snapshots: NamedInSnapshots,
    ) -> None:
        """`merged` of `runs` become one or, without any, the next `load_count` entries are
        loaded. Files of `kept_names` stay."""
        self._fs = fs
        self._folder = folder
        self.runs = runs
        self.merged = merged
        self.done = done
        self.stale = stale
        # What is in no run any more.
        self.passed = Passed(done, stale)
        self._load_count = load_count
        self._kept_names = kept_names
        self._named_in_snapshots = named_in_snapshots
        self.is_done = False
        # Of a merge.
        self.result: FileRun | None = None
        # Of loading: the runs behind what was loaded, which all of it lies below `horizon`.
        self.loaded: list[Entry] = []
        self.advanced: tuple[OpenRun, ...] = ()
        self.horizon: Entry | None = None

    def run(self) -> None:
        """Raises OSError."""
        if self.merged:
            self.result = write_merged(
                self._fs,
                self._folder,
                RUN_SUFFIX,
                self._kept_names,
                self._named_in_snapshots,
                self._write,
            )
        else:
            self._load()
        self.is_done = True

    def _write(self) -> FileRun | None:
        entries = heapq.merge(*(self._entries(one) for one in self.merged))
        return write_run(self._fs, self._folder, self._pending(entries))

    def _entries(self, one: OpenRun) -> Iterator[Entry]:
        return entries_of(self._fs, self._folder, one.run, one.start)

    def _pending(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        return (entry for entry in entries if not self.passed.passes(entry))

    def _load(self) -> None:
        taken = [0] * len(self.runs)

        def numbered(number: int, one: OpenRun) -> Generator[tuple[Entry, int]]:
            for entry in self._entries(one):
                yield entry, number

        sources = [numbered(number, one) for number, one in enumerate(self.runs)]
        try:
            merged = heapq.merge(*sources)
            for entry, number in merged:
                is_over = self.passed.passes(entry)
                if not is_over and len(self.loaded) >= self._load_count:
                    self.horizon = entry
                    break
                taken[number] += 1
                if not is_over:
                    self.loaded.append(entry)
        finally:
            for source in sources:
                source.close()
        self.advanced = tuple(
            OpenRun(one.run, one.start + count) for one, count in zip(self.runs, taken, strict=True)
        )
