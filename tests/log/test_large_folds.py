"""What a fold of many entries costs the loop: at a roll nothing that grows with them."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from data_plane.log.fold import FoldContext
from data_plane.log.fold_snapshots import READ_BYTES, are_equal
from tests.log.large_fold import HEAD, LargeFold
from tests.log.one_log import OneLog, batch_of

# Of the loop's processor time, with ten million entries.
ROLL_MS_MAX = 20
ENTRY_BYTES = 8
SIZES = [100_000, pytest.param(10_000_000, marks=pytest.mark.nightly)]


class LargeLog(OneLog):
    """One log whose fold has as many entries as is asked for."""

    def open(self) -> None:
        # All that were made since the start, also those that only a recovery has looked at.
        self.folds: list[LargeFold] = []
        self.fold_factories = [self.make_fold]
        super().open()

    def make_fold(self, context: FoldContext) -> LargeFold:
        self.folds.append(LargeFold(context))
        return self.folds[-1]

    def add(self, entries_count: int) -> None:
        self.append(batch_of(b"%d" % entries_count))

    @property
    def fold(self) -> LargeFold:
        return self.log.fold(LargeFold)


def processor_ms(call: Callable[[], object]) -> float:
    """What `call` takes of this thread's processor time."""
    before = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - before) / 1e6


@pytest.mark.parametrize("entries_count", SIZES)
def test_a_roll_takes_no_more_of_the_loop_however_large_a_fold_is(entries_count: int) -> None:
    one = LargeLog()
    one.add(entries_count)
    one.checkpoint()
    assert len(one.fold) == entries_count
    assert processor_ms(one.log.roll) <= ROLL_MS_MAX
    assert one.names(".entries") == []
    job = one.log.flush_job()
    assert job is not None
    assert processor_ms(lambda: one.add(3)) <= ROLL_MS_MAX
    job.run()
    assert processor_ms(job.finish) <= ROLL_MS_MAX
    (name,) = one.names(".entries")
    path = f"{one.log.folder}/{name}"
    # What was there at the roll, and not what came since.
    assert one.fs.size(path) == len(HEAD) + entries_count * ENTRY_BYTES
    assert len(one.fold) == entries_count + 3


@pytest.mark.parametrize("entries_count", SIZES)
def test_a_large_state_is_read_in_pieces_and_by_a_thread(entries_count: int) -> None:
    one = LargeLog()
    one.add(entries_count)
    one.log.roll()
    one.add(1)
    before = one.fold
    one.restart()
    # The thread does all that takes long.
    assert one.log.needs_long_load
    job = one.log.load_job()
    job.run()
    assert processor_ms(job.finish) <= ROLL_MS_MAX
    assert one.log.is_loaded
    assert max(one.fold.restored_from) <= READ_BYTES
    assert sum(one.fold.restored_from) == len(HEAD) + entries_count * ENTRY_BYTES
    assert are_equal(one.fold, before)


def test_a_recovery_has_no_state_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """It compares what it has walked through with snapshots, and writes them again."""
    one = LargeLog()
    for _ in range(3):
        one.add(100_000)
        one.log.roll()
    one.checkpoint()
    one.add(1)
    before = one.fold
    monkeypatch.setattr(LargeFold, "snapshot", None)
    one.kill()
    assert max(max(fold.restored_from, default=0) for fold in one.folds) == READ_BYTES
    assert are_equal(one.fold, before)


def test_states_that_differ_are_not_equal() -> None:
    one, other = LargeLog(), LargeLog()
    one.add(200_000)
    other.add(200_000)
    assert are_equal(one.fold, other.fold)
    other.fold.pieces[1][7] += 1
    assert not are_equal(one.fold, other.fold)
    other.fold.pieces[1][7] -= 1
    one.add(1)
    assert not are_equal(one.fold, other.fold)


def test_a_state_that_is_not_whole_is_made_again() -> None:
    one = LargeLog()
    one.add(100_000)
    one.log.roll()
    one.add(1)
    before = one.fold
    one.restart()
    (name,) = one.names(".entries")
    file = one.fs.open(f"{one.log.folder}/{name}")
    file.truncate(file.size() - 1)
    file.close()
    assert are_equal(one.fold, before)
