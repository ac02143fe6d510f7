"""Whether a partition's new state fits the one before.

Epochs go up by one, a leader is in the ISR, and what is named are replicas; ISR, eligible leader
replicas and the last known ones do not overlap (KIP-966).
"""

from __future__ import annotations

from data_plane.cell.invalid_change import InvalidChange
from data_plane.cell.metadata import NO_LEADER, PartitionImage


def check_partition_change(name: str, old: PartitionImage, new: PartitionImage) -> None:
    """Of the partition of that name. Raises InvalidChange."""
    if new.partition_epoch != old.partition_epoch + 1:
        raise InvalidChange(
            f"{name}: partition epoch {new.partition_epoch} does not follow {old.partition_epoch}"
        )
    is_new_leader = new.leader_epoch == old.leader_epoch + 1
    if not is_new_leader and (new.leader_epoch != old.leader_epoch or new.leader != old.leader):
        raise InvalidChange(
            f"{name}: leader {new.leader} in epoch {new.leader_epoch} after leader {old.leader} "
            f"in epoch {old.leader_epoch}"
        )
    replicas = set(new.replicas)
    if not replicas or len(replicas) != len(new.replicas):
        raise InvalidChange(f"{name}: replicas {new.replicas}")
    named = (*new.isr, *new.elr, *new.last_known_elr, *new.adding_replicas, *new.removing_replicas)
    if not replicas.issuperset(named):
        raise InvalidChange(f"{name}: {new} names brokers that are not replicas")
    if new.leader != NO_LEADER and new.leader not in new.isr:
        raise InvalidChange(f"{name}: leader {new.leader} is not in the ISR {new.isr}")
    if set(new.isr) & set(new.elr):
        raise InvalidChange(f"{name}: ISR {new.isr} and ELR {new.elr} overlap")
    if set(new.last_known_elr) & {*new.isr, *new.elr}:
        raise InvalidChange(f"{name}: the last known ELR overlaps with ISR or ELR: {new}")
    if new.log_ends:
        reporters = [end.node_id for end in new.log_ends]
        is_over = new.isr or new.elr or len(set(reporters)) != len(reporters)
        if is_over or not set(reporters) <= set(new.last_known_elr):
            raise InvalidChange(f"{name}: log ends that nobody asked for: {new}")
