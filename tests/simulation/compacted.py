"""Replicas of compacted topics: their disks differ batch by batch and agree on what is said.

    appended    k1=a  k2=b  k1=c  k2=∅          what every replica got, batch by batch
    on a disk         .      k1=c  k2=∅          what its cleaner has left; later without k2=∅

Each broker cleans by itself, so the same offsets hold the same record or nothing. A view of such a
disk takes a committed batch that is not there any more for one that the disk holds: what is said of
logs, ISRs and high watermarks elsewhere goes on unchanged. Whether the batch may be gone is asked
here, of the records themselves, when a log was cleaned or opened:

- each record below the high watermark is the committed one;
- the newest committed record of each key is there, unless it is a tombstone: that goes no sooner
  than its horizon, and the horizon lies delete.retention.ms ahead of the cleaning that set it; both
  by its broker's date, and, as far as an honest clock is right, by the time of the world;
- no older record of a key outlives a newer one, and in the cleaned part each key has one value;
- above the high watermark nothing is touched;
- what is hidden is no record of its key, but of one of its own, and may go: whether it is there as
  long as it is pending is known elsewhere (delays.py);
- the last batch of each producer is there, so that its sequence goes on; its last record, when it
  is superseded, without its value.

A replica that was away for longer than a tombstone lives never hears of it, in Kafka as here; such
a key is left out (`CompactedRecords.revived`) and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from data_plane.wire.kernel_types import HIDDEN_FLAG
from data_plane.wire.records import Record, decode_batch, iter_batch_headers
from features.delayed.commands import COMMAND_HEADERS
from features.delayed.times import DELIVER_AT_HEADER
from tests.simulation.replicas import READ_BYTES, Batch, DiskView, TopicPartition, batch_of
from tests.simulation.world import CLOCK_ERROR_MS_MAX

if TYPE_CHECKING:
    from data_plane.log.log import Log
    from tests.simulation.node import Node
    from tests.simulation.partition_history import PartitionHistory
    from tests.simulation.world import World

# A job is planned so long before its outcome is seen, at most.
PLANNED_MS_MAX = 500
# The same where the cleaner takes its time, and may be stopped meanwhile (brief_tables.py).
SLOWLY_PLANNED_MS_MAX = 6000
# With a clock that was set so recently nothing is said of times.
STEADY_CLOCK_US = 3_000_000

Key = bytes | None
# How those begin that stand for an offset.
HIDDEN_KEY = b"hidden "


class Said(NamedTuple):
    """A record: at which offset, of which key, what; a tombstone has no value."""

    offset: int
    key: Key
    value: bytes | None


class Stored(NamedTuple):
    """A batch as it stands on a disk."""

    batch: Batch
    records: tuple[Said, ...]
    horizon_ms: int | None


class CompactedRecords:
    """What was said in one partition, and which keys nothing can be said of."""

    def __init__(self) -> None:
        # (base offset, leader epoch) → the records of the batch when it was new.
        self.appended: dict[tuple[int, int], tuple[Said, ...]] = {}
        self.revived: set[Key] = set()
        # Key → when a disk last lost its tombstone.
        self.forgotten_us: dict[Key, int] = {}

    def committed(self, partition: PartitionHistory) -> dict[int, Said]:
        """By offset."""
        return {
            said.offset: said
            for batch in partition.batches
            for said in self.appended.get((batch.base_offset, batch.epoch), ())
        }

    def newest(self, partition: PartitionHistory) -> dict[Key, Said]:
        """The replay of the whole committed log."""
        return {said.key: said for said in self.committed(partition).values()}


class CompactedView(DiskView):
    """One replica of a compacted partition. See the module."""

    __slots__ = (
        "_bound",
        "_cleaned",
        "_cleaner_offset",
        "_ends",
        "_is_opened",
        "_partition",
        "_tombstones",
        "filled",
    )

    def __init__(
        self, node_name: str, key: TopicPartition, log: Log, partition: PartitionHistory
    ) -> None:
        super().__init__(node_name, key, log)
        self._partition = partition
        # Base offsets of batches that the disk does not hold any more, or got only a part of.
        self.filled: set[int] = set()
        # The same of those that this disk's own cleaner has rewritten or dropped.
        self._cleaned: set[int] = set()
        # Of each tombstone that the disk holds: when it may go.
        self._tombstones: dict[Said, int | None] = {}
        # The highest high watermark that this disk's logs have had; that of a new process is older.
        self._bound = 0
        # Where batches of producers end.
        self._ends: set[int] = set()
        self._cleaner_offset = log.cleaner_offset
        self._is_opened = True

    @property
    def records(self) -> CompactedRecords:
        found = self._partition.compacted
        assert found is not None
        return found

    @property
    def is_all_there(self) -> bool:
        """Whether the log goes as far as what is committed."""
        return self.end_offset >= self._partition.end_offset

    def whole_batches(self) -> Iterator[Batch]:
        """A batch that is not there any more, or in part, counts with the others elsewhere."""
        changed = self.filled | self._cleaned
        return (batch for batch in self.batches if batch.base_offset not in changed)

    def reopened(self, log: Log) -> None:
        """The same disk under a new process."""
        super().reopened(log)
        self._is_opened = True

    def _gain(self, log: Log, world: World, matching: dict[tuple[int, int], Batch]) -> int:
        count = len(self.batches)
        for stored in read_stored(log, self.end_offset, log.log_end_offset):
            batch = stored.batch
            if batch.base_offset < self.end_offset:
                if self._is_cut_off(batch):
                    continue
                world.violate(f"{self} holds overlapping batches: {batch}")
            self._fill(world, batch.base_offset)
            self._take(world, matching, stored)
        self._fill(world, log.log_end_offset)
        self.end_offset = log.log_end_offset
        return len(self.batches) - count

    def _take_off(self, end_offset: int) -> int:
        lost = super()._take_off(end_offset)
        if lost:
            self._tombstones = {
                said: horizon_ms
                for said, horizon_ms in self._tombstones.items()
                if said.offset < end_offset
            }
        return lost

    def _is_cut_off(self, batch: Batch) -> bool:
        """Whether the log begins within that batch."""
        return not self.batches and batch.base_offset < self.start_offset

    def _take(self, world: World, matching: dict[tuple[int, int], Batch], stored: Stored) -> None:
        batch = stored.batch
        key = (batch.base_offset, batch.epoch)
        known = matching.setdefault(key, batch)
        self._cleaned.discard(batch.base_offset)
        said = self.records.appended.setdefault(key, stored.records)
        blanked = {one._replace(value=None) for one in said}
        is_of_it = set(stored.records) <= set(said) | blanked
        is_same = batch == known._replace(
            crc=batch.crc, max_timestamp=batch.max_timestamp, size=batch.size
        )
        if not is_same or not is_of_it:
            world.violate(f"{self} has {stored}, another disk in the same epoch {known} {said}")
        if known.crc != batch.crc:
            self.filled.add(batch.base_offset)
        else:
            self.filled.discard(batch.base_offset)
        if self.batches and batch.epoch < self.batches[-1].epoch:
            world.violate(f"{self}: the leader epoch goes down at {batch}")
        self._tombstones.update(
            (one, stored.horizon_ms)
            for one in stored.records
            if one.value is None and not is_hidden_key(one.key)
        )
        if batch.producer_id >= 0:
            self._ends.add(batch.last_offset)
        self.batches.append(known)
        self.end_offset = batch.last_offset + 1

    def _fill(self, world: World, end: int) -> None:
        """A hole up to `end`: what was committed there has stood here, or would have."""
        partition = self._partition
        if self.end_offset >= end:
            return
        for batch in partition.batches:
            # What DeleteRecords has let begin within a batch may have lost the rest of that batch.
            is_next = batch.base_offset >= self.end_offset or (
                not self.batches and batch.last_offset >= self.start_offset
            )
            if is_next and batch.last_offset < end:
                if batch.base_offset > self.end_offset and not partition.is_lossy:
                    break
                self.batches.append(batch)
                self.filled.add(batch.base_offset)
                self.end_offset = batch.last_offset + 1
        if self.end_offset < end and not partition.is_lossy:
            world.violate(
                f"{self} has a hole {self.end_offset}..{end}, where nothing like that is committed"
            )
        self.end_offset = end

    # What the cleaner did.

    def look(self, node: Node) -> None:
        """After a pass: was it cleaned?"""
        log = self.log
        if log is None or not log.is_loaded or log.is_closed or log.log_directory.failure:
            return
        if self.node_name in self._partition.rotten:
            return  # Some of it cannot be read.
        self._bound = max(self._bound, log.high_watermark)
        if log.cleaner_offset == self._cleaner_offset and not self._is_opened:
            return
        if log.cleaner_offset > self._cleaner_offset and not self._is_opened:
            node.world.count("cleanings")
        self._cleaner_offset = log.cleaner_offset
        # What was done in another life was done by another clock.
        is_timely, self._is_opened = not self._is_opened, False
        if not self._partition.is_lossy:
            self.check(node, is_timely=is_timely)

    def check(self, node: Node, *, is_timely: bool = True) -> None:
        """The disk's records against what was said. See the module."""
        log = self.log
        assert log is not None
        stored = list(read_stored(log, log.log_start_offset, log.log_end_offset))
        held = {said.offset: said for one in stored for said in one.records}
        self._check_tail(node, log, held)
        self._check_keys(node, log, held)
        self._check_once(node, log, held)
        self._check_tombstones(node, stored, held, is_timely)
        self._check_producers(node, log, stored)
        self._note_cleaned(log, stored)

    def _note_cleaned(self, log: Log, stored: list[Stored]) -> None:
        whole = {(one.batch.base_offset, one.batch.crc) for one in stored}
        for batch in self.batches:
            if batch.last_offset >= log.cleaner_offset:
                break
            if (batch.base_offset, batch.crc) not in whole:
                self._cleaned.add(batch.base_offset)

    def _check_tail(self, node: Node, log: Log, held: dict[int, Said]) -> None:
        for batch in reversed(self.batches):
            if batch.base_offset < self._bound:
                break
            for said in self.records.appended.get((batch.base_offset, batch.epoch), ()):
                if held.get(said.offset) != said and batch.base_offset not in self.filled:
                    node.world.violate(
                        f"{self} has lost {said} above its high watermark {self._bound}"
                    )

    def _check_keys(self, node: Node, log: Log, held: dict[int, Said]) -> None:
        partition = self._partition
        committed = self.records.committed(partition)
        bound = min(log.high_watermark, partition.end_offset)
        newest = {said.key: said for said in committed.values()}
        newest_held = {said.key: said for offset, said in sorted(held.items()) if offset < bound}
        for said in held.values():
            if log.log_start_offset <= said.offset < bound:
                known = committed.get(said.offset)
                if known != said and not is_blanked(said, known, newest):
                    node.world.violate(f"{self} has {said}, committed is {known}")
        for key, said in newest.items():
            if said.offset >= bound or said.offset < log.log_start_offset:
                continue
            found = newest_held.get(key)
            if found == said or key in self.records.revived or is_hidden_key(key):
                continue
            if found is not None and found.value is None and said.value is None:
                continue  # The end of a producer's sequence, behind a tombstone that has gone.
            if found is not None:
                node.world.violate(f"{self} has {found}, and {said} is newer")
            if said.value is not None:
                node.world.violate(f"{self} has lost {said}, the newest of its key")

    def _check_once(self, node: Node, log: Log, held: dict[int, Said]) -> None:
        last: dict[Key, Said] = {}
        for offset, said in sorted(held.items()):
            before = last.get(said.key)
            if before is not None and before.value is not None and offset < log.cleaner_offset:
                node.world.violate(
                    f"{self} is clean up to {log.cleaner_offset}, and has {before} and {said}"
                )
            last[said.key] = said

    def _check_tombstones(
        self, node: Node, stored: list[Stored], held: dict[int, Said], is_timely: bool
    ) -> None:
        now_ms = node.date_ms
        is_steady = is_timely and node.world.now_us - node.clock_set_us > STEADY_CLOCK_US
        before, self._tombstones = (
            self._tombstones,
            {
                said: one.horizon_ms
                for one in stored
                for said in one.records
                if said.value is None and not is_hidden_key(said.key)
            },
        )
        newest = self.records.newest(self._partition)
        for said, horizon_ms in before.items():
            if said.offset in held or said.offset < self.start_offset:
                continue
            if newest.get(said.key) != said:
                continue
            if horizon_ms is not None and horizon_ms > node.world.now_ms + CLOCK_ERROR_MS_MAX:
                node.world.violate(
                    f"{self} has lost the tombstone {said} at {node.world.now_ms}, by an honest "
                    f"clock long before its time {horizon_ms}"
                )
            if horizon_ms is None or (horizon_ms > node.date_ms_max and is_timely):
                node.world.violate(
                    f"{self} has lost the tombstone {said} before its time {horizon_ms}, "
                    f"it was {node.date_ms_max} at the latest"
                )
            node.world.count("tombstones forgotten")
            self._forgotten(node, said)
        assert self.log is not None
        retention_ms = self.log.config.delete_retention_ms
        is_slow = "brief tables" in node.cell.extras
        planned_ms_max = SLOWLY_PLANNED_MS_MAX if is_slow else PLANNED_MS_MAX
        for said, horizon_ms in self._tombstones.items():
            if horizon_ms is None or before.get(said, 0) is not None or not is_timely:
                continue
            least_ms = node.world.now_ms - planned_ms_max + retention_ms
            if horizon_ms < least_ms - CLOCK_ERROR_MS_MAX:
                node.world.violate(
                    f"{self}: {said} may go at {horizon_ms}; an honest clock would have said "
                    f"{least_ms} at least"
                )
            if not is_steady:
                continue
            if horizon_ms < now_ms + retention_ms - planned_ms_max:
                node.world.violate(
                    f"{self}: {said} may go at {horizon_ms}, cleaned at {now_ms}, "
                    f"delete.retention.ms is {retention_ms}"
                )

    def _forgotten(self, node: Node, said: Said) -> None:
        """Nobody who comes later will hear of that tombstone."""
        self.records.forgotten_us[said.key] = node.world.now_us
        for views in node.cell.history.disks.values():
            other = views.get(self.topic_partition)
            if other is not None and other.end_offset <= said.offset:
                self.records.revived.add(said.key)
                node.world.count("tombstones that a replica never got")

    def _check_producers(self, node: Node, log: Log, stored: list[Stored]) -> None:
        before = self._ends
        self._ends = {one.batch.last_offset for one in stored if one.batch.producer_id >= 0}
        for producer_id, entry in log.producers.producers.items():
            last = entry.batches[-1].last_offset if entry.batches else -1
            # A snapshot may tell of one that went when there was a later one, since cut off.
            if last >= log.log_start_offset and last in before - self._ends:
                node.world.violate(
                    f"{self} has lost the last batch of producer {producer_id}, at {last}"
                )


def is_blanked(said: Said, known: Said | None, newest: dict[Key, Said]) -> bool:
    """Whether that is a superseded record that has lost its value."""
    if known is None or said != known._replace(value=None):
        return False
    return newest[said.key].offset > said.offset


def is_hidden_key(key: Key) -> bool:
    return key is not None and key.startswith(HIDDEN_KEY)


def _key_of(record: Record, attributes: int) -> Key:
    """What is hidden has none but its offset."""
    hidden_by = {DELIVER_AT_HEADER, *COMMAND_HEADERS}
    if attributes & HIDDEN_FLAG and not hidden_by.isdisjoint(key for key, _ in record.headers):
        return HIDDEN_KEY + b"%d" % record.offset
    return key_as_it_is(record, attributes)


def key_as_it_is(record: Record, attributes: int) -> Key:
    return None if record.key is None else bytes(record.key)


def read_stored(
    log: Log, start: int, end: int, *, key_of: Callable[[Record, int], Key] = _key_of
) -> Iterator[Stored]:
    """The batches of `log` from `start` on as its disk holds them, undisturbed by the faults that
    wait for the broker. `key_of` says what key a record of a batch with these attributes has."""
    directory = log.log_directory
    fs: Any = directory.fs
    faults, fs.faults = fs.faults, []
    failure, directory.failure = directory.failure, None
    try:
        buffers = _read(log, start, end)
    finally:
        fs.faults = faults
        directory.failure = failure
    for buffer in buffers:
        for header in iter_batch_headers(buffer, 0, len(buffer)):
            records = tuple(
                Said(
                    record.offset,
                    key_of(record, header.attributes),
                    None if record.value is None else bytes(record.value),
                )
                for record in decode_batch(buffer, header.position)
            )
            yield Stored(batch_of(header), records, header.delete_horizon_ms)


def _read(log: Log, start: int, end: int) -> list[bytes]:
    found: list[bytes] = []
    offset = start
    while offset < end:
        result = log.read(offset, READ_BYTES, max_offset=end, at_least_one_batch=True)
        if result.is_cold:
            result = log.read_cold(offset, READ_BYTES, max_offset=end, at_least_one_batch=True)
        found += [bytes(buffer) for buffer in result.buffers]
        if not result.buffers or result.next_offset <= offset:
            break
        offset = result.next_offset
    return found
