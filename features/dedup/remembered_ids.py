"""The message ids of one log, each with the offset and the time of its newest record, in bounded
memory.

    recent   by id, as they came, at most GROUP_IDS; then they become a group
    groups   the same, and change no more; eight of them become a run
    runs     on the disk (id_runs.py), 4 bytes of memory an id; eight of a size become one

    upkeep   groups become a run; runs of a size are merged; what is older than a date is left out
    forget   groups and runs go of which all is older than a date

Upkeep and look-ups in runs read files, so they are for threads (`UpkeepJob`, `IdView`). The loop
goes on meanwhile, and what is added while a job runs is there when it ends.

Invariants
- An id that was added, and not forgotten, is found, with its newest record, in whatever form. One
  that should be forgotten may still be found: whoever asks looks at the time.
- A run is durable before this set refers to it, and is not removed while this set, a frozen one or
  a snapshot in the folder does.
- Groups and runs never change, so a thread may read what it was given (`view`) while the loop goes
  on. In `recent` a thread may look up single ids.

Deliberately absent: the log (fold.py), the window (judgement.py), when upkeep is done.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from data_plane.log.file_system import FileSystem
from features.dedup.id_runs import (
    RUN_SUFFIX,
    IdEntry,
    IdRun,
    digest_of,
    entries_of,
    find_in_run,
    write_run,
)
from features.run_merging import NamedInSnapshots, enough_of_a_size, write_merged

# Some 250 bytes each.
GROUP_IDS: Final = 2_048
# So many groups, or runs of a size, are merged.
MERGED: Final = 8
# Groups that wait for upkeep: then a leader takes no more ids.
GROUPS_MAX: Final = 64

# (offset, time in ms) of a record.
Place = tuple[int, int]
Places = dict[bytes, Place]


class Group(NamedTuple):
    """Ids that came one after the other. No offset is below `offset_min` or above `offset_max`, no
    time above `time_max`."""

    places: Places
    offset_min: int
    offset_max: int
    time_max: int


def group_of(places: Places) -> Group:
    """`places` has some, and changes no more."""
    offsets = [offset for offset, _ in places.values()]
    time_max = max(time_ms for _, time_ms in places.values())
    return Group(places, min(offsets), max(offsets), time_max)


class IdView(NamedTuple):
    """All ids with records before `end_offset`, for a thread; of later ones it may know some."""

    recent: Places
    groups: tuple[Group, ...]
    runs: tuple[IdRun, ...]
    end_offset: int

    def find(
        self, fs: FileSystem, folder: str, message_ids: Iterable[bytes], since_ms: int
    ) -> Places:
        """Which of these have a record of `since_ms` or later, and where. In a worker thread.
        Raises OSError; FileNotFoundError where upkeep has replaced a run: look again."""
        found: Places = {}
        left: dict[bytes, bytes] = {}
        for message_id in message_ids:
            place = self.find_in_memory(message_id)
            if place is None:
                left[digest_of(message_id)] = message_id
            elif place[1] >= since_ms:
                found[message_id] = place
        for run in self.runs:
            if run.time_max < since_ms or not left:
                continue
            for digest, place in find_in_run(fs, folder, run, left).items():
                message_id = left[digest]
                known = found.get(message_id)
                if place[1] >= since_ms and (known is None or place > known):
                    found[message_id] = place
        return found

    def find_in_memory(self, message_id: bytes) -> Place | None:
        """Its newest record, if that is not in a run."""
        place = self.recent.get(message_id)
        if place is None:
            for group in reversed(self.groups):
                place = group.places.get(message_id)
                if place is not None:
                    break
        return place


class FrozenIds(NamedTuple):
    """A set as it was."""

    recent: Places
    groups: tuple[Group, ...]
    runs: tuple[IdRun, ...]


class RememberedIds:
    """See the module. On the loop, but for `UpkeepJob.run` and views."""

    __slots__ = (
        "_folder",
        "_frozen",
        "_fs",
        "_group_ids",
        "_is_job_running",
        "_merged",
        "_recent",
        "end_offset",
        "groups",
        "runs",
    )

    def __init__(
        self, fs: FileSystem, folder: str, *, group_ids: int = GROUP_IDS, merged: int = MERGED
    ) -> None:
        self._fs = fs
        self._folder = folder
        self._group_ids, self._merged = group_ids, merged
        self._recent: Places = {}
        self.groups: tuple[Group, ...] = ()
        self.runs: tuple[IdRun, ...] = ()
        # All that was added lies before it.
        self.end_offset = 0
        # Sets that are frozen, and perhaps not written yet.
        self._frozen: list[FrozenIds] = []
        self._is_job_running = False

    def __len__(self) -> int:
        """How many it has; an id whose window was over when it came again may count twice."""
        in_groups = sum(len(group.places) for group in self.groups)
        return len(self._recent) + in_groups + sum(run.size for run in self.runs)

    def add(self, message_id: bytes, offset: int, time_ms: int) -> None:
        """Offsets ascend."""
        self._recent[message_id] = (offset, time_ms)
        self.end_offset = offset + 1
        if len(self._recent) >= self._group_ids:
            self.groups = (*self.groups, group_of(self._recent))
            self._recent = {}

    def view(self) -> IdView:
        """As of now, for a thread."""
        return IdView(self._recent, self.groups, self.runs, self.end_offset)

    def find_since(self, message_id: bytes, offset: int) -> Place | None:
        """Its newest record, if that is at or above `offset` and not in a run
        (`is_in_memory`)."""
        place = self._recent.get(message_id)
        if place is None:
            for group in reversed(self.groups):
                if group.offset_max < offset:
                    break
                place = group.places.get(message_id)
                if place is not None:
                    break
        return place if place is not None and place[0] >= offset else None

    def is_in_memory(self, offset: int) -> bool:
        """Whether no run has anything at or above `offset`."""
        return all(run.offset_max < offset for run in self.runs)

    @property
    def offset_min(self) -> int | None:
        """No record is below; None without any."""
        lowest = [group.offset_min for group in self.groups]
        lowest += [run.offset_min for run in self.runs]
        if self._recent and not lowest:
            lowest = [min(offset for offset, _ in self._recent.values())]
        return min(lowest, default=None)

    # Frozen, and restored

    def freeze(self) -> FrozenIds:
        """As it is now; what is recent is copied. `thaw` it when nobody needs it."""
        frozen = FrozenIds(self._recent.copy(), self.groups, self.runs)
        self._frozen.append(frozen)
        return frozen

    def thaw(self, frozen: FrozenIds) -> None:
        """Its runs need not stay for its sake."""
        self._frozen = [one for one in self._frozen if one is not frozen]

    def restore(self, frozen: FrozenIds) -> None:
        """Be what it says; this set is empty, and its files are open."""
        self._recent, self.groups, self.runs = dict(frozen.recent), frozen.groups, frozen.runs
        ends = [offset for offset, _ in self._recent.values()]
        ends += [group.offset_max for group in self.groups]
        ends += [run.offset_max for run in self.runs]
        self.end_offset = max(ends, default=-1) + 1

    # Upkeep

    def forget(self, before_ms: int) -> None:
        """Let go of what is older, as far as it stands together."""
        self.groups = tuple(one for one in self.groups if one.time_max >= before_ms)
        self.runs = tuple(one for one in self.runs if one.time_max >= before_ms)
        if self._recent and max(time_ms for _, time_ms in self._recent.values()) < before_ms:
            self._recent = {}

    @property
    def wants_upkeep(self) -> bool:
        return not self._is_job_running and (
            len(self.groups) >= self._merged or bool(self._runs_to_merge())
        )

    def _runs_to_merge(self) -> tuple[IdRun, ...]:
        return enough_of_a_size(self.runs, self._group_ids, self._merged)

    def upkeep_job(self, named_in_snapshots: NamedInSnapshots, before_ms: int) -> UpkeepJob | None:
        """What is to be done now, one at a time; None for nothing. What is older than `before_ms`
        is left out."""
        if not self.wants_upkeep:
            return None
        self._is_job_running = True
        groups = self.groups if len(self.groups) >= self._merged else ()
        runs = () if groups else self._runs_to_merge()
        kept = {run.name for run in self.runs}
        for frozen in self._frozen:
            kept.update(run.name for run in frozen.runs)
        return UpkeepJob(self._fs, self._folder, groups, runs, before_ms, kept, named_in_snapshots)

    def finish(self, job: UpkeepJob) -> None:
        """Take over what it has done; of a job that has failed, nothing."""
        self._is_job_running = False
        if not job.is_done:
            return
        done = {id(one) for one in (*job.groups, *job.runs)}
        self.groups = tuple(one for one in self.groups if id(one) not in done)
        runs = [one for one in self.runs if id(one) not in done]
        self.runs = (*runs, job.result) if job.result is not None else tuple(runs)


class UpkeepJob:
    """`run` in a thread, then `RememberedIds.finish` on the loop, whatever came of it."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        groups: tuple[Group, ...],
        runs: tuple[IdRun, ...],
        before_ms: int,
        kept_names: set[str],
        named_in_snapshots: NamedInSnapshots,
    ) -> None:
        """`groups`, or `runs`, become one. Files of `kept_names` stay."""
        self._fs = fs
        self._folder = folder
        self.groups = groups
        self.runs = runs
        self._before_ms = before_ms
        self._kept_names = kept_names
        self._named_in_snapshots = named_in_snapshots
        self.is_done = False
        self.result: IdRun | None = None

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

    def _write(self) -> IdRun | None:
        parts = [_sorted_entries(group) for group in self.groups]
        parts += [entries_of(self._fs, self._folder, run) for run in self.runs]
        entries = self._newest(heapq.merge(*parts))
        return write_run(self._fs, self._folder, entries)

    def _newest(self, entries: Iterable[IdEntry]) -> Iterator[IdEntry]:
        """Of each id, by its highest offset, if that is young enough."""
        last: IdEntry | None = None
        for entry in entries:
            if last is not None and last[0] != entry[0] and last[2] >= self._before_ms:
                yield last
            last = entry
        if last is not None and last[2] >= self._before_ms:
            yield last


def _sorted_entries(group: Group) -> Iterator[IdEntry]:
    return iter(
        sorted((digest_of(one), offset, time_ms) for one, (offset, time_ms) in group.places.items())
    )
