"""Who leads a partition next, and what becomes of ISR and ELR then (KIP-966).

Candidates are brokers that may lead (`electable`: unfenced, seen alive, not about to stop), in the
order of the replicas, from the first of these sets that has one:

1. the ISR;
2. the ELR: out of sync, but with all that was committed;
3. with ISR and ELR empty, the last known ELR: all of them had everything that was committed, and
   each may have lost some of it. The longest log leads (by its last leader epoch, then its end;
   docs/adr/0016), once it is the longest of min.insync.replicas many, or of all where they are
   fewer: then it has all that was committed, unless so many disks have lost it. A log that cannot
   be read is none of them: its disk may come back with everything;
4. where `unclean.leader.election.enable` says so, any replica: of those that have reported the
   ends of their logs the one with the longest, else one of the last known ELR, and one that is only
   being added after all others. Not one that has reported that its disk has failed: it could only
   lead in name.

3 and 4 wait for members of the last known ELR that live and may yet report a longer log.

Who is elected from outside the ISR joins it. After 3 and 4 it is alone there, and the ELR is empty:
the others may lack what this log has. They stay in the last known ELR until the ISR is large enough
again, because until then this log may be the only one that is whole, or the next to be lost.

Deliberately absent: whether an election is needed (controller.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from data_plane.cell.metadata import NO_LEADER, LogEnd, PartitionImage
from data_plane.cell.partition_state import NOBODY, effective_min_isr, with_isr, with_leader


def elect(
    partition: PartitionImage,
    electable: AbstractSet[int],
    min_insync_replicas: int,
    *,
    is_unclean_allowed: bool,
    awaited: AbstractSet[int] = NOBODY,
) -> PartitionImage | None:
    """The partition with its new leader, None when nobody can lead it yet. Epochs are left alone.

    `awaited` are brokers that may come to be electable, or report where their logs end."""
    candidates = [node_id for node_id in partition.replicas if node_id in electable]
    for node_id in candidates:
        if node_id in partition.isr:
            return with_leader(partition, node_id)
    for node_id in candidates:
        if node_id in partition.elr:
            isr = (*partition.isr, node_id)
            return with_leader(with_isr(partition, isr, min_insync_replicas), node_id)
    if not partition.isr and not partition.elr:
        known = partition.last_known_elr
        reported = {end.node_id for end in partition.log_ends}
        if any(one in awaited and not (one in reported and one in electable) for one in known):
            return None
        longest = _longest(partition, candidates)
        if longest is not None and (
            is_unclean_allowed or _outdoes_enough(partition, longest, min_insync_replicas)
        ):
            return _lead_alone(partition, longest.node_id, min_insync_replicas)
        if not known and partition.last_known_leader in candidates:
            # An image from before there was a last known ELR.
            return _lead_alone(partition, partition.last_known_leader, min_insync_replicas)
    unreadable = {end.node_id for end in partition.log_ends if not end.is_readable}
    usable = [node_id for node_id in candidates if node_id not in unreadable]
    if is_unclean_allowed and usable:
        return _lead_alone(partition, _likeliest(partition, usable), min_insync_replicas)
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
    is_overdue: bool = False,
) -> PartitionImage:
    """The partition as it should be once `gone` are dead and `stopping` are about to stop: both
    out of the ISR, and with a leader if there can be one. The same object when nothing changes.

    A leader that is about to stop goes on leading as long as nobody else can. `is_overdue`: those
    that live had time to report where their logs end."""
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
    # a takeover a controller may not know who is alive, which is no reason to lose records.
    is_hopeless = leader not in stopping and gone >= {*new.isr, *new.elr}
    elected = elect(
        new,
        electable,
        min_insync_replicas,
        is_unclean_allowed=is_unclean_allowed and is_hopeless,
        awaited=NOBODY if is_overdue else frozenset(new.replicas) - leaving,
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


def _longest(partition: PartitionImage, candidates: Sequence[int]) -> LogEnd | None:
    """The longest of the candidates' logs, as far as they can be read; of equal ones the first."""
    ends = {end.node_id: end for end in partition.log_ends if end.is_readable}
    readable = [ends[node_id] for node_id in candidates if node_id in ends]
    return max(readable, key=lambda end: end.length, default=None)


def _likeliest(partition: PartitionImage, candidates: Sequence[int]) -> int:
    """Who of the candidates, of whose logs no end is known, has probably lost the least: of equal
    ones the first."""
    had_all = set(partition.last_known_elr)

    def rank(node_id: int) -> tuple[bool, bool]:
        # A copy that is still being made has little, or nothing yet.
        return node_id in partition.adding_replicas, node_id not in had_all

    return min(candidates, key=rank)


def _outdoes_enough(partition: PartitionImage, longest: LogEnd, min_insync_replicas: int) -> bool:
    """Whether the log is the longest of so many that one of them has each committed record, if
    that is still anywhere. Also the reports of those count that have died since."""
    outdone = sum(end.is_readable and end.length <= longest.length for end in partition.log_ends)
    enough = effective_min_isr(partition, min_insync_replicas)
    return outdone >= min(enough, len(partition.last_known_elr))


def _lead_alone(
    partition: PartitionImage, node_id: int, min_insync_replicas: int
) -> PartitionImage:
    others = {*partition.isr, *partition.elr} - {node_id}
    alone = with_isr(partition, (node_id,), min_insync_replicas, lost=others)
    return with_leader(alone, node_id)
