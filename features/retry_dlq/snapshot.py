"""Snapshots of what was nacked: a manifest of the runs on the disk, and what is in memory.

    the runs on the disk (fold_manifest.py)
    dead letters that wait: the first one's offset, their number
    positions of the source, then of this log: the floor; how many of the named runs are theirs;
    what is recent, and the runs in memory: a count and that many entries each

Invariants
- What is restored is whole: every run that is named is there, and was read.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from data_plane.log.file_system import FileSystem
from features.delayed.runs import (
    ENTRY,
    FileRun,
    MemoryRun,
    Run,
    memory_run_of,
    open_run,
)
from features.fold_manifest import ManifestForm, sealed
from features.retry_dlq.positions import RUN_SUFFIX, FrozenPositions
from features.run_files import DIGEST_BYTES

SNAPSHOT_SUFFIX: Final = ".nacked"
NOTHING: Final = -1

_FORM: Final = ManifestForm(
    SNAPSHOT_SUFFIX, b"TWNACKS1", (RUN_SUFFIX,), struct.Struct(f">{DIGEST_BYTES}s")
)
_DEAD: Final = struct.Struct(">qQ")
_SET: Final = struct.Struct(">QII")
_COUNT: Final = struct.Struct(">I")


class DeadLetters(NamedTuple):
    """Those that were not sent: none is before `first_offset`, which is NOTHING without any."""

    first_offset: int
    waiting_count: int


class FoldState(NamedTuple):
    """All that a fold of nacks knows of its log."""

    of_source: FrozenPositions
    own: FrozenPositions
    dead_letters: DeadLetters


def encode(state: FoldState) -> bytes:
    sets = (state.of_source, state.own)
    named = [run for one in sets for run in one.runs if isinstance(run, FileRun)]
    parts = [_FORM.encode((run.digest,) for run in named)]
    parts.append(_DEAD.pack(*state.dead_letters))
    for one in sets:
        in_memory = [run for run in one.runs if isinstance(run, MemoryRun)]
        parts.append(_SET.pack(one.floor, len(one.runs) - len(in_memory), len(in_memory)))
        recent = sorted(one.recent.items())
        parts.append(_COUNT.pack(len(recent)))
        parts += (ENTRY.pack(*entry) for entry in recent)
        for run in in_memory:
            parts += (_COUNT.pack(run.size), run.data)
    return sealed(parts)


def decode(data: bytes, fs: FileSystem, folder: str) -> FoldState:
    """Raises ValueError for what is not a whole snapshot, or names a run that is not there."""
    (named_digests,), reader = _FORM.decode(data)
    named: list[Run] = [open_run(fs, folder, digest, RUN_SUFFIX) for (digest,) in named_digests]
    dead_letters = DeadLetters(*reader.take(_DEAD))
    sets = []
    for _ in range(2):
        floor, on_disk, in_memory_count = reader.take(_SET)
        recent = dict(_entries(reader.take_counted(ENTRY.size)))
        in_memory = [memory_run_of(reader.take_counted(ENTRY.size)) for _ in range(in_memory_count)]
        sets.append(FrozenPositions(recent, (*named[:on_disk], *in_memory), floor))
        del named[:on_disk]
    return FoldState(sets[0], sets[1], dead_letters)


def _entries(data: bytes) -> list[tuple[int, int]]:
    return [(key, offset) for key, offset in ENTRY.iter_unpack(data)]


def runs_named_in(fs: FileSystem, folder: str) -> set[str]:
    """The names of the run files that snapshots in `folder` refer to. Raises OSError."""
    return _FORM.names_in(fs, folder)
