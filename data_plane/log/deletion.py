"""Removing the folder of a deleted partition, in a worker thread."""

from __future__ import annotations

import contextlib
import os

from data_plane.log.file_system import SyncSite
from data_plane.log.log_directory import LogDirectory


def sync_deletion(directory: LogDirectory, folder: str) -> None:
    """Make the rename durable: a deleted partition does not come back."""
    with contextlib.suppress(FileNotFoundError):
        directory.fs.sync_directory(os.path.dirname(folder), SyncSite.DELETED_FOLDER)


def remove_folder(directory: LogDirectory, folder: str) -> None:
    """Unlink everything in `folder`, the folder, and its topic's folder when that is empty."""
    fs = directory.fs
    with contextlib.suppress(FileNotFoundError):
        for name in fs.list_directory(folder):
            fs.unlink(f"{folder}/{name}")
        fs.remove_directory(folder)
    with contextlib.suppress(OSError):
        # Other partitions of the topic may still be there.
        fs.remove_directory(os.path.dirname(folder))
