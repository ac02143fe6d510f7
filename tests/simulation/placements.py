"""Where the replicas of new partitions come: on nobody who drains or is about to stop.

In a simulation nobody names the brokers of a new topic, so all of them are the cell's own choice.
"""

from __future__ import annotations

from collections.abc import Iterable

from data_plane.cell.changes import AddPartitions, Change, CreateTopic
from data_plane.cell.metadata import MetadataImage
from tests.simulation.world import World


def check_placements(world: World, before: MetadataImage, changes: Iterable[Change]) -> None:
    """All new partitions of a commit."""
    for change in changes:
        if not isinstance(change, CreateTopic | AddPartitions):
            continue
        leaving = {
            broker.node_id
            for broker in before.brokers.values()
            if broker.is_draining or broker.in_controlled_shutdown
        }
        world.count("partitions placed beside a draining broker", bool(leaving))
        for assignment in change.assignments:
            if leaving.intersection(assignment):
                world.violate(f"{change} puts replicas on {sorted(leaving)}, who are leaving")
