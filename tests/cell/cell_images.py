"""Images of a cell with several brokers, in few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from data_plane.cell.changes import Change, apply_changes
from data_plane.cell.metadata import (
    BrokerImage,
    LogEnd,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from data_plane.cell.topics_draft import by_tenant

ORDERS = UUID(int=1)


def broker(
    node_id: int,
    *,
    rack: str | None = None,
    host_id: str = "",
    fenced: bool = False,
    stopping: bool = False,
    draining: bool = False,
    epoch: int | None = None,
) -> BrokerImage:
    """Registered, on a host of its own; incarnation and broker epoch follow from the id."""
    return BrokerImage(
        node_id,
        f"host-{node_id}",
        9092,
        rack,
        host_id=host_id,
        incarnation_id=f"{node_id}-a",
        broker_epoch=100 + node_id if epoch is None else epoch,
        is_fenced=fenced,
        in_controlled_shutdown=stopping,
        is_draining=draining,
    )


def cell(
    brokers: Iterable[int | BrokerImage],
    partitions: Sequence[PartitionImage] = (),
    configs: Mapping[str, str] | None = None,
) -> MetadataImage:
    """An image with one topic, `orders`, when there are partitions."""
    registered = [broker(item) if isinstance(item, int) else item for item in brokers]
    topic = TopicImage("default", "orders", ORDERS, tuple(partitions), configs or {})
    return MetadataImage(
        "cluster",
        version=1000,
        brokers={item.node_id: item for item in registered},
        topics_by_tenant=by_tenant([topic] if partitions else []),
        topics_by_id={ORDERS: topic} if partitions else {},
    )


def partition(
    replicas: Sequence[int],
    isr: Sequence[int] | None = None,
    leader: int | None = None,
    *,
    elr: Sequence[int] = (),
    last_known_leader: int = -1,
    adding: Sequence[int] = (),
    removing: Sequence[int] = (),
    last_known_elr: Sequence[int] = (),
    ends: Sequence[tuple[int, int, int]] = (),
    leader_epoch: int = 5,
    partition_epoch: int = 8,
) -> PartitionImage:
    """All replicas in sync, the first leading, unless said otherwise."""
    isr = replicas if isr is None else isr
    if leader is None:
        leader = isr[0] if isr else -1
    return PartitionImage(
        tuple(replicas),
        tuple(isr),
        leader,
        leader_epoch,
        partition_epoch,
        tuple(elr),
        last_known_leader,
        tuple(adding),
        tuple(removing),
        tuple(last_known_elr),
        tuple(LogEnd(*end) for end in ends),
    )


def orders(image: MetadataImage, index: int = 0) -> PartitionImage:
    return image.topics_of("default")["orders"].partitions[index]


def applied(image: MetadataImage, changes: Sequence[Change]) -> MetadataImage:
    """The image after a commit; the same one after none."""
    return apply_changes(image, changes) if changes else image


def restarted(image: MetadataImage, node_id: int, incarnation_id: str) -> BrokerImage:
    """The broker as a new process describes itself: it knows nothing of its former state."""
    return replace(
        image.brokers[node_id],
        incarnation_id=incarnation_id,
        broker_epoch=0,
        is_fenced=False,
        in_controlled_shutdown=False,
        is_draining=False,
    )
