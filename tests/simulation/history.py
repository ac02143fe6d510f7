"""What was committed and what was promised, and whether the cell keeps to it.

After each pass of a broker this looks at the logs that changed (replicas.py) and checks

- a leader's high watermark covers only batches that every member of the ISR which it believes in
  has on its disk, and never fewer than min.insync.replicas of them;
- what lies below a high watermark is the same on every replica and for ever: `Partition.batches`
  grows and is never rewritten. Readers may rely on what they have read;
- in it, each idempotent producer's sequences go on by one, within an epoch, and each new epoch
  begins at zero: no duplicate, no gap, no change of order;
- a broker that comes to lead has everything that was committed.

The one excuse is that disks lost what they held (`LostRange`): power loss within the unsynced tail,
a wiped disk. As long as fewer than min.insync.replicas disks of a partition have lost a batch, and
its topic does not allow unclean elections, nothing may be missing. Once one disk has really lost
it, the unsynced tail of a process that was killed counts as lost, too: the cell has to believe so,
since nobody can tell a kill from a loss of power, and may elect a log that has less. As long as no
disk has, kills alone excuse nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.replicas import Batch, DiskView, TopicPartition

if TYPE_CHECKING:
    from data_plane.cell.metadata import MetadataImage, PartitionImage, TopicImage
    from data_plane.log.log import Log
    from tests.simulation.cell import Cell
    from tests.simulation.node import Node

SEQUENCES = 1 << 31


@dataclass(slots=True)
class LostRange:
    """Offsets [start, end) that a disk had, and has lost. Once its broker has registered again,
    everybody has been told."""

    start: int
    end: int
    is_registered: bool = False


@dataclass(slots=True)
class Partition:
    """One partition's committed log and what is known of its disks."""

    topic: str
    key: TopicPartition
    batches: list[Batch] = field(default_factory=list)
    by_offset: dict[int, Batch] = field(default_factory=dict)
    start_offset: int = 0
    end_offset: int = 0
    # Every batch any disk ever held, by (base offset, epoch).
    matching: dict[tuple[int, int], Batch] = field(default_factory=dict)
    # producer id → (epoch, next sequence)
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)
    # What disks have lost and not got back: of what was committed then, and of all.
    lost: dict[str, LostRange] = field(default_factory=dict)
    dropped: dict[str, LostRange] = field(default_factory=dict)
    # What was in the unsynced tail of a process that ended without a farewell: the cell cannot know
    # whether it survived. Until that broker is in the ISR again.
    doubted: dict[str, LostRange] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)
    isr_min: int = 1 << 30
    # Loss was permitted at some time: unclean elections, or too many disks lost.
    is_lossy: bool = False

    def __str__(self) -> str:
        return f"{self.topic}-{self.key[1]}"


class History:
    """See the module."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._world = cell.world
        self.partitions: dict[TopicPartition, Partition] = {}
        self.disks: dict[str, dict[TopicPartition, DiskView]] = {}
        self._images: dict[str, MetadataImage] = {}
        # What each broker led at the end of its last pass, by its own image.
        self._led: dict[str, set[TopicPartition]] = {}

    def partition(self, key: TopicPartition) -> Partition:
        found = self.partitions.get(key)
        if found is None:
            topic = self._cell.store.image.topics_by_id.get(key[0])
            name = str(key[0])[:8] if topic is None else topic.name
            found = self.partitions[key] = Partition(name, key)
        return found

    # Lives of brokers

    def node_opened(self, node: Node) -> None:
        """The logs are open again: compare them with what their disk held."""
        assert node.services is not None
        before = self.disks.get(node.name, {})
        after: dict[TopicPartition, DiskView] = {}
        logs = {(log.topic_id, log.partition): log for log in node.services.logs.logs()}
        self.disks[node.name] = after
        for key, log in logs.items():
            view = after[key] = DiskView(node.name, key, log)
            if not log.is_loaded and key in before:
                # Opened from the checkpoint: its figures must be right, its bytes are read later.
                view = after[key] = before[key]
                view.log = log
                if (log.log_end_offset, log.log_start_offset) != (
                    view.end_offset,
                    view.start_offset,
                ):
                    self._world.violate(
                        f"{view} is opened as {log.log_start_offset}..{log.log_end_offset}, it was "
                        f"{view.start_offset}..{view.end_offset}"
                    )
                continue
            self._follow(node, view, log)
            self._compare_recovered(before.get(key), view)
        for key, view in before.items():
            if key not in logs and self._is_hosted(node, key):
                self._note_lost(view, view.start_offset)
        self._images.pop(node.name, None)

    def _compare_recovered(self, old: DiskView | None, new: DiskView) -> None:
        if old is None:
            return
        by_offset = {batch.base_offset: batch for batch in old.batches}
        for batch in new.batches:
            known = by_offset.get(batch.base_offset)
            # What was written in the pass that the end came in was never seen.
            if known != batch and batch.base_offset < old.end_offset:
                self._world.violate(f"{new}: recovery made {batch} of {known}")
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
        self, partition: Partition, view: DiskView, start: int, is_disk_gone: bool
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
            lost = partition.lost.get(node_name)
            if lost is not None:
                lost.is_registered = True

    def node_stops(self, node: Node) -> None:
        """The process ends, perhaps in the middle of a pass in which it has already told others
        of what it stored; its disk keeps what it holds."""
        for view in self.disks.get(node.name, {}).values():
            log, view.log = view.log, None
            if log is not None and not log.is_closed and log.log_directory.failure is None:
                view.log = log
                view.follow_end(self._world, self.partition(view.topic_partition).matching)
                view.log = None
                if log.recovery_point < view.end_offset:
                    doubt = LostRange(log.recovery_point, view.end_offset)
                    self.partition(view.topic_partition).doubted[node.name] = doubt

    def disk_wiped(self, node: Node) -> None:
        """Everything on that disk is gone."""
        for view in self.disks.pop(node.name, {}).values():
            self._note_lost(view, view.start_offset, is_disk_gone=True)

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
                view = views[key] = DiskView(node.name, key, log)
            seen = (log.log_end_offset, log.high_watermark, log.log_start_offset)
            if seen != view.seen:
                self._follow(node, view, log)
                view.seen = (log.log_end_offset, log.high_watermark, log.log_start_offset)
        if len(views) > len(logs):
            known = {(log.topic_id, log.partition) for log in logs}
            for key in [key for key in views if key not in known]:
                del views[key]
        if is_news:
            self._led[node.name] = {
                (topic.topic_id, index)
                for topic in image.topics_by_id.values()
                for index, state in enumerate(topic.partitions)
                if state.leader == node.node_id
            }

    def _image_changed(self, node: Node, image: MetadataImage) -> None:
        known = self._images.get(node.name)
        if known is not None and known.version > image.version:
            self._world.violate(f"{node.name}'s image goes back to {image.version}")
        self._images[node.name] = image
        truth = self._cell.store.images.get(image.version)
        if truth is not image and truth != image:
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
            self._check_complete(node, partition)

    def _check_complete(self, node: Node, partition: Partition) -> None:
        """A leader has all that was committed, or an excuse."""
        view = self.disks[node.name].get(partition.key)
        end_offset = 0
        if view is not None:
            log = view.log
            end_offset = view.end_offset if log is None else log.log_end_offset
        last = partition.batches[-1] if partition.batches else None
        if last is None or (view is not None and view.end_offset >= partition.end_offset):
            if last is not None and view is not None and not view.holds(last):
                self._missing(node, partition, last.base_offset)
            return
        self._missing(node, partition, end_offset)

    def _missing(self, node: Node, partition: Partition, offset: int) -> None:
        """The leader lacks committed records from `offset` on."""
        losers = [name for name, lost in partition.lost.items() if lost.start <= offset < lost.end]
        doubted = [
            name for name, doubt in partition.doubted.items() if doubt.start <= offset < doubt.end
        ]
        is_unclean = self._cell.commits.allows_unclean(partition.key[0])
        is_excused = bool(losers) and len({*losers, *doubted}) >= partition.isr_min
        if not is_unclean and not is_excused:
            self._world.violate(
                f"{node.name} leads {partition} without the committed records from {offset} to "
                f"{partition.end_offset}; lost by {losers or 'no disk'}, in doubt at {doubted}, "
                f"needed {partition.isr_min}"
            )
        self._world.count("permitted losses")
        self._world.note(node.name, f"{partition} loses what lay above {offset}: {losers}")
        partition.is_lossy = True
        while partition.batches and partition.batches[-1].last_offset >= offset:
            del partition.by_offset[partition.batches.pop().base_offset]
        partition.end_offset = min(partition.end_offset, offset)
        partition.producers.clear()
        for views in self.disks.values():
            view = views.get(partition.key)
            if view is not None:
                view.hw_batches = min(view.hw_batches, len(view.batches))

    def _follow(self, node: Node, view: DiskView, log: Log) -> None:
        partition = self.partition(view.topic_partition)
        gained, lost = view.follow_end(self._world, partition.matching)
        if lost:
            self._world.count("truncations")
            self._world.note(node.name, f"truncates {partition} to {view.end_offset}")
        if gained or lost or partition.lost:
            # Also an empty log that begins anew where the leader's log begins has all there is.
            self._regained(partition, view)
        if log.high_watermark != view.high_watermark or lost:
            self._high_watermark_moved(node, partition, view, log)

    def _regained(self, partition: Partition, view: DiskView) -> None:
        for ranges in (partition.lost, partition.dropped):
            lost = ranges.get(view.node_name)
            if lost is not None and view.end_offset > lost.start:
                lost.start = view.end_offset
                if lost.start >= lost.end:
                    del ranges[view.node_name]

    def _high_watermark_moved(
        self, node: Node, partition: Partition, view: DiskView, log: Log
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
                if not is_leader:
                    if services is None:
                        break
                    self._check_deposed(node, partition, view, batch)
                    state = None
                self._commit(node, partition, batch, state)
            elif known is not None and known != batch and not partition.is_lossy:
                self._world.violate(f"{view} has {batch} where {known} is committed")
            position += 1
        view.hw_batches = position

    def _check_deposed(
        self, node: Node, partition: Partition, view: DiskView, batch: Batch
    ) -> None:
        """A follower's high watermark leads. That may be of its last moments as a leader: it heard
        in one pass that its ISR had shrunk and that another one leads by now, who has it all."""
        topic = self._cell.store.image.topics_by_id.get(partition.key[0])
        if topic is None or partition.key[1] >= len(topic.partitions):
            return
        current = topic.partitions[partition.key[1]]
        heirs = [current.leader] if current.leader >= 0 else [*current.isr, *current.elr]
        was_leader = partition.key in self._led.get(node.name, ())
        if not was_leader or not all(self._has(f"b{heir}", partition, batch) for heir in heirs):
            self._world.violate(f"{view} has {batch} below its high watermark, no leader has")

    def _commit(
        self, node: Node, partition: Partition, batch: Batch, state: PartitionImage | None
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
        self, node: Node, partition: Partition, batch: Batch, state: PartitionImage | None
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
        missing = [
            f"b{member}" for member in state.isr if not self._has(f"b{member}", partition, batch)
        ]
        if missing:
            self._world.violate(
                f"{node.name} commits {batch} of {partition}, which {missing} of its ISR "
                f"{state.isr} do not have"
            )

    def _has(self, node_name: str, partition: Partition, batch: Batch) -> bool:
        """Whether that disk has the batch, or had it and lost it."""
        view = self.disks.get(node_name, {}).get(partition.key)
        if view is not None:
            log = view.log
            if log is not None and log.log_end_offset != view.end_offset:
                view.follow_end(self._world, partition.matching)
            if view.holds(batch):
                return True
        topic = self._cell.store.image.topics_by_id.get(partition.key[0])
        if topic is None or int(node_name[1:]) not in topic.partitions[partition.key[1]].replicas:
            return True  # It had to give the replica up, which the leader has not heard yet.
        # It may have acknowledged the batch and lost it since.
        dropped = partition.dropped.get(node_name)
        return dropped is not None and dropped.start <= batch.base_offset < dropped.end

    def _check_sequence(self, partition: Partition, batch: Batch) -> None:
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
            self._world.violate(
                f"{partition}: {batch} is committed where sequence {expected} of epoch {epoch} "
                "was expected"
            )
