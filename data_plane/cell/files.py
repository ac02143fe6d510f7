"""What the cell room asks of a file system, and the places where it syncs.

The Protocol is the part of the log room's file-system port that metadata needs, stated here so
that cell does not import log; `OsFileSystem` and the fault-injecting `SimFileSystem` both fit.

`write_file_atomically` is the one way in which small files are replaced: temporary file, sync,
rename, sync of the folder. A crash leaves the old file or the new one, never a mixture.
"""

from __future__ import annotations

import contextlib
import posixpath
from enum import Enum
from typing import Any, Protocol

TEMPORARY_SUFFIX = ".tmp"


class CellSyncSite(Enum):
    """All places of this room that sync, each with what would be lost without it."""

    DATA_FOLDER = "the name of a data folder and of the folders above it"
    IDENTITY = "meta.properties: whose data this is"
    IDENTITY_FOLDER = "the name of meta.properties"
    METADATA_FOLDER = "the name of the metadata folder"
    JOURNAL_APPEND = "a commit that is about to be acknowledged"
    JOURNAL_CUT = "the end of a torn journal, before a commit is appended there"
    SNAPSHOT = "the image that a journal continues from"
    SNAPSHOT_FOLDER = "the names of a new snapshot and its journal, before the old ones go"
    IMAGE = "what a broker starts from while the store is down"
    IMAGE_FOLDER = "the name of the image file"
    PRODUCER_IDS = "ids that the next life may give out while the store is down"
    PRODUCER_IDS_FOLDER = "the name of that file"
    PRODUCER_IDS_TAKEN = "that it is gone, before one of its ids is given out"


class File(Protocol):
    def size(self) -> int: ...
    def write_at(self, position: int, data: Any) -> None: ...
    def truncate(self, size: int) -> None: ...
    def close(self) -> None: ...


class FileSystem(Protocol):
    """Paths are absolute strings."""

    def open(self, path: str, *, create: bool = False, write: bool = True) -> Any: ...
    def read_file(self, path: str) -> bytes: ...
    def list_directory(self, path: str) -> list[str]: ...
    def make_directory(self, path: str) -> bool: ...
    def rename(self, source: str, target: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def sync_data(self, file: Any, site: Any) -> None: ...
    def sync_directory(self, path: str, site: Any) -> None: ...
    def lock(self, path: str) -> Any: ...


def make_directories(fs: FileSystem, path: str) -> None:
    """Make a folder and what is missing above it, durably. Raises OSError."""
    missing = []
    while True:
        try:
            fs.list_directory(path)
        except FileNotFoundError:
            missing.append(path)
            path = posixpath.dirname(path)
        else:
            break
    for folder in reversed(missing):
        fs.make_directory(folder)
        fs.sync_directory(posixpath.dirname(folder), CellSyncSite.DATA_FOLDER)


def write_file_atomically(
    fs: FileSystem,
    directory: str,
    name: str,
    data: bytes,
    *,
    data_site: CellSyncSite,
    folder_site: CellSyncSite,
) -> None:
    """Replace `directory/name` by `data`, durably. Raises OSError; the old file then stays."""
    temporary = f"{directory}/{name}{TEMPORARY_SUFFIX}"
    with contextlib.suppress(FileNotFoundError):
        fs.unlink(temporary)
    file = fs.open(temporary, create=True)
    try:
        file.write_at(0, data)
        fs.sync_data(file, data_site)
    finally:
        file.close()
    fs.rename(temporary, f"{directory}/{name}")
    fs.sync_directory(directory, folder_site)
