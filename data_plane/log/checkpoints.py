"""Small files that are replaced whole: written beside, synced, renamed.

`write_checkpoint` syncs the file before the rename, so that a name never stands for torn bytes;
when the rename itself must last, the caller names the folder's site or syncs the folder with other
renames in one go. Values carry a CRC32C line, so that a file which was not synced on purpose
(`write_unsynced`: lasts through kill -9, not through power loss) is known to be whole or not.
"""

from __future__ import annotations

import json
import os
from typing import Any

from crc32c import crc32c

from data_plane.log.file_system import FileSystem, SyncSite

TEMPORARY_SUFFIX = ".tmp"


def write_checkpoint(
    fs: FileSystem,
    path: str,
    data: bytes,
    file_site: SyncSite,
    folder_site: SyncSite | None = None,
) -> None:
    """Replace the file at `path`; durable on return if `folder_site` is given."""
    temporary = path + TEMPORARY_SUFFIX
    _write(fs, temporary, data, file_site)
    fs.rename(temporary, path)
    if folder_site is not None:
        fs.sync_directory(os.path.dirname(path), folder_site)


def write_unsynced(fs: FileSystem, path: str, data: bytes) -> None:
    """Replace the file at `path` without asking the disk; power loss may tear it."""
    temporary = path + TEMPORARY_SUFFIX
    _write(fs, temporary, data, None)
    fs.rename(temporary, path)


def write_file(fs: FileSystem, path: str, data: bytes, site: SyncSite | None) -> None:
    """Write a file in place that nobody reads yet."""
    _write(fs, path, data, site)


def _write(fs: FileSystem, path: str, data: bytes, site: SyncSite | None) -> None:
    file = fs.open(path, create=True)
    try:
        if file.size() > 0:
            file.truncate(0)
        if data:
            file.write_at(0, data)
        if site is not None:
            fs.sync_data(file, site)
    finally:
        file.close()


def encode_value(value: Any) -> bytes:
    """A JSON value with the CRC32C of its bytes in front."""
    body = json.dumps(value, separators=(",", ":"), sort_keys=True).encode("ascii")
    return b"%08x\n" % crc32c(body) + body + b"\n"


def decode_value(data: bytes) -> Any:
    """The value of a whole file; ValueError for a torn one."""
    head, separator, body = data.partition(b"\n")
    body = body.removesuffix(b"\n")
    if not separator or head != b"%08x" % crc32c(body):
        raise ValueError("the file is torn: its crc is not that of its bytes")
    return json.loads(body)


def read_value(fs: FileSystem, path: str) -> Any | None:
    """The value at `path`; None when the file is missing or torn."""
    try:
        return decode_value(fs.read_file(path))
    except (FileNotFoundError, ValueError):
        return None
