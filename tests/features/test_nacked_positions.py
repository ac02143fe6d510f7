"""The set of nacked offsets against a dict: with upkeep at any time, restarts, cuts, forgetting,
and crashes at every write."""

from __future__ import annotations

import random

import pytest

from data_plane.log.sim_file_system import SimFileSystem
from features.delayed.runs import find_keys, memory_run, open_run, write_run
from features.retry_dlq import snapshot
from features.retry_dlq.positions import RUN_SUFFIX, Positions, UpkeepJob, entries_in
from features.retry_dlq.snapshot import DeadLetters, FoldState, runs_named_in
from tests.features.run_world import FOLDER, RunWorld

# So few that a short history has all of it.
RUN_ENTRIES, RUNS_MERGED = 8, 3


class World(RunWorld[UpkeepJob, tuple[dict[int, int], int]]):
    """A set on a disk, what is to be in it, and its snapshots, as a log would keep them."""

    snapshot_suffix = snapshot.SNAPSHOT_SUFFIX

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.next_stored = 0
        self.expected: dict[int, int] = {}
        self.floor = 0
        self.positions = self.empty()

    def empty(self) -> Positions:
        return Positions(self.fs, FOLDER, run_entries=RUN_ENTRIES, runs_merged=RUNS_MERGED)

    def step(self) -> None:
        choices = [self.add] * 12 + [self.work] * 5 + [self.forget, self.take_snapshot]
        choices += [self.look] * 2 + [self.cut, self.drop_snapshot]
        self.rng.choice(choices)()

    def add(self) -> None:
        offset = self.floor + self.rng.randrange(400)
        if offset not in self.expected:
            self.positions.add(offset, self.next_stored)
            self.expected[offset] = self.next_stored
        self.next_stored += 1

    def forget(self) -> None:
        self.floor += self.rng.choice([0, 1, 20, 150])
        self.positions.forget_below(self.floor)
        self.expected = {at: one for at, one in self.expected.items() if at >= self.floor}

    def look(self) -> None:
        """As a judgement does: a frozen set is asked while the set goes on."""
        frozen, expected = self.positions.freeze(), set(self.expected)
        for _ in range(self.rng.randrange(3)):
            self.add()
            self.work()
        asked = self.rng.sample(range(self.floor + 420), 20)
        assert frozen.find(self.fs, FOLDER, asked) == expected & set(asked)
        self.positions.thaw(frozen)

    def begin(self) -> UpkeepJob | None:
        job = self.positions.upkeep_job(runs_named_in)
        if job is not None:
            job.kept_names = self.positions.kept_names()
        return job

    def finish(self) -> None:
        assert self.job is not None
        self.merges_count += 1
        self.positions.finish(self.job)
        self.job = None

    def take_snapshot(self) -> None:
        frozen, expected = self.positions.freeze(), dict(self.expected)
        floor = self.floor
        self.go_on_before_writing()
        nothing = self.empty().freeze()
        data = snapshot.encode(FoldState(frozen, nothing, DeadLetters(-1, 0)))
        self.write_snapshot(data, (expected, floor))
        self.positions.thaw(frozen)

    def restore(self, number: int) -> None:
        data = self.fs.read_file(self.path(number))
        self.positions = self.empty()
        self.positions.restore(snapshot.decode(data, self.fs, FOLDER).of_source)
        expected, self.floor = self.snapshots[number]
        self.expected = dict(expected)

    def check(self) -> None:
        positions, expected = self.positions, self.expected
        assert len(positions) >= len(expected)
        assert len(positions.runs) < 20
        if expected:
            assert positions.lowest_stored is not None
            assert positions.lowest_stored <= min(expected.values())
            assert positions.lowest_offset is not None
            assert positions.lowest_offset <= min(expected)

    def check_entries(self) -> None:
        frozen = self.positions.freeze()
        found = list(entries_in(self.fs, FOLDER, frozen))
        everything = frozen.find(self.fs, FOLDER, range(self.floor + 500))
        self.positions.thaw(frozen)
        assert found == sorted(self.expected.items())
        assert everything == self.expected.keys()


@pytest.mark.parametrize("seed", range(40))
def test_it_has_what_was_added_and_not_forgotten(seed: int) -> None:
    world = World(seed)
    world.play()


def test_what_histories_reach() -> None:
    worlds = [World(seed) for seed in range(6)]
    for world in worlds:
        for _ in range(600):
            world.step()
    assert sum(world.merges_count for world in worlds) > 30


@pytest.mark.parametrize("seed", range(40))
def test_after_a_power_loss_at_any_operation_each_snapshot_is_whole(seed: int) -> None:
    rng = random.Random(f"power {seed}")
    world = World(seed)
    world.lose_power_and_go_on(rng, 150)


def test_what_is_forgotten_does_not_hold_the_log() -> None:
    world = World(1)
    for offset in range(3 * RUN_ENTRIES):
        world.positions.add(offset, 1_000 + offset)
    while (job := world.positions.upkeep_job(runs_named_in)) is not None:
        job.run()
        world.positions.finish(job)
    (run,) = world.positions.runs
    world.positions.forget_below(11)
    assert world.positions.lowest_stored == 1_000
    assert not world.positions.wants_upkeep
    world.positions.forget_below(13)
    job = world.positions.upkeep_job(runs_named_in)
    assert job is not None
    assert job.merged == (run,)
    job.run()
    world.positions.finish(job)
    assert world.positions.lowest_stored == 1_013
    world.positions.forget_below(24)
    assert world.positions.lowest_stored is None
    assert world.positions.lowest_offset is None


@pytest.mark.parametrize("count", [1, 511, 512, 513, 1_024, 5_000])
def test_keys_are_found_in_runs_of_any_size(count: int) -> None:
    fs = SimFileSystem()
    fs.make_directory(FOLDER)
    entries = [(10 + 3 * at, at) for at in range(count)]
    run = write_run(fs, FOLDER, iter(entries), RUN_SUFFIX)
    assert run is not None
    assert open_run(fs, FOLDER, run.digest, RUN_SUFFIX) == run
    assert (run.key_min, run.key_max) == (10, 10 + 3 * (count - 1))
    assert run.name.endswith(RUN_SUFFIX)
    rng = random.Random(count)
    everything = range(13 + 3 * count)
    for asked in (list(everything), sorted(rng.sample(everything, min(9, len(everything))))):
        expected = {key for key, _ in entries} & set(asked)
        assert find_keys(fs, FOLDER, run, asked) == expected
        assert find_keys(fs, FOLDER, memory_run(entries), asked) == expected


def test_a_damaged_chunk_is_not_taken_for_none() -> None:
    fs = SimFileSystem()
    fs.make_directory(FOLDER)
    run = write_run(fs, FOLDER, ((key, key) for key in range(1_000)), RUN_SUFFIX)
    assert run is not None
    fs.flip_bit(f"{FOLDER}/{run.name}", 8_000)
    with pytest.raises(OSError, match="damaged"):
        find_keys(fs, FOLDER, run, [100])


def test_a_run_that_has_gone_makes_its_snapshot_no_snapshot() -> None:
    world = World(3)
    while not any(name.endswith(RUN_SUFFIX) for name in world.fs.list_directory(FOLDER)):
        world.add()
        world.work()
    while world.job is not None:
        world.work()
    nothing = world.empty().freeze()
    state = FoldState(nothing, world.positions.freeze(), DeadLetters(7, 2))
    data = snapshot.encode(state)
    assert snapshot.decode(data, world.fs, FOLDER) == state
    for size in (0, 3, 11, len(data) - 1):
        with pytest.raises(ValueError, match="torn"):
            snapshot.decode(data[:size], world.fs, FOLDER)
    for name in world.fs.list_directory(FOLDER):
        if name.endswith(RUN_SUFFIX):
            world.fs.unlink(f"{FOLDER}/{name}")
    with pytest.raises(ValueError, match="there is no"):
        snapshot.decode(data, world.fs, FOLDER)
