"""A broker that is one of a cell's, without server and without the others.

The others are registered and answer nothing: what they would do to the image (fence, join an ISR)
tests do with `change`. The controller is this broker, and sees those alive that are not fenced.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from data_plane.cell.changes import Change, ChangeBroker, ChangePartition, RegisterBroker
from data_plane.cell.controller import Controller
from data_plane.cell.metadata import BrokerImage, PartitionImage
from data_plane.cell.metadata_store import BrokerSession, ControllerLease, Heartbeat
from data_plane.cell.partition_state import next_epochs
from data_plane.cell.settings import ControllerSettings
from tests.broker.admin_player import AdminPlayer
from tests.broker.broker_player import NODE_ID


class CellAdminPlayer(AdminPlayer):
    """Brokers 1, 2 and 7; this one is 7."""

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        brokers: Collection[int] = (1, 2, NODE_ID),
    ) -> None:
        super().__init__(properties)
        self.change(
            *(
                RegisterBroker(
                    BrokerImage(
                        node_id,
                        f"host-{node_id}",
                        9000 + node_id,
                        f"rack-{node_id}",
                        incarnation_id=f"{node_id}-a",
                    )
                )
                for node_id in brokers
            )
        )
        self.controller = Controller(ControllerSettings())
        membership: Any = SimpleNamespace(controller=self.controller)
        self.services.membership = membership
        self.services.store.heartbeat(NODE_ID, f"{NODE_ID}-a", 10_000, wants_controller=True)
        self.hold_lease(NODE_ID)

    def change(self, *changes: Change) -> None:
        image = self.services.image
        image = self.services.store.apply(changes, image.version, f"change {image.version}")
        self.services.apply_image(image, self.now_ms)

    def change_broker(self, node_id: int, **fields: Any) -> None:
        self.change(ChangeBroker(replace(self.services.image.brokers[node_id], **fields)))
        self.hold_lease(NODE_ID)

    def hold_lease(self, node_id: int | None) -> None:
        """Have this broker (or another, or nobody) be the controller, and see who lives."""
        for step in range(3):
            self.now_ms += 500
            sessions = {
                broker.node_id: BrokerSession(broker.node_id, broker.incarnation_id, step)
                for broker in self.services.image.brokers.values()
                if not broker.is_fenced
            }
            lease = None
            if node_id is not None:
                lease = ControllerLease(node_id, f"{node_id}-a", 1, is_ours=node_id == NODE_ID)
            heartbeat = Heartbeat(self.services.image.version, lease, sessions)
            self.controller.observe_heartbeat(heartbeat, self.services.image, self.now_ms)

    def state(self, name: str, index: int = 0) -> PartitionImage:
        return self.services.image.topics_of("default")[name].partitions[index]

    def change_partition(self, name: str, index: int = 0, **fields: Any) -> None:
        topic = self.services.image.topics_of("default")[name]
        old = topic.partitions[index]
        new = next_epochs(old, replace(old, **fields))
        self.change(ChangePartition(topic.topic_id, index, new))
        self.hold_lease(NODE_ID)

    def run_controller(self) -> None:
        """Commit what the controller wants now."""
        while changes := self.controller.tick(self.services.image, self.now_ms):
            self.change(*changes)

    def replicas(self, name: str) -> Sequence[tuple[int, ...]]:
        return [item.replicas for item in self.services.image.topics_of("default")[name].partitions]
