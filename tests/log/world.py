"""A log manager on a simulated disk beside a model of what it must hold, for power-loss tests.

The model is a list of the batches appended, the end that is promised to be durable, and the log
starts that may be found. `World.reopen` starts a new manager after a crash and compares everything
that can be asked of the log with the model; then the model continues with what has survived.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from data_plane.log.config import LogConfig
from data_plane.log.errors import AppendError, UnknownPartition
from data_plane.log.file_system import SyncSite
from data_plane.log.leader_epochs import LeaderEpochs
from data_plane.log.log import Log
from data_plane.log.maintenance import MaintenanceConfig
from data_plane.log.manager import LogManager
from data_plane.log.producer_state import ProducerStates
from data_plane.log.remainder import last_segment_below
from data_plane.log.segment_checks import largest_timestamp
from data_plane.log.sim_file_system import PowerLoss, SimFileSystem
from data_plane.wire.control_batches import EndTransactionMarker, build_end_transaction_marker
from data_plane.wire.records import (
    NewRecord,
    build_batch,
    iter_batch_headers,
    read_batch_header,
)

TOPIC_ID = UUID(int=7)
DATA = Path("/data")
CONFIG = LogConfig(
    segment_bytes=4096,
    index_interval_bytes=600,
    retention_ms=-1,
    file_delete_delay_ms=0,
    flush_ms=1 << 60,
)


class ModelBatch(NamedTuple):
    """A stored batch as the log must return it."""

    base_offset: int
    next_offset: int
    data: bytes


@dataclass
class Model:
    """What the log may and must hold."""

    batches: list[ModelBatch] = field(default_factory=list)
    durable_end: int = 0
    log_start: int = 0
    durable_log_start: int = 0
    is_created_durably: bool = False
    is_named_durably: bool = False
    recovery_point: int = 0
    is_clean: bool = False

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0


class World:
    """See the module. `rng` decides both the workload and what a crash keeps."""

    def __init__(
        self,
        rng: random.Random,
        config: LogConfig = CONFIG,
        forgotten_site: SyncSite | None = None,
        maps_files: bool = False,
    ) -> None:
        self.rng = rng
        self.config = config
        self.fs = SimFileSystem(maps_files=maps_files)
        self.fs.forgotten_site = forgotten_site
        self.now_ms = 1_000_000
        self.model = Model()
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.in_transaction: set[int] = set()
        self.manager = self._new_manager()
        self.log = self._open_log()

    def _new_manager(self) -> LogManager:
        manager = LogManager(
            [DATA],
            default_config=self.config,
            fs=self.fs,
            now_ms=self.now_ms,
            maintenance=MaintenanceConfig(scrub_interval_ms=-1),
            stop_together_min=self.rng.randrange(1, 3),
        )
        directory = manager.directories[0]
        directory.entries_written_at_once_max = self.rng.choice([0, 200])
        if not directory.entries_written_at_once_max:
            directory.bytes_loaded_at_once_max = 0
        assert manager.start(self.now_ms) == []
        return manager

    def _open_log(self) -> Log:
        try:
            log = self.manager.get(TOPIC_ID, 0)
        except UnknownPartition:
            assert not self.model.is_created_durably, "a durable partition is gone"
            return self.manager.create(TOPIC_ID, "flights", 0, self.config)
        return log

    # Workload

    def append(
        self,
        *,
        size: int = 100,
        count: int = 1,
        producer_id: int = -1,
        is_transactional: bool = False,
    ) -> None:
        """Append one batch of `count` records with values of `size` bytes."""
        self.now_ms += self.rng.randrange(3)
        sequence = self.sequences.get(producer_id, 0)
        records = [
            NewRecord(self.now_ms, b"k%d" % self.rng.randrange(5), self.rng.randbytes(size))
            for _ in range(count)
        ]
        batch = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            is_transactional=is_transactional,
        )
        self._append(batch, "client")
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + count
        if is_transactional:
            self.in_transaction.add(producer_id)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Append the producer's end marker."""
        marker = build_end_transaction_marker(
            EndTransactionMarker(is_commit, 1),
            timestamp=self.now_ms,
            producer_id=producer_id,
            producer_epoch=0,
        )
        self._append(bytearray(marker), "coordinator")
        self.in_transaction.discard(producer_id)

    def _append(self, batch: bytearray, origin: str) -> None:
        base = self.log.log_end_offset
        header = read_batch_header(batch, 0)
        expected = bytearray(batch)
        expected[0:8] = base.to_bytes(8, "big")
        expected[12:16] = self.epoch.to_bytes(4, "big")
        entry = ModelBatch(base, base + header.last_offset_delta + 1, bytes(expected))
        # Power may go in the middle, and then it may have been stored.
        self.model.batches.append(entry)
        try:
            result = self.log.append_as_leader(
                batch,
                0,
                len(batch),
                leader_epoch=self.epoch,
                now_ms=self.now_ms,
                origin=origin,
            )
        except AppendError:
            self.model.batches.pop()
            raise
        assert not result.duplicate
        assert (result.first_offset, result.last_offset + 1) == entry[:2]
        self.log.advance_high_watermark(self.log.log_end_offset)

    def flush(self) -> None:
        """What an acknowledgement with durability=fsync waits for."""
        job = self.log.flush_job()
        if job is not None:
            end, log_start = self.log.log_end_offset, self.log.log_start_offset
            job.run()
            job.finish()
            self.model.durable_end = end
            self.model.durable_log_start = log_start
            self.model.is_created_durably = True
            self.model.is_named_durably |= self.log.topic == "flights"

    def checkpoint(self) -> None:
        job = self.manager.checkpoint_job(self.manager.directories[0])
        recovery_point = self.log.recovery_point
        job.run()
        self.model.recovery_point = recovery_point
        job.finish()

    def delete_records(self) -> None:
        """Move the log start somewhere below the high watermark, and let retention see it."""
        target = self.rng.randint(self.log.log_start_offset, self.log.high_watermark)
        self.model.log_start = max(self.model.log_start, target)
        self.log.delete_records(target)
        self.log.apply_retention(self.now_ms)

    def remove_files(self) -> None:
        """Run the jobs that unlink what retention has dropped."""
        from data_plane.log.retention import segment_deletion_job

        job = segment_deletion_job(self.log, self.now_ms)
        if job is not None:
            job.run()
            job.finish()
            self.model.durable_log_start = self.log.durable_log_start

    def truncate(self) -> None:
        """Drop a part of the tail, as a follower does."""
        batches = [b for b in self.model.batches if b.base_offset > self.log.log_start_offset]
        if not batches:
            return
        offset = self.rng.choice(batches[-6:]).base_offset
        self.model.durable_end = min(self.model.durable_end, offset)
        self.model.recovery_point = min(self.model.recovery_point, offset)
        if self.fs.maps_files:
            # Somebody has read it.
            last_segment_below(self.log.segments, offset)._map()
        if self.log.needs_long_cut(offset):
            job = self.log.cut_job(offset)
            job.run()
            assert job.finish()
            job.tidy()
        else:
            self.log.truncate_to(offset)
        self.model.batches = [b for b in self.model.batches if b.next_offset <= offset]
        assert self.log.log_end_offset == max(self.model.end, self.log.log_start_offset)
        self.epoch += 1
        self._follow_producers()

    def roll(self) -> None:
        if self.log.active.size:
            self.log.roll()

    def kill(self) -> None:
        """kill -9 and a restart: nothing is lost, synced or not."""
        durable = replace(self.model)
        self.fs.process_death()
        self.model.durable_end = self.model.end
        self.model.durable_log_start = self.model.log_start
        self.model.is_created_durably = True
        self.reopen()
        assert self.log.log_end_offset == max(durable.end, durable.log_start)
        self.model.durable_end = durable.durable_end
        self.model.durable_log_start = durable.durable_log_start
        self.model.is_created_durably = durable.is_created_durably

    def close(self) -> None:
        """A clean shutdown."""
        self.manager.close(self.now_ms)
        self.model.durable_end = self.model.end
        self.model.durable_log_start = self.model.log_start
        self.model.is_created_durably = True
        self.model.recovery_point = self.model.end
        self.model.is_clean = True

    def restart(self) -> None:
        self.close()
        if self.rng.random() < 0.5:
            self.fs.power_loss(self.rng)
        else:
            self.fs.process_death()
        self.reopen()

    def step(self) -> None:
        """One random operation."""
        rng = self.rng
        choice = rng.randrange(100)
        if choice < 62:
            self.append_something()
        elif choice < 74:
            self.flush()
        elif choice < 78:
            self.checkpoint()
        elif choice < 81:
            self.delete_records()
        elif choice < 85:
            self.remove_files()
        elif choice < 88:
            self.truncate()
        elif choice < 90:
            self.roll()
        elif choice < 92:
            self.epoch += 1
        elif choice < 93:
            self.kill()
        elif choice < 94:
            self.restart()
        else:
            self.lose_power()

    def append_something(self) -> None:
        rng = self.rng
        choice = rng.randrange(10)
        if choice < 4:
            # Batches of one sector each: torn tails then leave whole batches behind.
            self.append(size=512 - 72)
        elif choice < 6:
            self.append(size=rng.randrange(1200), count=rng.randrange(1, 4))
        elif choice < 8:
            producer_id = rng.randrange(3)
            if producer_id in self.in_transaction:
                self.end_transaction(producer_id, is_commit=rng.random() < 0.5)
            else:
                self.append(producer_id=producer_id, count=rng.randrange(1, 3))
        else:
            self.append(producer_id=5 + rng.randrange(2), is_transactional=True)
            if rng.random() < 0.7:
                for producer_id in sorted(self.in_transaction):
                    self.end_transaction(producer_id, is_commit=rng.random() < 0.5)

    def run(self, steps: int) -> None:
        """`steps` random operations; each may be cut short by the power going."""
        for _ in range(steps):
            if self.rng.random() < 0.1:
                self.fs.power_loss_at = self.fs.operations + self.rng.randrange(12)
            try:
                self.step()
            except PowerLoss:
                self.lose_power()

    # Crashes

    def lose_power(self) -> None:
        while True:
            self.fs.power_loss(self.rng)
            if self.rng.random() < 0.1:
                # It may go again during recovery.
                self.fs.power_loss_at = self.fs.operations + self.rng.randrange(8)
            try:
                self.reopen()
            except PowerLoss:
                continue
            return

    def reopen(self) -> None:
        """Start anew and compare all there is with the model."""
        was_clean, self.model.is_clean = self.model.is_clean, False
        self.manager = self._new_manager()
        self.log = self._open_log()
        if was_clean:
            assert self.manager.recovered_logs == 0, "a clean shutdown was not seen as one"
        self._check()
        self.fs.power_loss_at = None

    def _check(self) -> None:
        log, model = self.log, self.model
        assert log.topic == "flights" or not model.is_named_durably, "partition.json"
        start, end = log.log_start_offset, log.log_end_offset
        assert model.durable_log_start <= start <= max(model.log_start, 0), "log start"
        assert end >= model.durable_end, f"lost what was durable: {end} < {model.durable_end}"
        assert end <= max(model.end, start), "the log has more than was appended"
        recovery_point = min(model.recovery_point, model.durable_end, end)
        assert log.recovery_point >= recovery_point, "recovery walks again what was checkpointed"
        stored = read_all(log)
        expected = [b for b in model.batches if b.next_offset > start and b.next_offset <= end]
        assert stored == [b.data for b in expected], "the log is not a prefix of what was appended"
        is_empty = not expected and end == start
        assert is_empty or expected[-1].next_offset == end
        before = [b for b in model.batches if b.next_offset <= end]
        model.batches = before
        model.log_start = start
        model.recovery_point = min(model.recovery_point, end)
        if is_empty and model.end < start:
            # The log went on behind everything that is left of it.
            model.batches = []
        else:
            self._check_derived()
        self._follow_producers()
        self.log.advance_high_watermark(end)

    def _check_derived(self) -> None:
        log, model = self.log, self.model
        expected = folded(model.batches)
        aborted = expected.take_aborted()
        assert log.producers.snapshot() == expected.snapshot(), "producer state"
        first_base = log.segments[0].base_offset
        start, end = log.log_start_offset, log.log_end_offset
        assert log.aborted_transactions(start, end) == sorted(
            [one for one in aborted if one.last_offset >= max(start, first_base)],
            key=lambda one: one.first_offset,
        ), "aborted transactions"
        epochs = LeaderEpochs()
        for batch in model.batches:
            epochs.assign(read_batch_header(batch.data, 0).partition_leader_epoch, batch[0])
        # Of what it has lost it may remember the last epoch; nothing is there to have it.
        offsets = [batch[0] for batch in model.batches if batch[0] >= start]
        found = [log.epochs.epoch_at(offset) for offset in offsets]
        assert found == [epochs.epoch_at(offset) for offset in offsets], "leader epochs"
        begun = [entry for entry in log.epochs.entries if entry.start_offset > start]
        expected_begun = [entry for entry in epochs.entries if entry.start_offset > start]
        if start < end:
            assert begun == expected_begun, "leader epochs"
        for segment in log.segments:
            inside = [
                read_batch_header(batch.data, 0).max_timestamp
                for batch in model.batches
                if segment.base_offset <= batch.base_offset < segment.next_offset
            ]
            assert largest_timestamp(segment) == max(inside, default=-1), "largest timestamp"

    def _follow_producers(self) -> None:
        """The producers go on from what the log has."""
        states = folded(self.model.batches)
        self.sequences = {
            producer_id: entry.last_sequence + 1 for producer_id, entry in states.producers.items()
        }
        self.in_transaction = set(states.ongoing.values())
        last = self.model.batches[-1:]
        for batch in last:
            self.epoch = max(self.epoch, read_batch_header(batch.data, 0).partition_leader_epoch)


def folded(batches: list[ModelBatch]) -> ProducerStates:
    """The producer state after `batches`."""
    states = ProducerStates()
    for batch in batches:
        states.apply_batch(read_batch_header(batch.data, 0), batch.data, 0)
    return states


def read_all(log: Log, max_bytes: int = 1500, *, of_disk: bool = False) -> list[bytes]:
    """All visible batches, or `of_disk` all that there are, read in pieces, hot or cold."""
    found: list[bytes] = []
    offset = log.disk_start_offset if of_disk else log.log_start_offset
    while offset < log.log_end_offset:
        end = log.log_end_offset
        result = log.read(
            offset, max_bytes, max_offset=end, at_least_one_batch=True, of_disk=of_disk
        )
        if result.is_cold:
            result = log.read_cold(
                offset, max_bytes, max_offset=end, at_least_one_batch=True, of_disk=of_disk
            )
        data = b"".join(bytes(one) for one in result.buffers)
        assert len(data) == result.size
        for header in iter_batch_headers(data, 0, len(data)):
            found.append(data[header.position : header.end_position])
        assert result.next_offset > offset
        offset = result.next_offset
    return found
