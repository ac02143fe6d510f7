"""Snapshots of the ids of a log: a manifest of the runs on the disk, and what is in memory.

    magic, number of runs on the disk
    each of these: digest
    number of groups; of each, and then of what is recent: a count and that many ids, each with
    its length, offset and time
    CRC32C of all of it

Invariants
- What is restored is whole: every run that is named is there, and was read.
- The names come first, so that who only wants those reads little (`runs_named_in`).
"""

from __future__ import annotations

import struct
from typing import Any, Final

from crc32c import crc32c

from data_plane.log.file_system import FileSystem
from features.dedup.id_runs import DIGEST_BYTES, RUN_SUFFIX, open_run
from features.dedup.remembered_ids import FrozenIds, Places, group_of

SNAPSHOT_SUFFIX: Final = ".ids"

_MAGIC: Final = b"TWIDS001"
_HEAD: Final = struct.Struct(">8sI")
_COUNT: Final = struct.Struct(">I")
_ID: Final = struct.Struct(">BQQ")
_CRC: Final = struct.Struct(">I")


def encode(state: FrozenIds) -> bytes:
    parts = [_HEAD.pack(_MAGIC, len(state.runs)), *(run.name_digest for run in state.runs)]
    parts.append(_COUNT.pack(len(state.groups)))
    for places in (*(group.places for group in state.groups), state.recent):
        parts.append(_COUNT.pack(len(places)))
        for message_id, place in places.items():
            parts += (_ID.pack(len(message_id), *place), message_id)
    data = b"".join(parts)
    return data + _CRC.pack(crc32c(data))


def decode(data: bytes, fs: FileSystem, folder: str) -> FrozenIds:
    """Raises ValueError for what is not a whole snapshot, or names a run that is not there."""
    if len(data) < _CRC.size or _CRC.pack(crc32c(data[: -_CRC.size])) != data[-_CRC.size :]:
        raise ValueError("the snapshot is torn: its crc is not that of its bytes")
    reader = _Reader(data)
    magic, named_count = reader.take(_HEAD)
    if magic != _MAGIC:
        raise ValueError("the snapshot is of another version")
    digests = [reader.take_bytes(DIGEST_BYTES) for _ in range(named_count)]
    runs = tuple(open_run(fs, folder, digest) for digest in digests)
    groups_count = reader.take(_COUNT)[0]
    groups = tuple(group_of(reader.take_places()) for _ in range(groups_count))
    return FrozenIds(reader.take_places(), groups, runs)


class _Reader:
    """Of bytes whose checksum was right; what is not there is a ValueError all the same."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, form: struct.Struct) -> tuple[Any, ...]:
        return form.unpack(self.take_bytes(form.size))

    def take_places(self) -> Places:
        places: Places = {}
        for _ in range(self.take(_COUNT)[0]):
            size, offset, time_ms = self.take(_ID)
            places[self.take_bytes(size)] = (offset, time_ms)
        return places

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
