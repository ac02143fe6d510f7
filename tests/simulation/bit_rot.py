"""BIT ROT, a part of the fault model (faults.py): a stored byte changes by itself.

It strikes one batch of a sealed segment that a checkpoint on the disk vouches for, of one replica
of a partition whose ISR is full and of whose disks none misses anything: while the broker runs,
after it was killed, or after it has stopped cleanly. From that batch on the disk counts as lost for
this partition, until the broker has cut its log there and got it again; within the bounded time
of `Cell.settle` it has to. So in the cells that have bit rot the scrubber goes round all the time.

What a process has written itself it does not check before it reads it again; of that only what lies
behind the headers is struck while it runs. Consumers and followers refuse it by its checksum, as
real ones do, until the scrubber has come round.

Not struck: what is not covered by a checksum (base offset, leader epoch), and small files: how they
are judged is tested in tests/log. The numbers are drawn from a stream of their own, and cells
without bit rot are what they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from data_plane.cell.metadata import PartitionImage, TopicImage
from data_plane.cell.reassignment import target_of
from data_plane.log.segment import Segment
from data_plane.wire.records import iter_batch_headers
from tests.simulation.partition_history import PartitionHistory
from tests.simulation.replicas import Batch, DiskView
from tests.simulation.world import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.cell import Cell
    from tests.simulation.node import Node

KIND = "bit rot"
# Of all seeds, so many have it.
CHANCE = 0.3
INTERVAL_MS = 300
DOWN_MS_MAX = 1500
STOPPED_LOOK_US = 100_000
# Of a batch: where what the checksum covers begins, with the length before it, and the records.
CHECKED = (*range(8, 12), *range(16, 61))
HEADER_BYTES = 61
PROPERTIES = {
    "log.scrub.interval.ms": "300",
    "log.roll.ms": "800",
    "log.flush.offset.checkpoint.interval.ms": "500",
}


class Place(NamedTuple):
    """What is to be struck: a batch of a view, and the bytes [start, end) of a file."""

    view: DiskView
    batch: Batch
    path: str
    start: int
    end: int


class BitRot:
    """See the module."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._world = cell.world
        self._random = cell.world.stream(KIND)
        only = cell.options.faults
        is_drawn = self._random.random() < CHANCE
        self.is_chosen = is_drawn if only is None else KIND in only

    def properties(self) -> dict[str, str]:
        """What brokers need to find it within seconds."""
        return PROPERTIES if self.is_chosen else {}

    def start(self) -> None:
        """Begin, together with the other faults."""
        if self.is_chosen:
            self._next()

    def _next(self) -> None:
        delay_ms = self._random.expovariate(1 / INTERVAL_MS) + 20
        self._world.at(int(delay_ms * US_PER_MS), self._strike)

    def _strike(self) -> None:
        if not self._cell.faults.is_on:
            return
        nodes = [
            node
            for node in self._cell.nodes.values()
            if node.is_up and not node.is_paused and not node.is_stopping
        ]
        if nodes:
            node = self._random.choice(nodes)
            place = self._choose(node)
            if place is not None:
                self._random.choice((self._while_it_runs, self._when_killed, self._when_stopped))(
                    node, place
                )
        self._next()

    # What is struck

    def _choose(self, node: Node) -> Place | None:
        history = self._cell.history
        views = [
            view
            for key, view in history.disks.get(node.name, {}).items()
            if self._may_strike(node, history.partition(key))
        ]
        if not views:
            return None
        view = self._random.choice(views)
        log = view.log
        if log is None or log.is_closed or not log.is_loaded or log.log_directory.failure:
            return None
        segments = [
            segment
            for segment in log.segments
            if segment.sealed
            and segment.size
            and not segment.bad_ranges
            and segment.next_offset <= log.checkpointed_recovery_point
        ]
        return self._choose_batch(node, view, self._random.choice(segments)) if segments else None

    def _may_strike(self, node: Node, partition: PartitionHistory) -> bool:
        topic = self._cell.store.image.topics_by_id.get(partition.key[0])
        if topic is None or partition.key[1] >= len(topic.partitions):
            return False
        state = topic.partitions[partition.key[1]]
        return (
            node.node_id in state.isr
            and set(state.isr) == set(state.replicas)
            and self._stays_copied(topic, state)
            and not (partition.lost or partition.rotten or partition.doubted)
        )

    def _stays_copied(self, topic: TopicImage, state: PartitionImage) -> bool:
        """Whether no administrator leaves it to a single disk, which may be the damaged one."""
        planned = {plan.name: plan.replicas for plan in self._cell.workload.plans}
        return len(target_of(state)) > 1 and planned.get(topic.name, 2) > 1

    def _choose_batch(self, node: Node, view: DiskView, segment: Segment) -> Place | None:
        data = node.fs.read_file(segment.path())
        partition = self._cell.history.partition(view.topic_partition)
        found = []
        for header in iter_batch_headers(data, 0, len(data)):
            batch = view.find(header.base_offset)
            is_there = batch is not None and partition.by_offset.get(header.base_offset) == batch
            if batch is not None and is_there and batch.base_offset >= view.start_offset:
                place = Place(view, batch, segment.path(), header.position, header.end_position)
                found.append(place)
        return self._random.choice(found) if found else None

    # When

    def _while_it_runs(self, node: Node, place: Place) -> None:
        self._flip(node, place, self._random.randrange(place.start + HEADER_BYTES, place.end))

    def _when_killed(self, node: Node, place: Place) -> None:
        node.die(keeps_page_cache=True)
        self._flip_anywhere(node, place)
        self._start_later(node)

    def _when_stopped(self, node: Node, place: Place) -> None:
        node.request_stop()
        self._world.at(STOPPED_LOOK_US, self._await_stop, node, place)

    def _await_stop(self, node: Node, place: Place) -> None:
        if node.is_on and node.is_stopping:
            self._world.at(STOPPED_LOOK_US, self._await_stop, node, place)
            return
        partition = self._cell.history.partition(place.view.topic_partition)
        is_known = self._cell.history.disks.get(node.name, {}).get(partition.key) is place.view
        if node.is_on or not is_known or not self._cell.faults.is_on:
            return
        if (
            place.view.holds(place.batch)
            and not (partition.lost or partition.rotten)
            and self._is_copied(node, partition)
        ):
            self._flip_anywhere(node, place)
        self._start_later(node)

    def _is_copied(self, node: Node, partition: PartitionHistory) -> bool:
        """Whether others are in sync, too. While one of two stopped, its leader's ISR may have
        shrunk to itself."""
        topic = self._cell.store.image.topics_by_id.get(partition.key[0])
        if topic is None or partition.key[1] >= len(topic.partitions):
            return False
        return any(one != node.node_id for one in topic.partitions[partition.key[1]].isr)

    def _start_later(self, node: Node) -> None:
        delay_ms = self._random.randint(20, DOWN_MS_MAX)
        self._world.at(delay_ms * US_PER_MS, self._start, node)

    def _start(self, node: Node) -> None:
        if self._cell.faults.is_on and not node.is_on:
            node.start()

    # The strike

    def _flip_anywhere(self, node: Node, place: Place) -> None:
        offsets = (*CHECKED, *range(HEADER_BYTES, place.end - place.start))
        self._flip(node, place, place.start + self._random.choice(offsets))

    def _flip(self, node: Node, place: Place, position: int) -> None:
        try:
            size = node.fs.size(place.path)
        except FileNotFoundError:
            return  # Retention was faster.
        if size < place.end:
            return
        node.fs.flip_bit(place.path, position, self._random.randrange(8))
        self._world.count("rotten bits")
        partition = self._cell.history.partition(place.view.topic_partition)
        partition.rotten[node.name] = place.batch
        self._world.note(
            node.name, f"bit rot in {partition} at byte {position} of {place.path}: {place.batch}"
        )
