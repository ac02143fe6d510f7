"""Syncs that appends ask for, made together: one in flight per disk.

Partitions that need a sync queue up here. While one sync of a disk runs in the executor, everything
that comes in for that disk waits and then goes out as the next one. The more is waiting, the more
each sync commits.

    append a ─► sync {a} ───────────► a committed
    append b ──── queued ─┐
    append c ──── queued ─┴► sync {b, c} ───────► b, c committed

A sync that fails ends its replica, since nobody knows what the disk has of it. One that could not
be made, for want of descriptors or memory, says nothing about the disk, which stays online: it is
made again after a pause, and those who wait for it go on waiting.

Deliberately absent: when a partition needs a sync (replica.partition), and what is durable after
one (the log's flush job).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from data_plane.broker.request.api import Executor
from data_plane.log.errors import LogDirFailure
from data_plane.log.flush import FlushJob
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode

# The pause before a sync that could not be made is tried again.
RETRY_MS = 500


class GroupCommit:
    """Collects partitions by disk and syncs them in turn."""

    def __init__(
        self,
        executor: Executor,
        disk_of: Callable[[Partition], Path],
        on_failed: Callable[[Partition, BaseException], None],
        retry_later: Callable[[Callable[[], None]], None],
    ) -> None:
        """`retry_later` calls what it is given after RETRY_MS."""
        self._retry_later = retry_later
        self._executor = executor
        self._disk_of = disk_of
        self._on_failed = on_failed
        self._queued: dict[Path, dict[Partition, None]] = {}
        self._in_flight: set[Path] = set()
        self.syncs_count = 0

    def request_sync(self, partition: Partition) -> None:
        """Have `partition.sync_finished` called once what it holds now is durable."""
        disk = self._disk_of(partition)
        self._queued.setdefault(disk, {})[partition] = None
        if disk not in self._in_flight:
            self._start(disk)

    def _retry(self, partition: Partition) -> None:
        if not partition.is_closed:
            self.request_sync(partition)

    def _start(self, disk: Path) -> None:
        batch: list[tuple[Partition, int, FlushJob | None]] = []
        for partition in self._queued.pop(disk):
            if partition.is_closed:
                # Deleted while it waited.
                continue
            job = partition.log.flush_job()
            batch.append((partition, partition.log.log_end_offset, job))
        self._in_flight.add(disk)
        self.syncs_count += 1

        def sync() -> list[BaseException | None]:
            outcomes: list[BaseException | None] = []
            for _, _, job in batch:
                try:
                    if job is not None:
                        job.run()
                except Exception as error:
                    outcomes.append(error)
                else:
                    outcomes.append(None)
            return outcomes

        def done(outcomes: list[BaseException | None] | None, error: BaseException | None) -> None:
            self._in_flight.discard(disk)
            for number, (partition, end_offset, job) in enumerate(batch):
                failure = error if outcomes is None else outcomes[number]
                self._finish(partition, end_offset, job, failure)
            if disk in self._queued and disk not in self._in_flight:
                self._start(disk)

        self._executor.submit(sync, done)

    def _finish(
        self,
        partition: Partition,
        end_offset: int,
        job: FlushJob | None,
        failure: BaseException | None,
    ) -> None:
        if job is not None:
            # Whatever became of it: the job lets go of what it held.
            job.finish()
        if partition.is_closed:
            return
        if failure is not None:
            self._on_failed(partition, failure)
            is_online = partition.log.log_directory.failure is None
            if is_online and isinstance(failure, LogDirFailure):
                self._retry_later(partial(self._retry, partition))
                return
            partition.sync_failed(ErrorCode.KAFKA_STORAGE_ERROR)
            return
        partition.sync_finished(end_offset)
