"""Snapshots of what is pending: a manifest of the runs on the disk, and what is in memory.

    magic, number of runs on the disk: of what is pending, of names
    each of these: digest, where it is read from
    what the fold knows beside (FOLD_FIELDS)
    horizon; what is near, recent, in runs in memory, done, stale: a count and that many
    names: what is recent, in runs in memory; outcomes
    CRC32C of all of it

Its size has nothing to do with how much is pending: all but the runs' names has a maximum.

Invariants
- What is restored is whole: every run that is named is there, and was read.
- The names come first, so that who only wants those reads little (`runs_named_in`).
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from data_plane.log.file_system import FileSystem
from features.delayed.names import RUN_SUFFIX as NAMES_SUFFIX
from features.delayed.names import FrozenNames
from features.delayed.outcomes import Outcomes
from features.delayed.pending_entries import FrozenPending, OpenRun
from features.delayed.runs import (
    DIGEST_BYTES,
    ENTRY,
    RUN_SUFFIX,
    Entry,
    FileRun,
    MemoryRun,
    Run,
    memory_run_of,
    open_run,
)

SNAPSHOT_SUFFIX: Final = ".delayed"

_MAGIC: Final = b"TWPENDS2"
_HEAD: Final = struct.Struct(">8sII")
_NAMED: Final = struct.Struct(f">{DIGEST_BYTES}sQ")
_FOLD: Final = struct.Struct(">qq")
_COUNT: Final = struct.Struct(">I")
_OFFSET: Final = struct.Struct(">Q")
_CRC: Final = struct.Struct(">I")
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
    named = [(one.run, one.start) for one in pending.runs if isinstance(one.run, FileRun)]
    of_names = [run for run in names.runs if isinstance(run, FileRun)]
    parts = [_HEAD.pack(_MAGIC, len(named), len(of_names))]
    parts += (_NAMED.pack(run.digest, start) for run, start in named)
    parts += (_NAMED.pack(run.digest, 0) for run in of_names)
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
    data = b"".join(parts)
    return data + _CRC.pack(crc32c(data))


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
    if len(data) < _CRC.size or _CRC.pack(crc32c(data[: -_CRC.size])) != data[-_CRC.size :]:
        raise ValueError("the snapshot is torn: its crc is not that of its bytes")
    reader = _Reader(data)
    if not data.startswith(_MAGIC):
        raise ValueError("the snapshot is of another version")
    _, pending_count, names_count = reader.take(_HEAD)
    runs: list[OpenRun] = []
    for _ in range(pending_count):
        digest, start = reader.take(_NAMED)
        runs.append(OpenRun(open_run(fs, folder, digest), start))
    of_names: list[Run] = []
    for _ in range(names_count):
        digest, _ = reader.take(_NAMED)
        of_names.append(open_run(fs, folder, digest, NAMES_SUFFIX))
    hidden_from, hidden_end = reader.take(_FOLD)
    due_ms, offset = reader.take(ENTRY)
    horizon: Entry | None = None if (due_ms, offset) == _NO_HORIZON else (due_ms, offset)
    near, recent = reader.take_times(), reader.take_times()
    runs += (OpenRun(run, 0) for run in reader.take_runs())
    done = frozenset(offset for (offset,) in _OFFSET.iter_unpack(reader.take_bytes(_OFFSET.size)))
    stale = dict(Counter(reader.take_entries()))
    pending = FrozenPending(near, recent, tuple(runs), done, horizon, stale)
    names = FrozenNames(tuple(reader.take_entries()), (*of_names, *reader.take_runs()))
    outcomes = Outcomes(reader.take_entries())
    return FoldState(hidden_from, hidden_end, pending, names, outcomes)


class _Reader:
    """Of bytes whose checksum was right; what is not there is a ValueError all the same."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, form: struct.Struct) -> tuple[Any, ...]:
        data = self._take(form.size)
        return form.unpack(data)

    def take_bytes(self, item_bytes: int) -> bytes:
        """A count, and that many items."""
        (count,) = self.take(_COUNT)
        return self._take(count * item_bytes)

    def take_entries(self) -> list[Entry]:
        found: Iterable[Any] = ENTRY.iter_unpack(self.take_bytes(ENTRY.size))
        return list(found)

    def take_times(self) -> dict[int, int]:
        return {offset: due_ms for due_ms, offset in self.take_entries()}

    def take_runs(self) -> list[MemoryRun]:
        (count,) = self.take(_COUNT)
        return [memory_run_of(self.take_bytes(ENTRY.size)) for _ in range(count)]

    def _take(self, size: int) -> bytes:
        data = self._data[self._position : self._position + size]
        if len(data) != size:
            raise ValueError("the snapshot is too short")
        self._position += size
        return data


def runs_named_in(fs: FileSystem, folder: str) -> set[str]:
    """The names of the run files that snapshots in `folder` refer to. Raises OSError."""
    found: set[str] = set()
    for name in fs.list_directory(folder):
        if name.endswith(SNAPSHOT_SUFFIX):
            found.update(_named_in(fs, f"{folder}/{name}"))
    return found


def _named_in(fs: FileSystem, path: str) -> Iterable[str]:
    try:
        file = fs.open(path, write=False)
    except FileNotFoundError:
        return ()
    try:
        head = bytes(file.read_at(0, _HEAD.size))
        if len(head) != _HEAD.size or not head.startswith(_MAGIC):
            # Nobody can restore it.
            return ()
        _, pending_count, names_count = _HEAD.unpack(head)
        size = min((pending_count + names_count) * _NAMED.size, file.size())
        data = bytes(file.read_at(_HEAD.size, size - size % _NAMED.size))
    finally:
        file.close()
    named = [digest.hex() for digest, _ in _NAMED.iter_unpack(data)]
    suffixes = [RUN_SUFFIX] * pending_count + [NAMES_SUFFIX] * names_count
    return [digest + suffix for digest, suffix in zip(named, suffixes, strict=False)]
