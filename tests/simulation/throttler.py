"""An administrator who moves replicas under a throttle, as kafka-reassign-partitions does.

    limit   the rates of all brokers (as leaders, as followers, or both), the replicas of all
            topics (`*`, or partition:broker)
    move    some partitions to other brokers, and more of them while that goes on
    change  another rate, lower or higher, or none

Some of these cells are *peaceful*: nothing else goes wrong there. Then nobody who lives falls out
of an ISR: whom a leader counts on is served, whatever the rates are. In the end the throttle is
taken away, or left at a rate with which all moves are done within the bounded time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data_plane.broker.admin.alter_configs import Operation
from data_plane.broker.fetch.leader_throttle import ALL_REPLICAS, RATE, REPLICAS
from data_plane.broker.replicas.replication import THROTTLED_RATE
from data_plane.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from data_plane.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from data_plane.wire.registry import ApiKey
from tests.simulation.admin import BROKER_RESOURCE, OFFSETS_TOPIC, TOPIC_RESOURCE, TopicPlan
from tests.simulation.administrator import Administrator
from tests.simulation.world import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.cell import Cell

RETRY_MS = 200
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
# Bytes per second. Logs have some tens of kilobytes.
RATES = (200, 1500, 6000, 20_000)
LAST_RATE = 10_000
LAST_MOVES = 3
# What is limited: both ends, or one.
SIDES: tuple[tuple[str, ...], ...] = ((RATE, THROTTLED_RATE), (RATE,), (RATE,), (THROTTLED_RATE,))
PEACEFUL_CHANCE = 0.5


def is_peaceful(cell: Cell) -> bool:
    """Whether nothing else goes wrong in this cell."""
    may_be = not cell.extras.isdisjoint(("throttles", "quotas", "group limits"))
    if not may_be or "slow disks" in cell.extras:
        return False
    if cell.options.faults is not None:
        return not cell.options.faults
    return cell.world.stream("peace").random() < PEACEFUL_CHANCE


class Throttler(Administrator):
    """See the module."""

    interval_ms = 200

    def __init__(self, cell: Cell, name: str, plans: list[TopicPlan]) -> None:
        super().__init__(cell, name)
        self._plans = {plan.name: plan.replicas for plan in plans}
        self._rate: int | None = None
        self._limited = SIDES[0]
        # Whom nobody has told the last word yet.
        self._missing: dict[str, None] = {}
        # By broker and life: how many fetches it had held when that was last looked at.
        self._held: dict[tuple[int, int], int] = {}

    @property
    def is_settled(self) -> bool:
        return not self._missing

    def start(self) -> None:
        self._limit()
        super().start()

    def stop(self) -> None:
        """Take the throttle away, or leave one that lets everything end, and ask until it is so."""
        super().stop()
        self._missing = dict.fromkeys([*map(str, self.cell.node_ids), *self._plans])
        self._rate = LAST_RATE if self.random.random() < 0.5 else None
        self._ask_last()
        for _ in range(LAST_MOVES):
            self._move()

    def _ask_last(self) -> None:
        if self._missing:
            self._send_configs(self._rate)
            self.world.at(RETRY_MS * US_PER_MS, self._ask_last)

    def change(self) -> None:
        self._count_held()
        if self.random.random() < 0.7:
            self._move()
        else:
            self._limit()

    # Throttles

    def _limit(self) -> None:
        self._rate = self.random.choice((*RATES, None))
        self._limited = self.random.choice(SIDES)
        self.world.note(self.name, f"throttles {self._limited} to {self._rate}")
        self._send_configs(self._rate)

    def _send_configs(self, rate: int | None) -> None:
        """Each broker is told its rates itself, any of them the topics' replicas."""
        for node_id in self.cell.node_ids:
            name = str(node_id)
            configs = [
                _wish(one, rate if one in self._limited else None) for one in (RATE, THROTTLED_RATE)
            ]
            self._alter(node_id, BROKER_RESOURCE, name, configs)
        for name in (*sorted(self._plans), OFFSETS_TOPIC):
            if name in self.cell.store.image.topics_of("default"):
                value = None if rate is None else self._replicas_of(name)
                configs = [_wish(one, value) for one in (REPLICAS, FOLLOWER_REPLICAS)]
                self._alter(self.any_node(), TOPIC_RESOURCE, name, configs)

    def _alter(
        self,
        node_id: int,
        resource_type: int,
        name: str,
        configs: list[AlterableConfig],
    ) -> None:
        resource = AlterConfigsResource(
            resource_type=resource_type, resource_name=name, configs=configs
        )
        is_last = self._is_stopped
        self.ask(
            node_id,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            IncrementalAlterConfigsRequest(resources=[resource]),
            lambda response: self._altered(name, response, is_last=is_last),
        )

    def _replicas_of(self, name: str) -> str:
        if self.random.random() < 0.5:
            return ALL_REPLICAS
        topic = self.cell.store.image.topics_of("default")[name]
        return ",".join(
            f"{index}:{node_id}"
            for index, state in enumerate(topic.partitions)
            for node_id in state.replicas
        )

    def _altered(self, name: str, response: Any, *, is_last: bool) -> None:
        if response is not None and not response.responses[0].error_code:
            self.world.count("throttles set or lifted")
            if is_last:
                self._missing.pop(name, None)

    def _count_held(self) -> None:
        for node in self.cell.nodes.values():
            if node.services is None:
                continue
            held_count = node.services.fetches.throttle.held_count
            known = self._held.get((node.node_id, node.life), 0)
            self.world.count("fetches held by a throttle", held_count - known)
            self._held[(node.node_id, node.life)] = held_count

    # Moves

    def _move(self) -> None:
        name = self.random.choice(sorted(self._plans))
        topic = self.cell.store.image.topics_of("default").get(name)
        if topic is None:
            return
        index = self.random.randrange(len(topic.partitions))
        replicas = self.random.sample(self.cell.node_ids, self._plans[name])
        piece = ReassignablePartition(partition_index=index, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=name, partitions=[piece])]
        )
        if self._rate is not None:
            self.world.count("moves under a throttle")
        self.ask(
            self.any_node(),
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            request,
            lambda response: None,
        )


def _wish(name: str, value: int | str | None) -> AlterableConfig:
    operation = Operation.DELETE if value is None else Operation.SET
    text = None if value is None else str(value)
    return AlterableConfig(name=name, config_operation=int(operation), value=text)
