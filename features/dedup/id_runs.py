"""Runs of message ids: sorted, written once and never changed, as those of delayed messages.

    header   magic, count, lowest offset, newest time, CRC32C of these
    chunk    512 entries of 32 bytes (the last one fewer), CRC32C of these
    …

An entry is (digest of the id, offset, time). Of each the first four bytes of the digest are in
memory, in the order of the file. So what a run does not have is known without the disk, but for one
in four thousand million for each id that it has; and what it has is found by one read.

Invariants
- A file with a run's name is whole and durable: it is written under another name, synced, renamed,
  and the folder is synced. The name is the digest of all entries.
- Damage is found: when a run is opened all of it is read, and each chunk is checked again whenever
  it is read.
- Two ids have the same digest (BLAKE2b, 128 bits) for nobody who has not made 2^64 of them.

Deliberately absent: which runs there are (remembered_ids.py).
"""

from __future__ import annotations

import errno
import hashlib
import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from data_plane.log.file_system import Buffer, File, FileSystem, SyncSite

# (digest of the id, offset, time in ms).
IdEntry = tuple[bytes, int, int]

RUN_SUFFIX: Final = ".ids-run"
DIGEST_BYTES: Final = 16
ENTRY: Final = struct.Struct(f">{DIGEST_BYTES}sQQ")
CHUNK_ENTRIES: Final = 512

_MAGIC: Final = b"TWIDRUN1"
_HEADER: Final = struct.Struct(">8sQQQ")
_CRC: Final = struct.Struct(">I")
_HEADER_BYTES: Final = _HEADER.size + _CRC.size
_CHUNK_BYTES: Final = CHUNK_ENTRIES * ENTRY.size + _CRC.size
_PREFIX_BYTES: Final = 4


def digest_of(message_id: bytes) -> bytes:
    """What stands for an id on the disk."""
    return hashlib.blake2b(message_id, digest_size=DIGEST_BYTES).digest()


class IdRun(NamedTuple):
    """A run on the disk. `prefixes` are those of its digests, as they are sorted; no offset is
    below `offset_min`, no time above `time_max`."""

    name_digest: bytes
    size: int
    offset_min: int
    offset_max: int
    time_max: int
    prefixes: array[int]

    @property
    def name(self) -> str:
        return self.name_digest.hex() + RUN_SUFFIX


def entries_of(fs: FileSystem, folder: str, run: IdRun) -> Iterator[IdEntry]:
    """In a worker thread. Raises OSError, also for what is damaged."""
    file = fs.open(f"{folder}/{run.name}", write=False)
    try:
        for first in range(0, run.size, CHUNK_ENTRIES):
            yield from _unpacked(_read_chunk(file, run.size, first))
    finally:
        file.close()


def _unpacked(data: Buffer) -> Iterator[IdEntry]:
    entries: Iterator[Any] = ENTRY.iter_unpack(data)
    return entries


def _read_chunk(file: File, count: int, first: int) -> Buffer:
    size = min(CHUNK_ENTRIES, count - first) * ENTRY.size
    position = _HEADER_BYTES + first // CHUNK_ENTRIES * _CHUNK_BYTES
    data = memoryview(file.read_at(position, size + _CRC.size))
    if len(data) != size + _CRC.size or _CRC.unpack_from(data, size)[0] != crc32c(data[:size]):
        raise OSError(errno.EIO, f"the chunk at byte {position} is damaged", file.path)
    return data[:size]


def find_in_run(
    fs: FileSystem, folder: str, run: IdRun, digests: Iterable[bytes]
) -> dict[bytes, tuple[int, int]]:
    """(offset, time) of those that the run has, by digest. The file is opened only where the
    prefix is there. In a worker thread; raises OSError, also for what is damaged."""
    prefixes, size = run.prefixes, run.size
    candidates = []
    for digest in digests:
        prefix = int.from_bytes(digest[:_PREFIX_BYTES], "big")
        at = bisect_left(prefixes, prefix)
        if at < size and prefixes[at] == prefix:
            candidates.append((digest, at))
    if not candidates:
        return {}
    candidates.sort()
    found: dict[bytes, tuple[int, int]] = {}
    file = fs.open(f"{folder}/{run.name}", write=False)
    try:
        for digest, at in candidates:
            place = _place_in(file, run, digest, at)
            if place is not None:
                found[digest] = place
    finally:
        file.close()
    return found


def _place_in(file: File, run: IdRun, digest: bytes, at: int) -> tuple[int, int] | None:
    """Of one whose prefix is first found at the entry `at`."""
    while True:
        first = at - at % CHUNK_ENTRIES
        chunk = _read_chunk(file, run.size, first)
        for position in range((at - first) * ENTRY.size, len(chunk), ENTRY.size):
            other, offset, time_ms = ENTRY.unpack_from(chunk, position)
            if other == digest:
                return offset, time_ms
            if other > digest:
                return None
        at = first + CHUNK_ENTRIES
        if at >= run.size:
            return None


def open_run(fs: FileSystem, folder: str, name_digest: bytes) -> IdRun:
    """The run of that name, all of which has been read. Raises ValueError when it is not there or
    not what its name says, OSError when the disk fails."""
    path = f"{folder}/{name_digest.hex()}{RUN_SUFFIX}"
    try:
        file = fs.open(path, write=False)
    except FileNotFoundError as error:
        raise ValueError(f"there is no {path}") from error
    try:
        header = bytes(file.read_at(0, _HEADER_BYTES))
        if len(header) != _HEADER_BYTES or header[_HEADER.size :] != _crc_of(header):
            raise ValueError(f"the header of {path} is damaged")
        magic, count, offset_min, time_max = _HEADER.unpack_from(header)
        if magic != _MAGIC:
            raise ValueError(f"{path} is of another version")
        found, prefixes, offset_max = hashlib.sha256(), array("I"), 0
        for first in range(0, count, CHUNK_ENTRIES):
            try:
                chunk = _read_chunk(file, count, first)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                raise ValueError(str(error)) from error
            found.update(chunk)
            prefixes.extend(_prefixes_of(chunk))
            offset_max = max(offset_max, *(offset for _, offset, _ in _unpacked(chunk)))
        if found.digest()[:DIGEST_BYTES] != name_digest:
            raise ValueError(f"{path} has other entries than its name says")
        return IdRun(name_digest, count, offset_min, offset_max, time_max, prefixes)
    finally:
        file.close()


def _prefixes_of(data: Buffer) -> array[int]:
    packed = bytearray(len(data) // ENTRY.size * _PREFIX_BYTES)
    for number in range(_PREFIX_BYTES):
        packed[number::_PREFIX_BYTES] = bytes(data[number :: ENTRY.size])
    prefixes = array("I", bytes(packed))
    if sys.byteorder == "little":
        prefixes.byteswap()
    return prefixes


def _crc_of(header: bytes) -> bytes:
    return _CRC.pack(crc32c(header[: _HEADER.size]))


def write_run(fs: FileSystem, folder: str, entries: Iterable[IdEntry]) -> IdRun | None:
    """Write these, which are sorted, each digest once; None when there are none. Durable on return.
    One at a time in a folder; in a worker thread. Raises OSError."""
    unfinished = f"{folder}/unfinished{RUN_SUFFIX}.tmp"
    file = fs.open(unfinished, create=True)
    try:
        if file.size():
            file.truncate(0)
        run = _write_entries(file, entries)
        if run is None:
            fs.unlink(unfinished)
            return None
        header = _HEADER.pack(_MAGIC, run.size, run.offset_min, run.time_max)
        file.write_at(0, header + _crc_of(header))
        fs.sync_data(file, SyncSite.FOLD_FILE)
    finally:
        file.close()
    fs.rename(unfinished, f"{folder}/{run.name}")
    fs.sync_directory(folder, SyncSite.FOLD_FILE_NAME)
    return run


def _write_entries(file: File, entries: Iterable[IdEntry]) -> IdRun | None:
    name_digest, prefixes = hashlib.sha256(), array("I")
    position, count = _HEADER_BYTES, 0
    offset_min, offset_max, time_max = 1 << 63, 0, 0
    chunk = bytearray()
    for entry in entries:
        chunk += ENTRY.pack(*entry)
        _, offset, time_ms = entry
        offset_min, offset_max = min(offset, offset_min), max(offset, offset_max)
        time_max = max(time_ms, time_max)
        count += 1
        if count % CHUNK_ENTRIES == 0:
            position = _write_chunk(file, position, chunk)
            name_digest.update(chunk)
            prefixes.extend(_prefixes_of(chunk))
            chunk = bytearray()
    if chunk:
        _write_chunk(file, position, chunk)
        name_digest.update(chunk)
        prefixes.extend(_prefixes_of(chunk))
    if not count:
        return None
    name = name_digest.digest()[:DIGEST_BYTES]
    return IdRun(name, count, offset_min, offset_max, time_max, prefixes)


def _write_chunk(file: File, position: int, chunk: bytearray) -> int:
    data = chunk + _CRC.pack(crc32c(chunk))
    file.write_at(position, data)
    return position + len(data)
