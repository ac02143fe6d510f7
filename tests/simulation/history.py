"""What was committed and what was promised, and whether the cell keeps to it.

After each pass of a broker this looks at the logs that changed (replicas.py) and checks

- a leader's high watermark covers only batches that every member of the ISR which it believes in
  has on its disk, and never fewer than min.insync.replicas of them;
- what lies below a high watermark is the same on every replica and for ever: `Partition.batches`
  grows and is never rewritten. Readers may rely on what they have read;
- in it, each idempotent producer's sequences go on by one, within an epoch, and each new epoch
  begins at zero: no duplicate, no gap, no change of order;
- a broker that comes to lead has everything that was committed;
- a replica's high watermark is that of its log, and not above its end.

The one excuse is that disks lost what they held (`LostRange`): power loss within the unsynced tail,
a wiped disk. As long as fewer than min.insync.replicas disks of a partition have lost a batch, and
its topic does not allow unclean elections, nothing may be missing, however many machines have lost
power: what their disks kept counts. A process that was killed has lost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation import audit
from tests.simulation.committed import CommittedLogs
from tests.simulation.compacted import CompactedRecords, CompactedView
from tests.simulation.delays import DelayWatch
from tests.simulation.held import HeldWatch
from tests.simulation.partition_history import LostRange, PartitionHistory
from tests.simulation.progress import ProgressWatch
from tests.simulation.repairs import RepairWatch
from tests.simulation.replicas import DiskView, TopicPartition
from tests.simulation.retention import RetentionWatch
from tests.simulation.retries import RetryWatch

if TYPE_CHECKING:
    from data_plane.cell.metadata import MetadataImage, PartitionImage, TopicImage
    from data_plane.log.log import Log
    from tests.simulation.cell import Cell
    from tests.simulation.node import Node


class History:
    """See the module."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._world = cell.world
        self.partitions: dict[TopicPartition, PartitionHistory] = {}
        self.disks: dict[str, dict[TopicPartition, DiskView]] = {}
        self._images: dict[str, MetadataImage] = {}
        self.committed = CommittedLogs(cell, self.disks)
        self._repairs = RepairWatch(cell, self.committed)
        self.progress = ProgressWatch(cell)
        self.retention = RetentionWatch(cell)
        self.held = HeldWatch(cell)
        self.delays = DelayWatch(cell)
        self.retries = RetryWatch(cell)
        # What each broker led at the end of its last pass, by its own image.
        self._led: dict[str, set[TopicPartition]] = {}

    def partition(self, key: TopicPartition) -> PartitionHistory:
        found = self.partitions.get(key)
        if found is None:
            topic = self._cell.store.image.topics_by_id.get(key[0])
            name = str(key[0])[:8] if topic is None else topic.name
            found = self.partitions[key] = PartitionHistory(name, key)
            if topic is not None and self._cell.is_compacted(topic):
                found.compacted = CompactedRecords()
            self.held.begin(found)
        return found

    def _view(self, node: Node, key: TopicPartition, log: Log) -> DiskView:
        partition = self.partition(key)
        if partition.compacted is None:
            return DiskView(node.name, key, log)
        return CompactedView(node.name, key, log, partition)

    # Lives of brokers

    def node_opened(self, node: Node) -> None:
        """The logs are open again: compare them with what their disk held."""
        assert node.services is not None
        before = self.disks.get(node.name, {})
        after: dict[TopicPartition, DiskView] = {}
        logs = {(log.topic_id, log.partition): log for log in node.services.logs.logs()}
        self.disks[node.name] = after
        for key, log in logs.items():
            view = after[key] = self._view(node, key, log)
            if key in before:
                self.retention.reopened(node, before[key], log.log_start_offset)
            is_rotten = node.name in self.partition(key).rotten
            if (is_rotten or not log.is_loaded) and key in before:
                # Opened from the checkpoint: its figures must be right, its bytes are read later.
                # Of a damaged one the view is what it should hold.
                view = after[key] = before[key]
                view.reopened(log)
                if log.log_end_offset < view.end_offset:
                    # Power loss left it just as the checkpoint has it.
                    self._world.count("unsynced tails lost")
                    self._note_lost(view, max(log.log_end_offset, log.log_start_offset))
                    view.follow_end(self._world, self.partition(key).matching)
                continue
            self._follow(node, view, log)
            self._compare_recovered(before.get(key), view)
        for key, view in before.items():
            if key not in logs and self._is_hosted(node, key):
                # Power loss has taken it, or the directory has failed while it was opened.
                is_failed = bool(node.services.logs.offline_directories())
                self._note_lost(view, view.start_offset, is_disk_gone=is_failed)
        self._images.pop(node.name, None)

    def _compare_recovered(self, old: DiskView | None, new: DiskView) -> None:
        if old is None:
            return
        by_offset = {batch.base_offset: batch for batch in old.batches}
        # With the power a log start may be lost that the former process has found.
        first_offset = old.batches[0].base_offset if old.batches else old.end_offset
        for batch in new.batches:
            known = by_offset.get(batch.base_offset)
            # What was written in the pass that the end came in was never seen.
            if known != batch and first_offset <= batch.base_offset < old.end_offset:
                self._world.violate(f"{new}: recovery made {batch} of {known}")
        new.synced_end = min(old.synced_end, new.end_offset)
        partition = self.partition(new.topic_partition)
        if partition.compacted is None and not partition.is_lossy:
            new.go_on_from(old, may_begin_anew=old.is_power_lost)
        if new.end_offset < old.end_offset:
            self._world.count("unsynced tails lost")
            self._note_lost(old, max(new.end_offset, old.start_offset))

    def _note_lost(self, view: DiskView, start: int, *, is_disk_gone: bool = False) -> None:
        partition = self.partition(view.topic_partition)
        self._check_synced(partition, view, start, is_disk_gone)
        partition.dropped[view.node_name] = LostRange(start, view.end_offset)
        end = min(view.end_offset, partition.end_offset)
        if start < end:
            known = partition.lost.get(view.node_name)
            if known is not None:
                start, end = min(start, known.start), max(end, known.end)
            partition.lost[view.node_name] = LostRange(start, end)
            self._world.count("committed tails lost by a disk")
            self._world.note(view.node_name, f"has lost {partition} {start}..{end}")

    def _check_synced(
        self, partition: PartitionHistory, view: DiskView, start: int, is_disk_gone: bool
    ) -> None:
        """Where a topic asks for syncs, no committed record is in anybody's unsynced tail."""
        topic = self._cell.store.image.topics_by_id.get(partition.key[0])
        if topic is None or topic.configs.get("durability") != "fsync" or is_disk_gone:
            return
        if start < min(view.high_watermark, view.end_offset):
            self._world.violate(
                f"{view}: {start}..{view.high_watermark} was committed with durability=fsync, and "
                "power loss took it"
            )

    def _check_synced_in_isr(
        self, node: Node, partition: PartitionHistory, synced_offset: int
    ) -> None:
        """Where a topic asks for syncs, each member of the ISR has synced what is committed."""
        topic = self._cell.store.image.topics_by_id.get(partition.key[0])
        if topic is None or topic.configs.get("durability") != "fsync" or partition.is_lossy:
            return
        isr = topic.partitions[partition.key[1]].isr
        if node.node_id in isr and synced_offset < partition.end_offset:
            self._world.violate(
                f"{node.name} loses power in the ISR of {partition}, synced up to {synced_offset}, "
                f"committed is {partition.end_offset}"
            )

    def _is_hosted(self, node: Node, key: TopicPartition) -> bool:
        topic = self._cell.store.image.topics_by_id.get(key[0])
        return (
            topic is not None
            and key[1] < len(topic.partitions)
            and node.node_id in topic.partitions[key[1]].replicas
        )

    def registered(self, node_name: str) -> None:
        """A new life of that broker has entered the cell: what its disk lost is known."""
        for partition in self.partitions.values():
            for ranges in (partition.lost, partition.dropped):
                if node_name in ranges:
                    ranges[node_name].is_registered = True

    def node_stops(self, node: Node, *, is_power_lost: bool) -> None:
        """The process ends, perhaps in the middle of a pass in which it has already told others
        of what it stored; its disk keeps what it holds."""
        for view in self.disks.get(node.name, {}).values():
            log, view.log = view.log, None
            view.note_end(log, is_power_lost=is_power_lost)
            if is_power_lost:
                self.held.lost(node.name, view)
            is_whole = log is not None and log.log_start_offset <= log.log_end_offset
            # Not in the middle of beginning anew.
            if log is not None and is_whole and not log.is_closed and not log.log_directory.failure:
                view.log = log
                partition = self.partition(view.topic_partition)
                self._follow_ends(node, partition, view)
                # It may have told its leader of it, which may have taken it into the ISR for that.
                self._regained(partition, view)
                view.log = None
                if is_power_lost:
                    doubt = LostRange(view.start_offset, view.end_offset)
                    partition.doubted[node.name] = doubt
                    self._check_synced_in_isr(node, partition, view.synced_end)

    def disk_wiped(self, node: Node) -> None:
        """Everything on that disk is gone."""
        for view in self.disks.pop(node.name, {}).values():
            self.held.lost(node.name, view)
            self._note_lost(view, view.start_offset, is_disk_gone=True)
            self.partition(view.topic_partition).rotten.pop(node.name, None)
            self.partition(view.topic_partition).rotten_below.pop(node.name, None)
            self.partition(view.topic_partition).outlived.pop(node.name, None)

    # Passes

    def pass_ended(self, node: Node) -> None:
        """Look at what the broker's logs have become."""
        services = node.services
        assert services is not None
        image = services.image
        is_news = self._images.get(node.name) is not image
        if is_news:
            self._image_changed(node, image)
        views = self.disks[node.name]
        logs = services.logs.logs()
        for log in logs:
            key = (log.topic_id, log.partition)
            view = views.get(key)
            if view is None or view.log is not log:
                view = views[key] = self._view(node, key, log)
            seen = (log.log_end_offset, log.high_watermark, log.log_start_offset)
            if seen != view.seen:
                self._follow(node, view, log)
                self._check_replica(node, view, log)
                view.seen = (log.log_end_offset, log.high_watermark, log.log_start_offset)
            if isinstance(view, CompactedView):
                view.look(node)
        if len(views) > len(logs):
            known = {(log.topic_id, log.partition) for log in logs}
            for key in [key for key in views if key not in known]:
                del views[key]
                self.partition(key).rotten.pop(node.name, None)
                self.partition(key).rotten_below.pop(node.name, None)
                self.partition(key).outlived.pop(node.name, None)
        self.progress.look(node)
        if is_news:
            self._led[node.name] = {
                (topic.topic_id, index)
                for topic in image.topics_by_id.values()
                for index, state in enumerate(topic.partitions)
                if state.leader == node.node_id
            }

    def _check_replica(self, node: Node, view: DiskView, log: Log) -> None:
        """What a replica takes for committed is what its log does, and no more than that has."""
        assert node.services is not None
        # To look must not open what the broker has not opened.
        opened = node.services.partitions.opened()
        replica = next((one for one in opened if one.log is log), None)
        if replica is None or replica.is_closed or log.log_directory.failure is not None:
            # A disk that fails while a log is cut leaves it half cut, and is used no more.
            return
        high_watermark = replica.high_watermark
        if high_watermark > log.log_end_offset or high_watermark != log.high_watermark:
            self._world.violate(
                f"{view} ends at {log.log_end_offset}, high watermark {log.high_watermark}; its "
                f"replica's is {high_watermark}"
            )

    def _image_changed(self, node: Node, image: MetadataImage) -> None:
        known = self._images.get(node.name)
        if known is not None and known.version > image.version:
            self._world.violate(f"{node.name}'s image goes back to {image.version}")
        self._images[node.name] = image
        assert node.services is not None
        truth = self._cell.store.images.get(image.version)
        if not node.services.images.is_settled:
            # On its way to a newer one, of which it has the states of some partitions.
            self._world.count("images between two")
            if image.version >= node.services.newest_image.version:
                self._world.violate(
                    f"{node.name} counts as at version {image.version}, which it is on its way to"
                )
        elif truth is not image and truth != image:
            self._world.violate(f"{node.name}'s image {image.version} is not the store's")
        for topic in image.topics_by_id.values():
            for index, state in enumerate(topic.partitions):
                if state.leader == node.node_id:
                    self._leads(node, topic, index, state)

    def _leads(self, node: Node, topic: TopicImage, index: int, state: PartitionImage) -> None:
        partition = self.partition((topic.topic_id, index))
        leader = partition.leaders.setdefault(state.leader_epoch, node.node_id)
        if leader != node.node_id:
            self._world.violate(
                f"{partition} has two leaders in epoch {state.leader_epoch}: {leader} and "
                f"{node.node_id}"
            )
        current = self._cell.store.image.topics_by_id.get(topic.topic_id)
        if current is not None and current.partitions[index].leader_epoch == state.leader_epoch:
            self.committed.check_complete(node, partition)
            self.held.check(node.name, partition, self.disks[node.name].get(partition.key))

    def _follow(self, node: Node, view: DiskView, log: Log) -> None:
        partition = self.partition(view.topic_partition)
        gained, lost = self._follow_ends(node, partition, view)
        self.retention.check_held(view)
        is_repaired = self._repairs.is_cut(node, partition, view, log)
        if is_repaired:
            self._world.note(node.name, f"cuts {partition} to {view.end_offset}, before the damage")
            audit.check_folds_of(self._cell, view)
        elif lost:
            self._world.count("truncations")
            self._world.note(node.name, f"truncates {partition} to {view.end_offset}")
            if node.services is not None:
                self.committed.check_truncation(partition, view)
                audit.check_folds_of(self._cell, view)
        if gained or lost or partition.lost:
            # Also an empty log that begins anew where the leader's log begins has all there is.
            self._regained(partition, view)
        if log.high_watermark != view.high_watermark or lost:
            self._high_watermark_moved(node, partition, view, log)

    def _follow_ends(
        self, node: Node, partition: PartitionHistory, view: DiskView
    ) -> tuple[int, int]:
        """Both ends of a log: (batches gained, batches lost)."""
        before = (view.start_offset, view.high_watermark, view.end_offset)
        was_empty = not view.batches
        gained, lost = view.follow_end(self._world, partition.matching)
        if view.start_offset != before[0]:
            is_anew = lost > 0 or was_empty
            log = view.log
            assert log is not None
            if not lost and log.high_watermark != view.high_watermark:
                # What is committed and old may go in the same pass.
                self._high_watermark_moved(node, partition, view, log)
            before = (before[0], view.high_watermark, before[2])
            self.retention.start_moved(node, partition, view, before=before, is_anew=is_anew)
        partition.start_offset = max(partition.start_offset, view.start_offset)
        return gained, lost

    def _may_fork(self, partition: PartitionHistory) -> bool:
        """Whether what was committed may have been replaced. Where unclean elections are allowed, a
        deposed leader that has not heard of it may still commit by itself."""
        return partition.is_lossy or self._cell.commits.allows_unclean(partition.key[0])

    def _has_unclean_heir(self, partition: PartitionHistory, state: PartitionImage) -> bool:
        """Whether somebody leads by now who owes nothing to the leader of `state`: after a loss, or
        because an unclean election took one from outside the ISR."""
        return self._may_fork(partition) and any(
            partition.is_lossy or heir not in state.isr
            for epoch, heir in partition.leaders.items()
            if epoch > state.leader_epoch
        )

    def _regained(self, partition: PartitionHistory, view: DiskView) -> None:
        for ranges in (partition.lost, partition.dropped):
            lost = ranges.get(view.node_name)
            if lost is not None and view.end_offset > lost.start:
                lost.start = view.end_offset
                if lost.start >= lost.end:
                    del ranges[view.node_name]

    def _high_watermark_moved(
        self, node: Node, partition: PartitionHistory, view: DiskView, log: Log
    ) -> None:
        high_watermark = log.high_watermark
        services = node.services
        is_leader = False
        state: PartitionImage | None = None
        if services is not None:
            topic = services.image.topics_by_id.get(view.topic_partition[0])
            if topic is not None and view.topic_partition[1] < len(topic.partitions):
                state = topic.partitions[view.topic_partition[1]]
                is_leader = state.leader == node.node_id
        view.high_watermark = high_watermark
        batches = view.batches
        position = view.hw_batches
        while position < len(batches) and batches[position].last_offset < high_watermark:
            batch = batches[position]
            known = partition.by_offset.get(batch.base_offset)
            if known is None and batch.last_offset >= partition.end_offset:
                if state is not None and self._has_unclean_heir(partition, state):
                    partition.is_lossy = True
                    break  # What it acknowledges by itself is lost, as it may be.
                if not is_leader:
                    if services is None or partition.is_lossy:
                        break  # It may be what the others have lost.
                    was_leader = partition.key in self._led.get(node.name, ())
                    self.committed.check_deposed(partition, view, batch, was_leader=was_leader)
                    state = None
                self.committed.commit(node, partition, batch, state)
                self.held.committed(partition, log, batch)
                self.delays.committed(partition, log, batch)
                self.retries.committed(partition, log, batch)
            elif known != batch and state is not None and self._has_unclean_heir(partition, state):
                partition.is_lossy = True
                break  # The heir has committed other batches there.
            elif known is not None and known != batch and not self._may_fork(partition):
                self._world.violate(f"{view} has {batch} where {known} is committed")
            position += 1
        view.hw_batches = position
