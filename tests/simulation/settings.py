"""Settings that change, and brokers that go by old ones: what topics keep and promise.

    the store     retention.ms=300 ─────► -1 ──────────────────────────────►
    a broker      killed ─┘  starts while the store is away: an image with 300  ─► it is back
                                        nothing may go by that

`Settings` changes what decides about loss: retention, cleanup.policy of compacted topics,
min.insync.replicas, now and then whether unclean elections are allowed. `OldStarts` kills a broker,
waits until something has been changed, and has it begin while the store is away. What may be
deleted by which settings is retention.py's to judge; who may commit with how many copies, and who
may be elected, is judged by committed.py and commits.py with the settings of that moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from data_plane.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from data_plane.wire.registry import ApiKey
from tests.simulation.admin import SET, TOPIC_RESOURCE, TopicPlan
from tests.simulation.administrator import Administrator
from tests.simulation.keyed import is_keyed
from tests.simulation.world import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.cell import Cell
    from tests.simulation.node import Node

RETENTION = (
    ("retention.ms", ("300", "300", "1500", "-1", "3600000")),
    ("retention.bytes", ("800", "4000", "-1", "-1")),
)
CHOICES = (
    *RETENTION,
    ("segment.ms", ("200", "600")),
    ("min.insync.replicas", ("1", "2", "2")),
)
TABLE_CHOICES = (
    *RETENTION,
    ("cleanup.policy", ("compact", "compact,delete", "delete")),
    ("cleanup.policy", ("compact", "compact,delete", "delete")),
)
# Where unclean elections were allowed once there is not much left to check.
UNCLEAN_CHANCE = 0.01
OLD_START_INTERVAL_MS = 1500
CHANGED_MS_MAX = 700
AWAY_MS_MIN = 800
AWAY_MS_MAX = 2500


class Settings(Administrator):
    """See the module."""

    interval_ms = 180

    def __init__(self, cell: Cell, name: str, plans: list[TopicPlan]) -> None:
        super().__init__(cell, name)
        self._names = [plan.name for plan in plans]

    def change(self) -> None:
        rng = self.random
        name = rng.choice(self._names)
        key, values = rng.choice(TABLE_CHOICES if is_keyed(name) else CHOICES)
        value = rng.choice(values)
        if rng.random() < UNCLEAN_CHANCE:
            key, value = "unclean.leader.election.enable", rng.choice(("true", "false"))
        self.world.count("settings changed")
        config = AlterableConfig(name=key, config_operation=SET, value=value)
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configs=[config]
        )
        self.ask(
            self.any_node(),
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            IncrementalAlterConfigsRequest(resources=[resource]),
            lambda response: None,
        )


class OldStarts:
    """Brokers that begin with an image from before the last changes. See the module."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._world = cell.world
        self._random = cell.world.stream("old starts")

    def start(self) -> None:
        self._next()

    def _next(self) -> None:
        delay_ms = self._random.expovariate(1 / OLD_START_INTERVAL_MS) + 50
        self._world.at(int(delay_ms * US_PER_MS), self._strike)

    def _strike(self) -> None:
        if not self._cell.faults.is_on:
            return
        nodes = [one for one in self._cell.nodes.values() if one.is_up and not one.is_paused]
        if nodes and not self._cell.store.is_down:
            node = self._random.choice(nodes)
            node.die(keeps_page_cache=True)
            delay_ms = self._random.randint(50, CHANGED_MS_MAX)
            self._world.at(delay_ms * US_PER_MS, self._start, node, node.life)
        self._next()

    def _start(self, node: Node, life: int) -> None:
        if not self._cell.faults.is_on or node.is_on or node.life != life:
            return
        self._world.count("starts without the store")
        self._world.note("store", "is away while a broker starts")
        self._cell.store.is_down = True
        node.start()
        delay_ms = self._random.randint(AWAY_MS_MIN, AWAY_MS_MAX)
        self._world.at(delay_ms * US_PER_MS, self._give_back)

    def _give_back(self) -> None:
        if self._cell.faults.is_on:
            self._world.note("store", "is back")
            self._cell.store.is_down = False
