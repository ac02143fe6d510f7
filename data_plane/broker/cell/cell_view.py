"""Who is in the cell, as clients are told: live brokers, offline replicas, the controller.

A broker without a shared store is its own cell: it registers nowhere, is alive as long as it can
answer, and is its own controller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import UUID

from data_plane.broker.services import Services
from data_plane.cell.metadata import BrokerImage, MetadataImage, PartitionImage

if TYPE_CHECKING:
    from data_plane.cell.controller import Controller

NOBODY = -1


def controller_of(services: Services) -> Controller | None:
    """This broker's half of the controller; None in a cell without a shared store."""
    return None if services.membership is None else services.membership.controller


def controller_id(services: Services) -> int:
    """Who holds the controller lease, by this broker's last heartbeat; -1 when nobody does or
    clients cannot reach it."""
    controller = controller_of(services)
    if controller is None:
        return services.node_id
    if controller.lease is None:
        return NOBODY
    broker = services.image.brokers.get(controller.lease.node_id)
    return NOBODY if broker is None or broker.is_fenced else broker.node_id


def own_image(services: Services) -> BrokerImage:
    """This broker, as it would be registered; for one that is alone, or not registered yet."""
    return BrokerImage(
        services.node_id,
        services.advertised_host,
        services.advertised_port,
        services.rack,
        listeners=services.advertised_listeners,
    )


def live_brokers(services: Services, listener: str | None = None) -> list[BrokerImage]:
    """The brokers that clients may use, by id; with the addresses for clients of that listener, if
    it is given, and without those that have none."""
    image, node_id = services.image, services.node_id
    brokers = [broker for _, broker in sorted(image.brokers.items()) if not broker.is_fenced]
    if node_id not in image.brokers:
        brokers.append(own_image(services))
    if listener is None:
        return brokers
    reached = [reached_by(services, broker, listener) for broker in brokers]
    return [broker for broker in reached if broker is not None]


def reached_by(services: Services, broker: BrokerImage, listener: str) -> BrokerImage | None:
    """The broker, with the address that clients of a listener of this one are sent to. None when it
    has no such listener: through another one they would not be who they are here."""
    own = services.advertised_listeners
    if not broker.listeners or not any(one.name == listener for one in own):
        return broker
    endpoint = broker.endpoint(listener)
    if endpoint is None:
        return None
    return replace(broker, host=endpoint.host, port=endpoint.port)


def live_ids(image: MetadataImage, node_id: int) -> frozenset[int]:
    """The ids of live brokers, as the broker `node_id` sees it."""
    ids = {broker.node_id for broker in image.brokers.values() if not broker.is_fenced}
    if node_id not in image.brokers:
        ids.add(node_id)
    return frozenset(ids)


def leader_shown(partition: PartitionImage, live: frozenset[int]) -> int:
    """The leader, -1 when there is none or clients could not reach it."""
    return partition.leader if partition.leader in live else NOBODY


def offline_replicas(partition: PartitionImage, live: frozenset[int]) -> list[int]:
    """Replicas of brokers that clients cannot reach, or that have said they cannot read them."""
    unreadable = {end.node_id for end in partition.log_ends if not end.is_readable}
    return [
        node_id for node_id in partition.replicas if node_id not in live or node_id in unreadable
    ]


@dataclass(frozen=True, slots=True)
class View:
    """What this broker knows of who can be used: live brokers, and its own disks.

    In a cell, replicas on failed disks are given up (failed_directories.py) and the image says so.
    Until then, and in a broker that is a cell of its own, clients hear of them from here."""

    live: frozenset[int]
    node_id: int = NOBODY
    failed_directories_count: int = 0
    # What of this broker is on failed disks, by topic id and partition.
    is_lost: Callable[[UUID, int], bool] | None = None

    def live_for(self, topic_id: UUID, index: int) -> frozenset[int]:
        """The brokers that clients can use for a partition."""
        if not self.failed_directories_count or self.is_lost is None:
            return self.live
        return self.live - {self.node_id} if self.is_lost(topic_id, index) else self.live


NOBODY_IS_LIVE = View(frozenset())


def view_of(services: Services) -> View:
    return View(
        live_ids(services.image, services.node_id),
        services.node_id,
        len(services.logs.offline_directories()),
        services.logs.is_lost,
    )


def endpoint_of(broker: BrokerImage | None) -> tuple[str, int, str] | None:
    """Where other brokers reach a broker, and which incarnation: with another one, or none, the
    connections that there are lead nowhere."""
    if broker is None:
        return None
    return broker.inter_broker_host, broker.inter_broker_port, broker.incarnation_id
