"""What may become of one partition's state: the rules of ISR, ELR and leadership (KIP-966).

Every change of a partition is made by one of these functions, whoever decides it: the leader that
changes its ISR, the controller that elects, a broker that registers, an administrator who moves
replicas. So the rules stand in one place:

- *Effective min ISR* is min.insync.replicas, but at most the replicas that the partition has
  without those that a reassignment is still adding: a copy that is being made must not stop
  producers. The high watermark moves only while the ISR is at least that large.
- A replica that leaves the ISR while that leaves fewer than the effective min ISR joins the ELR:
  nothing was committed without it since, so it has all that was. When the ISR is large enough
  again, the ELR is empty. A replica whose disk may have lost something is in neither.
- It is in the *last known ELR* instead, until the ISR is large enough again: together with ISR and
  ELR these are at least min.insync.replicas replicas that had all that was committed. So when ISR
  and ELR are empty, the longest of their logs is looked for (election.py). They report where their
  logs end; a report holds for one incarnation and until somebody leads.
- `last_known_leader` is who led when the partition lost its leader, until there is one again.

Worked example, min.insync.replicas=2, brokers die one after the other and come back:

    replicas 1 2 3   isr 1 2 3   elr -     leader 1
    3 dies           isr 1 2     elr -     leader 1     2 in sync are enough: 3 may miss records
    1 dies           isr 2       elr 1     leader 2     from here on nothing is committed
    2 dies           isr -       elr 1 2   leader -     last_known_leader 2
    1 comes back     isr 1       elr 2     leader 1     1 has all that was committed

and if from the fourth line on 1 and 2 come back after having lost power:

    1 comes back     isr -       elr 2     leader -     last known ELR 1
    2 comes back     isr -       elr -     leader -     last known ELR 1 2: both report
    both have        isr 2       elr -     leader 2     last known ELR 1: 2 had the longer log

Deliberately absent: who is alive, and so who should lead (election.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from data_plane.cell.metadata import NO_LEADER, LogEnd, MetadataImage, PartitionImage

NOBODY: frozenset[int] = frozenset()


def effective_min_isr(partition: PartitionImage, min_insync_replicas: int) -> int:
    """How many replicas have to be in sync for anything to be committed; at least 1."""
    lasting = len(partition.replicas) - len(partition.adding_replicas)
    return max(1, min(min_insync_replicas, lasting))


def may_join_isr(image: MetadataImage, node_id: int, broker_epoch: int) -> bool:
    """Whether a leader may take the follower into its ISR (KIP-841, KIP-903).

    `broker_epoch` is the one that the follower's fetches named: it proves that the follower which
    caught up is the incarnation that is registered, and not one that has lost its disk since."""
    broker = image.brokers.get(node_id)
    return (
        broker is not None
        and broker.broker_epoch == broker_epoch
        and not broker.is_fenced
        and not broker.in_controlled_shutdown
    )


def with_isr(
    partition: PartitionImage,
    isr: Iterable[int],
    min_insync_replicas: int,
    lost: Collection[int] = NOBODY,
) -> PartitionImage:
    """The same partition with another ISR, and the ELR and last known ELR that follow. Epochs are
    left alone.

    `lost` are replicas whose disks may have lost committed records: they join no ELR, but the last
    known one. The leader has to be in `isr`, or the caller sets another one."""
    isr = tuple(isr)
    if len(isr) >= effective_min_isr(partition, min_insync_replicas):
        return replace(partition, isr=isr, elr=(), last_known_elr=(), log_ends=())
    out = [
        node_id
        for node_id in dict.fromkeys((*partition.last_known_elr, *partition.elr, *partition.isr))
        if node_id not in isr and node_id in partition.replicas
    ]
    doubted = {*partition.last_known_elr, *lost}
    elr = tuple(node_id for node_id in out if node_id not in doubted)
    last_known_elr = tuple(node_id for node_id in out if node_id in doubted)
    log_ends = () if isr or elr else partition.log_ends
    return replace(partition, isr=isr, elr=elr, last_known_elr=last_known_elr, log_ends=log_ends)


def with_settled_elr(partition: PartitionImage, min_insync_replicas: int) -> PartitionImage:
    """The same partition without ELRs where the ISR is large enough by itself, which it becomes
    when min.insync.replicas is lowered: from then on records are committed that those in the ELRs
    do not have."""
    has_elr = partition.elr or partition.last_known_elr
    if has_elr and len(partition.isr) >= effective_min_isr(partition, min_insync_replicas):
        return replace(partition, elr=(), last_known_elr=(), log_ends=())
    return partition


def is_recovering(partition: PartitionImage) -> bool:
    """Whether the longest log of the last known ELR is being looked for."""
    return (
        partition.leader == NO_LEADER
        and not partition.isr
        and not partition.elr
        and bool(partition.last_known_elr)
    )


def with_log_end(partition: PartitionImage, end: LogEnd) -> PartitionImage:
    """The recovering partition with what a member of its last known ELR reports; the same object
    when that is known. Epochs are left alone."""
    if end in partition.log_ends:
        return partition
    return replace(partition, log_ends=(*_other_ends(partition, end.node_id), end))


def without_log_end(partition: PartitionImage, node_id: int) -> PartitionImage:
    """The same partition without the report of a broker whose new process may find another end."""
    others = _other_ends(partition, node_id)
    return partition if others == partition.log_ends else replace(partition, log_ends=others)


def _other_ends(partition: PartitionImage, node_id: int) -> tuple[LogEnd, ...]:
    return tuple(end for end in partition.log_ends if end.node_id != node_id)


def with_leader(partition: PartitionImage, leader: int) -> PartitionImage:
    """The same partition led by `leader` (in its ISR), or by nobody. Epochs are left alone."""
    if leader == NO_LEADER:
        last_known = partition.leader if partition.leader != NO_LEADER else None
        if last_known is None:
            return partition
        return replace(partition, leader=NO_LEADER, last_known_leader=last_known)
    assert leader in partition.isr
    return replace(partition, leader=leader, last_known_leader=NO_LEADER, log_ends=())


def without_damaged(
    partition: PartitionImage, node_id: int, live: Collection[int], min_insync_replicas: int
) -> PartitionImage:
    """The partition without a replica in ISR and ELR whose log is damaged; the same object when it
    is in neither, or has to stay. Epochs are left alone.

    It stays when nobody else leads, or could lead at once: one of the ISR that is in `live`. What
    is sound of its log is worth more than nothing."""
    others = tuple(other for other in partition.isr if other != node_id)
    if node_id not in (*partition.isr, *partition.elr):
        return partition
    if partition.leader in (node_id, NO_LEADER) and not any(other in live for other in others):
        return partition
    new = with_isr(partition, others, min_insync_replicas, lost=(node_id,))
    return with_leader(new, NO_LEADER) if new.leader == node_id else new


def next_epochs(
    old: PartitionImage, new: PartitionImage, *, is_fencing: bool = False
) -> PartitionImage:
    """`new` as the successor of `old`, ready for `ChangePartition`.

    The leader epoch grows when the leader changes, and when replicas are taken away (as in Apache
    Kafka), so that a replica which was removed is fenced by its old epoch. With `is_fencing` it
    grows anyway: what followers have fetched under the old one counts no more."""
    is_new_epoch = (
        is_fencing or new.leader != old.leader or not set(old.replicas) <= set(new.replicas)
    )
    return replace(
        new,
        leader_epoch=old.leader_epoch + is_new_epoch,
        partition_epoch=old.partition_epoch + 1,
    )
