"""Moving a partition's replicas: start, cancel, complete.

    replicas 1 2 3, wanted 1 2 4

    start      replicas 1 2 4 3   adding 4   removing 3    4 follows the leader like any other
    ISR 1 2 4  replicas 1 2 4                              complete: 3 is told to drop its copy

The copies to be removed stay, and count, until all the added ones are in sync and the ISR without
the leaving ones is large enough to commit by itself: a reassignment is never the reason why there
are fewer safe copies than min.insync.replicas asks for. So it can wait for a broker that is away.
Cancelling is a reassignment back, by the same rules.

Invariants, while a reassignment is under way
- replicas = target, then `removing_replicas`; `adding_replicas` are the part of the target that
  was not there at the start.

Deliberately absent: where replicas should go (placement.py, evacuation.py, balance.py), and how
fast they are copied (the follower's throttle).
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from data_plane.cell.metadata import NO_LEADER, PartitionImage
from data_plane.cell.partition_state import effective_min_isr, with_isr, with_leader


def is_reassigning(partition: PartitionImage) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def target_of(partition: PartitionImage) -> tuple[int, ...]:
    """The replicas that there will be when everything under way is complete."""
    removing = partition.removing_replicas
    if not removing:
        return partition.replicas
    return tuple(node_id for node_id in partition.replicas if node_id not in removing)


def original_of(partition: PartitionImage) -> tuple[int, ...]:
    """The replicas that there would be had nothing been started."""
    adding = partition.adding_replicas
    if not adding:
        return partition.replicas
    return tuple(node_id for node_id in partition.replicas if node_id not in adding)


def start(partition: PartitionImage, target: Sequence[int]) -> PartitionImage:
    """The partition on its way to `target` (distinct broker ids, at least one). What was under way
    before ends: of the replicas that were being added for it, those that are not wanted any more
    leave at once unless they are in sync by now. Epochs are left alone."""
    original = original_of(partition)
    wanted = set(target)
    known = (*partition.isr, *partition.elr, *partition.last_known_elr)
    copies = {*original, *known, partition.leader}
    removing = tuple(
        node_id for node_id in partition.replicas if node_id not in wanted and node_id in copies
    )
    return replace(
        partition,
        replicas=(*target, *removing),
        adding_replicas=tuple(node_id for node_id in target if node_id not in original),
        removing_replicas=removing,
    )


def cancel(partition: PartitionImage) -> PartitionImage | None:
    """The partition on its way back; None when nothing is under way."""
    return start(partition, original_of(partition)) if is_reassigning(partition) else None


def complete(
    partition: PartitionImage, electable: AbstractSet[int], min_insync_replicas: int
) -> PartitionImage:
    """The partition with its target replicas alone, if it is time; else the same object. Epochs
    are left alone."""
    if not is_reassigning(partition) or partition.leader == NO_LEADER:
        return partition
    if not set(partition.adding_replicas) <= set(partition.isr):
        return partition
    removing = partition.removing_replicas
    isr = tuple(node_id for node_id in partition.isr if node_id not in removing)
    moved = replace(
        partition, replicas=target_of(partition), adding_replicas=(), removing_replicas=()
    )
    holders = (*partition.isr, *partition.elr, *partition.last_known_elr)
    holds_records = not set(removing).isdisjoint(holders)
    if holds_records and len(isr) < effective_min_isr(moved, min_insync_replicas):
        return partition
    moved = with_isr(moved, isr, min_insync_replicas)
    if moved.leader not in removing:
        return moved
    for node_id in moved.replicas:
        if node_id in isr and node_id in electable:
            return with_leader(moved, node_id)
    return partition
