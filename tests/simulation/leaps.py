"""Logs whose offsets are far apart: a table of years, of which the cleaner has left a few records.

Nobody can write two billion records in a history. A *leap* is a batch as the cleaner leaves one: it
reaches over 2^31 offsets, and holds the last record alone. It is given to the leader as the
coordinator's own batches are, beside the records of producers; after two of them offsets are beyond
what 32 bits hold. Its key is written anew soon after, so the cleaner takes the leap away:

    0…40   2147483688   2147483689…95   4294967343…     two holes of 2^31 in one log
            └ superseded, gone ─► who begins with an empty disk has to get over the hole

So that somebody does, a broker gets an empty disk now and then, when all is in sync.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from data_plane.log.errors import LogError
from data_plane.wire.records import NewRecord, build_batch
from tests.simulation.admin import TopicPlan
from tests.simulation.compacted import CompactedView
from tests.simulation.keyed import HOT_KEYS
from tests.simulation.world import US_PER_MS

if TYPE_CHECKING:
    from data_plane.log.log import AppendResult
    from data_plane.replica.partition import Partition
    from tests.simulation.cell import Cell
    from tests.simulation.node import Node

TOPIC = "tableleap"
PROPERTIES = {
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "50",
    "log.flush.offset.checkpoint.interval.ms": "200",
}
LEAP_OFFSETS = 1 << 31
SUPERSEDED_MS = 200
LEAPS_MAX = 4
INTERVAL_MS = 150
WIPE_LOOK_MS = 60
WIPE_PAUSE_MS = 800
DOWN_MS_MAX = 400


def plan_leaps(rng: Random) -> TopicPlan:
    """It is cleaned all the time."""
    configs = {
        "cleanup.policy": "compact",
        "segment.ms": rng.choice(("150", "400")),
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "300",
        "file.delete.delay.ms": "200",
    }
    return TopicPlan(TOPIC, 1, 3, configs)


class Leaps:
    """Writes leaps, and wipes disks. See the module."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._world = cell.world
        self._random = cell.world.stream("leaps")
        self._leaps_count = 0
        # Where leaps begin.
        self._begin_at: set[int] = set()

    def start(self) -> None:
        self._next()
        self._wipe_later(WIPE_PAUSE_MS)

    def _next(self) -> None:
        delay_ms = self._random.expovariate(1 / INTERVAL_MS) + 50
        self._world.at(int(delay_ms * US_PER_MS), self._strike)

    def _strike(self) -> None:
        cell = self._cell
        if not cell.faults.is_on:
            return
        self._count_holes()
        if self._leaps_count < LEAPS_MAX:
            topic = cell.store.image.topics_of("default").get(TOPIC)
            node = None if topic is None else cell.nodes.get(topic.partitions[0].leader)
            if node is not None and node.is_up:
                node.run(self._leap, node)
        self._next()

    def _count_holes(self) -> None:
        """Logs that have noted one, since they hold nothing of what lay there."""
        topic = self._cell.store.image.topics_of("default").get(TOPIC)
        if topic is None:
            return
        for views in self._cell.history.disks.values():
            view = views.get((topic.topic_id, 0))
            if view is not None and view.log is not None and view.log.gaps:
                self._world.count("holes of two billion offsets")

    def _leap(self, node: Node) -> None:
        """In a pass of the leader."""
        services = node.services
        topic = self._cell.store.image.topics_of("default")[TOPIC]
        replica = None if services is None else services.partitions.get(topic.topic_id, 0)
        if replica is None or not replica.is_leader or replica.is_under_min_isr:
            return
        self._leaps_count += 1
        key = b"k%d" % self._random.randrange(HOT_KEYS)
        value = b"leap/%d" % self._leaps_count
        record = NewRecord(self._world.now_ms, key, value, offset_delta=LEAP_OFFSETS - 1)
        result = self._append(node, replica, record)
        if result is not None:
            self._world.count("leaps")
            node.note(f"{TOPIC}-0 leaps to {result.last_offset}")
            self._begin_at.add(result.first_offset)
            node.at(SUPERSEDED_MS * US_PER_MS, self._supersede, node, replica, key)

    def _supersede(self, node: Node, replica: Partition, key: bytes) -> None:
        if replica.is_leader and not replica.is_under_min_isr:
            self._append(node, replica, NewRecord(self._world.now_ms, key, b"landed"))

    def _append(self, node: Node, replica: Partition, record: NewRecord) -> AppendResult | None:
        batch = build_batch([record])
        try:
            return replica.append_as_leader(
                batch, 0, len(batch), now_ms=node.clock.now_ms(), origin="coordinator"
            )
        except LogError as error:
            node.note(f"does not leap: {error}")
            return None

    def _is_cleaned(self) -> bool:
        """Whether the cleaner of the present leader has taken a leap away."""
        topic = self._cell.store.image.topics_of("default").get(TOPIC)
        if topic is None:
            return False
        disk = self._cell.history.disks.get(f"b{topic.partitions[0].leader}", {})
        view = disk.get((topic.topic_id, 0))
        return isinstance(view, CompactedView) and not self._begin_at.isdisjoint(view.filled)

    def _wipe_later(self, delay_ms: int) -> None:
        self._world.at(delay_ms * US_PER_MS, self._wipe)

    def _wipe(self) -> None:
        cell = self._cell
        if not cell.faults.is_on:
            return
        nodes = [one for one in cell.nodes.values() if one.is_up and not one.is_paused]
        if not nodes or not self._is_cleaned() or not cell.is_fully_replicated():
            self._wipe_later(WIPE_LOOK_MS)
            return
        self._wipe_later(WIPE_PAUSE_MS)
        node = self._random.choice(nodes)
        self._world.count("disks wiped behind a leap")
        node.die(keeps_page_cache=True)
        node.wipe()
        delay_ms = self._random.randint(20, DOWN_MS_MAX)
        self._world.at(delay_ms * US_PER_MS, self._restart, node, node.life)

    def _restart(self, node: Node, life: int) -> None:
        if self._cell.faults.is_on and node.life == life and not node.is_on:
            node.start()
