"""Upkeep of retry logs: runs of positions are merged, and what is over is forgotten.

A position is over when the record there has left its log for good: readers get it no more, so
nobody has it to nack. The leader says so by a *forgotten* record, in the log for all replicas; so
the disk keeps what was stored for it no longer.

Invariants
- Nothing is said of the source but by who leads that, too: another copy may begin later than its
  leader's.
- A record is written when some position is over, and once a minute at most.

Deliberately absent: what is to be merged (positions.py).
"""

from __future__ import annotations

from typing import Final

from data_plane.broker.services import Services
from data_plane.cell.features import RETRIES, level_of
from data_plane.cell.virtual_topics import source_of
from data_plane.log.errors import LogError
from data_plane.log.log import FEATURE
from data_plane.replica.partition import Partition
from data_plane.wire.kernel_types import HIDDEN_FLAG
from data_plane.wire.records import NewRecord, build_batch
from features.fold_upkeep import Upkeep
from features.retry_dlq.nacks import FORGET_HEADER, Nacks
from features.retry_dlq.positions import Positions
from features.retry_dlq.sender import nacks_of

SWEEP_INTERVAL_MS: Final = 1_000
# Looked at in one tick.
SWEPT_PER_TICK_MAX: Final = 1_000
FORGET_INTERVAL_MS: Final = 60_000


class RetryUpkeep:
    """One per broker, a component."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._upkeep = Upkeep(services)
        self._sweep_ms = 0
        self._to_sweep: list[Partition] = []
        # When something was forgotten last, of led partitions.
        self._forgotten_ms: dict[Partition, int] = {}

    def start(self, now_ms: int) -> None:
        self._sweep_ms = now_ms

    def tick(self, now_ms: int) -> None:
        if now_ms >= self._sweep_ms:
            self._sweep_ms = now_ms + SWEEP_INTERVAL_MS
            if level_of(self._services.image.features, RETRIES) >= 1:
                self._to_sweep = list(self._services.partitions.opened())
            self._forgotten_ms = {
                one: at_ms
                for one, at_ms in self._forgotten_ms.items()
                if at_ms > now_ms - FORGET_INTERVAL_MS
            }
        swept = self._to_sweep[-SWEPT_PER_TICK_MAX:]
        del self._to_sweep[-SWEPT_PER_TICK_MAX:]
        for one in swept:
            fold = nacks_of(one.log)
            if fold is not None and len(fold):
                self._look(one, fold, now_ms)

    def next_deadline_ms(self) -> int | None:
        return 0 if self._to_sweep else self._sweep_ms

    def stop(self, now_ms: int) -> None:
        self._to_sweep.clear()

    def _look(self, partition: Partition, fold: Nacks, now_ms: int) -> None:
        self._upkeep.look(partition.log, fold, lambda: None)
        is_in_use = partition.is_leader and partition.is_writable and partition.tenant
        if not is_in_use or partition in self._forgotten_ms:
            return
        own_floor = max(fold.own.floor, partition.log.log_start_offset)
        source_floor = max(fold.of_source.floor, self._source_start(partition))
        if not (_has_over(fold.own, own_floor) or _has_over(fold.of_source, source_floor)):
            return
        value = b"%d:%d" % (source_floor, own_floor)
        wall_ms = self._services.wall_clock.wall_ms(now_ms)
        record = NewRecord(wall_ms, None, None, ((FORGET_HEADER, value),))
        batch = build_batch([record], attributes=HIDDEN_FLAG)
        self._forgotten_ms[partition] = now_ms
        try:
            partition.append_as_leader(batch, 0, len(batch), now_ms=now_ms, origin=FEATURE)
        except LogError as error:
            self._services.log.warning(
                "nacks_not_forgotten",
                topic=partition.topic,
                partition=partition.index,
                reason=str(error),
            )

    def _source_start(self, partition: Partition) -> int:
        """Where the source begins for its readers; 0 where this broker cannot say."""
        image = self._services.image
        topic = image.topics_by_id.get(partition.log.topic_id)
        source = None if topic is None else source_of(image, topic)
        if source is None:
            return 0
        found = self._services.partitions.get(source.topic_id, partition.index)
        return 0 if found is None else found.log.log_start_offset


def _has_over(positions: Positions, floor: int) -> bool:
    lowest = positions.lowest_offset
    return lowest is not None and lowest < floor
