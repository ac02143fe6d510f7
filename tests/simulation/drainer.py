"""An administrator who takes brokers out of service and back (`broker.drain`), one at a time.

Each broker is told itself, again and again until it answers. What it answers says nothing of a
later word: a broker that has lost the store holds all that it was told, and answers one after the
other when the store is back. In the end either nobody drains, or one broker does: then within the
bounded time it has no replicas, but of partitions with as many of them as there are brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data_plane.broker.admin.alter_configs import Operation
from data_plane.cell.controller import DRAIN_PROPERTY
from data_plane.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from data_plane.wire.registry import ApiKey
from tests.simulation.admin import BROKER_RESOURCE
from tests.simulation.administrator import Administrator
from tests.simulation.world import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.cell import Cell

# With fewer, the replicas of a broker have nowhere to go.
BROKERS_MIN = 4
RETRY_MS = 200


class Drainer(Administrator):
    """See the module."""

    interval_ms = 250

    def __init__(self, cell: Cell, name: str) -> None:
        super().__init__(cell, name)
        # Who drains by the last word, and whom nobody has told that yet.
        self._draining: int | None = None
        self._words_count = 0
        self._missing: dict[int, None] = {}

    @property
    def waits_for(self) -> set[int]:
        """The brokers that have not answered to the last word."""
        return set(self._missing)

    def change(self) -> None:
        if not self._missing:
            is_over = self._draining is not None
            self._want(None if is_over else self.random.choice(self.cell.node_ids))

    def stop(self) -> None:
        """The last word. Under a throttle nobody can be emptied within the bounded time."""
        super().stop()
        is_draining = "throttles" not in self.cell.extras and self.random.random() < 0.5
        self._want(self.random.choice(self.cell.node_ids) if is_draining else None)

    def _want(self, node_id: int | None) -> None:
        """Have this broker drain, and no other one."""
        is_asking = bool(self._missing)
        self._words_count += 1
        self._draining = node_id
        self._missing = dict.fromkeys(self.cell.node_ids)
        if not is_asking:
            self._ask()

    def _ask(self) -> None:
        if not self._missing:
            return
        for node_id in self._missing:
            self._send(node_id, is_draining=node_id == self._draining)
        self.world.at(RETRY_MS * US_PER_MS, self._ask)

    def _send(self, node_id: int, *, is_draining: bool) -> None:
        operation = Operation.SET if is_draining else Operation.DELETE
        value = "true" if is_draining else None
        config = AlterableConfig(name=DRAIN_PROPERTY, config_operation=int(operation), value=value)
        resource = AlterConfigsResource(
            resource_type=BROKER_RESOURCE, resource_name=str(node_id), configs=[config]
        )

        word = self._words_count

        def answered(response: Any) -> None:
            is_taken = response is not None and not response.responses[0].error_code
            if is_taken and word == self._words_count:
                self._missing.pop(node_id, None)
                self.world.count("brokers told to drain", is_draining)

        self.ask(
            node_id,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            IncrementalAlterConfigsRequest(resources=[resource]),
            answered,
        )

    @property
    def is_settled(self) -> bool:
        """Whether the last word has been heard and done."""
        brokers = self.cell.store.image.brokers
        draining = {node_id for node_id, broker in brokers.items() if broker.is_draining}
        return not self._missing and draining == {self._draining} - {None} and self._is_empty()

    def _is_empty(self) -> bool:
        others_count = len(self.cell.node_ids) - 1
        return not any(
            self._draining in state.replicas and len(state.replicas) <= others_count
            for topic in self.cell.store.image.topics_by_id.values()
            for state in topic.partitions
        )
