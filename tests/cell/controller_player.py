"""A cell without brokers: an image, sessions that are renewed or not, and a controller.

Time passes in heartbeats of the controller, each followed by a tick whose changes are committed.
"""

from __future__ import annotations

from dataclasses import replace

from data_plane.cell.changes import ChangePartition
from data_plane.cell.controller import Controller
from data_plane.cell.metadata import LogEnd, MetadataImage, PartitionImage
from data_plane.cell.metadata_store import BrokerSession, ControllerLease, Heartbeat
from data_plane.cell.partition_state import next_epochs, with_log_end
from data_plane.cell.registration import decide_registration
from data_plane.cell.settings import ControllerSettings
from tests.cell.cell_images import ORDERS, applied, orders, restarted

HEARTBEAT_MS = 500


class ControllerPlayer:
    """`alive` are the node ids whose processes renew their sessions."""

    def __init__(self, image: MetadataImage, settings: ControllerSettings | None = None) -> None:
        self.image = image
        self.controller = Controller(settings or ControllerSettings())
        self.alive = set(image.brokers)
        self.epoch = 1
        # Whether the lease is this broker's; another one has it otherwise.
        self.has_lease = True
        self.now_ms = 0
        self.commits = 0
        self._sessions = {
            node_id: BrokerSession(node_id, item.incarnation_id, 0)
            for node_id, item in image.brokers.items()
        }

    def heartbeat(self) -> Heartbeat:
        """The store's answer to the controller."""
        for node_id in self.alive:
            incarnation_id = self.image.brokers[node_id].incarnation_id
            count = self._sessions[node_id].renewals if node_id in self._sessions else 0
            self._sessions[node_id] = BrokerSession(node_id, incarnation_id, count + 1)
        lease = ControllerLease(1, "1-a", self.epoch, is_ours=self.has_lease)
        return Heartbeat(self.image.version, lease, dict(self._sessions))

    def step(self) -> None:
        """One heartbeat, and what the controller wants then."""
        self.now_ms += HEARTBEAT_MS
        self.controller.observe_heartbeat(self.heartbeat(), self.image, self.now_ms)
        self.tick()

    def tick(self) -> None:
        changes = self.controller.tick(self.image, self.now_ms)
        if changes:
            self.commits += 1
            self.image = applied(self.image, changes)
            # No decision flaps: its own outcome leaves nothing to decide.
            assert not self.controller.decide(self.image), self.controller.decide(self.image)

    def pass_time(self, duration_ms: int) -> None:
        for _ in range(duration_ms // HEARTBEAT_MS):
            self.step()

    def settle(self) -> None:
        """Until everybody's state is known."""
        self.pass_time(3_000)

    def take_over(self) -> None:
        """The controller of a broker that has just started has the lease from now on."""
        self.controller = Controller(self.controller.settings)
        self.epoch += 1

    def kill(self, *node_ids: int) -> None:
        self.alive -= set(node_ids)

    def restart(self, node_id: int, *, clean: bool) -> None:
        """A new process registers, and renews its session from now on."""
        known = self.image.brokers[node_id]
        incarnation_id = f"{node_id}-{self.image.version}"
        starting = restarted(self.image, node_id, incarnation_id)
        mark = known.broker_epoch if clean else None
        settings = self.controller.settings
        changes = decide_registration(self.image, starting, mark, settings)
        self.image = applied(self.image, changes)
        self.alive.add(node_id)

    def report(self, node_id: int, leader_epoch: int, end_offset: int) -> None:
        """The broker tells where its log of `orders` ends."""
        old = self.orders()
        new = with_log_end(old, LogEnd(node_id, leader_epoch, end_offset))
        self.image = applied(self.image, [ChangePartition(ORDERS, 0, next_epochs(old, new))])

    def change_broker(self, node_id: int, **fields: int) -> None:
        brokers = dict(self.image.brokers)
        brokers[node_id] = replace(brokers[node_id], **fields)  # type: ignore[arg-type]
        self.image = replace(self.image, brokers=brokers, version=self.image.version + 1)

    def orders(self, index: int = 0) -> PartitionImage:
        return orders(self.image, index)

    def state(self, index: int = 0) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """(ISR, ELR, leader) of one partition."""
        partition = self.orders(index)
        return partition.isr, partition.elr, partition.leader
