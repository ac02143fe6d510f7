"""Making a log durable: a job whose slow part runs in a worker thread.

    on the loop: FlushJob(log) notes what there is now    thread: run()    on the loop: finish()

`run` syncs, in this order, segment data, the files that sealing left, the leader epochs, the log
start, then the folders that hold their names. Only `finish` moves the recovery point. A caller
that commits groups starts the next job of a disk when the last one is done; the directory's lock
keeps others out. A failed sync takes the directory offline: the kernel may have dropped the dirty
pages, and trying again would report success for bytes that are gone.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from data_plane.log import loading
from data_plane.log.checkpoints import encode_value, write_checkpoint
from data_plane.log.file_system import File, SyncSite
from data_plane.log.segment import Segment

if TYPE_CHECKING:
    from data_plane.log.log import Log


class FlushJob:
    """Makes durable what `log` holds at this moment."""

    __slots__ = (
        "_epochs",
        "_files",
        "_folder_dirty",
        "_log_start",
        "_parents_dirty",
        "_segments",
        "log",
        "target_offset",
    )

    def __init__(self, log: Log) -> None:
        self.log = log
        self.target_offset = log.log_end_offset
        self._segments: list[tuple[Segment, File]] = []
        if log.is_loaded:
            for segment in reversed(log.segments):
                if segment.next_offset <= log.recovery_point:
                    break
                self._segments.append((segment, segment.open_file()))
                segment.pins += 1
        self._files = log.unsynced
        self._epochs = log.epochs.encode() if log.epochs.dirty else None
        self._log_start = log.log_start_offset if log.log_start_dirty else None
        self._folder_dirty = log.folder_dirty
        self._parents_dirty = log.parents_dirty
        # What comes from here on is the next job's. A failure takes the directory offline, so
        # nothing is forgotten by clearing this before the sync.
        log.unsynced = None
        log.epochs.dirty = False
        log.log_start_dirty = False
        log.folder_dirty = False
        log.parents_dirty = False
        log.unflushed_since_ms = -1

    def run(self) -> None:
        """Sync; in a worker thread. Raises LogDirFailure."""
        directory = self.log.log_directory
        directory.check_online()
        try:
            with directory.sync_lock:
                self._sync()
        except OSError as error:
            raise directory.fail(error) from error

    def _sync(self) -> None:
        log = self.log
        fs = log.log_directory.fs
        for segment, file in self._segments:
            if not segment.retired:
                fs.sync_data(file, SyncSite.APPEND_DATA)
        for path, site in self._files or ():
            sync_file(log, path, site)
        folder_dirty = self._folder_dirty
        if self._epochs is not None:
            path = f"{log.folder}/{loading.LEADER_EPOCHS_FILE}"
            write_checkpoint(fs, path, self._epochs, SyncSite.LEADER_EPOCHS)
            folder_dirty = True
        if self._log_start is not None:
            path = f"{log.folder}/{loading.LOG_START_FILE}"
            write_checkpoint(fs, path, encode_value(self._log_start), SyncSite.LOG_START)
            folder_dirty = True
        if self._parents_dirty:
            path = f"{log.folder}/{loading.PARTITION_FILE}"
            sync_file(log, path, SyncSite.PARTITION_FILE)
        if folder_dirty:
            fs.sync_directory(log.folder, SyncSite.SEGMENT_FOLDER)
        if self._parents_dirty:
            topic_folder = os.path.dirname(log.folder)
            fs.sync_directory(topic_folder, SyncSite.TOPIC_FOLDER)
            fs.sync_directory(os.path.dirname(topic_folder), SyncSite.TOPICS_FOLDER)

    def finish(self) -> None:
        """Move the recovery point; on the loop, also after a failed `run`."""
        log = self.log
        for segment, _ in self._segments:
            segment.pins -= 1
        if log.log_directory.failure is None:
            # A truncation may have come in between.
            target = min(self.target_offset, log.log_end_offset)
            log.recovery_point = max(log.recovery_point, target)


def sync_file(log: Log, path: str, site: SyncSite) -> None:
    """Sync a small file by name; one that is gone needs none."""
    fs = log.log_directory.fs
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return
    try:
        fs.sync_data(file, site)
    finally:
        file.close()
