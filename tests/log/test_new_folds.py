"""A fold that is new to a log reads all of it: once, and by a thread where that takes long."""

from __future__ import annotations

import random

import pytest

from data_plane.log.batch_walk import MAGIC_POSITION
from data_plane.log.fold import FoldFactory
from data_plane.log.manager import LogManager
from tests.log.one_log import DATA, OneLog, batch_of
from tests.log.test_folds import PIN, Pins
from tests.log.test_load_job import count_reads

SEGMENT_BYTES = 2000
PINNED = [3, 21, 44]


class UpgradedLog(OneLog):
    """`factories` are those of the version that starts next."""

    def __init__(self) -> None:
        self.factories: list[FoldFactory] = []
        super().__init__(segment_bytes=SEGMENT_BYTES)

    def make_manager(self) -> LogManager:
        return LogManager(
            [DATA],
            default_config=self.config,
            fs=self.fs,
            now_ms=self.now_ms,
            fold_factories=self.factories,
        )

    def open(self) -> None:
        super().open()
        # Segments are large.
        self.log.log_directory.bytes_loaded_at_once_max = SEGMENT_BYTES

    @property
    def pins(self) -> list[int]:
        return self.log.fold(Pins).offsets

    def load_by_thread(self) -> None:
        job = self.log.load_job()
        job.run()
        job.finish()


def older() -> UpgradedLog:
    """Several segments, in the checkpoint of a version without the fold; nobody has loaded it
    since."""
    one = UpgradedLog()
    for offset in range(45):
        value = PIN if offset in PINNED else b"v"
        one.append(batch_of(value.ljust(100), timestamps=[one.now_ms]))
    one.checkpoint()
    one.factories = [Pins]
    return one


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_a_thread_reads_it_and_only_once(end: str) -> None:
    one = older()
    getattr(one, end)()
    assert not one.log.is_loaded
    assert one.log.needs_long_load
    one.load_by_thread()
    assert one.pins == PINNED
    assert one.names(".pins") == [f"{one.log.active.base_offset:020d}.pins"]
    one.log.flush()
    getattr(one, end)()
    assert not one.log.needs_long_load
    # It may neither open nor read the sealed ones.
    for name in one.names(".log")[:-1]:
        one.fs.flip_bit(f"{one.log.folder}/{name}", MAGIC_POSITION)
    assert one.pins == PINNED


def test_a_log_that_is_read_quickly_needs_no_thread() -> None:
    one = older()
    one.restart()
    summary = one.log.opened_from
    assert summary is not None
    one.log.log_directory.bytes_loaded_at_once_max = summary.size_bytes
    reads: list[bool] = []
    assert count_reads(one, lambda: reads.append(one.log.needs_long_load)) == 0
    assert reads == [False]
    assert one.pins == PINNED
    assert len(one.names(".pins")) == 1


def test_tail_files_without_the_fold_do_not_spare_the_walk() -> None:
    one = older()
    one.restart()
    summary = one.log.opened_from
    assert summary is not None
    one.log.opened_from = summary._replace(active_size=summary.size_bytes, has_tail_files=True)
    assert one.log.needs_long_load


def test_a_recovery_reads_it_only_once() -> None:
    one = older()
    one.append(batch_of(b"after the checkpoint", timestamps=[one.now_ms]))
    one.kill()
    assert one.manager.recovered_logs == 1
    assert one.pins == PINNED
    assert len(one.names(".pins")) == 1
    one.kill()
    assert one.pins == PINNED


@pytest.mark.parametrize("seed", range(20))
def test_power_loss_leaves_the_whole_snapshot_or_none(seed: int) -> None:
    one = older()
    one.restart()
    one.load_by_thread()
    one.lose_power(random.Random(seed))
    assert one.pins == PINNED


def test_what_could_not_be_read_through_leaves_no_snapshot() -> None:
    """The state lacks what lies behind; whoever mends the segment has it read again."""
    one = older()
    one.restart()
    first = one.names(".log")[0]
    one.fs.flip_bit(f"{one.log.folder}/{first}", MAGIC_POSITION)
    one.load_by_thread()
    assert one.pins == PINNED[1:]
    assert one.names(".pins") == []
