"""Snapshots of the ids of a log: a manifest of the runs on the disk, and what is in memory.

    the runs on the disk (fold_manifest.py)
    number of groups; of each, and then of what is recent: a count and that many ids, each with
    its length, offset and time

Invariants
- What is restored is whole: every run that is named is there, and was read.
"""

from __future__ import annotations

import struct
from typing import Final

from data_plane.log.file_system import FileSystem
from features.dedup.id_runs import RUN_SUFFIX, open_run
from features.dedup.remembered_ids import FrozenIds, Places, group_of
from features.fold_manifest import ManifestForm, SnapshotReader, sealed
from features.run_files import DIGEST_BYTES

SNAPSHOT_SUFFIX: Final = ".ids"

_FORM: Final = ManifestForm(
    SNAPSHOT_SUFFIX, b"TWIDS001", (RUN_SUFFIX,), struct.Struct(f">{DIGEST_BYTES}s")
)
_COUNT: Final = struct.Struct(">I")
_ID: Final = struct.Struct(">BQQ")


def encode(state: FrozenIds) -> bytes:
    parts = [_FORM.encode((run.name_digest,) for run in state.runs)]
    parts.append(_COUNT.pack(len(state.groups)))
    for places in (*(group.places for group in state.groups), state.recent):
        parts.append(_COUNT.pack(len(places)))
        for message_id, place in places.items():
            parts += (_ID.pack(len(message_id), *place), message_id)
    return sealed(parts)


def decode(data: bytes, fs: FileSystem, folder: str) -> FrozenIds:
    """Raises ValueError for what is not a whole snapshot, or names a run that is not there."""
    (named,), reader = _FORM.decode(data)
    runs = tuple(open_run(fs, folder, digest) for (digest,) in named)
    groups = tuple(group_of(_take_places(reader)) for _ in range(reader.take_count()))
    return FrozenIds(_take_places(reader), groups, runs)


def _take_places(reader: SnapshotReader) -> Places:
    places: Places = {}
    for _ in range(reader.take_count()):
        size, offset, time_ms = reader.take(_ID)
        places[reader.take_bytes(size)] = (offset, time_ms)
    return places


def runs_named_in(fs: FileSystem, folder: str) -> set[str]:
    """The names of the run files that snapshots in `folder` refer to. Raises OSError."""
    return _FORM.names_in(fs, folder)
