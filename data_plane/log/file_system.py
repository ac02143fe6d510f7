"""The port through which the log room reaches the disk, and its adapter for the real one.

Every call that makes something durable names its `SyncSite`. The names are the registry of all
places where power loss is held at bay: tests/log/test_sync_sites.py makes each of them a no-op in
turn and expects a scenario to notice. `SimFileSystem` (sim_file_system.py) is the second adapter.

Invariants
- A write that raised may have stored any part of its bytes; the caller cuts them off.
- `sync_data` makes a file's bytes and size durable, not its name; `sync_directory` makes names
  durable (creations, renames, removals in that folder), not bytes.
- A file that has ever been mapped is never truncated (the process would die on the lost pages).

Deliberately absent: buffering, caching of descriptors (open_files.py), paths relative to anything.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
from enum import Enum
from typing import Any, Protocol

from data_plane.log.mappings import Mapping, OsMapping
from data_plane.log.read_buffers import POOLED_READ_BYTES_MIN, ReadBuffers

Buffer = bytes | bytearray | memoryview

_READ_BUFFERS = ReadBuffers()


class SyncSite(Enum):
    """All places that sync, each with what would be lost without it."""

    APPEND_DATA = "segment bytes that recovery points vouch for"
    SEGMENT_FOLDER = "names of new segments, checkpoints and snapshots of a partition"
    TOPIC_FOLDER = "the name of a new partition's folder"
    TOPICS_FOLDER = "the name of a new topic's folder"
    DATA_FOLDER = "the name of a new data directory"
    PARTITION_FILE = "partition.json: whose bytes these are"
    OFFSET_INDEX = (
        "a sealed segment's positions: an older file of that name may be whole, and wrong"
    )
    TIME_INDEX = "a sealed segment's largest timestamp"
    TRANSACTION_INDEX = "aborted transactions of a sealed segment"
    SNAPSHOT = "fold state that deleted or compacted segments cannot give back"
    SNAPSHOT_NAMES = "names of snapshots, before a log start relies on them"
    LEADER_EPOCHS = "where leader epochs began, in segments that recovery does not walk"
    LOG_START = "the log start, before the segments below it go"
    LOG_START_FOLDER = "the rename of the log start, before segments and epochs below it go"
    TRUNCATION = "the lowered recovery point of a truncated log"
    TRUNCATION_FOLDER = "the rename of the truncation mark"
    TRUNCATED_DATA = "the end of a truncated segment, before bytes are appended there again"
    COPIED_DATA = "what stays of a truncated segment that was mapped, before it gets its name"
    TRUNCATED_FOLDER = "removal of segments above a truncation"
    RECOVERY_CUT = "the end of a torn segment, before bytes are appended there again"
    RECOVERY_FOLDER = "removal of segments above a torn one"
    FAILED_APPEND_CUT = "the end of a segment after a failed write"
    DIRECTORY_CHECKPOINT = "recovery points: how much recovery has to walk"
    DIRECTORY_CHECKPOINT_FOLDER = "the rename of the recovery points; the folder of all topics"
    STOP_CONTENT = "content of all files at a clean stop, before names stand for it"
    STOP_NAMES = "names of all files at a clean stop, before the mark vouches for them"
    CLEAN_MARK = "the clean-shutdown mark's content"
    CLEAN_MARK_FOLDER = "the clean-shutdown mark's name"
    CLEAN_MARK_REMOVED = "removal of the clean-shutdown mark before the first append"
    COMPACTED_DATA = "bytes of a compacted segment, before the original goes"
    COMPACTED_INDEX = "indexes of a compacted segment, before the recovery point relies on them"
    COMPACTED_INDEX_NAMES = "the indexes' final names, before their segment takes its own"
    COMPACTED_NAMES = "the .cleaned files' new names .swap, before the originals go"
    COMPACTED_SWAP = "the end of a swap, before the next one of the segment begins"
    APPEND_TIME = "when records without timestamps were appended"
    CLEANED_END = "up to where a log is cleaned, before anything cleaned comes into it"
    CLEANED_END_FOLDER = "the rename of that"
    GAPS = "which wide gaps of offsets are no lost files, before a flush relies on it"
    DELETED_FOLDER = "the rename that deletes a partition"
    DAMAGE = "which logs are damaged, before they are filled again"
    DAMAGE_FOLDER = "the rename of that list"
    FOLD_FILE = "a file that snapshots of a feature's fold only name"
    FOLD_FILE_NAME = "the name of such a file, before a snapshot relies on it"


class File(Protocol):
    """An open file. Positions and sizes are bytes."""

    path: str

    @property
    def nowait_supported(self) -> bool:
        """Whether `read_at_nowait` can tell what would block."""

    def size(self) -> int: ...

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of `data`; raises OSError when less was stored."""

    def read_at(self, position: int, size: int) -> Buffer:
        """Up to `size` bytes; fewer only at the end of the file."""

    def read_at_nowait(self, position: int, size: int) -> Buffer | None:
        """Exactly `size` bytes if memory has them, else None (also where that is unknown)."""

    def map(self, size: int) -> Mapping | None:
        """The first `size` bytes; None if impossible."""

    def truncate(self, size: int) -> None: ...

    def reserve(self, position: int, size: int) -> bool:
        """Have the disk find room there, beyond the end, for what will be written: that makes the
        writes cheaper, and nothing else. False where it cannot be had; nothing is wrong then."""

    def give_back_reserved(self) -> None:
        """Let go of what was reserved beyond the end."""

    def close(self) -> None: ...


class FileSystem(Protocol):
    """What the log room asks of an operating system. Paths are absolute strings."""

    def open(self, path: str, *, create: bool = False, write: bool = True) -> File: ...

    def read_file(self, path: str) -> bytes:
        """All bytes; FileNotFoundError when there is no such file."""

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def list_directory(self, path: str) -> list[str]:
        """Names, sorted; FileNotFoundError when there is no such folder."""

    def make_directory(self, path: str) -> bool:
        """Make one folder whose parent exists; False when it was there already."""

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces a file at `target`."""

    def unlink(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty folder."""

    def sync_data(self, file: File, site: SyncSite) -> None: ...

    def sync_directory(self, path: str, site: SyncSite) -> None: ...

    @property
    def can_sync_all(self) -> bool:
        """Whether `sync_all` works here."""

    def sync_all(self, path: str, site: SyncSite) -> None:
        """Make everything in the file system of `path` durable, files and names."""

    def lock(self, path: str) -> File | None:
        """An exclusive lock held until the file is closed; None when another process has it."""

    def boot_id(self) -> str | None:
        """Changes whenever unsynced writes may have been lost; None when that is unknown."""


class OsFile:
    """A descriptor of the real file system."""

    __slots__ = ("_fd", "_nowait_supported", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._nowait_supported = True

    @property
    def nowait_supported(self) -> bool:
        return self._nowait_supported

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def write_at(self, position: int, data: Buffer) -> None:
        written = os.pwrite(self._fd, data, position)
        if written != len(data):
            self._write_rest(position + written, memoryview(data)[written:])

    def _write_rest(self, position: int, data: memoryview) -> None:
        # A short write is a signal or a disk that fills up; the next attempt tells which.
        while data:
            written = os.pwrite(self._fd, data, position)
            if written == 0:
                raise OSError(errno.EIO, "a write stored nothing", self.path)
            position += written
            data = data[written:]

    def read_at(self, position: int, size: int) -> Buffer:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        read = len(data)
        while read < size:
            data = os.pread(self._fd, size - read, position + read)
            if not data:
                break
            parts.append(data)
            read += len(data)
        return b"".join(parts)

    def read_at_nowait(self, position: int, size: int) -> Buffer | None:
        buffer = _READ_BUFFERS.take(size) if size >= POOLED_READ_BYTES_MIN else bytearray(size)
        try:
            read = os.preadv(self._fd, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except (AttributeError, OSError) as error:
            # tmpfs and some older systems refuse the flag: whether it would block is unknown.
            if isinstance(error, OSError) and error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            self._nowait_supported = False
            return None
        return buffer if read == size else None

    def map(self, size: int) -> Mapping | None:
        try:
            return OsMapping(self._fd, size)
        except (OSError, ValueError):
            # Out of mappings or descriptors: reads go through preadv instead.
            return None

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def reserve(self, position: int, size: int) -> bool:
        if _FALLOCATE is None:
            return False
        result: int = _FALLOCATE(self._fd, _FALLOC_FL_KEEP_SIZE, position, size)
        return result == 0

    def give_back_reserved(self) -> None:
        # To the size it has: no page of a mapping is touched.
        os.ftruncate(self._fd, self.size())

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def fileno(self) -> int:
        return self._fd


def _find_syncfs() -> Any | None:
    """Linux's syncfs(2), which the standard library does not have; it reports errors."""
    try:
        return ctypes.CDLL(None, use_errno=True).syncfs
    except (AttributeError, OSError):
        return None


_SYNCFS = _find_syncfs()


def _find_fallocate() -> Any | None:
    """Linux's fallocate(2). The standard library has posix_fallocate, which makes the file grow,
    and writes zeros where the file system cannot reserve."""
    try:
        fallocate = ctypes.CDLL(None).fallocate64
    except (AttributeError, OSError):
        return None
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return fallocate


_FALLOCATE = _find_fallocate()
_FALLOC_FL_KEEP_SIZE = 1


class OsFileSystem:
    """The operating system's files."""

    def open(self, path: str, *, create: bool = False, write: bool = True) -> OsFile:
        flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(path, os.open(path, flags, 0o644))

    def read_file(self, path: str) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        file = OsFile(path, fd)
        try:
            return bytes(file.read_at(0, file.size()))
        finally:
            file.close()

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> bool:
        try:
            os.mkdir(path, 0o755)
        except FileExistsError:
            return False
        return True

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def sync_data(self, file: File, site: SyncSite) -> None:
        assert isinstance(file, OsFile)
        os.fdatasync(file.fileno())

    def sync_directory(self, path: str, site: SyncSite) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    @property
    def can_sync_all(self) -> bool:
        return _SYNCFS is not None

    def sync_all(self, path: str, site: SyncSite) -> None:
        assert _SYNCFS is not None
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _SYNCFS(fd) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), path)
        finally:
            os.close(fd)

    def lock(self, path: str) -> OsFile | None:
        file = self.open(path, create=True)
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file

    def boot_id(self) -> str | None:
        with contextlib.suppress(OSError):
            return self.read_boot_id("/proc/sys/kernel/random/boot_id")
        return None

    @staticmethod
    def read_boot_id(path: str) -> str | None:
        """The kernel's random id of this boot."""
        with open(path, encoding="ascii") as file:
            return file.read().strip() or None
