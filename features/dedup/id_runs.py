"""Runs of message ids (run_files.py).

An entry is (digest of the id, offset, time); the header's numbers are the lowest offset and the
newest time. Of each entry the first four bytes of the digest are in memory, in the order of the
file. So what a run does not have is known without the disk, but for one in four thousand million
for each id that it has; and what it has is found by one read.

Invariants
- Two ids have the same digest (BLAKE2b, 128 bits) for nobody who has not made 2^64 of them.

Deliberately absent: which runs there are (remembered_ids.py).
"""

from __future__ import annotations

import hashlib
import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from data_plane.log.file_system import Buffer, File, FileSystem
from features.run_files import CHUNK_ENTRIES, DIGEST_BYTES, RunForm

# (digest of the id, offset, time in ms).
IdEntry = tuple[bytes, int, int]

RUN_SUFFIX: Final = ".ids-run"
ENTRY: Final = struct.Struct(f">{DIGEST_BYTES}sQQ")

_FORM: Final = RunForm(b"TWIDRUN1", ENTRY)
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
            yield from _unpacked(_FORM.read_chunk(file, run.size, first))
    finally:
        file.close()


def _unpacked(data: Buffer) -> Iterator[IdEntry]:
    entries: Iterator[Any] = ENTRY.iter_unpack(data)
    return entries


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
        chunk = _FORM.read_chunk(file, run.size, first)
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
    prefixes, offsets_max = array("I"), [0]

    def take(chunk: Buffer) -> None:
        prefixes.extend(_prefixes_of(chunk))
        offsets_max.append(max(offset for _, offset, _ in _unpacked(chunk)))

    path = f"{folder}/{name_digest.hex()}{RUN_SUFFIX}"
    count, offset_min, time_max = _FORM.check(fs, path, name_digest, take)
    return IdRun(name_digest, count, offset_min, max(offsets_max), time_max, prefixes)


def _prefixes_of(data: Buffer) -> array[int]:
    packed = bytearray(len(data) // ENTRY.size * _PREFIX_BYTES)
    for number in range(_PREFIX_BYTES):
        packed[number::_PREFIX_BYTES] = bytes(data[number :: ENTRY.size])
    prefixes = array("I", bytes(packed))
    if sys.byteorder == "little":
        prefixes.byteswap()
    return prefixes


def write_run(fs: FileSystem, folder: str, entries: Iterable[IdEntry]) -> IdRun | None:
    """Write these, which are sorted, each digest once; None when there are none. Durable on return.
    One at a time in a folder; in a worker thread. Raises OSError."""
    packed = _Packed(entries)
    written = _FORM.write(
        fs, folder, RUN_SUFFIX, packed.chunks(), lambda: (packed.offset_min, packed.time_max)
    )
    if written is None:
        return None
    bounds = (packed.offset_min, packed.offset_max, packed.time_max)
    return IdRun(*written, *bounds, packed.prefixes)


class _Packed:
    """Entries, and what an `IdRun` says of them when all chunks have been taken."""

    def __init__(self, entries: Iterable[IdEntry]) -> None:
        self._entries = iter(entries)
        self.offset_min, self.offset_max, self.time_max = 1 << 63, 0, 0
        self.prefixes = array("I")

    def chunks(self) -> Iterator[bytes]:
        while chunk := list(islice(self._entries, CHUNK_ENTRIES)):
            offsets = [offset for _, offset, _ in chunk]
            self.offset_min = min(self.offset_min, *offsets)
            self.offset_max = max(self.offset_max, *offsets)
            self.time_max = max(self.time_max, *(time_ms for _, _, time_ms in chunk))
            packed = b"".join([ENTRY.pack(*entry) for entry in chunk])
            self.prefixes.extend(_prefixes_of(packed))
            yield packed
