"""A disk with a page cache, in memory: what power loss, full disks and flipped bits do to a log.

Fault model, in plain words
- Reads see every write at once (the page cache). A process that dies loses nothing of that.
- `power_loss` keeps what was synced. Of a file's unsynced writes each 512-byte sector keeps its own
  choice of versions, so writes are dropped, torn and reordered, within a file and across files;
  the file's size is that after some prefix of the unsynced writes, and bytes nobody stored read as
  zeros. Of a folder's unsynced changes (creations, renames, removals) any may be undone; a rename
  is one change. Syncing a file does not store its name.
- A write may fail after storing any part of its bytes; the disk may be full; a bit may flip.
- A sync that is told to be forgotten (`forgotten_site`) does nothing and says nothing.

What a crash keeps comes from the random generator passed in; the tests print its seed. Shipped with
the room as the double of its port; it copies no behaviour of one real file system but allows what
POSIX allows. Deliberately absent: hard links, permissions, threads.
"""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from dataclasses import dataclass

from data_plane.log.file_system import Buffer, SyncSite
from data_plane.log.mappings import Mapping

SECTOR_BYTES = 512
BIG_CHOICES = ("none", "all", "prefix", "operations", "sectors", "sectors")


class PowerLoss(Exception):
    """The scheduled operation was reached: the machine is off. Call `power_loss` and start over."""


@dataclass(slots=True)
class Fault:
    """The `skip`-th next matching operation fails; a write stores `partial_bytes` first. One that
    lasts fails them all, until somebody takes it away."""

    operation: str
    path_part: str
    error_number: int
    partial_bytes: int = 0
    skip: int = 0
    is_lasting: bool = False


@dataclass(slots=True)
class _Change:
    """An unsynced change of a file: bytes at a position, or a new size when `data` is None."""

    position: int
    data: bytes | None


class _Inode:
    """A file's content: as read now, as synced, and the changes between."""

    __slots__ = ("changes", "content", "mapped", "modified_ms", "synced")

    def __init__(self) -> None:
        self.content = bytearray()
        self.synced = b""
        self.changes: list[_Change] = []
        self.modified_ms = 0
        # (in which life of the process, up to which byte): somebody may still read from there.
        self.mapped = (-1, 0)

    def write(self, position: int, data: bytes) -> None:
        if len(self.content) < position:
            self.content.extend(bytes(position - len(self.content)))
        self.content[position : position + len(data)] = data
        self.changes.append(_Change(position, data))

    def truncate(self, size: int) -> None:
        if size <= len(self.content):
            del self.content[size:]
        else:
            self.content.extend(bytes(size - len(self.content)))
        self.changes.append(_Change(size, None))

    def sync(self) -> None:
        self.synced = bytes(self.content)
        self.changes.clear()

    def lose_power(self, rng: random.Random) -> None:
        if self.changes:
            self.content = bytearray(self._survivors(rng))
        self.sync()

    def _survivors(self, rng: random.Random) -> bytes:
        choice = rng.choice(BIG_CHOICES)
        if choice == "none":
            return self.synced
        if choice == "all":
            return bytes(self.content)
        if choice == "prefix":
            return _applied(self.synced, self.changes[: rng.randrange(len(self.changes) + 1)])
        if choice == "operations":
            return _applied(self.synced, [one for one in self.changes if rng.random() < 0.5])
        return self._torn(rng)

    def _torn(self, rng: random.Random) -> bytes:
        """Each sector on its own keeps one of the versions it had."""
        versions = [self.synced]
        for change in self.changes:
            versions.append(_applied(versions[-1], [change]))
        size = len(rng.choice(versions))
        bias = rng.random()
        out = bytearray()
        for start in range(0, size, SECTOR_BYTES):
            version = versions[-1] if rng.random() < bias else rng.choice(versions)
            sector = version[start : start + SECTOR_BYTES]
            out += sector.ljust(SECTOR_BYTES, b"\0")
        return bytes(out[:size])


def _applied(content: bytes, changes: list[_Change]) -> bytes:
    out = bytearray(content)
    for change in changes:
        if change.data is None:
            if len(out) > change.position:
                del out[change.position :]
            else:
                out.extend(bytes(change.position - len(out)))
            continue
        if len(out) < change.position:
            out.extend(bytes(change.position - len(out)))
        out[change.position : change.position + len(change.data)] = change.data
    return bytes(out)


class _Folder:
    """Names as they are now, as synced, and the changes between (each all or nothing)."""

    __slots__ = ("changes", "entries", "synced")

    def __init__(self) -> None:
        self.entries: dict[str, _Inode | _Folder] = {}
        self.synced: dict[str, _Inode | _Folder] = {}
        self.changes: list[dict[str, _Inode | _Folder | None]] = []

    def change(self, names: dict[str, _Inode | _Folder | None]) -> None:
        self._apply(self.entries, names)
        self.changes.append(names)

    @staticmethod
    def _apply(
        entries: dict[str, _Inode | _Folder], names: dict[str, _Inode | _Folder | None]
    ) -> None:
        for name, node in names.items():
            if node is None:
                entries.pop(name, None)
            else:
                entries[name] = node

    def sync(self) -> None:
        self.synced = dict(self.entries)
        self.changes.clear()

    def sync_tree(self) -> None:
        self.sync()
        for node in self.entries.values():
            if isinstance(node, _Folder):
                node.sync_tree()
            else:
                node.sync()

    def lose_power(self, rng: random.Random) -> None:
        choice = rng.choice(BIG_CHOICES)
        kept = self.changes
        if choice == "none":
            kept = []
        elif choice == "prefix":
            kept = kept[: rng.randrange(len(kept) + 1)]
        elif choice != "all":
            kept = [names for names in kept if rng.random() < 0.5]
        entries = dict(self.synced)
        for names in kept:
            self._apply(entries, names)
        self.entries = entries
        self.sync()
        for node in self.entries.values():
            node.lose_power(rng)


class _SimMapping:
    """The bytes of a file when it was mapped, as nothing that is mapped ever changes."""

    __slots__ = ("_fs", "_view", "size")

    def __init__(self, fs: SimFileSystem, inode: _Inode, size: int) -> None:
        self.size = size
        self._fs = fs
        self._view = memoryview(bytes(inode.content[:size]))

    def view(self, start: int, end: int) -> memoryview:
        return self._view[start:end]

    def is_in_memory(self, start: int, end: int) -> bool:
        return not self._fs.is_cache_cold


class SimFile:
    """An open file of the simulated disk; dead after a crash."""

    __slots__ = ("_fs", "_generation", "inode", "path")

    nowait_supported = True

    def __init__(self, fs: SimFileSystem, path: str, inode: _Inode) -> None:
        self._fs = fs
        self._generation = fs.generation
        self.path = path
        self.inode = inode

    def _check(self) -> None:
        assert self._generation == self._fs.generation, f"{self.path} is open from before a crash"

    def size(self) -> int:
        self._check()
        return len(self.inode.content)

    def write_at(self, position: int, data: Buffer) -> None:
        self._check()
        self._fs.before_change("write", self.path, self.inode, position, bytes(data))
        self.inode.write(position, bytes(data))
        self.inode.modified_ms = self._fs.now_ms

    def read_at(self, position: int, size: int) -> Buffer:
        self._check()
        self._fs.check_fault("read", self.path)
        return bytes(self.inode.content[position : position + size])

    def read_at_nowait(self, position: int, size: int) -> Buffer | None:
        if self._fs.is_cache_cold:
            return None
        data = self.read_at(position, size)
        return data if len(data) == size else None

    def map(self, size: int) -> Mapping | None:
        self._check()
        if not self._fs.maps_files:
            return None
        generation, end = self.inode.mapped
        end = max(end, size) if generation == self._generation else size
        self.inode.mapped = (self._generation, end)
        return _SimMapping(self._fs, self.inode, size)

    def truncate(self, size: int) -> None:
        self._check()
        generation, end = self.inode.mapped
        is_mapped = generation == self._generation and end > size
        assert not is_mapped, f"{self.path} is cut, and was mapped: that kills who reads from there"
        self._fs.before_change("truncate", self.path, self.inode, size, None)
        self.inode.truncate(size)

    def reserve(self, position: int, size: int) -> bool:
        return False

    def give_back_reserved(self) -> None:
        """Nothing was reserved."""

    def close(self) -> None:
        self._fs.locked.discard(self.path)


class SimFileSystem:
    """See the module. `now_ms` stamps files and is set by the test."""

    def __init__(self, *, capacity_bytes: int | None = None, maps_files: bool = False) -> None:
        self.root = _Folder()
        self.generation = 0
        self.boots = 0
        self.now_ms = 0
        self.capacity_bytes = capacity_bytes
        self.maps_files = maps_files
        self.is_cache_cold = False
        self.forgotten_site: SyncSite | None = None
        self.synced_sites: Counter[SyncSite] = Counter()
        self.faults: list[Fault] = []
        self.operations = 0
        # The number of the changing operation before which the power goes.
        self.power_loss_at: int | None = None
        self.locked: set[str] = set()

    # Faults

    def power_loss(self, rng: random.Random) -> None:
        """The machine stops; what was not synced may be gone. Open files are dead."""
        self.process_death()
        self.root.lose_power(rng)
        self.boots += 1

    def process_death(self) -> None:
        """The process is killed; the page cache stays. Open files are dead."""
        self.generation += 1
        self.power_loss_at = None
        self.locked.clear()

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Damage a stored byte."""
        inode = self._file(path)
        inode.content[position] ^= 1 << bit
        synced = bytearray(inode.synced)
        if position < len(synced):
            synced[position] ^= 1 << bit
            inode.synced = bytes(synced)

    def check_fault(self, operation: str, path: str) -> Fault | None:
        """Raise (or for a write return) the fault that is due for this operation."""
        for fault in self.faults:
            if fault.operation != operation or fault.path_part not in path:
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            if not fault.is_lasting:
                self.faults.remove(fault)
            if operation == "write":
                return fault
            raise OSError(fault.error_number, os.strerror(fault.error_number), path)
        return None

    def _count(self) -> None:
        if self.power_loss_at is not None and self.operations >= self.power_loss_at:
            raise PowerLoss
        self.operations += 1

    def before_change(
        self, operation: str, path: str, inode: _Inode, position: int, data: bytes | None
    ) -> None:
        """Faults and the full disk, before a file changes."""
        self._count()
        fault = self.check_fault(operation, path)
        if data is None:
            return
        if fault is not None:
            if fault.partial_bytes:
                inode.write(position, data[: fault.partial_bytes])
            raise OSError(fault.error_number, os.strerror(fault.error_number), path)
        if self.capacity_bytes is not None:
            growth = position + len(data) - len(inode.content)
            room = self.capacity_bytes - self.used_bytes()
            if growth > room:
                inode.write(position, data[: max(0, len(data) - growth + room)])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def used_bytes(self) -> int:
        """Bytes of all files that have a name."""
        total = 0
        folders = [self.root]
        while folders:
            for node in folders.pop().entries.values():
                if isinstance(node, _Folder):
                    folders.append(node)
                else:
                    total += len(node.content)
        return total

    # The port

    def open(self, path: str, *, create: bool = False, write: bool = True) -> SimFile:
        self.check_fault("open", path)
        folder, name = self._parent(path)
        node = folder.entries.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._count()
            self.check_fault("create", path)
            node = _Inode()
            node.modified_ms = self.now_ms
            folder.change({name: node})
        if isinstance(node, _Folder):
            raise IsADirectoryError(errno.EISDIR, "is a folder", path)
        return SimFile(self, path, node)

    def read_file(self, path: str) -> bytes:
        self.check_fault("read", path)
        return bytes(self._file(path).content)

    def synced_content(self, path: str) -> bytes:
        """What a power loss leaves of a file for certain; no part of the port."""
        return self._file(path).synced

    def size(self, path: str) -> int:
        self.check_fault("stat", path)
        return len(self._file(path).content)

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def list_directory(self, path: str) -> list[str]:
        self.check_fault("list", path)
        return sorted(self._folder(path).entries)

    def make_directory(self, path: str) -> bool:
        folder, name = self._parent(path)
        if name in folder.entries:
            return False
        self._count()
        folder.change({name: _Folder()})
        return True

    def rename(self, source: str, target: str) -> None:
        folder, name = self._parent(source)
        target_folder, target_name = self._parent(target)
        assert folder is target_folder, "nothing here moves files between folders"
        node = folder.entries.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self._count()
        self.check_fault("rename", source)
        folder.change({name: None, target_name: node})

    def unlink(self, path: str) -> None:
        folder, name = self._parent(path)
        if not isinstance(folder.entries.get(name), _Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._count()
        self.check_fault("unlink", path)
        folder.change({name: None})

    def remove_directory(self, path: str) -> None:
        folder, name = self._parent(path)
        if self._folder(path).entries:
            raise OSError(errno.ENOTEMPTY, "the folder is not empty", path)
        self._count()
        folder.change({name: None})

    def sync_data(self, file: object, site: SyncSite) -> None:
        assert isinstance(file, SimFile)
        self._count()
        self.check_fault("sync", file.path)
        self.synced_sites[site] += 1
        if site is not self.forgotten_site:
            file.inode.sync()

    def sync_directory(self, path: str, site: SyncSite) -> None:
        folder = self._folder(path)
        self._count()
        self.check_fault("sync", path)
        self.synced_sites[site] += 1
        if site is not self.forgotten_site:
            folder.sync()

    can_sync_all = True

    def sync_all(self, path: str, site: SyncSite) -> None:
        self._count()
        self.check_fault("sync", path)
        self.synced_sites[site] += 1
        if site is not self.forgotten_site:
            self.root.sync_tree()

    def lock(self, path: str) -> SimFile | None:
        if path in self.locked:
            return None
        file = self.open(path, create=True)
        self.locked.add(path)
        return file

    def boot_id(self) -> str | None:
        return f"boot-{self.boots}"

    # Paths

    def _parent(self, path: str) -> tuple[_Folder, str]:
        parent, _, name = path.rpartition("/")
        return self._folder(parent), name

    def _folder(self, path: str) -> _Folder:
        node: _Folder = self.root
        for part in path.split("/"):
            if not part:
                continue
            child = node.entries.get(part)
            if child is None:
                raise FileNotFoundError(errno.ENOENT, "no such folder", path)
            if not isinstance(child, _Folder):
                raise NotADirectoryError(errno.ENOTDIR, "not a folder", path)
            node = child
        return node

    def _file(self, path: str) -> _Inode:
        folder, name = self._parent(path)
        node = folder.entries.get(name)
        if not isinstance(node, _Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node
