"""Files of runs: sorted entries of one size, written once and never changed, named by the digest of
their content.

    header   magic, count, two numbers of the fold's own, CRC32C of these
    chunk    512 entries (the last one fewer), CRC32C of these
    …

The same entries have the same name, whoever writes them, and a name never stands for others than it
did.

Invariants
- A file with a run's name is whole and durable: it is written under another name, synced, renamed,
  and the folder is synced.
- Damage is found: when a run is opened all of it is read (`check`), and each chunk is checked again
  whenever it is read.

Deliberately absent: what entries are, which runs there are, and who removes their files.
"""

from __future__ import annotations

import errno
import hashlib
import struct
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from crc32c import crc32c

from data_plane.log.file_system import Buffer, File, FileSystem, SyncSite

DIGEST_BYTES: Final = 16
CHUNK_ENTRIES: Final = 512

_HEADER: Final = struct.Struct(">8sQQQ")
_CRC: Final = struct.Struct(">I")
_HEADER_BYTES: Final = _HEADER.size + _CRC.size


class RunForm(NamedTuple):
    """How runs of a kind are stored: their version, in eight bytes, and how an entry is packed."""

    magic: bytes
    entry: struct.Struct

    def read_chunk(self, file: File, count: int, first: int) -> Buffer:
        """The entries, packed, of the chunk that begins with the `first`-th of `count`. Raises
        OSError, also for what is damaged."""
        size = min(CHUNK_ENTRIES, count - first) * self.entry.size
        chunk_bytes = CHUNK_ENTRIES * self.entry.size + _CRC.size
        position = _HEADER_BYTES + first // CHUNK_ENTRIES * chunk_bytes
        data = memoryview(file.read_at(position, size + _CRC.size))
        if len(data) != size + _CRC.size or _CRC.unpack_from(data, size)[0] != crc32c(data[:size]):
            raise OSError(errno.EIO, f"the chunk at byte {position} is damaged", file.path)
        return data[:size]

    def check(
        self, fs: FileSystem, path: str, digest: bytes, take: Callable[[Buffer], None]
    ) -> tuple[int, int, int]:
        """Read all of the run at `path`, whose name says `digest`: each chunk goes to `take`, in
        order. Its count, and the two numbers. Raises ValueError when it is not there or not what
        its name says, OSError when the disk fails."""
        try:
            file = fs.open(path, write=False)
        except FileNotFoundError as error:
            raise ValueError(f"there is no {path}") from error
        try:
            header = bytes(file.read_at(0, _HEADER_BYTES))
            if len(header) != _HEADER_BYTES or header[_HEADER.size :] != _crc_of(header):
                raise ValueError(f"the header of {path} is damaged")
            magic, count, one, other = _HEADER.unpack_from(header)
            if magic != self.magic:
                raise ValueError(f"{path} is of another version")
            found = hashlib.sha256()
            for first in range(0, count, CHUNK_ENTRIES):
                try:
                    chunk = self.read_chunk(file, count, first)
                except OSError as error:
                    if error.errno != errno.EIO:
                        raise
                    raise ValueError(str(error)) from error
                found.update(chunk)
                take(chunk)
            if found.digest()[:DIGEST_BYTES] != digest:
                raise ValueError(f"{path} has other entries than its name says")
            return count, one, other
        finally:
            file.close()

    def write(
        self,
        fs: FileSystem,
        folder: str,
        suffix: str,
        chunks: Iterable[bytes],
        numbers: Callable[[], tuple[int, int]],
    ) -> tuple[bytes, int] | None:
        """Write these entries, packed, in chunks of CHUNK_ENTRIES, and then what `numbers` says.
        The digest and the count; None when there are none. Durable on return. One at a time in a
        folder with a suffix; in a worker thread. Raises OSError."""
        unfinished = f"{folder}/unfinished{suffix}.tmp"
        file = fs.open(unfinished, create=True)
        try:
            if file.size():
                file.truncate(0)
            found, position, count = hashlib.sha256(), _HEADER_BYTES, 0
            for chunk in chunks:
                data = chunk + _CRC.pack(crc32c(chunk))
                file.write_at(position, data)
                found.update(chunk)
                position += len(data)
                count += len(chunk) // self.entry.size
            if not count:
                fs.unlink(unfinished)
                return None
            header = _HEADER.pack(self.magic, count, *numbers())
            file.write_at(0, header + _crc_of(header))
            fs.sync_data(file, SyncSite.FOLD_FILE)
        finally:
            file.close()
        digest = found.digest()[:DIGEST_BYTES]
        fs.rename(unfinished, f"{folder}/{digest.hex()}{suffix}")
        fs.sync_directory(folder, SyncSite.FOLD_FILE_NAME)
        return digest, count


def _crc_of(header: bytes) -> bytes:
    return _CRC.pack(crc32c(header[: _HEADER.size]))
