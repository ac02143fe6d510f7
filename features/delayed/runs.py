"""Runs: pairs of numbers, sorted, written once and never changed: (due, offset) of what is pending
and far, or another fold's, under a suffix of its own.

    header   magic, count, lowest and highest offset, CRC32C of these
    chunk    512 entries of 16 bytes (the last one fewer), CRC32C of these
    …

A run's name is the digest of its entries. So the same entries have the same name, whoever writes
them, and a name never stands for others than it did.

Invariants
- A file with a run's name is whole and durable: it is written under another name, synced, renamed,
  and the folder is synced.
- Damage is found: when a run is opened all of it is read (`open_run`), and each chunk is checked
  again whenever it is read.

Deliberately absent: which runs there are (pending_set.py), and who removes their files.
"""

from __future__ import annotations

import errno
import hashlib
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from data_plane.log.file_system import Buffer, File, FileSystem, SyncSite

# (due in ms, offset).
Entry = tuple[int, int]

RUN_SUFFIX: Final = ".delayed-run"
DIGEST_BYTES: Final = 16
ENTRY: Final = struct.Struct(">QQ")
CHUNK_ENTRIES: Final = 512
# Of those that are searched, in memory.
CHUNKS_KEPT: Final = 64

_MAGIC: Final = b"TWDELAY1"
_HEADER: Final = struct.Struct(">8sQQQ")
_CRC: Final = struct.Struct(">I")
_HEADER_BYTES: Final = _HEADER.size + _CRC.size
_CHUNK_BYTES: Final = CHUNK_ENTRIES * ENTRY.size + _CRC.size


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
    size = min(CHUNK_ENTRIES, run.size - first) * ENTRY.size
    position = _HEADER_BYTES + first // CHUNK_ENTRIES * _CHUNK_BYTES
    data = memoryview(file.read_at(position, size + _CRC.size))
    if len(data) != size + _CRC.size or _CRC.unpack_from(data, size)[0] != crc32c(data[:size]):
        raise OSError(errno.EIO, f"the chunk at byte {position} is damaged", file.path)
    return data[:size]


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
    path = f"{folder}/{digest.hex()}{suffix}"
    try:
        file = fs.open(path, write=False)
    except FileNotFoundError as error:
        raise ValueError(f"there is no {path}") from error
    try:
        header = bytes(file.read_at(0, _HEADER_BYTES))
        if len(header) != _HEADER_BYTES or header[_HEADER.size :] != _crc_of(header):
            raise ValueError(f"the header of {path} is damaged")
        magic, count, offset_min, offset_max = _HEADER.unpack_from(header)
        if magic != _MAGIC:
            raise ValueError(f"{path} is of another version")
        run = FileRun(digest, count, offset_min, offset_max, 0, 0, suffix)
        found = hashlib.sha256()
        for first in range(0, count, CHUNK_ENTRIES):
            try:
                chunk = read_chunk(file, run, first)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                raise ValueError(str(error)) from error
            found.update(chunk)
            key_max, _ = ENTRY.unpack_from(chunk, len(chunk) - ENTRY.size)
            key_min = run.key_min if first else ENTRY.unpack_from(chunk)[0]
            run = run._replace(key_min=key_min, key_max=key_max)
        if found.digest()[:DIGEST_BYTES] != digest:
            raise ValueError(f"{path} has other entries than its name says")
        return run
    finally:
        file.close()


def _crc_of(header: bytes) -> bytes:
    return _CRC.pack(crc32c(header[: _HEADER.size]))


def write_run(
    fs: FileSystem, folder: str, entries: Iterator[Entry], suffix: str = RUN_SUFFIX
) -> FileRun | None:
    """Write these, which are sorted; None when there are none. Durable on return. One at a time in
    a folder with a suffix; in a worker thread. Raises OSError."""
    unfinished = f"{folder}/unfinished{suffix}.tmp"
    file = fs.open(unfinished, create=True)
    try:
        if file.size():
            file.truncate(0)
        run = _write_entries(file, entries, suffix)
        if run is None:
            fs.unlink(unfinished)
            return None
        header = _HEADER.pack(_MAGIC, run.size, run.offset_min, run.offset_max)
        file.write_at(0, header + _crc_of(header))
        fs.sync_data(file, SyncSite.FOLD_FILE)
    finally:
        file.close()
    fs.rename(unfinished, f"{folder}/{run.name}")
    fs.sync_directory(folder, SyncSite.FOLD_FILE_NAME)
    return run


def _write_entries(file: File, entries: Iterator[Entry], suffix: str) -> FileRun | None:
    digest = hashlib.sha256()
    position, count = _HEADER_BYTES, 0
    offset_min, offset_max = 0, 0
    key_min, key_max = 0, 0
    chunk = bytearray()
    for key, offset in entries:
        chunk += ENTRY.pack(key, offset)
        key_min, key_max = key_min if count else key, key
        offset_min = min(offset, offset_min) if count else offset
        offset_max = max(offset, offset_max)
        count += 1
        if count % CHUNK_ENTRIES == 0:
            position = _write_chunk(file, position, chunk)
            digest.update(chunk)
            chunk = bytearray()
    if not count:
        return None
    if chunk:
        _write_chunk(file, position, chunk)
        digest.update(chunk)
    name = digest.digest()[:DIGEST_BYTES]
    return FileRun(name, count, offset_min, offset_max, key_min, key_max, suffix)


def _write_chunk(file: File, position: int, chunk: bytearray) -> int:
    data = chunk + _CRC.pack(crc32c(chunk))
    file.write_at(position, data)
    return position + len(data)
