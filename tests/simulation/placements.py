"""Where the replicas of new partitions come: on nobody who drains or is about to stop.

In a simulation nobody names the brokers of a new topic, so all of them are the cell's own choice;
but those of a subscription's partitions are its source's, wherever that is.
"""

from __future__ import annotations

from collections.abc import Iterable

from data_plane.cell.changes import (
    AddPartitions,
    Change,
    ChangeBroker,
    CreateTopic,
    RegisterBroker,
)
from data_plane.cell.metadata import BrokerImage, MetadataImage
from tests.simulation.world import World


def check_placements(world: World, before: MetadataImage, changes: Iterable[Change]) -> None:
    """All new partitions of a commit, each by what its changes before that one have made of the
    brokers."""
    leaving = {broker.node_id for broker in before.brokers.values() if _is_leaving(broker)}
    for change in changes:
        if isinstance(change, ChangeBroker | RegisterBroker):
            node_id = change.broker.node_id
            (leaving.add if _is_leaving(change.broker) else leaving.discard)(node_id)
        if not isinstance(change, CreateTopic | AddPartitions) or _is_virtual(before, change):
            continue
        world.count("partitions placed beside a draining broker", bool(leaving))
        for assignment in change.assignments:
            if leaving.intersection(assignment):
                world.violate(f"{change} puts replicas on {sorted(leaving)}, who are leaving")


def _is_leaving(broker: BrokerImage) -> bool:
    return broker.is_draining or broker.in_controlled_shutdown


def _is_virtual(before: MetadataImage, change: CreateTopic | AddPartitions) -> bool:
    if isinstance(change, CreateTopic):
        return change.source_id is not None
    topic = before.topics_by_id.get(change.topic_id)
    return topic is not None and topic.source_id is not None
