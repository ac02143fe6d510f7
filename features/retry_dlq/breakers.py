"""The breakers of the retry partitions that a broker leads: what they hear, and who asks them.

    fetches of 2p and 2p + 1 (Services.on_sent) ─┐
    nacks, as they are judged (taker.py) ────────┴─► breaker ◄── firing (Services.firing_gate)

Invariants
- One for each pair and leader epoch. There is none of a partition that is not led here: it begins
  closed with each leader, and what was due meanwhile is due then.
- Each change is logged with its reason.

Deliberately absent: when it opens and closes (breaker.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from uuid import UUID

from data_plane.broker.pending_messages import Pause
from data_plane.broker.services import Services
from data_plane.replica.partition import Partition
from features.retry_dlq.breaker import Breaker
from features.retry_dlq.breaker import Pause as PauseSince
from features.retry_dlq.judgement import Outcome, Repeat
from features.retry_dlq.settings import has_breaker

# At those that are not closed.
LOOK_INTERVAL_MS: Final = 1_000


class Breakers:
    """One per broker, a component."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._known: dict[Partition, tuple[int, Breaker]] = {}
        # Those that were not closed when they were last looked at.
        self._open: dict[Partition, PauseSince] = {}
        self.openings_count = 0
        self.deliveries_count = 0
        self._look_ms = 0
        services.partitions.on_roles_changed(self._roles_changed)

    def _roles_changed(self, changed: list[tuple[UUID, int]], now_ms: int) -> None:
        for partition, (epoch, _) in list(self._known.items()):
            if not partition.is_leader or partition.leader_epoch != epoch:
                self._forget(partition)

    def _forget(self, partition: Partition) -> None:
        self._known.pop(partition, None)
        self._open.pop(partition, None)

    def _of(self, partition: Partition) -> Breaker | None:
        topic = self._services.image.topics_by_id.get(partition.log.topic_id)
        if topic is None or not topic.is_virtual or not partition.is_leader:
            return None
        if not has_breaker(topic.configs):
            self._forget(partition)
            return None
        known = self._known.get(partition)
        if known is None or known[0] != partition.leader_epoch:
            known = self._known[partition] = (partition.leader_epoch, Breaker())
        return known[1]

    def sent(
        self, topic_id: UUID, index: int, offset: int, next_offset: int, count: int, now_ms: int
    ) -> None:
        """See SentListener."""
        half, parity = divmod(index, 2)
        partition = self._services.partitions.get(topic_id, half)
        breaker = None if partition is None else self._of(partition)
        if breaker is not None:
            breaker.fetched(parity, offset, next_offset, count, now_ms)

    def judged(self, partition: Partition, outcomes: Sequence[Outcome], now_ms: int) -> None:
        """What became of a batch of commands."""
        breaker = self._of(partition)
        if breaker is None:
            return
        named = [one.command.position for one in outcomes if not isinstance(one, Repeat)]
        breaker.nacked([(at.partition % 2, at.offset) for at in named], now_ms)
        self._note(partition, breaker)

    # FiringGate

    def may_fire(self, partition: Partition, now_ms: int) -> int | None:
        breaker = self._of(partition)
        if breaker is None:
            return None
        room = breaker.may_fire(now_ms)
        self._note(partition, breaker)
        return room

    def look_again_ms(self, partition: Partition, now_ms: int) -> int:
        breaker = self._of(partition)
        return now_ms if breaker is None else breaker.look_again_ms(now_ms)

    def pause_of(self, partition: Partition) -> Pause | None:
        pause = self._open.get(partition)
        if pause is None:
            return None
        since_ms = self._services.wall_clock.wall_ms(pause.since_ms)
        return Pause(since_ms, pause.passed, pause.nacked)

    def fired(self, partition: Partition, offset: int, count: int, now_ms: int) -> None:
        if _is_retry_partition(partition):
            self.deliveries_count += count
        breaker = self._of(partition)
        if breaker is not None:
            breaker.fired(offset, count, now_ms)

    def _note(self, partition: Partition, breaker: Breaker) -> None:
        before, pause = self._open.get(partition), breaker.pause
        if pause == before:
            return
        log = self._services.log
        if pause is None:
            del self._open[partition]
            log.info("retries_go_on", topic=partition.topic, partition=partition.index)
        else:
            self._open[partition] = pause
            self.openings_count += 1
            log.warning(
                "retries_paused",
                topic=partition.topic,
                partition=partition.index,
                reason=str(pause),
            )

    # Component

    def start(self, now_ms: int) -> None:
        self._look_ms = now_ms

    def tick(self, now_ms: int) -> None:
        if now_ms >= self._look_ms:
            self._look_ms = now_ms + LOOK_INTERVAL_MS
            for partition in list(self._open):
                self.may_fire(partition, now_ms)

    def next_deadline_ms(self) -> int | None:
        return self._look_ms if self._open else None

    def stop(self, now_ms: int) -> None:
        self._known.clear()
        self._open.clear()

    # What is told of them

    def open_ones(self) -> Iterator[tuple[Partition, Breaker]]:
        """Those that are not closed."""
        for partition in self._open:
            yield partition, self._known[partition][1]


def _is_retry_partition(partition: Partition) -> bool:
    rules = partition.log.config.record_rules
    return rules is not None and rules.takes_commands
