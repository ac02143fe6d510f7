"""Snapshots of what is pending: a manifest of the runs on the disk, and what is in memory.

    magic, number of runs on the disk
    each of these: digest, where it is read from
    what the fold knows beside (FOLD_FIELDS)
    horizon; what is near, recent, in runs in memory, done: a count and that many
    CRC32C of all of it

Its size has nothing to do with how much is pending: all but the runs' names has a maximum.

Invariants
- What is restored is whole: every run that is named is there, and was read.
- The names come first, so that who only wants those reads little (`runs_named_in`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from data_plane.log.file_system import FileSystem
from features.delayed.pending_set import FrozenPending, OpenRun
from features.delayed.runs import (
    DIGEST_BYTES,
    ENTRY,
    RUN_SUFFIX,
    Entry,
    FileRun,
    MemoryRun,
    memory_run_of,
    open_run,
)

SNAPSHOT_SUFFIX: Final = ".delayed"

_MAGIC: Final = b"TWPENDS1"
_HEAD: Final = struct.Struct(">8sI")
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


def encode(state: FoldState) -> bytes:
    pending = state.pending
    named = [one for one in pending.runs if isinstance(one.run, FileRun)]
    in_memory = [one for one in pending.runs if isinstance(one.run, MemoryRun)]
    parts = [_HEAD.pack(_MAGIC, len(named))]
    for run, start in named:
        assert isinstance(run, FileRun)
        parts.append(_NAMED.pack(run.digest, start))
    parts.append(_FOLD.pack(state.hidden_from, state.hidden_end))
    parts.append(ENTRY.pack(*(pending.horizon or _NO_HORIZON)))
    parts += (_encoded(pending.near), _encoded(pending.recent), _COUNT.pack(len(in_memory)))
    for run, start in in_memory:
        assert isinstance(run, MemoryRun)
        parts += (_COUNT.pack(run.size - start), run.data[start * ENTRY.size :])
    parts.append(_COUNT.pack(len(pending.done)))
    parts += (_OFFSET.pack(offset) for offset in sorted(pending.done))
    data = b"".join(parts)
    return data + _CRC.pack(crc32c(data))


def _encoded(entries: dict[int, int]) -> bytes:
    ordered = sorted((due_ms, offset) for offset, due_ms in entries.items())
    return _COUNT.pack(len(ordered)) + b"".join(ENTRY.pack(*entry) for entry in ordered)


def decode(data: bytes, fs: FileSystem, folder: str) -> FoldState:
    """Raises ValueError for what is not a whole snapshot, or names a run that is not there."""
    if len(data) < _CRC.size or _CRC.pack(crc32c(data[: -_CRC.size])) != data[-_CRC.size :]:
        raise ValueError("the snapshot is torn: its crc is not that of its bytes")
    reader = _Reader(data)
    magic, named_count = reader.take(_HEAD)
    if magic != _MAGIC:
        raise ValueError("the snapshot is of another version")
    runs = []
    for _ in range(named_count):
        digest, start = reader.take(_NAMED)
        runs.append(OpenRun(open_run(fs, folder, digest), start))
    hidden_from, hidden_end = reader.take(_FOLD)
    due_ms, offset = reader.take(ENTRY)
    horizon: Entry | None = (due_ms, offset)
    near, recent = reader.take_entries(), reader.take_entries()
    for _ in range(reader.take(_COUNT)[0]):
        runs.append(OpenRun(memory_run_of(reader.take_bytes(ENTRY.size)), 0))
    done_data = reader.take_bytes(_OFFSET.size)
    done = frozenset(offset for (offset,) in _OFFSET.iter_unpack(done_data))
    if horizon == _NO_HORIZON:
        horizon = None
    frozen = FrozenPending(near, recent, tuple(runs), done, horizon)
    return FoldState(hidden_from, hidden_end, frozen)


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

    def take_entries(self) -> dict[int, int]:
        data = self.take_bytes(ENTRY.size)
        return {offset: due_ms for due_ms, offset in ENTRY.iter_unpack(data)}

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
        _, count = _HEAD.unpack(head)
        size = min(count * _NAMED.size, file.size())
        data = bytes(file.read_at(_HEAD.size, size - size % _NAMED.size))
    finally:
        file.close()
    return [digest.hex() + RUN_SUFFIX for digest, _ in _NAMED.iter_unpack(data)]
