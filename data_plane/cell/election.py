"""Who leads a partition next, and what becomes of ISR and ELR then (KIP-966).

Candidates are brokers that may lead (`electable`: unfenced, seen alive, not about to stop), in the
order of the replicas, from the first of these sets that has one:

1. the ISR;
2. the ELR: out of sync, but with all that was committed;
3. with ISR and ELR empty, the last known leader: all disks may have lost something, and nobody's
   log is longer. It is the one choice that can lose records although no topic asked for that, and
   it is made only when the alternative is to have lost them all;
4. where `unclean.leader.election.enable` says so, any replica.

Who is elected from outside the ISR joins it. After 3 and 4 it is alone there, and the ELR is empty:
what the others have may not be what this log says.

Deliberately absent: whether an election is needed (controller.py).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace

from data_plane.cell.metadata import NO_LEADER, PartitionImage
from data_plane.cell.partition_state import with_isr, with_leader


def elect(
    partition: PartitionImage,
    electable: AbstractSet[int],
    min_insync_replicas: int,
    *,
    is_unclean_allowed: bool,
) -> PartitionImage | None:
    """The partition with its new leader, None when nobody can lead it. Epochs are left alone."""
    candidates = [node_id for node_id in partition.replicas if node_id in electable]
    for node_id in candidates:
        if node_id in partition.isr:
            return with_leader(partition, node_id)
    for node_id in candidates:
        if node_id in partition.elr:
            isr = (*partition.isr, node_id)
            return with_leader(with_isr(partition, isr, min_insync_replicas), node_id)
    if not partition.isr and not partition.elr and partition.last_known_leader in candidates:
        return _lead_alone(partition, partition.last_known_leader)
    if is_unclean_allowed and candidates:
        return _lead_alone(partition, candidates[0])
    return None


def elect_preferred(
    partition: PartitionImage, electable: AbstractSet[int]
) -> PartitionImage | None:
    """The partition led by its first replica; None when that one leads already or cannot."""
    preferred = partition.replicas[0]
    if partition.leader == preferred or preferred not in electable:
        return None
    if preferred not in partition.isr:
        return None
    return with_leader(partition, preferred)


def without_brokers(
    partition: PartitionImage,
    gone: AbstractSet[int],
    stopping: AbstractSet[int],
    electable: AbstractSet[int],
    min_insync_replicas: int,
    *,
    is_unclean_allowed: bool,
) -> PartitionImage:
    """The partition as it should be once `gone` are dead and `stopping` are about to stop: both
    out of the ISR, and with a leader if there can be one. The same object when nothing changes.

    A leader that is about to stop goes on leading as long as nobody else can."""
    leaving = gone | stopping
    leader = partition.leader
    is_led = leader != NO_LEADER and leader not in leaving
    if is_led and leaving.isdisjoint(partition.isr):
        return partition
    remaining = tuple(node_id for node_id in partition.isr if node_id not in leaving)
    new = partition
    if remaining != partition.isr:
        new = with_isr(partition, remaining, min_insync_replicas)
    if is_led:
        return new
    # Not while the leader still serves, and not while somebody who has it all may yet come: after
    # a takeover a controller does not know who is alive, which is no reason to lose records.
    is_hopeless = leader not in stopping and gone >= {*new.isr, *new.elr}
    elected = elect(
        new,
        electable,
        min_insync_replicas,
        is_unclean_allowed=is_unclean_allowed and is_hopeless,
    )
    if elected is not None:
        return elected
    if leader in stopping:
        staying = tuple(
            node_id for node_id in partition.isr if node_id == leader or node_id not in leaving
        )
        if staying == partition.isr:
            return partition
        return with_isr(partition, staying, min_insync_replicas)
    return with_leader(new, NO_LEADER)


def _lead_alone(partition: PartitionImage, node_id: int) -> PartitionImage:
    return with_leader(replace(partition, isr=(node_id,), elr=()), node_id)
