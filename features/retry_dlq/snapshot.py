"""Snapshots of what was nacked: a manifest of the runs on the disk, and what is in memory.

    magic, number of runs on the disk
    each of these: digest
    dead letters that wait: the first one's offset, their number
    positions of the source, then of this log: the floor; how many of the named runs are theirs;
    what is recent, and the runs in memory: a count and that many entries each
    CRC32C of all of it

Invariants
- What is restored is whole: every run that is named is there, and was read.
- The names come first, so that who only wants those reads little (`runs_named_in`).
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from data_plane.log.file_system import FileSystem
from features.delayed.runs import (
    DIGEST_BYTES,
    ENTRY,
    FileRun,
    MemoryRun,
    Run,
    memory_run_of,
    open_run,
)
from features.retry_dlq.positions import RUN_SUFFIX, FrozenPositions

SNAPSHOT_SUFFIX: Final = ".nacked"
NOTHING: Final = -1

_MAGIC: Final = b"TWNACKS1"
_HEAD: Final = struct.Struct(">8sI")
_DEAD: Final = struct.Struct(">qQ")
_SET: Final = struct.Struct(">QII")
_COUNT: Final = struct.Struct(">I")
_CRC: Final = struct.Struct(">I")


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
    parts = [_HEAD.pack(_MAGIC, len(named)), *(run.digest for run in named)]
    parts.append(_DEAD.pack(*state.dead_letters))
    for one in sets:
        in_memory = [run for run in one.runs if isinstance(run, MemoryRun)]
        parts.append(_SET.pack(one.floor, len(one.runs) - len(in_memory), len(in_memory)))
        recent = sorted(one.recent.items())
        parts.append(_COUNT.pack(len(recent)))
        parts += (ENTRY.pack(*entry) for entry in recent)
        for run in in_memory:
            parts += (_COUNT.pack(run.size), run.data)
    data = b"".join(parts)
    return data + _CRC.pack(crc32c(data))


def decode(data: bytes, fs: FileSystem, folder: str) -> FoldState:
    """Raises ValueError for what is not a whole snapshot, or names a run that is not there."""
    if len(data) < _CRC.size or _CRC.pack(crc32c(data[: -_CRC.size])) != data[-_CRC.size :]:
        raise ValueError("the snapshot is torn: its crc is not that of its bytes")
    reader = _Reader(data)
    magic, named_count = reader.take(_HEAD)
    if magic != _MAGIC:
        raise ValueError("the snapshot is of another version")
    digests = [reader.take_bytes(DIGEST_BYTES) for _ in range(named_count)]
    named: list[Run] = [open_run(fs, folder, digest, RUN_SUFFIX) for digest in digests]
    dead_letters = DeadLetters(*reader.take(_DEAD))
    sets = []
    for _ in range(2):
        floor, on_disk, in_memory_count = reader.take(_SET)
        recent = dict(_entries(reader.take_counted()))
        in_memory = [memory_run_of(reader.take_counted()) for _ in range(in_memory_count)]
        sets.append(FrozenPositions(recent, (*named[:on_disk], *in_memory), floor))
        del named[:on_disk]
    return FoldState(sets[0], sets[1], dead_letters)


def _entries(data: bytes) -> list[tuple[int, int]]:
    return [(key, offset) for key, offset in ENTRY.iter_unpack(data)]


class _Reader:
    """Of bytes whose checksum was right; what is not there is a ValueError all the same."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, form: struct.Struct) -> tuple[Any, ...]:
        return form.unpack(self.take_bytes(form.size))

    def take_counted(self) -> bytes:
        """A count of entries, and that many."""
        (count,) = self.take(_COUNT)
        return self.take_bytes(count * ENTRY.size)

    def take_bytes(self, size: int) -> bytes:
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


def _named_in(fs: FileSystem, path: str) -> list[str]:
    try:
        file = fs.open(path, write=False)
    except FileNotFoundError:
        return []
    try:
        head = bytes(file.read_at(0, _HEAD.size))
        if len(head) != _HEAD.size or not head.startswith(_MAGIC):
            # Nobody can restore it.
            return []
        _, count = _HEAD.unpack(head)
        size = min(count * DIGEST_BYTES, file.size())
        data = bytes(file.read_at(_HEAD.size, size))
    finally:
        file.close()
    ends = range(DIGEST_BYTES, len(data) + 1, DIGEST_BYTES)
    return [data[end - DIGEST_BYTES : end].hex() + RUN_SUFFIX for end in ends]
