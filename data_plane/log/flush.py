"""Making a log durable: a job whose slow part runs in a worker thread.

    on the loop: FlushJob(log) notes what there is now    thread: run()    on the loop: finish()

`run` writes the snapshots that a roll has held, and then syncs, in this order, segment data, the
files that sealing left, the leader epochs, the log start, the folders that hold their names. Only
`finish` moves the recovery point. A caller that commits groups starts the next job of a disk when
the last one is done; the directory's lock keeps others out. A failed sync takes the directory
offline: the kernel may have dropped the dirty pages, and trying again would report success for
bytes that are gone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from data_plane.log import disk_start
from data_plane.log.checkpoints import TEMPORARY_SUFFIX, write_checkpoint, write_file
from data_plane.log.file_system import File, SyncSite
from data_plane.log.fold_snapshots import forget_written
from data_plane.log.log_directory import LogDirectory
from data_plane.log.log_state import LogState
from data_plane.log.partition_files import (
    LEADER_EPOCHS_FILE,
    PARTITION_FILE,
    forget_unsynced_log_start,
    write_log_start,
)
from data_plane.log.segment import Segment
from data_plane.log.unflushed import Dirty


class FlushJob:
    """Makes durable what `log` holds at this moment."""

    __slots__ = (
        "_begun_anew_count",
        "_disk_start_offset",
        "_dropped",
        "_is_done",
        "_log_start_offset",
        "_segments",
        "_snapshots",
        "files",
        "flags",
        "log",
        "target_offset",
    )

    def __init__(self, log: LogState) -> None:
        self.log = log
        self.target_offset = log.log_end_offset
        # With the descriptor where there is one. There may be more segments than may be open.
        self._segments: list[tuple[Segment, File | None]] = []
        if log.is_loaded:
            for segment in reversed(log.segments):
                if segment.next_offset <= log.recovery_point:
                    break
                if segment.file is not None:
                    segment.pins += 1
                self._segments.append((segment, segment.file))
        # What retention has dropped since the last flush: it alone may say which leader epoch the
        # log is in, where the file of the epochs is older than the log start (recovery.py).
        self._dropped = [
            segment
            for segment, _ in log.pending_deletion or ()
            if segment.next_offset > log.recovery_point
        ]
        # All that are still to be written, whichever job writes them.
        self._snapshots = log.pending_snapshots
        self.files = log.unsynced or []
        self.flags = log.dirty
        for earlier in log.flushes:
            # Nobody knows which of the two runs first, and each one moves the recovery point.
            self.files = [*earlier.files, *self.files]
            self.flags |= earlier.flags
        self._begun_anew_count = log.begun_anew_count
        self._log_start_offset = log.log_start_offset
        self._disk_start_offset = log.log_start_offset
        if Dirty.LOG_START in self.flags:
            self._disk_start_offset = disk_start.start_for(log, log.log_start_offset)
        self._is_done = False
        log.flushes.append(self)
        # What comes from here on is the next job's. A failure takes the directory offline, so
        # nothing is forgotten by clearing this before the sync.
        log.unsynced = None
        log.dirty = Dirty.NOTHING
        log.unflushed_since_ms = -1

    def run(self) -> None:
        """Sync; in a worker thread. Raises LogDirFailure."""
        directory = self.log.log_directory
        directory.check_online()
        try:
            self.write_snapshots()
            with directory.syncing():
                self._sync()
            self._is_done = True
        except OSError as error:
            if not self.log.is_deleted_meanwhile(error):
                raise directory.fail(error) from error

    def _sync(self) -> None:
        log = self.log
        fs = log.log_directory.fs
        flags = self.flags
        for segment, file in self._segments:
            if segment.retired:
                continue
            if file is not None:
                fs.sync_data(file, SyncSite.APPEND_DATA)
            elif not sync_file(log, segment.path(), SyncSite.APPEND_DATA) and not segment.retired:
                raise FileNotFoundError(f"{segment.path()} is gone")
        for path, site in self.files:
            sync_file(log, path, site)
        if Dirty.LOG_START in flags:
            for segment in self._dropped:
                sync_file(log, segment.path(), SyncSite.APPEND_DATA)
            # After the snapshots' names, which give the folds what lies below it, and before the
            # epochs, which have forgotten that.
            fs.sync_directory(log.folder, SyncSite.SNAPSHOT_NAMES)
            with log.log_directory.moving_log_start():
                if log.begun_anew_count == self._begun_anew_count:
                    write_log_start(log, self._log_start_offset, self._disk_start_offset)
        if Dirty.EPOCHS in flags:
            # The newest content, whichever job this is; epochs beyond the log end do no harm.
            data = log.epochs.encode()
            path = f"{log.folder}/{LEADER_EPOCHS_FILE}"
            write_checkpoint(fs, path, data, SyncSite.LEADER_EPOCHS)
        if Dirty.PARENTS in flags:
            sync_file(log, f"{log.folder}/{PARTITION_FILE}", SyncSite.PARTITION_FILE)
        if flags:
            fs.sync_directory(log.folder, SyncSite.SEGMENT_FOLDER)
        if Dirty.PARENTS in flags:
            topic_folder = os.path.dirname(log.folder)
            fs.sync_directory(topic_folder, SyncSite.TOPIC_FOLDER)
            fs.sync_directory(os.path.dirname(topic_folder), SyncSite.TOPICS_FOLDER)

    @property
    def may_run_together(self) -> bool:
        """Whether `run_together` has the order that this job needs."""
        return Dirty.LOG_START not in self.flags

    def write_snapshots(self) -> None:
        """Write what a roll has held. It may take long, and others may sync meanwhile."""
        for snapshot in self._snapshots:
            snapshot.write()

    def write_epochs(self) -> None:
        """The first half of `run_together`: content."""
        if Dirty.EPOCHS in self.flags:
            path = f"{self.log.folder}/{LEADER_EPOCHS_FILE}{TEMPORARY_SUFFIX}"
            write_file(self.log.log_directory.fs, path, self.log.epochs.encode(), None)

    def name_epochs(self) -> None:
        """The second half of `run_together`: names."""
        if Dirty.EPOCHS in self.flags:
            path = f"{self.log.folder}/{LEADER_EPOCHS_FILE}"
            self.log.log_directory.fs.rename(path + TEMPORARY_SUFFIX, path)

    def is_synced_by_others(self) -> None:
        """`run_together` has done what `run` does."""
        self._is_done = True

    def finish(self) -> None:
        """Move the recovery point; on the loop, also after a failed `run`."""
        log = self.log
        log.flushes.remove(self)
        forget_written(log)
        for segment, file in self._segments:
            if file is not None:
                segment.pins -= 1
        if not self._is_done:
            # Nothing is forgotten, should the directory go on.
            log.unsynced = [*self.files, *(log.unsynced or [])] or None
            log.dirty |= self.flags
            log.unflushed_since_ms = 0
        elif log.log_directory.failure is None:
            # A truncation may have come in between.
            target = min(self.target_offset, log.log_end_offset)
            log.recovery_point = max(log.recovery_point, target)
            has_log_start = Dirty.LOG_START in self.flags and not log.is_closed
            if has_log_start and log.durable_log_start == log.log_start_offset:
                try:
                    forget_unsynced_log_start(log.log_directory.fs, log.folder)
                except OSError as error:
                    log.log_directory.fail(error)


def run_together(directory: LogDirectory, jobs: Sequence[FlushJob]) -> None:
    """Run many jobs of one directory with two syncs of its whole file system: at a clean stop this
    is much cheaper than some syncs for each of ten thousand logs. Raises LogDirFailure."""
    directory.check_online()
    fs = directory.fs
    if not fs.can_sync_all or not all(job.may_run_together for job in jobs):
        for job in jobs:
            job.run()
        return
    try:
        with directory.syncing():
            for job in jobs:
                job.write_snapshots()
                job.write_epochs()
            fs.sync_all(directory.path, SyncSite.STOP_CONTENT)
            for job in jobs:
                job.name_epochs()
            fs.sync_all(directory.path, SyncSite.STOP_NAMES)
        for job in jobs:
            job.is_synced_by_others()
    except OSError as error:
        raise directory.fail(error) from error


def sync_file(log: LogState, path: str, site: SyncSite) -> bool:
    """Sync a file by name, through a descriptor of this thread's own. False when it is gone."""
    fs = log.log_directory.fs
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return False
    try:
        fs.sync_data(file, site)
    finally:
        file.close()
    return True
