"""Deleted partitions: their folders have another name at once and go later, in a worker thread."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from data_plane.log.file_system import SyncSite
from data_plane.log.lanes import JobStopped, Lane
from data_plane.log.partition_files import PARTITION_PREFIX

if TYPE_CHECKING:
    from uuid import UUID

    from data_plane.log.log_directory import LogDirectory


class PartitionDeletionJob:
    """Makes a partition's deletion durable, then, when it is due, removes the folder."""

    lane = Lane.DELETION

    def __init__(self, directory: LogDirectory, folder: str, due_ms: int) -> None:
        self.directory = directory
        self.folder = folder
        self.due_ms = due_ms
        self.is_renaming_synced = False
        self.is_running = False
        self.is_done = False
        self._is_due = False

    def begin(self, now_ms: int) -> None:
        self.is_running = True
        self._is_due = now_ms >= self.due_ms

    def is_of(self, topic_id: UUID, partition: int) -> bool:
        """Whether it is that partition's deletion."""
        return f"/{topic_id}/{PARTITION_PREFIX}{partition}." in self.folder

    def sync_renaming(self) -> None:
        """From here on no power loss gives the folder its old name back. Raises LogDirFailure."""
        self.directory.check_online()
        if self.is_renaming_synced:
            return
        with self.directory.guarding(), contextlib.suppress(FileNotFoundError):
            topic_folder = os.path.dirname(self.folder)
            self.directory.fs.sync_directory(topic_folder, SyncSite.DELETED_FOLDER)
        self.is_renaming_synced = True

    def run(self) -> None:
        """Raises LogDirFailure."""
        self.sync_renaming()
        if not self._is_due:
            return
        # The next start finds what a stop has left.
        with self.directory.guarding(), contextlib.suppress(JobStopped):
            self._remove_folder()
            self.is_done = True

    def _remove_folder(self) -> None:
        """Unlink everything in it, the folder, and its topic's folder when that is empty."""
        fs = self.directory.fs
        with contextlib.suppress(FileNotFoundError):
            for name in fs.list_directory(self.folder):
                self.directory.stop_sign.look()
                fs.unlink(f"{self.folder}/{name}")
            fs.remove_directory(self.folder)
        with contextlib.suppress(OSError):
            # Other partitions of the topic may still be there.
            fs.remove_directory(os.path.dirname(self.folder))

    def finish(self) -> None:
        self.is_running = False
        if self.directory.failure is not None:
            self.is_done = True
