"""Partitions whose logs have something to do later are opened without being asked for.

A partition is opened at the first request for it, and a log that a clean stop or the checkpoint
vouches for is loaded then. Where a fold has something to do by a date (`DueFold`), nobody may ever
ask: a quiet partition would never deliver what it was given for later. So those that this broker
leads are opened at the start and when their role changes, a few at a time and by threads.

    start ─► logs.due_partitions() ─┐
    roles changed ─► has it due? ───┴► queue ─► a thread loads the log ─► the partition is open

Whether a log has something due the checkpoint says (`LogSummary.due_ms`); no file is touched for
the others. Whoever has something to do finds the partition open, and hears of it by
`TopicPartitions.on_roles_changed`.

Deliberately absent: doing it. And followers' partitions, which fetching opens.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from data_plane.log.errors import UnknownPartition

if TYPE_CHECKING:
    from data_plane.broker.services import Services

PartitionId = tuple[UUID, int]
# Loads at a time: requests that wait for their own logs stand behind no more of these.
OPENED_AT_ONCE_MAX = 2
# Looked at in one tick.
LOOKS_PER_TICK_MAX = 100
# After one that could not be loaded, though its disk has not failed.
RETRY_INTERVAL_MS = 1_000


class DueOpenings:
    """One per broker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        # No more than this broker has replicas, in the order of their coming.
        self._queue: dict[PartitionId, None] = {}
        self._opening: set[PartitionId] = set()
        self._now_ms = self._not_before_ms = 0
        services.partitions.on_roles_changed(self._roles_changed)

    def start(self, now_ms: int) -> None:
        self._queue.update(dict.fromkeys(self._services.logs.due_partitions()))

    def _roles_changed(self, changed: list[PartitionId], now_ms: int) -> None:
        for partition_id in changed:
            if self._is_wanted(*partition_id):
                self._queue[partition_id] = None

    def _is_wanted(self, topic_id: UUID, index: int) -> bool:
        """Whether this broker leads the partition, has not opened it, and its log has something
        due; touches no file."""
        services = self._services
        try:
            log = services.logs.get(topic_id, index)
        except UnknownPartition:
            return False
        if log.due_ms is None or log.log_directory.failure is not None:
            return False
        partitions = services.partitions
        leader = partitions.current_leader("", "", topic_id.bytes, index)
        is_led = leader is not None and leader[0] == services.node_id
        return is_led and not (log.is_loaded and partitions.is_open((topic_id.bytes, index)))

    def tick(self, now_ms: int) -> None:
        self._now_ms = now_ms
        for _ in range(LOOKS_PER_TICK_MAX):
            if not self._may_open or now_ms < self._not_before_ms:
                return
            partition_id = next(iter(self._queue))
            del self._queue[partition_id]
            # Its role may be another one by now, and then it comes again when that changes.
            if partition_id not in self._opening and self._is_wanted(*partition_id):
                self._opening.add(partition_id)
                ended = partial(self._ended, partition_id)
                self._services.partitions.open_later(*partition_id, ended)

    def _ended(self, partition_id: PartitionId) -> None:
        self._opening.discard(partition_id)
        if self._is_wanted(*partition_id):
            self._queue[partition_id] = None
            self._not_before_ms = self._now_ms + RETRY_INTERVAL_MS

    @property
    def _may_open(self) -> bool:
        return bool(self._queue) and len(self._opening) < OPENED_AT_ONCE_MAX

    def next_deadline_ms(self) -> int | None:
        return self._not_before_ms if self._may_open else None

    def stop(self, now_ms: int) -> None:
        self._queue.clear()
