"""What logs need from time to time: rolls, retention, flushes by age, compaction, checkpoints.

The log manager knows what is due and hands out jobs; this component asks it at an interval and has
the jobs run by the executor of their lane, so that nothing here holds up a request, and no long
job a short one.

Deliberately absent: what is due when (data_plane.log.manager).
"""

from __future__ import annotations

from collections.abc import Mapping

from data_plane.broker.request.api import Executor
from data_plane.broker.services import Config, Services
from data_plane.log.errors import LogError
from data_plane.log.lanes import Job, Lane

# Or more often, where the cleaner's pause is shorter.
TICK_INTERVAL_MS = 1000
NEVER_MS = 1 << 62


def cleaner_backoff_ms(config: Config) -> int:
    """The cleaner's pause when it has found nothing to do; without a cleaner it has no end."""
    is_enabled = config.get_bool("log.cleaner.enable")
    return config.get_int("log.cleaner.backoff.ms") if is_enabled else NEVER_MS


class LogMaintenance:
    """A component that drives `LogManager.tick`. Jobs have `run` (thread) and `finish` (loop)."""

    def __init__(self, services: Services, lanes: Mapping[Lane, Executor]) -> None:
        self._services = services
        self._lanes = lanes
        self._cleaner_backoff_ms = cleaner_backoff_ms(services.config)
        self._next_ms = 0
        self._reported_offline: set[str] = set()
        self.corrupt_batches_count = 0

    def start(self, now_ms: int) -> None:
        self._next_ms = now_ms + self._interval_ms()

    def next_deadline_ms(self) -> int:
        return self._next_ms

    def tick(self, now_ms: int) -> None:
        if now_ms < self._next_ms:
            return
        logs = self._services.logs
        config = self._services.config
        logs.set_cleaner_buffer_bytes(config.get_int("log.cleaner.dedupe.buffer.size"))
        backoff_ms = cleaner_backoff_ms(config)
        if backoff_ms != self._cleaner_backoff_ms:
            self._cleaner_backoff_ms = backoff_ms
            logs.set_cleaner_backoff_ms(backoff_ms, now_ms)
        self._next_ms = now_ms + self._interval_ms()
        services = self._services
        wall_ms = services.wall_clock.wall_ms(now_ms)
        for job in logs.tick(now_ms, wall_ms, services.deletion_permit):
            self._submit(job)
        for fault in logs.take_faults():
            self._services.log.error(
                "log_maintenance_failed",
                where=fault.what,
                error=repr(fault.error),
                exc_info=fault.error,
            )
        for log in logs.take_retained():
            partition = self._services.partitions.get(log.topic_id, log.partition)
            if partition is not None and partition.log is log:
                partition.log_start_changed()
            for listener in self._services.retention_listeners:
                listener(log.topic_id, log.partition)
        for corrupt in logs.take_corruption_reports():
            self.corrupt_batches_count += 1
            self._services.log.error(
                "corrupt_batch", file=corrupt.path, position=corrupt.position, reason=corrupt.reason
            )
        for directory in logs.offline_directories():
            if directory.path not in self._reported_offline:
                self._reported_offline.add(directory.path)
                self._services.log.error(
                    "log_directory_offline", directory=directory.path, reason=directory.failure
                )

    def stop(self, now_ms: int) -> None:
        """Long jobs end at their next step; they are waited for by whoever closes the lanes."""
        self._services.logs.stop_jobs()

    def _interval_ms(self) -> int:
        return min(TICK_INTERVAL_MS, max(1, self._cleaner_backoff_ms))

    def _submit(self, job: Job) -> None:
        log = self._services.log

        def done(result: object, error: BaseException | None) -> None:
            if error is not None:
                log.error("log_job_failed", job=repr(job), error=repr(error))
            # A job tidies up after itself in `finish`, whatever became of it.
            try:
                job.finish()
            except LogError as failure:
                log.error("log_job_failed", job=repr(job), error=repr(failure))

        self._lanes[job.lane].submit(job.run, done)
