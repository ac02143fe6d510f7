"""What each disk holds, batch by batch, seen from outside the brokers.

After each pass of a broker `DiskView.follow` reads what its logs have gained and takes off what
they have lost. The checks that need no more than logs are made here, as cheap as the change:

- two logs that have a batch at the same offset in the same leader epoch have the same batch there
  (one leader per epoch; what Raft calls log matching);
- a log that grows does so without a hole, and its epochs never go down.

A disk's view outlives the process: it is what the disk held when the process ended, and at the next
start it is compared with what recovery made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from data_plane.log.errors import CorruptSegment
from data_plane.log.sim_file_system import SimFileSystem
from data_plane.wire.records import is_crc_valid, iter_batch_headers

if TYPE_CHECKING:
    from data_plane.log.log import Log
    from data_plane.wire.kernel_types import BatchHeader
    from tests.simulation.world import World

TopicPartition = tuple[UUID, int]
READ_BYTES = 1 << 30


class Batch(NamedTuple):
    """A stored batch; `crc` covers everything that a producer wrote."""

    base_offset: int
    last_offset: int
    epoch: int
    crc: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_control: bool
    max_timestamp: int
    size: int


class DiskView:
    """One replica as it stands on one disk."""

    __slots__ = (
        "_begun_anew_count",
        "batches",
        "begins_at_zero",
        "cut",
        "end_offset",
        "high_watermark",
        "hw_batches",
        "is_power_lost",
        "kept_start",
        "log",
        "node_name",
        "seen",
        "start_offset",
        "synced_end",
        "synced_start",
        "topic_partition",
    )

    def __init__(self, node_name: str, topic_partition: TopicPartition, log: Log) -> None:
        self.node_name = node_name
        self.topic_partition = topic_partition
        self.log: Log | None = log
        self._begun_anew_count = log.begun_anew_count
        self.batches: list[Batch] = []
        self.start_offset = log.log_start_offset
        self.end_offset = log.log_start_offset
        # Where the log began, as far as the end of the process could not undo it.
        self.kept_start = self.synced_start = 0
        # Below it every batch is one that some process has synced.
        self.synced_end = 0
        # Whether the last process ended with the power.
        self.is_power_lost = False
        # Whether `batches` are all that the log ever got.
        self.begins_at_zero = log.log_start_offset == 0
        self.high_watermark = 0
        # What the log lost when it was looked at last, newest first.
        self.cut: list[Batch] = []
        # How many of `batches` lie below the high watermark as last looked at.
        self.hw_batches = 0
        self.seen = (-1, -1, -1)

    def go_on_from(self, old: DiskView, *, may_begin_anew: bool) -> None:
        """What the disk got before its log began where it does now, as `old` has it."""
        if not self.batches and may_begin_anew:
            return
        first = self.batches[0].base_offset if self.batches else self.start_offset
        before = [batch for batch in old.batches if batch.last_offset < first]
        if before and before[-1].last_offset + 1 == first:
            self.batches[:0] = before
            self.hw_batches += len(before)
            self.begins_at_zero = old.begins_at_zero

    def reopened(self, log: Log) -> None:
        """The same disk under a new process, whose log may begin earlier after power loss."""
        self.log = log
        self._begun_anew_count = log.begun_anew_count
        self.is_power_lost = False
        self.start_offset = min(self.start_offset, log.log_start_offset)

    def note_end(self, log: Log | None, *, is_power_lost: bool) -> None:
        """The process ends; without a log it had not opened this one yet."""
        if log is not None:
            # Of a pass that does not end nobody knows how far its writes have got.
            known = min(self.start_offset, log.log_start_offset)
            self.synced_start = min(known, log.durable_log_start)
            self.kept_start = self.synced_start if log.log_directory.failure else known
            self.synced_end = max(self.synced_end, min(log.recovery_point, self.end_offset))
        self.is_power_lost |= is_power_lost
        if is_power_lost:
            self.kept_start = self.synced_start

    def follow_end(self, world: World, matching: dict[tuple[int, int], Batch]) -> tuple[int, int]:
        """Bring the view up to date with its log; returns (batches gained, batches lost).

        `matching` has the batch of every (base offset, epoch) that any disk ever held, and under
        (base offset, -2 - epoch) the one before it."""
        log = self.log
        assert log is not None
        self.cut = []
        if log.log_start_offset > log.log_end_offset and log.log_directory.failure:
            # The disk has failed while the log began anew. Nobody uses this one any more; what the
            # disk has the next process finds out.
            return 0, 0
        lost = self._take_off(log.log_end_offset)
        if (
            log.log_start_offset > self.end_offset
            or (lost and log.log_start_offset == self.end_offset)
            or (not self.batches and log.log_start_offset != self.start_offset)
            or self._has_begun_anew(log)
        ):
            # Everything was dropped, and the log begins anew: so do what it derives from itself.
            lost += len(self.batches)
            self.batches.clear()
            self.hw_batches = 0
            self.end_offset = log.log_start_offset
            self.synced_end = min(self.synced_end, self.end_offset)
            self.begins_at_zero = log.log_start_offset == 0
        self.start_offset = log.log_start_offset
        self._begun_anew_count = log.begun_anew_count
        if log.log_end_offset == self.end_offset:
            return 0, lost
        return self._gain(log, world, matching), lost

    def _has_begun_anew(self, log: Log) -> bool:
        """Whether the log has dropped everything and begins where it ended. When retention has
        taken the last segment, that one still waits for its files to go. Of one that was empty only
        the log itself can say it."""
        start = log.log_start_offset
        if start == self.end_offset and start == self.start_offset and self.batches:
            return log.begun_anew_count != self._begun_anew_count
        if start != self.end_offset or start == self.start_offset or not log.is_loaded:
            return False
        is_retained = any(one.next_offset == start for one, _ in log.pending_deletion or ())
        return log.segments[0].base_offset == start and not is_retained

    def _take_off(self, end_offset: int) -> int:
        batches = self.batches
        lost = 0
        while batches and batches[-1].last_offset >= end_offset:
            self.cut.append(batches.pop())
            lost += 1
        if lost:
            self.hw_batches = min(self.hw_batches, len(batches))
        if end_offset < self.end_offset:
            self.end_offset = end_offset
        self.synced_end = min(self.synced_end, self.end_offset)
        return lost

    def _gain(self, log: Log, world: World, matching: dict[tuple[int, int], Batch]) -> int:
        gained = read_batches(log, self.end_offset, log.log_end_offset)
        epoch = self.batches[-1].epoch if self.batches else -1
        for batch in gained:
            if batch.base_offset < self.end_offset and self.batches:
                world.violate(f"{self} holds overlapping batches: {batch}")
            if batch.base_offset > self.end_offset:
                world.violate(f"{self} has a hole {self.end_offset}..{batch.base_offset}")
            if batch.epoch < epoch:
                world.violate(f"{self}: the leader epoch goes down from {epoch} at {batch}")
            epoch = batch.epoch
            known = matching.setdefault((batch.base_offset, batch.epoch), batch)
            if known != batch:
                world.violate(f"{self} has {batch}, another disk in the same epoch {known}")
            if self.batches:
                # The same batch has the same one before it: all that lies before is the same.
                before = self.batches[-1]
                key = (batch.base_offset, -2 - batch.epoch)
                if matching.setdefault(key, before) != before:
                    world.violate(f"{self} has {before} before {batch}, others {matching[key]}")
            self.batches.append(batch)
            self.end_offset = batch.last_offset + 1
        if self.end_offset != log.log_end_offset:
            world.violate(f"{self} ends at {self.end_offset}, its log at {log.log_end_offset}")
        return len(gained)

    def holds(self, batch: Batch) -> bool:
        """Whether that very batch stands where it should (or is below the log start)."""
        if batch.last_offset < self.start_offset:
            return True
        found = self.find(batch.base_offset)
        return found == batch

    def whole_batches(self) -> Iterable[Batch]:
        """Those that the disk holds as they were appended."""
        return self.batches

    def find(self, offset: int) -> Batch | None:
        """The batch that holds `offset`."""
        batches = self.batches
        low, high = 0, len(batches)
        while low < high:
            middle = (low + high) // 2
            if batches[middle].last_offset < offset:
                low = middle + 1
            else:
                high = middle
        if low < len(batches) and batches[low].base_offset <= offset:
            return batches[low]
        return None

    def __str__(self) -> str:
        topic_id, index = self.topic_partition
        return f"{self.node_name}'s {str(topic_id)[:8]}-{index}"


def batch_of(header: BatchHeader) -> Batch:
    """What is compared of a batch, from its header."""
    return Batch(
        header.base_offset,
        header.base_offset + header.last_offset_delta,
        header.partition_leader_epoch,
        header.crc,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        bool(header.attributes & 0x20),
        header.max_timestamp,
        header.size,
    )


def read_batches(log: Log, start: int, end: int, *, checks_crc: bool = False) -> list[Batch]:
    """The batches of `log` in [start, end), from the bytes on its disk. Who looks from outside does
    not meet the faults that wait for the broker, nor mind that its directory is offline. Raises
    CorruptSegment, with `checks_crc` also for what the broker would serve."""
    with looking_from_outside(log):
        return _read_batches(log, start, end, checks_crc)


@contextmanager
def looking_from_outside(log: Log) -> Iterator[None]:
    """While somebody looks who is no broker."""
    directory = log.log_directory
    fs: Any = directory.fs
    faults, fs.faults = fs.faults, []
    failure, directory.failure = directory.failure, None
    try:
        yield
    finally:
        fs.faults = faults
        directory.failure = failure


def _read_batches(log: Log, start: int, end: int, checks_crc: bool) -> list[Batch]:
    batches: list[Batch] = []
    offset = start
    while offset < end:
        result = log.read(offset, READ_BYTES, max_offset=end, at_least_one_batch=True)
        if result.is_cold:
            result = log.read_cold(offset, READ_BYTES, max_offset=end, at_least_one_batch=True)
        for buffer in result.buffers:
            for header in iter_batch_headers(buffer, 0, len(buffer)):
                if checks_crc and not is_crc_valid(buffer, header):
                    raise CorruptSegment(log.folder, header.position, f"in {header}")
                batches.append(batch_of(header))
        if not result.buffers or result.next_offset <= offset:
            break
        offset = result.next_offset
    return batches


def is_on_disk(log: Log, batch: Batch) -> bool:
    """Whether a batch stands in what the disk has synced, whatever its broker knows of that."""
    fs = log.log_directory.fs
    assert isinstance(fs, SimFileSystem)
    for segment in log.segments:
        if segment.base_offset <= batch.base_offset < segment.next_offset:
            data = fs.synced_content(segment.path())[: segment.size]
            headers = iter_batch_headers(data, 0, len(data), incomplete_tail=True)
            return any(batch_of(header) == batch for header in headers)
    return False
