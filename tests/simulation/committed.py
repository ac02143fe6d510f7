"""Whether what is committed is safe, and stays.

- A leader's high watermark covers only batches that every member of the ISR has on its disk: of the
  ISR that the leader believes in, and of the one that the store has by now (the leader may not have
  heard of it: its own proposal, whose answer was lost); and never fewer than min.insync.replicas.
- In the committed log each idempotent producer's sequences go on by one, within an epoch, and each
  new epoch begins at zero: no duplicate, no gap, no change of order.
- No replica truncates what was committed.
- Who comes to lead, and who joins an ISR, has everything that was committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.partition_history import PartitionHistory
from tests.simulation.replicas import Batch, DiskView, TopicPartition, is_on_disk

if TYPE_CHECKING:
    from data_plane.cell.metadata import PartitionImage
    from tests.simulation.cell import Cell
    from tests.simulation.node import Node

SEQUENCES = 1 << 31

# By broker, by partition.
Disks = dict[str, dict[TopicPartition, DiskView]]


class CommittedLogs:
    """See the module."""

    def __init__(self, cell: Cell, disks: Disks) -> None:
        self._cell = cell
        self._world = cell.world
        self._disks = disks

    def _state(self, key: TopicPartition) -> PartitionImage | None:
        """The partition as the store has it."""
        topic = self._cell.store.image.topics_by_id.get(key[0])
        if topic is None or key[1] >= len(topic.partitions):
            return None
        return topic.partitions[key[1]]

    def commit(
        self, node: Node, partition: PartitionHistory, batch: Batch, state: PartitionImage | None
    ) -> None:
        """A leader's high watermark has passed a batch for the first time."""
        if batch.base_offset < partition.end_offset:
            self._world.violate(f"{partition}: {batch} is committed over other batches")
        self._check_replicated(node, partition, batch, state)
        partition.batches.append(batch)
        partition.by_offset[batch.base_offset] = batch
        partition.end_offset = batch.last_offset + 1
        if batch.producer_id >= 0 and not batch.is_control:
            self._check_sequence(partition, batch)

    def _check_replicated(
        self, node: Node, partition: PartitionHistory, batch: Batch, state: PartitionImage | None
    ) -> None:
        if state is None:
            return
        isr_min = self._cell.effective_min_isr(node, partition.key, state)
        partition.isr_min = min(partition.isr_min, isr_min)
        if len(state.isr) < isr_min:
            self._world.violate(
                f"{node.name} commits {batch} of {partition} with an ISR of {state.isr}, "
                f"needed are {isr_min}"
            )
        members = set(state.isr)
        current = self._state(partition.key)
        if current is not None and current.leader_epoch == state.leader_epoch:
            members |= set(current.isr)
        missing = [
            f"b{member}"
            for member in sorted(members)
            if not self.has(f"b{member}", partition, batch)
            and not self._was_given_up(node, partition, member)
        ]
        if missing:
            self._world.violate(
                f"{node.name} commits {batch} of {partition}, which {missing} of its ISR "
                f"{state.isr} or of the store's do not have"
            )
        self._check_synced(node, partition, batch, members)

    def _was_given_up(self, leader: Node, partition: PartitionHistory, member: int) -> bool:
        """Whether a member of a leader's ISR has had to give its copy up since, which the leader
        has not heard of. It may be a replica again by now, that begins with nothing."""
        version = partition.removals.get(f"b{member}")
        current = self._state(partition.key)
        return (
            version is not None
            and leader.services is not None
            and leader.services.image.version < version
            and current is not None
            and member not in current.isr
        )

    def _check_synced(
        self, node: Node, partition: PartitionHistory, batch: Batch, members: set[int]
    ) -> None:
        """Where a topic asks for syncs, the copies that count are synced."""
        topic = self._cell.store.image.topics_by_id.get(partition.key[0])
        default = "fsync" if self._cell.is_synced else "none"
        if topic is None or topic.configs.get("durability", default) != "fsync":
            return
        for member in sorted(members):
            view = self._disks.get(f"b{member}", {}).get(partition.key)
            log = None if view is None else view.log
            if log is None or not log.recovery_point <= batch.last_offset < log.log_end_offset:
                continue
            # What was synced before a restart, or before the directory failed for another file's
            # sake, the log does not say.
            if not is_on_disk(log, batch):
                self._world.violate(
                    f"{node.name} commits {batch} of {partition}, which b{member} has synced up to "
                    f"{log.recovery_point} only"
                )

    def check_truncation(self, partition: PartitionHistory, view: DiskView) -> None:
        """A replica has cut its log: nothing of what was committed."""
        if partition.is_lossy or self._cell.commits.allows_unclean(partition.key[0]):
            return
        if self._may_begin_anew(partition, view):
            self._world.count("compacted copies dropped")
            return
        log_start = self._cell.log_start(*partition.key)
        for batch in view.cut:
            if batch.last_offset >= log_start and (
                partition.by_offset.get(batch.base_offset) == batch
            ):
                self._world.violate(f"{view} truncates {batch}, which is committed")

    def _may_begin_anew(self, partition: PartitionHistory, view: DiskView) -> bool:
        """Whether a copy that is empty now was one of a compacted log that nobody counts on: it may
        have been cleaned for the sake of records that went with the power of its own disk alone."""
        log, current = view.log, self._state(partition.key)
        if partition.compacted is None or log is None or current is None:
            return False
        counted = {f"b{member}" for member in (*current.isr, *current.elr, current.leader)}
        is_counted_on = view.node_name in counted
        return log.log_end_offset == log.anew_start_offset and not is_counted_on

    def check_cut(self, partition: PartitionHistory, node: Node) -> None:
        """A replica has cut a damaged log: nobody counts on it, and somebody leads."""
        current = self._state(partition.key)
        if current is None or self._cell.commits.allows_unclean(partition.key[0]):
            return
        counted = (*current.isr, *current.elr, current.leader)
        if node.node_id in counted:
            self._world.violate(
                f"{node.name} cuts its damaged copy of {partition} while the cell counts on it: "
                f"{current}"
            )

    def check_joining(self, partition: PartitionHistory, node_name: str, what: str) -> None:
        """A broker is in the ISR from now on."""
        if partition.batches and not partition.is_lossy:
            last = partition.batches[-1]
            if last.last_offset < partition.start_offset:
                return  # Deleted by its owner: nobody has to have it.
            dropped = partition.dropped.get(node_name)
            is_told = dropped is not None and dropped.is_registered
            view = self._disks.get(node_name, {}).get(partition.key)
            has_it = self.has(node_name, partition, last)
            if not has_it or (is_told and (view is None or not view.holds(last))):
                self._world.violate(
                    f"{node_name} joins the ISR of {partition} ({what}) without {last}"
                )

    def has(self, node_name: str, partition: PartitionHistory, batch: Batch) -> bool:
        """Whether that disk has the batch, or had it and lost it."""
        view = self._disks.get(node_name, {}).get(partition.key)
        if view is not None:
            log = view.log
            if log is not None and log.log_end_offset != view.end_offset:
                view.follow_end(self._world, partition.matching)
            if view.holds(batch):
                return True
        current = self._state(partition.key)
        if current is None or int(node_name[1:]) not in current.replicas:
            return True  # It had to give the replica up, which the leader has not heard yet.
        # It may have acknowledged the batch and lost it since.
        dropped = partition.dropped.get(node_name)
        return dropped is not None and dropped.start <= batch.base_offset < dropped.end

    def _check_sequence(self, partition: PartitionHistory, batch: Batch) -> None:
        count = batch.last_offset - batch.base_offset + 1
        known = partition.producers.get(batch.producer_id)
        following = (batch.base_sequence + count) % SEQUENCES
        partition.producers[batch.producer_id] = (batch.producer_epoch, following)
        if known is None or partition.is_lossy:
            return
        epoch, expected = known
        if batch.producer_epoch != epoch:
            expected = 0
        if batch.producer_epoch < epoch or batch.base_sequence != expected:
            if self._is_unknown_to_leader(partition, batch):
                # As in Kafka. What follows may repeat what was deleted.
                self._world.count("producers forgotten with their records")
                partition.is_lossy = True
                return
            self._world.violate(
                f"{partition}: {batch} is committed where sequence {expected} of epoch {epoch} "
                "was expected"
            )

    def _is_unknown_to_leader(self, partition: PartitionHistory, batch: Batch) -> bool:
        """Whether the leader that took a batch could not know its producer: its log began anew
        behind all that this one had written."""
        view = self._disks.get(f"b{partition.leaders.get(batch.epoch)}", {}).get(partition.key)
        return (
            view is not None
            and not view.begins_at_zero
            and not any(
                one.producer_id == batch.producer_id and one.base_offset < batch.base_offset
                for one in view.batches
            )
        )

    def check_deposed(
        self, partition: PartitionHistory, view: DiskView, batch: Batch, *, was_leader: bool
    ) -> None:
        """A follower's high watermark leads. That may be of its last moments as a leader: it heard
        in one pass that its ISR had shrunk and that another one leads by now, who has it all."""
        current = self._state(partition.key)
        if current is None:
            return
        heirs = [current.leader] if current.leader >= 0 else [*current.isr, *current.elr]
        if not was_leader or not all(self.has(f"b{heir}", partition, batch) for heir in heirs):
            self._world.violate(f"{view} has {batch} below its high watermark, no leader has")

    def check_complete(self, node: Node, partition: PartitionHistory) -> None:
        """A leader has all that was committed, or an excuse."""
        view = self._disks[node.name].get(partition.key)
        first: Batch | None = None
        for batch in reversed(partition.batches):
            is_deleted = batch.last_offset < partition.start_offset
            if is_deleted or (view is not None and view.holds(batch)):
                break
            first = batch
        if first is not None:
            offset = max(first.base_offset, partition.start_offset)
            self._missing(node, partition, offset)
        elif partition.batches and (view is None or view.end_offset < partition.start_offset):
            # All records were deleted, and so is the log that knew where to go on.
            partition.is_lossy = True
            self._begin_anew(partition, 0 if view is None else view.end_offset)

    def may_be_lost(self, partition: PartitionHistory, offset: int) -> bool:
        """Whether so many disks have lost a committed record that the cell may have, too."""
        return len(_losers(partition, offset)) >= partition.isr_min

    def _missing(self, node: Node, partition: PartitionHistory, offset: int) -> None:
        """The leader lacks committed records from `offset` on."""
        losers = _losers(partition, offset)
        is_unclean = self._cell.commits.allows_unclean(partition.key[0])
        if not is_unclean and not self.may_be_lost(partition, offset):
            self._world.violate(
                f"{node.name} leads {partition} without the committed records from {offset} to "
                f"{partition.end_offset}; lost by {losers or 'no disk'}, "
                f"needed {partition.isr_min}"
            )
        self._world.count("permitted losses")
        self._world.note(node.name, f"{partition} loses what lay above {offset}: {losers}")
        partition.is_lossy = True
        while partition.batches and partition.batches[-1].last_offset >= offset:
            del partition.by_offset[partition.batches.pop().base_offset]
        partition.end_offset = min(partition.end_offset, offset)
        view = self._disks[node.name].get(partition.key)
        # Without a view it has no log yet, and makes an empty one.
        begins_at = 0 if view is None else view.end_offset
        if begins_at < partition.start_offset:
            # Below the log start, too: the only log is gone and begins anew.
            self._begin_anew(partition, begins_at)
        partition.producers.clear()
        for views in self._disks.values():
            other = views.get(partition.key)
            if other is not None:
                other.hw_batches = min(other.hw_batches, len(other.batches))

    @staticmethod
    def _begin_anew(partition: PartitionHistory, offset: int) -> None:
        partition.batches.clear()
        partition.by_offset.clear()
        partition.producers.clear()
        partition.start_offset = partition.end_offset = offset


def _losers(partition: PartitionHistory, offset: int) -> list[str]:
    """The brokers whose disks have lost the record at `offset`."""
    losers = [name for name, lost in partition.lost.items() if lost.start <= offset < lost.end]
    return losers + [
        name
        for name, batch in partition.rotten.items()
        if batch.base_offset <= offset and name not in losers
    ]
