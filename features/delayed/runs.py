"""Runs of pairs of numbers (run_files.py): (due, offset) of what is pending and far, or another
fold's, under a suffix of its own. The header's numbers are the lowest and the highest offset.

Deliberately absent: which runs there are (pending_set.py), and who removes their files.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple

from data_plane.log.file_system import Buffer, File, FileSystem
from features.run_files import CHUNK_ENTRIES, RunForm

# (due in ms, offset).
Entry = tuple[int, int]

RUN_SUFFIX: Final = ".delayed-run"
ENTRY: Final = struct.Struct(">QQ")
# Of those that are searched, in memory.
CHUNKS_KEPT: Final = 64

_FORM: Final = RunForm(b"TWDELAY1", ENTRY)


class FileRun(NamedTuple):
    """A run on the disk; offsets of its entries lie in [offset_min, offset_max], their keys (when
    they are due) in [key_min, key_max]."""

    digest: bytes
    size: int
    offset_min: int
    offset_max: int
    key_min: int
    key_max: int
    suffix: str = RUN_SUFFIX

    @property
    def name(self) -> str:
        return self.digest.hex() + self.suffix


class MemoryRun(NamedTuple):
    """A run that is not on the disk yet."""

    data: bytes
    size: int
    offset_min: int
    offset_max: int
    key_min: int
    key_max: int


Run = FileRun | MemoryRun


def memory_run(entries: Iterable[Entry]) -> MemoryRun:
    """`entries` are some, and sorted."""
    packed = [ENTRY.pack(*entry) for entry in entries]
    return memory_run_of(b"".join(packed))


def memory_run_of(data: bytes) -> MemoryRun:
    """Of packed entries."""
    offsets = [offset for _, offset in ENTRY.iter_unpack(data)]
    key_min, _ = ENTRY.unpack_from(data)
    key_max, _ = ENTRY.unpack_from(data, len(data) - ENTRY.size)
    return MemoryRun(data, len(offsets), min(offsets), max(offsets), key_min, key_max)


def entries_of(fs: FileSystem, folder: str, run: Run, start: int) -> Iterator[Entry]:
    """Its entries from the `start`-th on. Raises OSError, also for what is damaged."""
    if isinstance(run, MemoryRun):
        yield from _unpacked(run.data[start * ENTRY.size :])
        return
    file = fs.open(f"{folder}/{run.name}", write=False)
    try:
        for first in range(start - start % CHUNK_ENTRIES, run.size, CHUNK_ENTRIES):
            data = read_chunk(file, run, first)
            yield from _unpacked(data[max(0, start - first) * ENTRY.size :])
    finally:
        file.close()


def _unpacked(data: Buffer) -> Iterator[Entry]:
    entries: Iterator[Any] = ENTRY.iter_unpack(data)
    return entries


def read_chunk(file: File, run: FileRun, first: int) -> Buffer:
    """The entries of the chunk that begins with the `first`-th. Raises OSError, also for what is
    damaged."""
    return _FORM.read_chunk(file, run.size, first)


def find_keys(fs: FileSystem, folder: str, run: Run, keys: list[int]) -> set[int]:
    """Which of these keys, which are sorted, the run has. It reads some chunks for those that are
    near each other. Raises OSError, also for what is damaged."""
    wanted = keys[bisect_left(keys, run.key_min) : bisect_right(keys, run.key_max)]
    if not wanted:
        return set()
    if isinstance(run, MemoryRun):
        return {key for key, _ in _unpacked(run.data)}.intersection(wanted)
    file = fs.open(f"{folder}/{run.name}", write=False)
    try:
        return _find_in_chunks(file, run, wanted)
    finally:
        file.close()


def _find_in_chunks(file: File, run: FileRun, wanted: list[int]) -> set[int]:
    """A key is in one chunk, unless its entries go over the edge: then it is in both."""
    found: set[int] = set()
    count = -(-run.size // CHUNK_ENTRIES)

    @lru_cache(CHUNKS_KEPT)
    def keys_of(number: int) -> list[int]:
        return [key for key, _ in _unpacked(read_chunk(file, run, number * CHUNK_ENTRIES))]

    low = 0
    for key in wanted:
        high = count - 1
        # The first chunk that ends at the key or above it.
        while low < high:
            middle = (low + high) // 2
            if keys_of(middle)[-1] < key:
                low = middle + 1
            else:
                high = middle
        entries = keys_of(low)
        at = bisect_left(entries, key)
        if at < len(entries) and entries[at] == key:
            found.add(key)
    return found


def open_run(fs: FileSystem, folder: str, digest: bytes, suffix: str = RUN_SUFFIX) -> FileRun:
    """The run of that digest, all of which has been read. Raises ValueError when it is not there or
    not what its name says, OSError when the disk fails."""
    ends: list[int] = []

    def take(chunk: Buffer) -> None:
        ends.extend(ENTRY.unpack_from(chunk, at)[0] for at in (0, len(chunk) - ENTRY.size))

    path = f"{folder}/{digest.hex()}{suffix}"
    count, offset_min, offset_max = _FORM.check(fs, path, digest, take)
    key_min, key_max = (ends[0], ends[-1]) if ends else (0, 0)
    return FileRun(digest, count, offset_min, offset_max, key_min, key_max, suffix)


def write_run(
    fs: FileSystem, folder: str, entries: Iterable[Entry], suffix: str = RUN_SUFFIX
) -> FileRun | None:
    """Write these, which are sorted; None when there are none. Durable on return. One at a time in
    a folder with a suffix; in a worker thread. Raises OSError."""
    packed = _Packed(entries)
    written = _FORM.write(
        fs, folder, suffix, packed.chunks(), lambda: (packed.offset_min, packed.offset_max)
    )
    if written is None:
        return None
    bounds = (packed.offset_min, packed.offset_max, packed.key_min, packed.key_max)
    return FileRun(*written, *bounds, suffix)


class _Packed:
    """Entries, and between what they lie when all chunks have been taken."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = iter(entries)
        self.offset_min, self.offset_max = 1 << 64, 0
        self.key_min, self.key_max = 1 << 64, 0

    def chunks(self) -> Iterator[bytes]:
        while chunk := list(islice(self._entries, CHUNK_ENTRIES)):
            offsets = [offset for _, offset in chunk]
            self.offset_min = min(self.offset_min, *offsets)
            self.offset_max = max(self.offset_max, *offsets)
            self.key_min, self.key_max = min(self.key_min, chunk[0][0]), chunk[-1][0]
            yield b"".join([ENTRY.pack(*entry) for entry in chunk])
