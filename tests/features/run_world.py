"""Histories of a set that keeps runs on a disk, beside what is to be in it: with upkeep at any
time, snapshots, cuts back to one of these, and power losses. What it has, and how that is looked
at, is the test's own."""

from __future__ import annotations

import random
from typing import Generic, Protocol, TypeVar

import pytest

from data_plane.log.file_system import SyncSite
from data_plane.log.sim_file_system import PowerLoss, SimFileSystem

FOLDER = "/log"


class Job(Protocol):
    is_done: bool

    def run(self) -> None: ...


JobOfSet = TypeVar("JobOfSet", bound=Job)
# What is to be in a set, as a snapshot of it has it.
Expected = TypeVar("Expected")


class RunWorld(Generic[JobOfSet, Expected]):
    """A set on a disk, and its snapshots, as a log would keep them."""

    snapshot_suffix: str

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.fs = SimFileSystem()
        self.fs.make_directory(FOLDER)
        self.fs.sync_directory("/", SyncSite.DATA_FOLDER)
        # Those that are durable, by their number.
        self.snapshots: dict[int, Expected] = {}
        self.snapshots_count = 0
        self.job: JobOfSet | None = None
        self.merges_count = 0

    def step(self) -> None:
        raise NotImplementedError

    def add(self) -> None:
        raise NotImplementedError

    def begin(self) -> JobOfSet | None:
        """Upkeep, if the set wants any."""
        raise NotImplementedError

    def finish(self) -> None:
        """Have the set take over what the job has done."""
        raise NotImplementedError

    def restore(self, number: int) -> None:
        """Be as the snapshot says."""
        raise NotImplementedError

    def check(self) -> None:
        """What is known without the disk."""
        raise NotImplementedError

    def check_entries(self) -> None:
        raise NotImplementedError

    def work(self) -> None:
        """Begin upkeep, or do a part of what has begun."""
        if self.job is None:
            self.job = self.begin()
        elif not self.job.is_done:
            self.job.run()
        else:
            self.finish()

    def go_on_before_writing(self) -> None:
        """Some snapshots are written later."""
        if self.rng.random() < 0.5:
            self.add()
            self.work()

    def write_snapshot(self, data: bytes, expected: Expected) -> None:
        self.snapshots_count += 1
        number = self.snapshots_count
        file = self.fs.open(self.path(number), create=True)
        file.write_at(0, data)
        self.fs.sync_data(file, SyncSite.SNAPSHOT)
        self.fs.sync_directory(FOLDER, SyncSite.SEGMENT_FOLDER)
        self.snapshots[number] = expected

    def drop_snapshot(self) -> None:
        if len(self.snapshots) > 2:
            number = min(self.snapshots)
            del self.snapshots[number]
            self.fs.unlink(self.path(number))

    def cut(self) -> None:
        """Back to some snapshot, whatever is under way; later ones go."""
        if not self.snapshots or self.job is not None:
            return
        number = self.rng.choice(list(self.snapshots))
        self.restore(number)
        for later in [one for one in self.snapshots if one > number]:
            del self.snapshots[later]
            self.fs.unlink(self.path(later))

    def path(self, number: int) -> str:
        return f"{FOLDER}/{number:020d}{self.snapshot_suffix}"

    def play(self) -> None:
        """A history. Raises AssertionError."""
        for number in range(600):
            self.step()
            self.check()
            if number % 40 == 0:
                self.check_entries()
        self.check_entries()

    def lose_power_and_go_on(self, rng: random.Random, within: int) -> None:
        """At some of the next `within` operations on the disk: each snapshot is whole then. Raises
        AssertionError."""
        self.fs.power_loss_at = self.fs.operations + rng.randrange(1, within)
        try:
            for _ in range(2_000):
                self.step()
        except PowerLoss:
            pass
        else:
            pytest.fail("nothing was written")
        self.fs.power_loss(rng)
        self.job = None
        for number in list(self.snapshots):
            self.restore(number)
            self.check_entries()
        for _ in range(200):
            self.step()
            self.check()
        self.check_entries()
