"""DELAYS: messages that are hidden until they are due, through all that befalls a cell.

    delays-0   0 [hidden, due 900]   1 plain   2 [hidden, due 0]   …   7 fired: the message of 2
    the truth  what was committed: hidden messages, and which were delivered or cancelled since

Each batch is looked at when it is committed. A delivered message is that of its original, which was
committed before it, is delivered for the first time, and by the clock of whoever delivers it not
before it is due; by the time of the world, too, give or take what clocks are off. Readers see
all but what is hidden, and nothing else. In the end every message that nobody has cancelled has
been delivered, also those whose originals lie below the log start that readers see.

What a broker's fold says is pending is what a replay of its own disk gives, at any time. Pending
sets are small here, so that they have runs.

In some cells the topic is compacted. Disks differ then, and readers see what is left
(compacted.py).

Messages are cancelled and moved, too (commander.py), and what then becomes of them is what the
committed commands say (delayed_truth.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from data_plane.cell.virtual_topics import HEADERS_PROPERTY
from data_plane.log.fold import FoldContext
from data_plane.wire.kernel_types import FACTS_FLAG, HIDDEN_FLAG
from data_plane.wire.records import (
    BatchHeader,
    NewRecord,
    Record,
    decode_batch,
    iter_batch_headers,
)
from features.delayed.commands import ID_HEADER
from features.delayed.fold import DelayedMessages, make_fold, source_offset
from features.delayed.pending_entries import entries_in
from features.delayed.pending_set import PendingSet
from features.delayed.times import DELAY_HEADER, DELIVER_AT_HEADER, deliver_at_ms
from tests.simulation.admin import TopicPlan
from tests.simulation.delayed_truth import DelayedTruth, Delivery, Untrue, facts_of
from tests.simulation.held import stored_batch
from tests.simulation.producer import Outgoing, Producer
from tests.simulation.reader import Target
from tests.simulation.replicas import READ_BYTES, DiskView, TopicPartition, looking_from_outside
from tests.simulation.shown_reader import ShownReader
from tests.simulation.world import EPOCH_MS, US_PER_MS

if TYPE_CHECKING:
    from data_plane.log.log import Log
    from tests.simulation.cell import Cell
    from tests.simulation.partition_history import PartitionHistory
    from tests.simulation.replicas import Batch

DELAYS = "delays"
INTERVAL_MS = 40
# How far a broker's clock may be off before it neither delivers nor takes delays.
SKEW_MS_MAX = 500
PROPERTIES = {"clock.skew.max.ms": str(SKEW_MS_MAX)}
# Where clocks are set, all of them may be off by that, and the store's, too.
EARLY_MS_MAX = 10_000
# What a clock is off is measured now and then.
EARLY_MS_MAX_OF_STEADY = 2 * SKEW_MS_MAX
# Of messages; after so many they are used again.
IDS = 60
KEYS = 25
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "300",
}
# Edges of the wheel's slots among them; what is in the past is due at once.
DELAYS_MS = (-3_600_000, 0, 1, 15, 255, 256, 257, 700, 2_500)


def plan_delays(rng: Random) -> TopicPlan:
    """Segments of it are sealed within a second; in half of the cells it forgets what readers saw
    long before all is delivered, and in some it is compacted."""
    configs = {HEADERS_PROPERTY: "true", "segment.ms": rng.choice(("200", "600"))}
    if rng.random() < 0.5:
        configs |= {"retention.ms": "400", "file.delete.delay.ms": rng.choice(("0", "200"))}
    partitions = rng.randint(1, 2)
    if rng.random() < 0.4:
        configs |= COMPACTED
        configs["cleanup.policy"] = "compact,delete" if "retention.ms" in configs else "compact"
    return TopicPlan(DELAYS, partitions, 3, configs)


class SmallMessages(DelayedMessages):
    """Keeps so little in memory that a short log has runs."""

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self.pending = PendingSet(
            self._context.fs,
            self._context.folder,
            near_max=16,
            near_low=4,
            run_entries=8,
            runs_merged=2,
            done_max=6,
        )


def make_small_fold(context: FoldContext) -> SmallMessages | None:
    return None if make_fold(context) is None else SmallMessages(context)


class DelayingProducer(Producer):
    """Idempotent, of messages of which most are for later."""

    def _records(self, batch: Outgoing) -> list[NewRecord]:
        created_ms = EPOCH_MS + batch.created_us // US_PER_MS
        records = []
        for number, record in enumerate(super()._records(batch), start=batch.first_number):
            # The same on each try.
            record = record._replace(key=b"d%d" % (number * 7919 % KEYS))
            delay_ms = DELAYS_MS[number * 7919 % len(DELAYS_MS)]
            kind = number % 5
            # Some share it, with those of their batch, or with later ones.
            named = ((ID_HEADER, b"m%d" % (number // 4 % IDS)),) if number % 3 else ()
            if kind == 0:
                records.append(record)
            elif kind < 3 and delay_ms > 0:
                time = DELAY_HEADER, b"%dms" % delay_ms
                records.append(record._replace(headers=(*named, time)))
            else:
                time = DELIVER_AT_HEADER, b"%d" % (created_ms + delay_ms)
                records.append(record._replace(headers=(time, *named)))
        return records


class DelayWatch:
    """The truth about all partitions with delayed messages."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._world = cell.world
        # None where nobody keeps count any more.
        self._truths: dict[TopicPartition, DelayedTruth | None] = {}
        faults = cell.options.faults
        is_steady = faults is not None and "clock" not in faults
        self._early_ms_max = EARLY_MS_MAX_OF_STEADY if is_steady else EARLY_MS_MAX
        # By clocks that are days off a message may be due in days, or be delivered days too soon.
        self.has_clock_errors = "clock errors" in cell.extras

    def truth(self, partition: PartitionHistory) -> DelayedTruth | None:
        if partition.topic != DELAYS:
            return None
        losers = self._cell.history.held.losers_of(partition.key)
        if partition.is_lossy or len(losers) >= partition.isr_min:
            # So many disks have lost something that what is below the log start may be gone.
            self._truths[partition.key] = None
        return self._truths.setdefault(partition.key, DelayedTruth())

    def committed(self, partition: PartitionHistory, log: Log, batch: Batch) -> None:
        """`log` has the batch, which is committed now."""
        truth = self.truth(partition)
        if truth is None or batch.is_control:
            return
        found = stored_batch(log, batch.base_offset)
        if found is None or found[0].crc != batch.crc:
            # Retention was as quick as the commit, or the cleaner.
            self._truths[partition.key] = None
            return
        header, records = found
        messages_count = len(truth.messages)
        commands_count = len(truth.stored)
        cancelled_count = len(truth.cancelled)
        try:
            for delivery in truth.take(header, records):
                self._delivered(partition, delivery)
        except Untrue as untrue:
            self._world.violate(f"{partition}: {untrue}")
        self._world.count("delayed messages committed", len(truth.messages) - messages_count)
        self._world.count("commands committed", len(truth.stored) - commands_count)
        self._world.count("delayed messages cancelled", len(truth.cancelled) - cancelled_count)

    def _delivered(self, partition: PartitionHistory, delivery: Delivery) -> None:
        record, offset, due_ms = delivery
        self._world.count("delayed messages delivered")
        is_early = self._world.now_ms < due_ms - self._early_ms_max
        if record.timestamp < due_ms or (is_early and not self.has_clock_errors):
            self._world.violate(
                f"{partition}: the message at {offset}, due at {due_ms}, is delivered with "
                f"{record.timestamp} at {self._world.now_ms}"
            )

    def open_ends(self) -> list[str]:
        """What is still to be delivered."""
        found = []
        for partition in self._cell.history.partitions.values():
            truth = self.truth(partition)
            if truth is None:
                continue
            limit_ms = self._world.now_ms if self.has_clock_errors else 1 << 62
            late = [offset for offset, one in truth.pending.items() if one.due_ms <= limit_ms]
            if late and self._follows_the_store(partition):
                self._world.count("deliveries that wait for a clock in the end")
            elif late:
                offset = min(late)
                found.append(
                    f"{partition}: {len(late)} messages are pending, the first at {offset}"
                    f", due at {truth.pending[offset].due_ms} (now {self._world.now_ms})"
                )
        return found

    def _follows_the_store(self, partition: PartitionHistory) -> bool:
        """Whether its leader takes the store's clock for further off than it is: it follows one
        that was set by a tenth of the time that passes (`FOLLOW_SHARE`), and delivers nothing
        meanwhile."""
        topic = self._cell.store.image.topics_by_id[partition.key[0]]
        node = self._cell.nodes.get(topic.partitions[partition.key[1]].leader)
        services = None if node is None else node.services
        skew_ms = None if services is None else services.wall_clock.skew_ms
        return skew_ms is not None and skew_ms > SKEW_MS_MAX


def check_pending(cell: Cell, view: DiskView, log: Log) -> None:
    """The fold against a replay of what is on the disk."""
    folds = [fold for fold in log.folds if isinstance(fold, DelayedMessages)]
    if not folds or log.log_directory.failure is not None:
        return
    if view.node_name in cell.history.partition(view.topic_partition).rotten_below:
        # What is damaged cannot be replayed.
        return
    pending = folds[0].pending
    with looking_from_outside(log):
        expected = _replayed(log)
        frozen = pending.freeze()
        try:
            found = {
                offset: due_ms
                for due_ms, offset in entries_in(log.log_directory.fs, log.folder, frozen)
            }
        finally:
            pending.thaw(frozen)
    if found != expected:
        cell.world.violate(f"{view}: pending are {found}, a replay gives {expected}")
    cell.world.count("pending messages compared with a replay", len(found))


def _replayed(log: Log) -> dict[int, int]:
    pending: dict[int, int] = {}
    for header, records in stored_in(log):
        for record in records:
            headers = dict(record.headers)
            if header.attributes & HIDDEN_FLAG and DELIVER_AT_HEADER in headers:
                pending[record.offset] = deliver_at_ms(headers[DELIVER_AT_HEADER])
            elif header.attributes & HIDDEN_FLAG:
                for fact in facts_of(record):
                    if fact.new_due_ms is None:
                        pending.pop(fact.offset, None)
                    else:
                        pending[fact.offset] = fact.new_due_ms
            elif header.attributes & FACTS_FLAG:
                pending.pop(source_offset(headers[b"tw-source"]), None)
    return pending


def stored_in(log: Log) -> Iterator[tuple[BatchHeader, list[Record]]]:
    offset = log.disk_start_offset
    while offset < log.log_end_offset:
        result = log.read_cold(
            offset,
            READ_BYTES,
            max_offset=log.log_end_offset,
            at_least_one_batch=True,
            of_disk=True,
        )
        for buffer in result.buffers:
            for header in iter_batch_headers(buffer, 0, len(buffer)):
                yield header, decode_batch(buffer, header.position)
        if result.next_offset <= offset:
            return
        offset = result.next_offset


class DelayedReader(ShownReader):
    """Sees what is not hidden. See the module."""

    way = "topic with delayed messages"

    def compare(
        self, target: Target, topic_id: UUID, begin: int, end: int, got: Sequence[Record]
    ) -> None:
        partition = self.cell.history.partitions[topic_id, target[1]]
        truth = self.cell.history.delays.truth(partition)
        if truth is None:
            return
        if partition.compacted is not None:
            self._compare_compacted(target, truth, begin, end, got)
            return
        wanted = [truth.shown[offset] for offset in range(begin, end) if offset in truth.shown]
        if [_said(one) for one in got] != [_said(one) for one in wanted]:
            self.world.violate(
                f"{self.name} got {[one.offset for one in got]} of {target} between {begin} and "
                f"{end}, not {[one.offset for one in wanted]}"
            )

    def _compare_compacted(
        self, target: Target, truth: DelayedTruth, begin: int, end: int, got: Sequence[Record]
    ) -> None:
        """No others than what was committed, and the newest of each key."""
        newest = {record.key: offset for offset, record in sorted(truth.shown.items())}
        for one in got:
            known = truth.shown.get(one.offset)
            if known is None:
                self.world.violate(f"{self.name} got {one} of {target}, where nothing is shown")
            is_blank = one.value is None and newest[known.key] > one.offset
            wanted = known._replace(value=None) if is_blank else known
            if _said(one) != _said(wanted):
                self.world.violate(f"{self.name} got {one} of {target}, committed is {known}")
        offsets = {one.offset for one in got}
        lost = [one for one in newest.values() if begin <= one < end and one not in offsets]
        if lost:
            self.world.violate(f"{self.name} got no {lost} of {target}, the newest of their keys")
        self.world.count("records read of compacted delays", len(got))


def _said(record: Record) -> tuple[Any, ...]:
    headers = tuple((key, value) for key, value in record.headers)
    return record.offset, record.timestamp, bytes(record.value or b""), headers


def steady_clocks(cell: Cell) -> None:
    """Clocks that agree well enough, until some fault sets one."""
    rng = cell.world.stream("delays")
    for node in cell.nodes.values():
        node.set_clock(
            rng.randint(-SKEW_MS_MAX // 2, SKEW_MS_MAX // 2), 1 + rng.uniform(-0.01, 0.01)
        )


def right_clocks(cell: Cell) -> None:
    """In the end all of them are right, so that what is due is delivered."""
    cell.store.clock_offset_ms = 0
    for node in cell.nodes.values():
        node.set_clock(0, 1.0)
