"""What snapshots of folds have in common that keep a part of their state in runs on the disk: files
that are written once, and named by the digest of their content.

    magic, a number of runs for each kind of them
    each of these, kind by kind: its digest, and perhaps more
    what else the fold has
    CRC32C of all of it

Invariants
- The names come first, so that who only wants those reads little (`names_in`).
- What is not whole, or of another version, is a ValueError.

Deliberately absent: what runs are, and whether those that are named are there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from data_plane.log.file_system import FileSystem

_COUNT: Final = struct.Struct(">I")
_CRC: Final = struct.Struct(">I")
CRC_BYTES: Final = _CRC.size


class ManifestForm(NamedTuple):
    """How snapshots of a fold begin. `run_suffixes` are those of its kinds of runs; `item` is what
    stands for a run, beginning with its digest."""

    snapshot_suffix: str
    magic: bytes
    run_suffixes: tuple[str, ...]
    item: struct.Struct

    @property
    def head(self) -> struct.Struct:
        return struct.Struct(f">{len(self.magic)}s{len(self.run_suffixes)}I")

    def encode(self, *kinds: Iterable[tuple[Any, ...]]) -> bytes:
        """The beginning of a snapshot that names these runs, each kind's in its order."""
        items = [[self.item.pack(*one) for one in kind] for kind in kinds]
        head = self.head.pack(self.magic, *map(len, items))
        return head + b"".join(item for kind in items for item in kind)

    def decode(self, data: bytes) -> tuple[list[list[tuple[Any, ...]]], SnapshotReader]:
        """The runs of each kind that a snapshot names, and who reads the rest. Raises
        ValueError."""
        if len(data) < _CRC.size or _CRC.pack(crc32c(data[: -_CRC.size])) != data[-_CRC.size :]:
            raise ValueError("the snapshot is torn: its crc is not that of its bytes")
        if not data.startswith(self.magic):
            raise ValueError("the snapshot is of another version")
        reader = SnapshotReader(data)
        _, *counts = reader.take(self.head)
        return [[reader.take(self.item) for _ in range(count)] for count in counts], reader

    def names_in(self, fs: FileSystem, folder: str) -> set[str]:
        """The names of the run files that snapshots in `folder` refer to. Raises OSError."""
        found: set[str] = set()
        for name in fs.list_directory(folder):
            if name.endswith(self.snapshot_suffix):
                found.update(self._names_in_file(fs, f"{folder}/{name}"))
        return found

    def _names_in_file(self, fs: FileSystem, path: str) -> list[str]:
        try:
            file = fs.open(path, write=False)
        except FileNotFoundError:
            return []
        head, item = self.head, self.item
        try:
            data = bytes(file.read_at(0, head.size))
            if len(data) != head.size or not data.startswith(self.magic):
                # Nobody can restore it.
                return []
            _, *counts = head.unpack(data)
            size = min(sum(counts) * item.size, file.size())
            data = bytes(file.read_at(head.size, size))
        finally:
            file.close()
        digests = [
            one[0].hex() for one in item.iter_unpack(data[: len(data) - len(data) % item.size])
        ]
        kinds = zip(self.run_suffixes, counts, strict=True)
        suffixes = [suffix for suffix, count in kinds for _ in range(count)]
        return [digest + suffix for digest, suffix in zip(digests, suffixes, strict=False)]


def sealed(parts: Iterable[bytes]) -> bytes:
    """A snapshot of these parts, with its checksum."""
    data = b"".join(parts)
    return data + _CRC.pack(crc32c(data))


class SnapshotReader:
    """Of bytes whose checksum was right; what is not there is a ValueError all the same."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, form: struct.Struct) -> tuple[Any, ...]:
        return form.unpack(self.take_bytes(form.size))

    def take_count(self) -> int:
        count: int = self.take(_COUNT)[0]
        return count

    def take_counted(self, item_bytes: int) -> bytes:
        """A count, and that many items."""
        return self.take_bytes(self.take_count() * item_bytes)

    def take_bytes(self, size: int) -> bytes:
        data = self._data[self._position : self._position + size]
        if len(data) != size:
            raise ValueError("the snapshot is too short")
        self._position += size
        return data
