"""The pending set against a dict: with upkeep at any time, restarts, cuts, and crashes at every
write."""

from __future__ import annotations

import random

import pytest

from data_plane.log.sim_file_system import SimFileSystem
from features.delayed import snapshot
from features.delayed.names import FrozenNames
from features.delayed.outcomes import Outcomes
from features.delayed.pending_entries import FrozenPending, entries_in
from features.delayed.pending_set import PendingSet, UpkeepJob
from features.delayed.runs import RUN_SUFFIX, entries_of, memory_run, open_run, write_run
from features.delayed.snapshot import FoldState, runs_named_in
from tests.features.run_world import FOLDER, RunWorld

# So few that a short history has all of it.
NEAR_MAX, NEAR_LOW, RUN_ENTRIES, RUNS_MERGED, DONE_MAX = 16, 4, 8, 3, 6


def state_of(frozen: FrozenPending, hidden_from: int = -1, hidden_end: int = -1) -> FoldState:
    return FoldState(hidden_from, hidden_end, frozen, FrozenNames((), ()), Outcomes())


class World(RunWorld[UpkeepJob, dict[int, int]]):
    """A pending set on a disk, what is to be in it, and its snapshots, as a log would keep them."""

    snapshot_suffix = snapshot.SNAPSHOT_SUFFIX

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.now_ms = 1_000
        self.next_offset = 0
        self.expected: dict[int, int] = {}
        # When those that were moved were due.
        self.times: dict[int, list[int]] = {}
        self.pending = self.empty()
        self.loads_count = 0

    def empty(self) -> PendingSet:
        return PendingSet(
            self.fs,
            FOLDER,
            near_max=NEAR_MAX,
            near_low=NEAR_LOW,
            run_entries=RUN_ENTRIES,
            runs_merged=RUNS_MERGED,
            done_max=DONE_MAX,
        )

    def step(self) -> None:
        choices = [self.add] * 9 + [self.remove] * 3 + [self.move] * 4 + [self.work] * 5
        choices += [self.pass_time, self.take_snapshot, self.cut, self.drop_snapshot]
        self.rng.choice(choices)()

    def add(self) -> None:
        due_ms = self.now_ms + self.rng.choice([-500, 0, 1, 5, 100, 1_000, 1 << 30])
        self.pending.add(max(0, due_ms), self.next_offset)
        self.expected[self.next_offset] = max(0, due_ms)
        self.next_offset += 1

    def remove(self) -> None:
        """What is due first, as firing does, or anything, as a cancel does."""
        if self.expected:
            offset = min(self.expected, key=lambda one: (self.expected[one], one))
            if self.rng.random() < 0.3:
                offset = self.rng.choice(list(self.expected))
            due_ms = self.expected.pop(offset)
            self.pending.remove(offset, self.rng.choice([None, due_ms]))

    def move(self) -> None:
        """To another time, now and then to one at which it was before."""
        if self.expected:
            offset = self.rng.choice(list(self.expected))
            due_ms = self.expected[offset]
            times = self.times.setdefault(offset, [due_ms])
            new_due_ms = self.now_ms + self.rng.choice([0, 7, 100, 1_000, 1 << 30])
            if self.rng.random() < 0.5:
                new_due_ms = self.rng.choice(times)
            times.append(new_due_ms)
            self.pending.move(offset, due_ms, new_due_ms)
            self.expected[offset] = new_due_ms

    def begin(self) -> UpkeepJob | None:
        return self.pending.upkeep_job(runs_named_in)

    def finish(self) -> None:
        assert self.job is not None
        self.merges_count += bool(self.job.merged)
        self.loads_count += not self.job.merged
        self.pending.finish(self.job)
        self.job = None

    def pass_time(self) -> None:
        self.now_ms += self.rng.choice([1, 10, 300])
        self.pending.wheel.advance(self.now_ms)

    def take_snapshot(self) -> None:
        frozen = self.pending.freeze()
        expected = dict(self.expected)
        self.go_on_before_writing()
        self.write_snapshot(snapshot.encode(state_of(frozen)), expected)
        self.pending.thaw(frozen)

    def restore(self, number: int) -> None:
        data = self.fs.read_file(self.path(number))
        self.pending = self.empty()
        self.pending.restore(snapshot.decode(data, self.fs, FOLDER).pending)
        self.expected = dict(self.snapshots[number])

    def check(self) -> None:
        pending, expected = self.pending, self.expected
        assert len(pending) == len(expected)
        assert pending.wheel.count <= NEAR_MAX
        if expected:
            assert pending.lowest_offset is not None
            assert pending.lowest_offset <= min(expected)
            assert pending.next_ms is not None
            # What has come due is in no order.
            assert pending.next_ms <= max(min(expected.values()), self.now_ms)
        else:
            assert pending.next_ms is None

    def check_entries(self) -> None:
        frozen = self.pending.freeze()
        found = list(entries_in(self.fs, FOLDER, frozen))
        self.pending.thaw(frozen)
        assert found == sorted((due_ms, offset) for offset, due_ms in self.expected.items())

    def drain(self) -> None:
        """All of it comes out, in order, each when it is due."""
        if self.job is not None:
            if not self.job.is_done:
                self.job.run()
            self.finish()
        before = (0, 0)
        while self.expected:
            while (job := self.pending.upkeep_job(runs_named_in)) is not None:
                job.run()
                self.job = job
                self.finish()
            self.pending.wheel.advance(1 << 40)
            for due_ms, offset in self.pending.wheel.first_ready(3):
                assert self.expected.pop(offset) == due_ms
                assert before < (due_ms, offset)
                before = (due_ms, offset)
                self.pending.remove(offset)
        assert len(self.pending) == 0


@pytest.mark.parametrize("seed", range(40))
def test_it_has_what_was_added_and_not_removed(seed: int) -> None:
    world = World(seed)
    world.play()
    world.now_ms = 0
    world.pending, frozen = world.empty(), world.pending.freeze()
    # In wheels at which no time has passed, so that all comes due in order.
    world.pending.restore(frozen)
    world.job = None
    world.drain()


def test_what_histories_reach() -> None:
    worlds = [World(seed) for seed in range(6)]
    for world in worlds:
        for _ in range(600):
            world.step()
    assert sum(world.merges_count for world in worlds) > 10
    assert sum(world.loads_count for world in worlds) > 10


@pytest.mark.parametrize("seed", range(60))
def test_after_a_power_loss_at_any_operation_each_snapshot_is_whole(seed: int) -> None:
    rng = random.Random(f"power {seed}")
    world = World(seed)
    world.lose_power_and_go_on(rng, 250)


def test_what_it_never_had_is_not_looked_for_for_ever() -> None:
    """A replica is told facts whose records were thinned away before it got there."""
    world = World(1)
    pending = world.pending
    offsets = range(0, 100, 2)
    for offset in offsets:
        pending.add(1 << 40, offset)
    for offset in range(41, 41 + 2 * DONE_MAX + 4, 2):
        pending.remove(offset)
    jobs_count = 0
    while (job := pending.upkeep_job(runs_named_in)) is not None:
        job.run()
        pending.finish(job)
        jobs_count += 1
        assert jobs_count < 10
    assert len(pending) == len(offsets)
    frozen = pending.freeze()
    assert [offset for _, offset in entries_in(world.fs, FOLDER, frozen)] == list(offsets)
    pending.thaw(frozen)


def test_what_a_run_has_had_once_does_not_hold_the_log() -> None:
    """Or one message that is due in ten years would keep all since one that was due tomorrow."""
    world = World(1)
    pending = world.pending

    def work() -> None:
        job = pending.upkeep_job(runs_named_in)
        assert job is not None
        job.run()
        pending.finish(job)

    for offset in range(20, 37):
        pending.add(10 + offset, offset)
    for offset in range(1, 9):
        pending.add(100 if offset == 1 else (1 << 30) + offset, offset)
    pending.remove(36)
    for gone in (range(20, 28), range(28, 32), range(32, 36)):
        for offset in gone:
            pending.remove(offset)
        work()
    for offset in range(50, 56):
        pending.add(200, offset)
    pending.remove(1)
    assert pending.lowest_offset == 1
    work()
    assert not pending.wants_upkeep
    assert pending.lowest_offset == 2
    frozen = pending.freeze()
    found = [offset for _, offset in entries_in(world.fs, FOLDER, frozen)]
    pending.thaw(frozen)
    assert sorted(found) == [*range(2, 9), *range(50, 56)]


def test_files_of_runs_that_nobody_needs_go() -> None:
    world = World(7)
    for _ in range(2_000):
        world.step()
    for number in list(world.snapshots):
        world.fs.unlink(world.path(number))
    world.snapshots = {}
    before = world.merges_count
    for _ in range(100 * RUN_ENTRIES):
        world.add()
        world.work()
    names = [name for name in world.fs.list_directory(FOLDER) if name.endswith(RUN_SUFFIX)]
    # Those of the last merge go with the next one.
    kept_max = len(world.pending.runs) + 2 * RUNS_MERGED
    assert len(names) <= kept_max < world.merges_count - before


def test_a_run_is_read_from_anywhere() -> None:
    fs = SimFileSystem()
    fs.make_directory(FOLDER)
    entries = [(due_ms // 3, due_ms) for due_ms in range(1_500)]
    run = write_run(fs, FOLDER, iter(entries))
    assert run is not None
    assert (run.size, run.offset_min, run.offset_max) == (1_500, 0, 1_499)
    assert open_run(fs, FOLDER, run.digest) == run
    for start in (0, 1, 511, 512, 513, 1_024, 1_499, 1_500):
        assert list(entries_of(fs, FOLDER, run, start)) == entries[start:]
        assert list(entries_of(fs, FOLDER, memory_run(entries), start)) == entries[start:]


@pytest.mark.parametrize("position", [0, 12, 35, 36, 8_000, 8_230, 16_000])
def test_a_flipped_bit_is_found(position: int) -> None:
    fs = SimFileSystem()
    fs.make_directory(FOLDER)
    run = write_run(fs, FOLDER, ((due_ms, due_ms) for due_ms in range(1_000)))
    assert run is not None
    fs.flip_bit(f"{FOLDER}/{run.name}", position)
    with pytest.raises(ValueError, match=r"damaged|version"):
        open_run(fs, FOLDER, run.digest)


def test_a_run_that_has_gone_makes_its_snapshot_no_snapshot() -> None:
    world = World(3)
    while not any(name.endswith(RUN_SUFFIX) for name in world.fs.list_directory(FOLDER)):
        world.add()
        world.work()
    world.finish() if world.job is not None and world.job.is_done else world.work()
    frozen = world.pending.freeze()
    data = snapshot.encode(state_of(frozen, 5, 9))
    assert snapshot.decode(data, world.fs, FOLDER).hidden_end == 9
    for name in world.fs.list_directory(FOLDER):
        if name.endswith(RUN_SUFFIX):
            world.fs.unlink(f"{FOLDER}/{name}")
    with pytest.raises(ValueError, match="there is no"):
        snapshot.decode(data, world.fs, FOLDER)


@pytest.mark.parametrize("size", [0, 3, 11, 40])
def test_a_torn_snapshot_is_none(size: int) -> None:
    world = World(1)
    world.add()
    data = snapshot.encode(state_of(world.pending.freeze()))
    with pytest.raises(ValueError, match="torn"):
        snapshot.decode(data[:size], world.fs, FOLDER)
