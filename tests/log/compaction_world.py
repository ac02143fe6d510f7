"""A compacted log on a simulated disk beside a model: the newest value of each key must survive."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from data_plane.log.config import LogConfig
from data_plane.log.errors import UnknownPartition
from data_plane.log.file_system import SyncSite
from data_plane.log.log import Log
from data_plane.log.maintenance import MaintenanceConfig
from data_plane.log.manager import LogManager
from data_plane.log.retention import segment_deletion_job
from data_plane.log.segment_checks import largest_timestamp
from data_plane.log.sim_file_system import PowerLoss, SimFileSystem
from data_plane.wire.records import NewRecord, build_batch, decode_batch, read_batch_header
from tests.log.world import read_all

TOPIC_ID = UUID(int=8)
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=2000,
    index_interval_bytes=300,
    min_cleanable_dirty_ratio=0.01,
    delete_retention_ms=50,
    file_delete_delay_ms=0,
    flush_ms=1 << 60,
)


class CompactionWorld:
    """`run` appends keyed records, compacts, and loses power; `check` compares with the model."""

    config = CONFIG
    keys = 8
    tombstone_share = 0.2

    def __init__(self, rng: random.Random, forgotten_site: SyncSite | None = None) -> None:
        self.rng = rng
        self.fs = SimFileSystem()
        self.fs.forgotten_site = forgotten_site
        self.now_ms = 1_000_000
        # Every record ever appended, by offset: (key, value).
        self.appended: list[tuple[bytes, bytes | None]] = []
        # Leader epochs outlive their batches: (epoch, start offset).
        self.epochs: list[tuple[int, int]] = []
        self.durable_end = 0
        self.compactions = 0
        self._start()

    def _start(self) -> None:
        self.manager = LogManager(
            [Path("/data")],
            default_config=self.config,
            fs=self.fs,
            now_ms=self.now_ms,
            maintenance=MaintenanceConfig(scrub_interval_ms=-1),
            stop_together_min=1,
        )
        assert self.manager.start(self.now_ms) == []
        self.log = self._open()

    def _open(self) -> Log:
        try:
            return self.manager.get(TOPIC_ID, 0)
        except UnknownPartition:
            assert not self.durable_end
            return self.manager.create(TOPIC_ID, "offsets", 0, self.config)

    def append(self) -> None:
        rng = self.rng
        self.now_ms += rng.randrange(20)
        records = []
        for _ in range(rng.randrange(1, 5)):
            value = (
                None
                if rng.random() < self.tombstone_share
                else b"v%d-" % len(self.appended) + bytes(60)
            )
            record = NewRecord(self.now_ms, b"key-%d" % rng.randrange(self.keys), value)
            self.appended.append((record.key or b"", value))
            records.append(record)
        batch = build_batch(records, compression=rng.choice([0, 0, 1, 4]))
        if not self.epochs or rng.random() < 0.2:
            last = self.epochs[-1][0] if self.epochs else -1
            self.epochs.append((last + 1, self.log.log_end_offset))
        epoch = self.epochs[-1][0]
        self.log.append_as_leader(batch, 0, len(batch), leader_epoch=epoch, now_ms=self.now_ms)
        self.log.advance_high_watermark(self.log.log_end_offset)

    def flush(self) -> None:
        end = self.log.log_end_offset
        self.log.flush()
        self.durable_end = end

    def checkpoint(self) -> None:
        job = self.manager.checkpoint_job(self.manager.directories[0])
        job.run()
        job.finish()

    def compact(self) -> None:
        job = self.log.compaction_job(self.now_ms)
        if job is None:
            return
        job.run()
        self.compactions += 1
        choice = self.rng.randrange(4)
        if choice == 0:
            # In the middle of the swap.
            self.fs.power_loss_at = self.fs.operations + self.rng.randrange(18)
        job.finish()
        if choice == 1:
            self.lose_power()

    def step(self) -> None:
        choice = self.rng.randrange(20)
        if choice < 12:
            self.append()
        elif choice < 15:
            self.flush()
            self.checkpoint()
        elif choice < 19:
            self.compact()
        else:
            self.lose_power()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            if self.rng.random() < 0.15:
                self.fs.power_loss_at = self.fs.operations + self.rng.randrange(25)
            try:
                self.step()
            except PowerLoss:
                self.lose_power()

    def lose_power(self) -> None:
        while True:
            self.fs.power_loss(self.rng)
            if self.rng.random() < 0.2:
                self.fs.power_loss_at = self.fs.operations + self.rng.randrange(10)
            try:
                self._start()
                self.fs.power_loss_at = None
                self.check()
            except PowerLoss:
                continue
            return

    def check(self) -> None:
        """Nothing durable is lost, nothing old comes back as the newest, all indexes agree."""
        log = self.log
        end = log.log_end_offset
        assert self.durable_end <= end <= len(self.appended), "log end"
        del self.appended[end:]
        self.epochs = [entry for entry in self.epochs if entry[1] < end]
        assert log.epoch_for_offset(end) == (self.epochs[-1][0] if self.epochs else -1)
        assert log.epochs.entries == self.epochs, "leader epochs"
        self.check_records()
        log.advance_high_watermark(end)

    def check_records(self) -> None:
        """The newest record of each key is there, nothing else is, and all ways to it agree."""
        log = self.log
        start, end = log.log_start_offset, log.log_end_offset
        batches = read_all(log, 400)
        headers = [read_batch_header(batch, 0) for batch in batches]
        found_in = [record for batch in batches for record in decode_batch(batch, 0)]
        stored = [record for record in found_in if record.offset >= start]
        for record in stored:
            key, value = self.appended[record.offset]
            assert (record.key, record.value) == (key, value), f"offset {record.offset}"
        offsets = [record.offset for record in stored]
        assert offsets == sorted(set(offsets))
        for segment in log.segments:
            times = [
                header.max_timestamp
                for header in headers
                if segment.base_offset <= header.base_offset < segment.next_offset
            ]
            if times:
                assert largest_timestamp(segment) == max(times), "largest timestamp"
        newest = {key: (offset, value) for offset, (key, value) in enumerate(self.appended)}
        found = {record.key: record.offset for record in stored}
        for key, (offset, value) in newest.items():
            if offset < start:
                continue
            if value is not None:
                assert found.get(key) == offset, f"the newest record of {key!r} is lost"
            elif key in found:
                assert found[key] == offset, f"{key!r} is back from the dead"
        for target in range(start, end, 3):
            first = log.read_cold(target, 1, max_offset=end, at_least_one_batch=True)
            if first.size:
                header = read_batch_header(bytes(first.buffers[0]), 0)
                assert header.last_offset >= target
                skipped = [one for one in offsets if target <= one < header.base_offset]
                assert not skipped, f"a read at {target} skips {skipped}"


class RetainingWorld(CompactionWorld):
    """compact,delete: retention, DeleteRecords and appends also while a compaction's job runs."""

    config = replace(CONFIG, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=-1)
    # Enough of them to have keys whose last record lies far back.
    keys = 60
    tombstone_share = 0.35

    def retain(self) -> None:
        """Drop segments by size or by the log start, or remove the files of some."""
        log, rng = self.log, self.rng
        choice = rng.randrange(3)
        if choice == 0 and len(log.segments) > 1:
            retention_bytes = log.size_bytes - log.segments[0].size
            log.update_config(replace(self.config, retention_bytes=retention_bytes))
            log.apply_retention(self.now_ms)
            log.update_config(self.config)
        elif choice == 1:
            log.delete_records(min(log.log_start_offset + rng.randrange(12), log.high_watermark))
            log.apply_retention(self.now_ms)
        else:
            job = segment_deletion_job(log, self.now_ms)
            if job is not None:
                job.run()
                job.finish()

    def compact(self) -> None:
        job = self.log.compaction_job(self.now_ms)
        if job is None:
            return
        job.run()
        self.compactions += 1
        for _ in range(self.rng.randrange(4)):
            self.rng.choice((self.append, self.flush, self.retain, self.retain))()
        if self.rng.randrange(4) == 0:
            self.fs.power_loss_at = self.fs.operations + self.rng.randrange(18)
        job.finish()
        if self.rng.randrange(4) == 0:
            self.lose_power()
        else:
            self.check_records()

    def step(self) -> None:
        if self.rng.random() < 0.12:
            self.retain()
        else:
            super().step()

    def check(self) -> None:
        log = self.log
        end = log.log_end_offset
        assert self.durable_end <= end <= len(self.appended), "log end"
        del self.appended[end:]
        self.epochs = [entry for entry in self.epochs if entry[1] < end]
        self.check_records()
        log.advance_high_watermark(end)
