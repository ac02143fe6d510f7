"""An administrator who changes replication factors: one replica more or one less, now and then.

Each change is a reassignment of one partition, the offsets topic's among them. Some are taken back
a moment later, before or after they are done. What a partition had is never less safe than its
topic asks for meanwhile; that is looked at with each commit (commits.py). In the end all of them
are done, and every replica there is is in sync (audit.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data_plane.cell.metadata import PartitionImage
from data_plane.cell.reassignment import is_reassigning, target_of
from data_plane.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from data_plane.wire.registry import ApiKey
from tests.simulation.admin import OFFSETS_TOPIC, TopicPlan
from tests.simulation.administrator import Administrator
from tests.simulation.world import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.cell import Cell

REPLICAS_MAX = 4
# More would have to hold what more than one disk has to lose.
REPLICAS_MIN = 2
CANCEL_CHANCE = 0.3
CANCEL_MS_MAX = 80


class Resizer(Administrator):
    """See the module."""

    interval_ms = 350

    def __init__(self, cell: Cell, name: str, plans: list[TopicPlan]) -> None:
        super().__init__(cell, name)
        self._least = {OFFSETS_TOPIC: REPLICAS_MIN}
        self._least |= {plan.name: min(REPLICAS_MIN, plan.replicas) for plan in plans}

    def change(self) -> None:
        name = self.random.choice(sorted(self._least))
        topic = self.cell.store.image.topics_of("default").get(name)
        if topic is None:
            return
        index = self.random.randrange(len(topic.partitions))
        state = topic.partitions[index]
        target = self._resized(state, self._least[name])
        if len(target) == len(target_of(state)):
            return
        self.world.count("replication factors changed")
        self._ask(name, index, target)
        if self.random.random() < CANCEL_CHANCE:
            delay_ms = self.random.randint(1, CANCEL_MS_MAX)
            self.world.at(delay_ms * US_PER_MS, self._cancel, name, index)

    def _resized(self, state: PartitionImage, least: int) -> list[int]:
        """With one replica more or less, in any place: the first is the preferred leader."""
        target = list(target_of(state))
        others = [one for one in self.cell.node_ids if one not in target]
        may_grow = bool(others) and len(target) < REPLICAS_MAX
        if len(target) > least and not (may_grow and self.random.random() < 0.5):
            target.remove(self.random.choice(target))
        elif may_grow:
            target.insert(self.random.randint(0, len(target)), self.random.choice(others))
        return target

    def _cancel(self, name: str, index: int) -> None:
        topic = self.cell.store.image.topics_of("default").get(name)
        if self._is_stopped or topic is None or not is_reassigning(topic.partitions[index]):
            return
        self._ask(name, index, None)

    def _ask(self, name: str, index: int, replicas: list[int] | None) -> None:
        piece = ReassignablePartition(partition_index=index, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=name, partitions=[piece])]
        )
        is_cancel = replicas is None
        self.ask(
            self.any_node(),
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            request,
            lambda response: self._answered(is_cancel, response),
        )

    def _answered(self, is_cancel: bool, response: Any) -> None:
        if response is None or response.error_code:
            return
        if is_cancel and not response.responses[0].partitions[0].error_code:
            self.world.count("reassignments cancelled")
