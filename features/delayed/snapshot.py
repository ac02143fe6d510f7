"""Snapshots of what is pending: a manifest of the runs on the disk, and what is in memory.

    the runs on the disk, of what is pending and of names, each with where it is read from
    what the fold knows beside (FOLD_FIELDS)
    horizon; what is near, recent, in runs in memory, done, stale: a count and that many
    names: what is recent, in runs in memory; outcomes

Its size has nothing to do with how much is pending: all but the runs' names has a maximum.

Invariants
- What is restored is whole: every run that is named is there, and was read.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from data_plane.log.file_system import FileSystem
from features.delayed.names import RUN_SUFFIX as NAMES_SUFFIX
from features.delayed.names import FrozenNames
from features.delayed.outcomes import Outcomes
from features.delayed.pending_entries import FrozenPending, OpenRun
from features.delayed.runs import (
    ENTRY,
    RUN_SUFFIX,
    Entry,
    FileRun,
    MemoryRun,
    Run,
    memory_run_of,
    open_run,
)
from features.fold_manifest import ManifestForm, SnapshotReader, sealed
from features.run_files import DIGEST_BYTES

SNAPSHOT_SUFFIX: Final = ".delayed"

_FORM: Final = ManifestForm(
    SNAPSHOT_SUFFIX,
    b"TWPENDS2",
    (RUN_SUFFIX, NAMES_SUFFIX),
    struct.Struct(f">{DIGEST_BYTES}sQ"),
)
_FOLD: Final = struct.Struct(">qq")
_COUNT: Final = struct.Struct(">I")
_OFFSET: Final = struct.Struct(">Q")
# Nothing is pending at or above it: there is no horizon.
_NO_HORIZON: Final[Entry] = (2**64 - 1, 2**64 - 1)


class FoldState(NamedTuple):
    """All that a fold of delayed messages knows of its log. Batches with hidden records lie in
    [hidden_from, hidden_end), both -1 without one."""

    hidden_from: int
    hidden_end: int
    pending: FrozenPending
    names: FrozenNames
    outcomes: Outcomes


def encode(state: FoldState) -> bytes:
    pending, names = state.pending, state.names
    named = [(one.run.digest, one.start) for one in pending.runs if isinstance(one.run, FileRun)]
    of_names = [(run.digest, 0) for run in names.runs if isinstance(run, FileRun)]
    parts = [_FORM.encode(named, of_names)]
    parts.append(_FOLD.pack(state.hidden_from, state.hidden_end))
    parts.append(ENTRY.pack(*(pending.horizon or _NO_HORIZON)))
    parts += (_encoded_times(pending.near), _encoded_times(pending.recent))
    parts.append(_encoded_runs(pending.runs))
    parts.append(_COUNT.pack(len(pending.done)))
    parts += (_OFFSET.pack(offset) for offset in sorted(pending.done))
    stale = sorted(pending.stale.items())
    parts.append(_encoded([entry for entry, count in stale for _ in range(count)]))
    parts += (_encoded(names.recent), _encoded_runs([OpenRun(run, 0) for run in names.runs]))
    parts.append(_encoded(state.outcomes.entries()))
    return sealed(parts)


def _encoded_runs(runs: Iterable[OpenRun]) -> bytes:
    """Those in memory."""
    in_memory = [(one.run, one.start) for one in runs if isinstance(one.run, MemoryRun)]
    parts = [_COUNT.pack(len(in_memory))]
    for run, start in in_memory:
        parts += (_COUNT.pack(run.size - start), run.data[start * ENTRY.size :])
    return b"".join(parts)


def _encoded_times(entries: dict[int, int]) -> bytes:
    return _encoded(sorted((due_ms, offset) for offset, due_ms in entries.items()))


def _encoded(entries: Sequence[Entry]) -> bytes:
    return _COUNT.pack(len(entries)) + b"".join(ENTRY.pack(*entry) for entry in entries)


def decode(data: bytes, fs: FileSystem, folder: str) -> FoldState:
    """Raises ValueError for what is not a whole snapshot, or names a run that is not there."""
    (named, named_of_names), reader = _FORM.decode(data)
    runs = [OpenRun(open_run(fs, folder, digest), start) for digest, start in named]
    of_names: list[Run] = [
        open_run(fs, folder, digest, NAMES_SUFFIX) for digest, _ in named_of_names
    ]
    hidden_from, hidden_end = reader.take(_FOLD)
    due_ms, offset = reader.take(ENTRY)
    horizon: Entry | None = None if (due_ms, offset) == _NO_HORIZON else (due_ms, offset)
    near, recent = _take_times(reader), _take_times(reader)
    runs += (OpenRun(run, 0) for run in _take_runs(reader))
    done = frozenset(offset for (offset,) in _OFFSET.iter_unpack(reader.take_counted(_OFFSET.size)))
    stale = dict(Counter(_take_entries(reader)))
    pending = FrozenPending(near, recent, tuple(runs), done, horizon, stale)
    names = FrozenNames(tuple(_take_entries(reader)), (*of_names, *_take_runs(reader)))
    outcomes = Outcomes(_take_entries(reader))
    return FoldState(hidden_from, hidden_end, pending, names, outcomes)


def _take_entries(reader: SnapshotReader) -> list[Entry]:
    found: Iterable[Any] = ENTRY.iter_unpack(reader.take_counted(ENTRY.size))
    return list(found)


def _take_times(reader: SnapshotReader) -> dict[int, int]:
    return {offset: due_ms for due_ms, offset in _take_entries(reader)}


def _take_runs(reader: SnapshotReader) -> list[MemoryRun]:
    return [memory_run_of(reader.take_counted(ENTRY.size)) for _ in range(reader.take_count())]


def runs_named_in(fs: FileSystem, folder: str) -> set[str]:
    """The names of the run files that snapshots in `folder` refer to. Raises OSError."""
    return _FORM.names_in(fs, folder)
