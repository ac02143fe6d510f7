"""A fold that is new to a log reads all of it: once, and by a thread where that takes long."""

from __future__ import annotations

import random

import pytest

from data_plane.log.batch_walk import MAGIC_POSITION
from data_plane.log.fold import FoldContext, FoldFactory
from data_plane.log.folds_job import FoldsJob
from data_plane.log.manager import LogManager
from data_plane.wire.kernel_types import BATCH_HEADER_BYTES
from tests.log.one_log import DATA, OneLog, batch_of
from tests.log.test_folds import PIN, Pins
from tests.log.test_load_job import count_reads

SEGMENT_BYTES = 2000
PINNED = [3, 21, 44]
FAR_BYTES = 1 << 40


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


def pins_of_bounded(context: FoldContext) -> Pins | None:
    """A fold that goes by the topic's configuration."""
    return None if context.config.retention_bytes < 0 else Pins(context)


def without_bound() -> UpgradedLog:
    """A loaded log with that fold, which it does not call for."""
    one = older()
    one.factories = [pins_of_bounded]
    one.restart()
    one.log.load()
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


def test_a_fold_that_a_large_log_begins_to_want_is_made_by_a_thread() -> None:
    one = without_bound()
    assert count_reads(one, lambda: one.set_config(retention_bytes=FAR_BYTES)) == 0
    with pytest.raises(LookupError):
        _ = one.pins
    for _ in range(3):
        for job in one.manager.tick(one.now_ms):
            job.run()
            job.finish()
    assert one.pins == PINNED
    assert not one.log.wants_folds
    assert not one.log.compacting
    assert count_reads(one, lambda: one.set_config(retention_bytes=-1)) == 0
    with pytest.raises(LookupError):
        _ = one.pins


def test_what_comes_while_it_is_made_is_in_it() -> None:
    one = without_bound()
    one.set_config(retention_bytes=FAR_BYTES)
    job = FoldsJob(one.log)
    one.append(batch_of(PIN, timestamps=[one.now_ms]))
    job.run()
    one.append(batch_of(PIN, timestamps=[one.now_ms]))
    one.log.roll()
    one.append(batch_of(b"v", PIN, timestamps=[one.now_ms] * 2))
    job.finish()
    assert one.pins == [*PINNED, 45, 46, 48]
    one.append(batch_of(PIN, timestamps=[one.now_ms]))
    assert one.pins == [*PINNED, 45, 46, 48, 49]


def test_a_cut_makes_it_and_what_was_begun_before_is_dropped() -> None:
    one = without_bound()
    one.set_config(retention_bytes=FAR_BYTES)
    job = FoldsJob(one.log)
    job.run()
    one.log.truncate_to(30)
    one.append(batch_of(PIN, timestamps=[one.now_ms]))
    job.finish()
    assert one.pins == [3, 21, 30]
    assert not one.log.wants_folds


def test_it_is_not_made_when_nobody_wants_it_any_more() -> None:
    one = without_bound()
    one.set_config(retention_bytes=FAR_BYTES)
    job = FoldsJob(one.log)
    job.run()
    one.set_config(retention_bytes=-1)
    job.finish()
    with pytest.raises(LookupError):
        _ = one.pins


def test_a_log_without_some_fold_is_not_compacted() -> None:
    """Nobody could say what that one holds."""
    one = without_bound()
    one.set_config(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01)
    assert one.log.compaction_job(one.now_ms) is not None
    one.log.compacting = False
    one.set_config(retention_bytes=FAR_BYTES)
    assert one.log.compaction_job(one.now_ms) is None


def test_retention_leaves_all_until_it_is_made() -> None:
    one = without_bound()
    one.set_config(retention_bytes=FAR_BYTES)
    job = FoldsJob(one.log)
    one.log.delete_records(40)
    one.log.flush()
    one.log.apply_retention(one.now_ms)
    assert one.log.segments[0].base_offset == 0
    job.run()
    job.finish()
    assert one.pins == PINNED
    one.log.apply_retention(one.now_ms)
    assert 0 < one.log.segments[0].next_offset <= PINNED[1]


def test_damage_is_passed_over() -> None:
    """As when a log is loaded."""
    one = without_bound()
    first = one.log.segments[0]
    position = one.fs.read_file(first.path()).index(PIN)
    one.fs.flip_bit(first.path(), position)
    one.set_config(retention_bytes=FAR_BYTES)
    job = FoldsJob(one.log)
    job.run()
    assert len(first.bad_ranges or ()) == 1
    job.finish()
    assert one.pins == PINNED[1:]
    assert not one.log.wants_folds


def test_a_log_with_a_damaged_end_is_not_read_again_and_again() -> None:
    one = without_bound()
    one.fs.flip_bit(one.log.active.path(), BATCH_HEADER_BYTES + 5)
    one.log.doubt(one.log.active.base_offset)
    one.set_config(retention_bytes=FAR_BYTES)
    job = FoldsJob(one.log)
    job.run()
    job.finish()
    assert not one.log.wants_folds
    with pytest.raises(LookupError):
        _ = one.pins
