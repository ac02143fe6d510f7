"""What a log manager does in the background: which jobs are due, a slice of the logs at a time.

Each tick looks at a bounded number of logs, so that ten thousand of them never hold up the loop,
and hands out at most one flush, one checkpoint and one scrub a directory and one compaction in
all. Only logs in use are looked at often; retention looks at every log at its own interval.

A tick has two times. `now_ms` is steady and is what intervals, delays and the age of what is not
flushed yet are measured by; `wall_ms` is the date, which records are compared with. It also has a
permit: without one nothing is deleted, and once it is back every log is looked at again.

Invariants
- What goes wrong with one log or disk keeps no other from its turn. `_attempting` on the loop and
  `_TrackedJob` in the threads are the two doors: an OSError behind either is decided by
  `LogDirectory.fail`, which takes the directory offline or lets the work be tried again.
- A job in flight was handed out, and leaves with its `finish`, whatever has failed.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple, Protocol

from data_plane.log.compaction import awaits_checkpoint, compaction_priority
from data_plane.log.directory_checkpoint import CheckpointJob
from data_plane.log.errors import LogError
from data_plane.log.flush import FlushJob
from data_plane.log.folds_job import FoldsJob
from data_plane.log.held_records import awaits_flush
from data_plane.log.key_map import BUFFER_BYTES
from data_plane.log.lanes import Job, Lane
from data_plane.log.log import Log
from data_plane.log.log_appends import awaits_checkpoint_of_folded
from data_plane.log.log_directory import LogDirectory
from data_plane.log.permit import PERMITTED, DeletionPermit
from data_plane.log.retention import segment_deletion_job
from data_plane.log.scrubber import Scrubber
from data_plane.log.segment_age import AgeJob
from data_plane.log.thinning import thinning_priority
from data_plane.log.unflushed import Dirty
from data_plane.log.vouched_date import VouchedDate

LOGS_PER_TICK_MAX = 500
# Loading a log reads its folder and walks its last segment.
LOADS_PER_TICK_MAX = 20
FLUSHES_PER_JOB_MAX = 200
# For a checkpoint; 3 µs each, and 13 where a sealed segment's age has to be read.
SUMMARIES_PER_TICK_MAX = 1000
# Bugs that nobody has taken from here yet; older ones go.
FAULTS_MAX = 20
# Of so many producers each as `producer_state.EXPIRED_SLICE_ENTRIES` says.
EXPIRED_SLICES_PER_TICK_MAX = 5


@dataclass(frozen=True, slots=True)
class MaintenanceConfig:
    """Intervals in ms. Kafka's properties: log.retention.check.interval.ms,
    log.flush.offset.checkpoint.interval.ms, producer.id.expiration.check.interval.ms,
    log.cleaner.backoff.ms; and in bytes log.cleaner.dedupe.buffer.size (`cleaner_buffer_bytes`).
    `scrub_bytes_per_second` bounds the scrubber's share of a disk; `scrub_interval_ms` is the rest
    between two rounds over a directory, -1 for no scrubbing."""

    retention_check_interval_ms: int = 300_000
    checkpoint_interval_ms: int = 60_000
    producer_expiration_check_interval_ms: int = 600_000
    cleaner_backoff_ms: int = 15_000
    cleaner_buffer_bytes: int = BUFFER_BYTES
    scrub_interval_ms: int = 7 * 24 * 3600 * 1000
    scrub_bytes_per_second: int = 16 << 20


class DirectoryFlushJob:
    """Flushes of several logs of one disk, one after the other."""

    lane = Lane.FLUSH

    def __init__(self, directory: LogDirectory, jobs: list[FlushJob]) -> None:
        self.directory = directory
        self._jobs = jobs

    def run(self) -> None:
        """Raises LogDirFailure."""
        for job in self._jobs:
            if self.directory.stop_sign.is_up:
                # The clean stop flushes all logs, many at once.
                return
            job.run()

    def finish(self) -> None:
        for job in self._jobs:
            job.finish()


class MaintenanceFault(NamedTuple):
    """A bug that was met while a log or directory was looked at: an exception nobody expects."""

    what: str
    error: Exception


class MaintainedLogs(Protocol):
    """A manager, as its background work sees it."""

    directories: list[LogDirectory]
    vouched_date: VouchedDate

    def logs(self) -> list[Log]: ...
    def begin_checkpoint(self, directory: LogDirectory) -> CheckpointJob: ...


class Maintenance:
    """Schedules the background jobs of one manager."""

    def __init__(self, manager: MaintainedLogs, config: MaintenanceConfig, now_ms: int) -> None:
        self._manager = manager
        self._config = config
        self._queue: list[Log] = []
        self._retention_queue: list[Log] = []
        self._retention_due_ms = now_ms + config.retention_check_interval_ms
        self._permit = PERMITTED
        self._tried_loads: set[Log] = set()
        self._tried_ages: set[Log] = set()
        # Logs whose start retention has moved since they were last taken from here.
        self.retained: list[Log] = []
        self._checkpoint_due_ms = now_ms
        self._expiration_due_ms = now_ms + config.producer_expiration_check_interval_ms
        self._expirations: Iterator[int] = iter(())
        self._is_checkpoint_hastened = False
        # Which dates that were vouched for are in a checkpoint that was begun.
        self._kept_dates = (False, False)
        # Those that are still to look at logs.
        self._checkpoints: dict[LogDirectory, CheckpointJob] = {}
        self._compaction_due_ms = now_ms + config.cleaner_backoff_ms
        self._in_flight: dict[tuple[str, object], _TrackedJob] = {}
        # Those of them that no tick has handed out yet.
        self._launched: list[Job] = []
        self._faults: deque[MaintenanceFault] = deque(maxlen=FAULTS_MAX)
        self._scrubber = Scrubber(config.scrub_interval_ms, config.scrub_bytes_per_second)

    def begin(self) -> None:
        """Retention looks at the logs that a start has found, and at new ones an interval later:
        what a client has just written is not taken from under its readers by a chance of timing."""
        self._retention_queue = self._manager.logs()

    def set_cleaner_backoff_ms(self, backoff_ms: int, now_ms: int) -> None:
        """From now on. A pause that has begun ends no later than a new one would."""
        self._config = replace(self._config, cleaner_backoff_ms=backoff_ms)
        self._compaction_due_ms = min(self._compaction_due_ms, now_ms + backoff_ms)

    def set_cleaner_buffer_bytes(self, buffer_bytes: int) -> None:
        """From the next compaction on."""
        if buffer_bytes != self._config.cleaner_buffer_bytes:
            self._config = replace(self._config, cleaner_buffer_bytes=buffer_bytes)

    def forget(self, log: Log) -> None:
        """`log` is being deleted."""
        self._queue = [one for one in self._queue if one is not log]
        self._retention_queue = [one for one in self._retention_queue if one is not log]

    def tick(self, now_ms: int, wall_ms: int, permit: DeletionPermit) -> list[Job]:
        """The jobs that are due."""
        self._take_permit(permit, now_ms)
        self._apply_retention(now_ms, wall_ms)
        self._expire_producers(now_ms, wall_ms)
        self._look_at_logs(now_ms, wall_ms)
        self._checkpoint(now_ms)
        self._compact(now_ms, wall_ms)
        jobs, self._launched = self._launched, []
        return jobs

    def _take_permit(self, permit: DeletionPermit, now_ms: int) -> None:
        before, self._permit = self._permit, permit
        if before.why_not_by_date and not permit.why_not_by_date:
            # Logs were passed over, or looked at for their size only.
            self._retention_due_ms = min(self._retention_due_ms, now_ms)

    def take_faults(self) -> list[MaintenanceFault]:
        """Bugs met since the last call."""
        faults = list(self._faults)
        self._faults.clear()
        return faults

    @contextlib.contextmanager
    def _attempting(self, directory: LogDirectory, what: str) -> Iterator[None]:
        """Around what is done on the loop for one log or directory: no trouble with it keeps the
        others from their turn. A disk that fails is known to its directory; what it was not to
        blame for is tried again when its turn comes next."""
        try:
            with directory.guarding():
                yield
        except LogError:
            pass
        except Exception as error:
            self._faults.append(MaintenanceFault(what, error))

    def _launch(self, kind: str, where: object, directory: LogDirectory, job: Job) -> None:
        key = (kind, where)
        tracked = _TrackedJob(job, directory, self._in_flight, key)
        self._in_flight[key] = tracked
        self._launched.append(tracked)

    def _apply_retention(self, now_ms: int, wall_ms: int) -> None:
        if self._permit.why_nothing:
            return
        by_date = not self._permit.why_not_by_date
        if not self._retention_queue and now_ms >= self._retention_due_ms:
            self._retention_due_ms = now_ms + self._config.retention_check_interval_ms
            self._retention_queue = self._manager.logs()
            self._tried_loads.clear()
            self._tried_ages.clear()
        loads_left = LOADS_PER_TICK_MAX
        for _ in range(min(LOGS_PER_TICK_MAX, len(self._retention_queue))):
            log = self._retention_queue.pop()
            if log.log_directory.failure is not None or log.is_closed:
                continue
            if not log.may_expire(wall_ms, by_date=by_date) and not log.awaits_roll(wall_ms):
                continue
            if log.needs_long_load:
                self._load_later(log)
                continue
            loads_left -= not log.is_loaded
            with self._attempting(log.log_directory, log.folder):
                log.maybe_roll(wall_ms)
                if log.apply_retention(now_ms, wall_ms, by_date=by_date):
                    self.retained.append(log)
                if by_date and log.wants_ages:
                    self._find_ages(log, wall_ms)
                if ("ages", log) in self._in_flight:
                    self._retention_queue.insert(0, log)
            if not loads_left:
                break

    def _load_later(self, log: Log) -> None:
        """Have a thread load `log`, and retention look at it then; once in a round, should that
        fail."""
        if log not in self._tried_loads:
            self._tried_loads.add(log)
            self._launch("load", log, log.log_directory, log.load_job())
        if ("load", log) in self._in_flight:
            self._retention_queue.insert(0, log)

    def _find_ages(self, log: Log, wall_ms: int) -> None:
        """Have a thread find out how old the segments of `log` are; once in a round, should that
        fail. `wall_ms` is vouched for."""
        if log not in self._tried_ages:
            self._tried_ages.add(log)
            self._launch("ages", log, log.log_directory, AgeJob(log, wall_ms))

    def _expire_producers(self, now_ms: int, wall_ms: int) -> None:
        if self._permit.why_not_by_date:
            return
        if now_ms >= self._expiration_due_ms:
            self._begin_expiration(now_ms, wall_ms)
        for _ in islice(self._expirations, EXPIRED_SLICES_PER_TICK_MAX):
            pass

    def _begin_expiration(self, now_ms: int, wall_ms: int) -> None:
        self._expiration_due_ms = now_ms + self._config.producer_expiration_check_interval_ms
        self._expirations = self._expire(self._manager.logs(), wall_ms)

    def _expire(self, logs: list[Log], wall_ms: int) -> Iterator[int]:
        """A slice of one log's producers with each step."""
        for log in logs:
            if log.is_loaded and not log.is_closed:
                with self._attempting(log.log_directory, log.folder):
                    expiration_ms = log.config.producer_id_expiration_ms
                    yield from log.producers.expire_in_slices(wall_ms, expiration_ms)

    def _look_at_logs(self, now_ms: int, wall_ms: int) -> None:
        if not self._queue:
            self._queue = [log for log in self._manager.logs() if log.is_loaded]
        flushes: dict[LogDirectory, list[FlushJob]] = {}
        for _ in range(min(LOGS_PER_TICK_MAX, len(self._queue))):
            log = self._queue.pop()
            directory = log.log_directory
            if directory.failure is not None or not log.is_loaded:
                continue
            with self._attempting(directory, log.folder):
                self._look_at(log, now_ms, wall_ms, flushes)
        for directory, due in flushes.items():
            self._launch("flush", directory, directory, DirectoryFlushJob(directory, due))
        for directory in self._manager.directories:
            if directory.failure is None and ("scrub", directory) not in self._in_flight:
                with self._attempting(directory, directory.path):
                    scrub = self._scrubber.next_job(self._manager.logs, directory, now_ms)
                    if scrub is not None:
                        self._launch("scrub", directory, directory, scrub)

    def _look_at(
        self, log: Log, now_ms: int, wall_ms: int, flushes: dict[LogDirectory, list[FlushJob]]
    ) -> None:
        """Roll one log, and collect what it has to make, to remove and to flush."""
        directory = log.log_directory
        log.maybe_roll(wall_ms)
        if awaits_checkpoint_of_folded(log):
            self._checkpoint_due_ms = now_ms
        if log.pending_deletion and ("segment deletion", log) not in self._in_flight:
            deletion = segment_deletion_job(log, now_ms)
            if deletion is not None:
                self._launch("segment deletion", log, directory, deletion)
        if log.wants_folds and not log.compacting:
            self._launch("folds", log, directory, FoldsJob(log))
        if not self._is_flush_due(log, now_ms) or ("flush", directory) in self._in_flight:
            return
        if len(flushes.get(directory, ())) < FLUSHES_PER_JOB_MAX:
            job = log.flush_job()
            if job is not None:
                flushes.setdefault(directory, []).append(job)

    @staticmethod
    def _is_flush_due(log: Log, now_ms: int) -> bool:
        if log.unsynced is not None or Dirty.LOG_START in log.dirty:
            # Sealed segments are flushed as in Kafka, so that recovery need not walk them.
            return True
        if awaits_flush(log):
            return True
        since_ms = log.unflushed_since_ms
        return since_ms >= 0 and now_ms - since_ms >= log.config.flush_ms

    def _checkpoint(self, now_ms: int) -> None:
        date = self._manager.vouched_date
        known = (date.last_ms is not None, date.boot_date_ms is not None)
        if known > self._kept_dates and not self._is_checkpoint_under_way:
            # Whoever is killed soon has it then: without one the next process trusts no clock
            # before that has stood, and whatever goes by the date waits so long.
            self._kept_dates = known
            self._checkpoint_due_ms = now_ms
        if now_ms >= self._checkpoint_due_ms:
            self._checkpoint_due_ms = now_ms + self._config.checkpoint_interval_ms
            for directory in self._manager.directories:
                is_under_way = (
                    directory in self._checkpoints or ("checkpoint", directory) in self._in_flight
                )
                if directory.failure is None and not is_under_way:
                    self._checkpoints[directory] = self._manager.begin_checkpoint(directory)
        for directory, job in list(self._checkpoints.items()):
            # One that stumbles is made anew at the next interval.
            del self._checkpoints[directory]
            if directory.failure is None:
                with self._attempting(directory, directory.path):
                    if job.take_summaries(SUMMARIES_PER_TICK_MAX):
                        self._launch("checkpoint", directory, directory, job)
                    else:
                        self._checkpoints[directory] = job

    @property
    def _is_checkpoint_under_way(self) -> bool:
        return bool(self._checkpoints) or any(kind == "checkpoint" for kind, _ in self._in_flight)

    def _compact(self, now_ms: int, wall_ms: int) -> None:
        if now_ms < self._compaction_due_ms or ("compaction", None) in self._in_flight:
            return
        if self._permit.why_not_by_date:
            # It also writes down until which date tombstones stay.
            return
        if not self._is_checkpoint_hastened and any(map(awaits_checkpoint, self._manager.logs())):
            # Only what the checkpoint on disk covers may be rewritten: have one made first, or
            # the topic would wait for the next regular one.
            self._is_checkpoint_hastened = True
            self._checkpoint_due_ms = now_ms
            self._checkpoint(now_ms)
            return
        if self._is_checkpoint_under_way:
            return
        chosen = self._dirtiest(wall_ms)
        job: Job | None = None
        if chosen is not None:
            with self._attempting(chosen.log_directory, chosen.folder):
                job = chosen.compaction_job(wall_ms, self._config.cleaner_buffer_bytes)
                job = job or chosen.thinning_job()
        if chosen is None or job is None:
            self._compaction_due_ms = now_ms + self._config.cleaner_backoff_ms
            self._is_checkpoint_hastened = False
            return
        self._launch("compaction", None, chosen.log_directory, job)

    def _dirtiest(self, wall_ms: int) -> Log | None:
        """The log that needs compaction or thinning most, if any does."""
        chosen: Log | None = None
        priority_max = 0.0
        for log in self._manager.logs():
            is_held = bool(log.needs.folds)
            if (log.config.compact or is_held) and log.log_directory.failure is None:
                with self._attempting(log.log_directory, log.folder):
                    priority = compaction_priority(log, wall_ms)
                    if is_held:
                        priority = max(priority, thinning_priority(log))
                    if log.wants_ages:
                        self._find_ages(log, wall_ms)
                    if priority > priority_max:
                        chosen, priority_max = log, priority
        return chosen


class _TrackedJob:
    """A job that leaves the list of those in flight when it is finished."""

    def __init__(
        self,
        job: Job,
        directory: LogDirectory,
        in_flight: dict[tuple[str, object], _TrackedJob],
        key: tuple[str, object],
    ) -> None:
        self.job = job
        self.lane = job.lane
        self._directory = directory
        self._in_flight = in_flight
        self._key = key

    def __repr__(self) -> str:
        return f"{self._key[0]} in {self._directory.path}"

    def run(self) -> None:
        """Raises LogDirFailure, and what else the job raises."""
        with self._directory.guarding():
            self.job.run()

    def finish(self) -> None:
        """Raises LogDirFailure."""
        self._in_flight.pop(self._key, None)
        with self._directory.guarding():
            self.job.finish()
