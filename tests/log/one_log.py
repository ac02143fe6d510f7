"""One log of one manager on a simulated disk, and short ways to fill, read and open it again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from data_plane.log.config import LogConfig
from data_plane.log.errors import UnknownPartition
from data_plane.log.fold import FoldFactory
from data_plane.log.log import AppendResult, Log
from data_plane.log.maintenance import MaintenanceConfig
from data_plane.log.manager import LogManager
from data_plane.log.sim_file_system import SimFileSystem
from data_plane.wire.records import NewRecord, Record, build_batch, decode_batch
from tests.log.world import read_all

TOPIC_ID = UUID(int=3)
START_MS = 1_000_000
DATA = Path("/data")
# Room for several batches a segment and several index entries; nothing goes by itself.
SMALL = LogConfig(
    segment_bytes=2000,
    index_interval_bytes=250,
    retention_ms=-1,
    file_delete_delay_ms=0,
)


def batch_of(
    *values: bytes | None,
    keys: Sequence[bytes | None] | None = None,
    timestamps: Sequence[int] | None = None,
    compression: int = 0,
    producer: tuple[int, int, int] | None = None,
    is_transactional: bool = False,
) -> bytearray:
    """A batch as a client sends it; `producer` is (id, epoch, first sequence)."""
    keys = keys if keys is not None else [None] * len(values)
    timestamps = timestamps if timestamps is not None else [START_MS] * len(values)
    records = [
        NewRecord(timestamp, key, value)
        for timestamp, key, value in zip(timestamps, keys, values, strict=True)
    ]
    producer_id, producer_epoch, base_sequence = producer or (-1, -1, -1)
    return build_batch(
        records,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )


class OneLog:
    """See the module. `now_ms` is the clock; settings are those of LogConfig."""

    fold_factories: Sequence[FoldFactory] = ()

    def __init__(self, *, maps_files: bool = False, **settings: object) -> None:
        self.config = replace(SMALL, **settings)  # type: ignore[arg-type]
        self.fs = SimFileSystem(maps_files=maps_files)
        self.now_ms = START_MS
        self.epoch = 0
        self.open()

    def open(self) -> None:
        """Start a manager over what is on the disk."""
        self.manager = self.make_manager()
        assert self.manager.start(self.now_ms) == []
        try:
            self.log: Log = self.manager.get(TOPIC_ID, 0)
        except UnknownPartition:
            self.log = self.manager.create(TOPIC_ID, "flights", 0, self.config)

    def make_manager(self) -> LogManager:
        """A manager that has not been started yet."""
        return LogManager(
            [DATA],
            default_config=self.config,
            fs=self.fs,
            now_ms=self.now_ms,
            maintenance=MaintenanceConfig(scrub_interval_ms=-1),
            fold_factories=self.fold_factories,
        )

    def restart(self) -> None:
        """A clean stop and a start."""
        self.manager.close(self.now_ms)
        self.fs.process_death()
        self.open()
        assert self.manager.recovered_logs == 0

    def kill(self) -> None:
        """kill -9 and a start."""
        self.fs.process_death()
        self.open()

    def lose_power(self, rng: random.Random) -> None:
        """Power loss and a start."""
        self.fs.power_loss(rng)
        self.open()

    def set_config(self, **settings: object) -> None:
        """Change settings of the log that is open."""
        self.config = replace(self.config, **settings)  # type: ignore[arg-type]
        self.log.update_config(self.config)

    def append(self, buf: bytearray, *, commit: bool = True) -> AppendResult:
        """Append as the leader; with `commit` the high watermark follows."""
        result = self.log.append_as_leader(
            buf, 0, len(buf), leader_epoch=self.epoch, now_ms=self.now_ms
        )
        if commit:
            self.log.advance_high_watermark(self.log.log_end_offset)
        return result

    def fill(self, count: int, value_bytes: int = 100) -> None:
        """Append `count` batches of one record each; the value begins with its offset."""
        for _ in range(count):
            value = b"%d" % self.log.log_end_offset
            self.append(batch_of(value.ljust(value_bytes, b"."), timestamps=[self.now_ms]))

    def checkpoint(self) -> None:
        """Make all durable, and have the directory's checkpoint say so."""
        self.log.flush()
        job = self.manager.checkpoint_job(self.manager.directories[0])
        job.run()
        job.finish()

    def records(self) -> list[Record]:
        """All visible records."""
        found = [record for data in read_all(self.log) for record in decode_batch(data, 0)]
        return [record for record in found if record.offset >= self.log.log_start_offset]

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records()]

    def names(self, suffix: str = "") -> list[str]:
        """The files of the partition's folder."""
        return [one for one in self.fs.list_directory(self.log.folder) if one.endswith(suffix)]

    def content(self, name: str) -> bytes:
        return self.fs.read_file(f"{self.log.folder}/{name}")

    def unlink(self, name: str) -> None:
        self.fs.unlink(f"{self.log.folder}/{name}")
