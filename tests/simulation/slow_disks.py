"""Disks that sync, and are slow: what a broker waits for comes when the world has moved on.

Where this is at work every topic has durability=fsync, the offsets topic's too, so an append of a
group coordinator is done when disks have synced it. Now and then all file work of one broker takes
up to some seconds, rather that of a broker that coordinates groups:

    commit in generation 4 ── append ─────────────── synced: answered late, counts all the same
    a member leaves ────────────── generation 5 ──────────
                                        a slow follower leaves the ISR, or another broker leads

`WatchedOffsetsTopic` counts the appends under which a generation, or the epoch, has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from data_plane.broker.coordinators.groups import service_of
from data_plane.broker.coordinators.internal_topic import Producer
from data_plane.broker.services import Services
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import NewRecord
from tests.simulation.admin import OFFSETS_TOPIC
from tests.simulation.groups_audit import LoadedOffsetsTopic
from tests.simulation.world import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.cell import Cell
    from tests.simulation.node import Node

PROPERTIES = {"log.durability": "fsync"}
INTERVAL_MS = 800
SLOW_MS_MAX = 2000
WORK_MS_MEAN_CHOICES = (60, 200, 500)
WORK_MS_MAX = 1500
COORDINATOR_CHANCE = 0.7


class SlowDisks:
    """Draws which broker's disk is slow, for how long, and how slow it is."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._world = cell.world
        self._random = cell.world.stream("slow disks")
        self._is_on = False
        # By broker: until when, and how long a piece of work takes.
        self._slow: dict[int, tuple[int, int]] = {}

    def start(self) -> None:
        self._is_on = True
        self._next()

    def stop(self) -> None:
        """All disks are fast again."""
        self._is_on = False
        self._slow.clear()

    def _next(self) -> None:
        delay_ms = self._random.expovariate(1 / INTERVAL_MS) + 50
        self._world.at(int(delay_ms * US_PER_MS), self._strike)

    def _strike(self) -> None:
        if not self._is_on:
            return
        self._next()
        rng = self._random
        coordinators = self._coordinators()
        if coordinators and rng.random() < COORDINATOR_CHANCE:
            node_id = rng.choice(coordinators)
        else:
            node_id = rng.choice(self._cell.node_ids)
        until_us = self._world.now_us + rng.randint(50, SLOW_MS_MAX) * US_PER_MS
        self._slow[node_id] = (until_us, rng.choice(WORK_MS_MEAN_CHOICES))
        self._world.count("slow disks")
        self._world.note(f"b{node_id}", "has a slow disk")

    def _coordinators(self) -> list[int]:
        topic = self._cell.store.image.topics_of("default").get(OFFSETS_TOPIC)
        if topic is None:
            return []
        return sorted({state.leader for state in topic.partitions if state.leader >= 0})

    def delay_us(self, node_id: int) -> int:
        """How much longer than usual a piece of file work takes there that begins now."""
        slow = self._slow.get(node_id)
        if slow is None or self._world.now_us > slow[0]:
            return 0
        return int(min(self._random.expovariate(1 / slow[1]), WORK_MS_MAX) * US_PER_MS)


class WatchedOffsetsTopic(LoadedOffsetsTopic):
    """Counts what has changed before an append was done."""

    def append(
        self,
        partition: int,
        epoch: int,
        records: Sequence[NewRecord],
        now_ms: int,
        on_done: Callable[[ErrorCode], None],
        producer: Producer | None = None,
    ) -> None:
        before = self._generations(partition)

        def done(error: ErrorCode) -> None:
            self._count(partition, epoch, before, error)
            on_done(error)

        super().append(partition, epoch, records, now_ms, done, producer)

    def _generations(self, partition: int) -> dict[str, int]:
        coordinator = service_of(self._services).coordinator
        return {
            group.group_id: group.generation_id
            for group in coordinator.groups()
            if coordinator.partition_of("default", group.group_id) == partition
        }

    def _count(self, partition: int, epoch: int, before: dict[str, int], error: ErrorCode) -> None:
        world = self._node.world
        after = self._generations(partition)
        if any(after.get(group, number) != number for group, number in before.items()):
            world.count("group appends across generations")
        topic = self._node.cell.store.image.topics_of("default").get(OFFSETS_TOPIC)
        if topic is not None and topic.partitions[partition].leader_epoch != epoch:
            world.count("group appends across elections")
        if error is not ErrorCode.NONE:
            world.count("group appends that failed")


def watch_offsets_topic(node: Node, services: Services) -> None:
    """Have the appends of this broker's groups counted, and what it loads looked at."""
    is_slow = "slow disks" in node.cell.extras
    topic = WatchedOffsetsTopic if is_slow else LoadedOffsetsTopic
    service_of(services).log.topic = topic(node, services)
