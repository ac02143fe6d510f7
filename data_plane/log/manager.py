"""The logs of a broker: data directories, start and recovery, checkpoints, background jobs.

    <data>/.lock   <data>/recovery-point.checkpoint   <data>/clean-shutdown
    <data>/topics/<topic uuid>/Partition-<n>/…      <uuid>/Partition-<n>.<unique>-delete/…

At start each directory is locked and its checkpoint read. After a clean shutdown (the mark is
there) logs are opened lazily with the checkpoint's figures and no file of theirs is touched.
Otherwise a log that is just as the checkpoint says, and was fully synced then, is left alone too;
all others recover. The mark is removed, durably, before anything can be appended.

Invariants
- A directory that fails goes offline alone; its logs raise LogDirFailure, the others go on.
- Recovery points on disk never exceed what is durable; truncations mark what the file cannot know.
- A deleted partition's folder is renamed at once and removed later, off the loop.

Everything runs on the loop except the `run` of the jobs that `tick` hands out; call `finish` on the
loop afterwards, also when `run` raised.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from uuid import UUID

from data_plane.log import partition_files, recovery, truncation
from data_plane.log.checkpoints import write_file
from data_plane.log.config import LogConfig
from data_plane.log.damage import NOT_DAMAGED, damage_key, forget_deleted, read_damage
from data_plane.log.directory_checkpoint import (
    CheckpointJob,
    DirectoryState,
    has_clean_mark,
    read_broker_epoch,
    read_directory,
    remove_clean_mark,
    write_clean_mark,
)
from data_plane.log.errors import (
    CorruptSegment,
    DirectoryLocked,
    DuplicateLog,
    LogDirFailure,
    UnknownPartition,
)
from data_plane.log.file_system import File, FileSystem, OsFileSystem
from data_plane.log.flush import run_together
from data_plane.log.fold import FoldFactory
from data_plane.log.lanes import Job, StopSign
from data_plane.log.log import Log
from data_plane.log.log_directory import LogDirectory
from data_plane.log.log_state import LogState, SegmentListener
from data_plane.log.log_summary import LogSummary
from data_plane.log.maintenance import Maintenance, MaintenanceConfig, MaintenanceFault
from data_plane.log.open_files import OPEN_SEGMENTS_MAX, OpenFiles
from data_plane.log.partition_deletion import PartitionDeletionJob
from data_plane.log.partition_folders import (
    DELETE_SUFFIX,
    PartitionFolder,
    find_partitions,
    make_directories,
    make_folders,
    read_topic,
    refuse_duplicates,
)
from data_plane.log.permit import PERMITTED, DeletionPermit
from data_plane.log.unflushed import Dirty
from data_plane.log.vouched_date import VouchedDate

LOCK_FILE = ".lock"
FORMAT_VERSION = 1

# Logs that are synced in one go at a clean stop; each may need a descriptor meanwhile.
CLOSED_TOGETHER = 1000

# From this many on, a sync of the whole file system is cheaper than one for every file.
STOP_TOGETHER_MIN = 50

PartitionId = tuple[UUID, int]

OnOpened = Callable[[str, int, int, int], None]
"""Directory, how many of its logs are open, of how many, how many of them had to recover."""


def _tell_nobody(_directory: str, _opened: int, _total: int, _recovered: int) -> None:
    pass


class LogManager:
    """See the module."""

    def __init__(
        self,
        directories: Sequence[Path],
        *,
        default_config: LogConfig,
        fs: FileSystem | None = None,
        fold_factories: Sequence[FoldFactory] = (),
        now_ms: int = 0,
        open_segments_max: int = OPEN_SEGMENTS_MAX,
        maintenance: MaintenanceConfig | None = None,
        stop_together_min: int = STOP_TOGETHER_MIN,
        vouched_date: VouchedDate | None = None,
    ) -> None:
        """`vouched_date` is kept up to date by the caller; without one `now_ms` is the date."""
        assert directories, "a broker needs a data directory"
        self._fs: FileSystem = fs if fs is not None else OsFileSystem()
        self._fold_factories = tuple(fold_factories)
        # Told of the segments of all logs; to be filled before the start.
        self.segment_listeners: list[SegmentListener] = []
        self.default_config = default_config
        self._stop_together_min = stop_together_min
        open_files = OpenFiles(open_segments_max)
        self._stop_sign = StopSign()
        self.vouched_date = vouched_date if vouched_date is not None else VouchedDate(0)
        self.directories = [
            LogDirectory(
                path, self._fs, open_files, self._stop_sign, len(directories), self.vouched_date
            )
            for path in directories
        ]
        self._locks: dict[str, File] = {}
        self._logs: dict[PartitionId, Log] = {}
        # Those that failed before all their logs were known: any partition may be there.
        self._unread: list[LogDirectory] = []
        self._counts: dict[str, int] = {}
        self._deletion_jobs: list[PartitionDeletionJob] = []
        self._deletions = 0
        self.recovered_logs = 0
        self._maintenance = Maintenance(self, maintenance or MaintenanceConfig(), now_ms)

    # Start and stop

    def start(
        self,
        now_ms: int,
        on_opened: OnOpened = _tell_nobody,
        config_of: Callable[[UUID], LogConfig] | None = None,
    ) -> list[LogDirFailure]:
        """Lock the directories and open all logs; returns why any directory is offline.
        `on_opened` is called after each log, `config_of` tells what a topic's logs are configured
        as: without it, all have the default. Raises DirectoryLocked and DuplicateLog; nothing is
        open then."""
        self.lock()
        failures: list[LogDirFailure] = []
        found: dict[LogDirectory, list[PartitionFolder]] = {}
        for directory in self.directories:
            with self._starting(directory, failures):
                directory.check_online()
                # Its name is durable with the first checkpoint, below.
                self._fs.make_directory(directory.topics_path)
                found[directory], deleted = find_partitions(directory)
                self._deletion_jobs += (
                    PartitionDeletionJob(directory, folder, now_ms) for folder in deleted
                )
        try:
            refuse_duplicates(self._fs, found.values())
        except DuplicateLog:
            self._unlock()
            raise
        for directory, partitions in found.items():
            with self._starting(directory, failures):
                self._start_directory(directory, partitions, on_opened, config_of)
        self._maintenance.begin()
        return failures

    @contextlib.contextmanager
    def _starting(self, directory: LogDirectory, failures: list[LogDirFailure]) -> Iterator[None]:
        """Around each half of a start. Without some of its logs it is of no use."""
        try:
            with directory.changing():
                yield
        except LogDirFailure as failure:
            failures.append(directory.take_offline(failure.reason))
            self._unread.append(directory)

    def lock(self) -> None:
        """Lock the directories, if they are not yet. One that cannot be reached goes offline.

        Raises DirectoryLocked; none is locked then."""
        for directory in self.directories:
            try:
                if directory.path not in self._locks and directory.failure is None:
                    self._lock(directory)
            except OSError as error:
                directory.fail(error, is_midway=True)
            except DirectoryLocked:
                self._unlock()
                raise

    def leave_alone(self, path: str, error: OSError) -> None:
        """Before `lock`: the directory cannot be read, and nobody knows whose it is."""
        for directory in self.directories:
            if directory.path == path:
                directory.fail(error, is_midway=True)

    def clean_broker_epoch(self) -> int | None:
        """The broker epoch of the last process here, if no directory can have lost anything of it:
        it closed them cleanly, or was killed while the machine went on. To be asked between `lock`
        and `start`, which takes the marks away."""
        if self.offline_directories():
            return None
        count = len(self.directories)
        try:
            epochs = {read_broker_epoch(self._fs, item.path, count) for item in self.directories}
            for item in self.directories:
                # A disk that has lost its head does not always lose all of it.
                with contextlib.suppress(FileNotFoundError):
                    self._fs.list_directory(item.topics_path)
        except OSError:
            # `start` finds out which one it is.
            return None
        return epochs.pop() if len(epochs) == 1 else None

    def was_stopped_cleanly(self) -> bool:
        """Whether every directory has the mark of a clean stop, not only nothing lost. To be asked
        when `clean_broker_epoch` may."""
        return all(has_clean_mark(self._fs, item.path) for item in self.directories)

    def set_broker_epoch(self, broker_epoch: int) -> None:
        """This process is registered under `broker_epoch`: checkpoints say so from here on, the one
        of `start` among them."""
        for directory in self.directories:
            directory.broker_epoch = broker_epoch

    def _lock(self, directory: LogDirectory) -> None:
        make_directories(self._fs, directory.path)
        lock = self._fs.lock(f"{directory.path}/{LOCK_FILE}")
        if lock is None:
            raise DirectoryLocked(f"{directory.path} is in use by another process")
        self._locks[directory.path] = lock

    def _start_directory(
        self,
        directory: LogDirectory,
        found: Sequence[PartitionFolder],
        on_opened: OnOpened,
        config_of: Callable[[UUID], LogConfig] | None,
    ) -> None:
        state = read_directory(self._fs, directory.path)
        directory.checkpoint_sequence = state.sequence
        directory.damage = read_damage(self._fs, directory.path)
        if directory.broker_epoch is None:
            # Until it is registered this process carries on the life of the last one.
            directory.broker_epoch = read_broker_epoch(
                self._fs, directory.path, directory.directories_count
            )
        remove_clean_mark(self._fs, directory.path, state)
        may_lose = state.boot_id is None or state.boot_id != self._fs.boot_id()
        self.vouched_date.learn(state.vouched_date_ms, None if may_lose else state.boot_date_ms)
        recovered_before = self.recovered_logs
        for count, (topic_id, partition, folder) in enumerate(found, 1):
            key = (topic_id, partition)
            entry = state.logs.get(f"{topic_id}/{partition}")
            topic = entry.topic if entry is not None else read_topic(self._fs, folder)
            config = None if config_of is None else config_of(topic_id)
            log = self._new_log(directory, folder, topic_id, topic, partition, config)
            summary = entry.summary if entry is not None else None
            log.damaged_from = directory.damage.get(damage_key(log), NOT_DAMAGED)
            self._open(log, summary, state, may_lose)
            self._logs[key] = log
            on_opened(directory.path, count, len(found), self.recovered_logs - recovered_before)
        self._counts[directory.path] = len(found)
        if not state.is_clean or may_lose or directory.broker_epoch is not None:
            # From here on a kill -9 is known from a power loss.
            self.checkpoint_job(directory).run()

    def _open(
        self, log: Log, summary: LogSummary | None, state: DirectoryState, may_lose: bool
    ) -> None:
        if summary is not None:
            log.open_from_summary(summary)
            if state.is_clean or (summary.is_synced and recovery.is_as_summarized(log, summary)):
                return
        log.recover(summary.recovery_point if summary is not None else 0, summary, may_lose)
        self.recovered_logs += 1

    def close(self, now_ms: int, *, clean: bool = True, broker_epoch: int | None = None) -> None:
        """Sync and close all logs and leave the clean-shutdown mark with `broker_epoch`; blocks."""
        for directory in self.directories:
            if clean and directory.path in self._locks:
                with contextlib.suppress(LogDirFailure), directory.guarding():
                    self._close_directory(directory, broker_epoch)
        for log in self._logs.values():
            with contextlib.suppress(LogDirFailure):
                log.close(clean=False)
        self._unlock()

    def _close_directory(self, directory: LogDirectory, broker_epoch: int | None) -> None:
        logs = [log for log in self._logs.values() if log.log_directory is directory]
        entries: dict[LogState, LogSummary] = {}
        for start in range(0, len(logs), CLOSED_TOGETHER):
            together = logs[start : start + CLOSED_TOGETHER]
            jobs = []
            for log in together:
                log.write_tail_files()
                job = log.flush_job()
                if job is not None:
                    jobs.append(job)
            if jobs:
                try:
                    if len(jobs) >= self._stop_together_min:
                        run_together(directory, jobs)
                    else:
                        for job in jobs:
                            job.run()
                finally:
                    for job in jobs:
                        job.finish()
            for log in together:
                # A log that never was in use is in the same state as at its opening.
                log.delete_pending_segments()
                entries[log] = log.summary()
                log.close(clean=False)
        directory.check_online()
        write_clean_mark(directory, entries, broker_epoch)

    def _unlock(self) -> None:
        for lock in self._locks.values():
            lock.close()
        self._locks.clear()

    # Logs

    def partition_ids(self) -> list[PartitionId]:
        """All partitions with a log, online or not."""
        return list(self._logs)

    def logs(self) -> list[Log]:
        """All logs."""
        return list(self._logs.values())

    def get(self, topic_id: UUID, partition: int) -> Log:
        """The log of a partition; raises UnknownPartition."""
        log = self._logs.get((topic_id, partition))
        if log is None:
            raise UnknownPartition(f"no log of partition {partition} of topic {topic_id}")
        return log

    def due_partitions(self) -> list[PartitionId]:
        """Those whose logs have something to do by a date, loaded or not; looks at all of them."""
        return [key for key, log in self._logs.items() if log.due_ms is not None]

    @property
    def has_unread_directories(self) -> bool:
        """Whether logs that this broker does not know may be in a directory that failed."""
        return bool(self._unread)

    def is_lost(self, topic_id: UUID, partition: int) -> bool:
        """Whether what there was of a partition is, or may be, on a disk that has failed."""
        log = self._logs.get((topic_id, partition))
        if log is None:
            return bool(self._unread) or len(self.offline_directories()) == len(self.directories)
        return log.log_directory.failure is not None

    def create(
        self,
        topic_id: UUID,
        topic: str,
        partition: int,
        config: LogConfig | None = None,
        *,
        is_new: bool = False,
    ) -> Log:
        """Make a new, empty log in the directory with the fewest; durable after its first flush.

        Unless the metadata says that the partition `is_new`, its log may be in a directory that
        could not be read: as in Kafka, none is made anew then. Raises LogDirFailure for that, too.
        """
        key = (topic_id, partition)
        assert key not in self._logs, f"the log of partition {partition} of {topic_id} exists"
        if self._unread and not is_new:
            self._unread[0].check_online()
        for job in self._deletion_jobs:
            if not job.is_renaming_synced and job.is_of(topic_id, partition):
                # Else the next power loss could put the deleted log in the place of this one. If
                # its directory fails, another may take this one.
                with contextlib.suppress(LogDirFailure):
                    job.sync_renaming()
        directory = self._choose_directory()
        topic_folder = f"{directory.topics_path}/{topic_id}"
        folder = f"{topic_folder}/{partition_files.PARTITION_PREFIX}{partition}"
        log = self._new_log(directory, folder, topic_id, topic, partition, config)
        try:
            make_folders(self._fs, topic_folder, folder)
            identity = {
                "format_version": FORMAT_VERSION,
                "partition": partition,
                "topic": topic,
                "topic_id": str(topic_id),
            }
            data = json.dumps(identity, indent=1).encode() + b"\n"
            write_file(self._fs, f"{folder}/{partition_files.PARTITION_FILE}", data, None)
            log.dirty |= Dirty.PARENTS | Dirty.FOLDER
            if key in directory.deletions:
                truncation.mark_successor(log)
            log.load()
        except OSError as error:
            raise directory.fail(error) from error
        self._logs[key] = log
        self._counts[directory.path] = self._counts.get(directory.path, 0) + 1
        return log

    def _new_log(
        self,
        directory: LogDirectory,
        folder: str,
        topic_id: UUID,
        topic: str,
        partition: int,
        config: LogConfig | None,
    ) -> Log:
        if config is None:
            config = self.default_config
        factories, listeners = self._fold_factories, self.segment_listeners
        return Log(directory, folder, topic_id, topic, partition, config, factories, listeners)

    def _choose_directory(self) -> LogDirectory:
        online = [directory for directory in self.directories if directory.failure is None]
        if not online:
            self.directories[0].check_online()
        return min(online, key=lambda directory: self._counts.get(directory.path, 0))

    def delete(self, topic_id: UUID, partition: int, now_ms: int) -> None:
        """Take a log away; its files go later. Raises UnknownPartition, LogDirFailure."""
        log = self.get(topic_id, partition)
        directory = log.log_directory
        directory.check_online()
        delay_ms = log.config.file_delete_delay_ms
        del self._logs[(topic_id, partition)]
        self._counts[directory.path] -= 1
        self._maintenance.forget(log)
        log.close_for_deletion()
        directory.deletions[(topic_id, partition)] = directory.checkpoint_sequence
        self._deletions += 1
        target = f"{log.folder}.{now_ms}-{self._deletions}{DELETE_SUFFIX}"
        with directory.changing():
            self._fs.rename(log.folder, target)
        self._deletion_jobs.append(PartitionDeletionJob(directory, target, now_ms + delay_ms))
        forget_deleted(log)

    # Housekeeping

    def set_cleaner_backoff_ms(self, backoff_ms: int, now_ms: int) -> None:
        """log.cleaner.backoff.ms has changed."""
        self._maintenance.set_cleaner_backoff_ms(backoff_ms, now_ms)

    def set_cleaner_buffer_bytes(self, buffer_bytes: int) -> None:
        """log.cleaner.dedupe.buffer.size may have changed."""
        self._maintenance.set_cleaner_buffer_bytes(buffer_bytes)

    def tick(
        self, now_ms: int, wall_ms: int | None = None, permit: DeletionPermit = PERMITTED
    ) -> list[Job]:
        """Do what is quick, and return jobs for what is slow. Call it every second or so. Without
        `wall_ms`, `now_ms` is the date as well."""
        jobs = self._maintenance.tick(now_ms, now_ms if wall_ms is None else wall_ms, permit)
        for job in self._deletion_jobs:
            is_due = not job.is_renaming_synced or job.due_ms <= now_ms
            if is_due and not job.is_running and not job.is_done:
                job.begin(now_ms)
                jobs.append(job)
        self._deletion_jobs = [job for job in self._deletion_jobs if not job.is_done]
        return jobs

    def stop_jobs(self) -> None:
        """The broker stops: long jobs end at their next step, and leave the rest to the next
        start. `close` makes durable what flushes have not."""
        self._stop_sign.is_up = True

    def checkpoint_job(self, directory: LogDirectory) -> CheckpointJob:
        """A job that stores where the directory's logs stand."""
        job = self.begin_checkpoint(directory)
        job.take_summaries()
        return job

    def begin_checkpoint(self, directory: LogDirectory) -> CheckpointJob:
        """The same job, still to take the summaries."""
        logs = self._logs.values()
        return CheckpointJob(directory, [log for log in logs if log.log_directory is directory])

    def offline_directories(self) -> list[LogDirectory]:
        """The directories that failed."""
        return [directory for directory in self.directories if directory.failure is not None]

    def take_retained(self) -> list[Log]:
        """Logs whose start retention has moved since the last call: their readers want to know."""
        retained, self._maintenance.retained = self._maintenance.retained, []
        return retained

    def take_faults(self) -> list[MaintenanceFault]:
        """Bugs that background work has met since the last call."""
        return self._maintenance.take_faults()

    def take_corruption_reports(self) -> list[CorruptSegment]:
        """Corrupt batches found since the last call, for the broker's log and metrics."""
        return [found for directory in self.directories for found in directory.take_reports()]
