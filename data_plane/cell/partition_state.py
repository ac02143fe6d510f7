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
- `last_known_leader` is who led when the partition lost its leader, until there is one again.

Worked example, min.insync.replicas=2, brokers die one after the other and come back:

    replicas 1 2 3   isr 1 2 3   elr -     leader 1
    3 dies           isr 1 2     elr -     leader 1     2 in sync are enough: 3 may miss records
    1 dies           isr 2       elr 1     leader 2     from here on nothing is committed
    2 dies           isr -       elr 1 2   leader -     last_known_leader 2
    1 comes back     isr 1       elr 2     leader 1     1 has all that was committed

Deliberately absent: who is alive, and so who should lead (election.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from data_plane.cell.metadata import NO_LEADER, MetadataImage, PartitionImage

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
    """The same partition with another ISR, and the ELR that follows. Epochs are left alone.

    `lost` are replicas whose disks may have lost committed records: they join no ELR. The leader
    has to be in `isr`, or the caller sets another one."""
    isr = tuple(isr)
    if len(isr) >= effective_min_isr(partition, min_insync_replicas):
        return replace(partition, isr=isr, elr=())
    candidates = (*partition.elr, *partition.isr)
    elr = tuple(
        dict.fromkeys(
            node_id
            for node_id in candidates
            if node_id not in isr and node_id not in lost and node_id in partition.replicas
        )
    )
    return replace(partition, isr=isr, elr=elr)


def with_settled_elr(partition: PartitionImage, min_insync_replicas: int) -> PartitionImage:
    """The same partition without ELR where the ISR is large enough by itself, which it becomes
    when min.insync.replicas is lowered: from then on records are committed that those in the ELR
    do not have."""
    if partition.elr and len(partition.isr) >= effective_min_isr(partition, min_insync_replicas):
        return replace(partition, elr=())
    return partition


def with_leader(partition: PartitionImage, leader: int) -> PartitionImage:
    """The same partition led by `leader` (in its ISR), or by nobody. Epochs are left alone."""
    if leader == NO_LEADER:
        last_known = partition.leader if partition.leader != NO_LEADER else None
        if last_known is None:
            return partition
        return replace(partition, leader=NO_LEADER, last_known_leader=last_known)
    assert leader in partition.isr
    return replace(partition, leader=leader, last_known_leader=NO_LEADER)


def next_epochs(old: PartitionImage, new: PartitionImage) -> PartitionImage:
    """`new` as the successor of `old`, ready for `ChangePartition`.

    The leader epoch grows when the leader changes, and when replicas are taken away (as in Apache
    Kafka), so that a replica which was removed is fenced by its old epoch."""
    is_new_epoch = new.leader != old.leader or not set(old.replicas) <= set(new.replicas)
    return replace(
        new,
        leader_epoch=old.leader_epoch + is_new_epoch,
        partition_epoch=old.partition_epoch + 1,
    )
