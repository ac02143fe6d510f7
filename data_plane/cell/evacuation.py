"""Replicas leave brokers that are lost and brokers that drain.

A broker that has been dead for replica.rebuild.delay.ms is lost: each of its replicas is replaced
by one on another broker, in the same place of the partition's order of preference. So is each
replica of a draining broker; the difference is only that a draining one still helps to copy. A
partition without a leader has nothing to copy from and waits.

The lost broker that comes back in the middle finds its replicas partly gone; what has begun is
brought to its end, what has not is left to it.

Where no other broker is left (three replicas on three brokers), nothing moves.

What follows a source (source_followers.py) leaves with it.

Deliberately absent: unregistering a drained broker, which an administrator does.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from data_plane.cell.metadata import NO_LEADER, PartitionImage
from data_plane.cell.moves import Mover
from data_plane.cell.reassignment import target_of


def evacuate(mover: Mover, leaving: AbstractSet[int]) -> None:
    """Start moving replicas off `leaving`, as many as the mover's bounds allow."""
    # A move that replaces another one may be complete at once, and make room for a further one.
    while _evacuate_once(mover, leaving):
        pass


def _evacuate_once(mover: Mover, leaving: AbstractSet[int]) -> bool:
    """One pass over all partitions; whether anything moved."""
    has_moved = False
    for place, partition in mover.draft.items():
        if leaving.isdisjoint(partition.replicas) or partition.leader == NO_LEADER:
            continue
        if mover.draft.is_follower(place):
            continue
        if mover.draft.is_full:
            return False
        target = _evacuated(mover, partition, leaving)
        if target != target_of(partition):
            mover.move(place, target)
            has_moved = True
    return has_moved


def _evacuated(
    mover: Mover, partition: PartitionImage, leaving: AbstractSet[int]
) -> tuple[int, ...]:
    """The partition's target with as many as possible of `leaving` replaced."""
    target = list(target_of(partition))
    busy = mover.busy()
    for position, node_id in enumerate(target):
        if node_id not in leaving:
            continue
        other = mover.placer.replacement(
            [other for other in target if other != node_id],
            node_id,
            is_leader=position == 0,
            excluded=busy | leaving,
        )
        if other is not None:
            target[position] = other
    return tuple(target)
