"""What a starting broker commits: its new incarnation, and what its disk may have lost.

A broker that stops cleanly leaves a mark on its disk which holds its broker epoch; one that was
killed while the machine went on has a checkpoint that holds it, and as much in its page cache. At
the next start it names that epoch; if it is the one under which it was registered, nobody else
started in between and its logs are whole, so it stays in every ISR and ELR. Otherwise records
that it acknowledged may be missing (a power loss takes what was not synced), and it leaves every
ISR and ELR in the commit that registers it: there is no moment at which a broker with such a disk
could be elected as one that has everything (KIP-966). It is remembered in the last known ELR, and
what its last life has reported of its logs is withdrawn.

Either way a registered broker is fenced and leads nothing: the controller unfences it when it
sees it alive, and elects. A leader that comes back gets a new epoch, so that what was sent to its
former life means nothing to the new one.

A broker that does not support what is finalized in the cell does not register (features.py).

Deliberately absent: elections. Only the controller elects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from data_plane.cell.changes import Change, ChangePartition, RegisterBroker
from data_plane.cell.features import OPEN_LEVEL, why_unsupported
from data_plane.cell.metadata import NO_LEADER, BrokerImage, MetadataImage, PartitionImage
from data_plane.cell.partition_state import (
    next_epochs,
    with_isr,
    with_leader,
    without_log_end,
)
from data_plane.cell.settings import ControllerSettings


class RegistrationRefused(Exception):
    """The cell cannot have this broker; the message is for the operator."""


def decide_registration(
    image: MetadataImage,
    broker: BrokerImage,
    clean_broker_epoch: int | None,
    settings: ControllerSettings,
) -> tuple[Change, ...]:
    """The changes that register this incarnation; none when the image has it already, which
    happens when the answer to the first attempt was lost.

    `clean_broker_epoch` is what the disk vouches for, None when it may have lost something. Raises
    RegistrationRefused."""
    reason = why_unsupported(broker.features, image.features)
    if reason:
        raise RegistrationRefused(f"broker {broker.node_id} cannot register: {reason}")
    known = image.brokers.get(broker.node_id)
    if (
        known is not None
        and broker.incarnation_id
        and known.incarnation_id == broker.incarnation_id
    ):
        return ()
    registered = replace(
        broker,
        # Below that level they could not be written, and the first one is all that clients get.
        listeners=broker.listeners if image.metadata_level >= OPEN_LEVEL else (),
        is_fenced=True,
        in_controlled_shutdown=False,
        is_draining=broker.is_draining or (known is not None and known.is_draining),
    )
    is_clean = known is not None and clean_broker_epoch == known.broker_epoch
    changes = _partition_changes(image, broker.node_id, is_clean, settings)
    return (RegisterBroker(registered), *changes)


def _partition_changes(
    image: MetadataImage, node_id: int, is_clean: bool, settings: ControllerSettings
) -> Iterator[ChangePartition]:
    for topic in image.topics_in_order():
        min_insync_replicas = settings.min_insync_replicas_of(topic)
        for index, old in enumerate(topic.partitions):
            new = old if is_clean else _without(old, node_id, min_insync_replicas)
            new = without_log_end(new, node_id)
            if new.leader == node_id:
                new = with_leader(new, NO_LEADER)
            if new is not old:
                yield ChangePartition(topic.topic_id, index, next_epochs(old, new))


def _without(partition: PartitionImage, node_id: int, min_insync_replicas: int) -> PartitionImage:
    """Without the broker in ISR and ELR, of which no others become members here."""
    if node_id not in partition.isr and node_id not in partition.elr:
        return partition
    isr = tuple(other for other in partition.isr if other != node_id)
    return with_isr(partition, isr, min_insync_replicas, lost=(node_id,))
