"""The set of ids against a dict: with upkeep at any time, restarts, cuts, forgetting, and crashes
at every operation of the disk."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.log.sim_file_system import SimFileSystem
from features.dedup import snapshot
from features.dedup.id_runs import (
    ENTRY,
    digest_of,
    entries_of,
    find_in_run,
    open_run,
    write_run,
)
from features.dedup.remembered_ids import Place, RememberedIds, UpkeepJob
from features.dedup.snapshot import runs_named_in
from features.run_files import CHUNK_ENTRIES
from tests.features.run_world import FOLDER, RunWorld

# So few that a short history has all of it.
GROUP_IDS, MERGED = 6, 3
IDS = [b"%d" % number for number in range(120)] + [b"x" * 64, b"\0", b"\xff" * 20]


class World(RunWorld[UpkeepJob, tuple[dict[bytes, Place], int]]):
    """A set on a disk, what is to be in it, and its snapshots, as a log would keep them."""

    snapshot_suffix = snapshot.SNAPSHOT_SUFFIX

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.now_ms = 1_000
        self.next_offset = 0
        # What is older may be gone, or not.
        self.before_ms = 0
        self.expected: dict[bytes, Place] = {}
        self.ids = self.empty()

    def empty(self) -> RememberedIds:
        return RememberedIds(self.fs, FOLDER, group_ids=GROUP_IDS, merged=MERGED)

    def step(self) -> None:
        choices = [self.add] * 14 + [self.work] * 5 + [self.forget, self.take_snapshot]
        choices += [self.look] * 3 + [self.cut, self.drop_snapshot]
        self.rng.choice(choices)()

    def add(self) -> None:
        message_id = self.rng.choice(IDS)
        self.ids.add(message_id, self.next_offset, self.now_ms)
        self.expected[message_id] = (self.next_offset, self.now_ms)
        self.next_offset += self.rng.choice([1, 1, 1, 5])
        self.now_ms += self.rng.choice([0, 0, 1, 3])

    def forget(self) -> None:
        self.before_ms = max(self.before_ms, self.now_ms - self.rng.choice([400, 150, 60, 20]))
        self.ids.forget(self.before_ms)

    def look(self) -> None:
        """As a judgement does: a thread asks what was known, while the set goes on; then the loop
        asks what has come since."""
        view, before_ms = self.ids.view(), self.before_ms
        since_ms = max(before_ms, self.now_ms - self.rng.choice([0, 30, 200]))
        asked = self.rng.sample(IDS, 20)
        old = dict(self.expected)
        for _ in range(self.rng.randrange(6)):
            self.add()
            self.work()
        try:
            found = view.find(self.fs, FOLDER, asked, since_ms)
        except FileNotFoundError:
            assert self.ids.runs is not view.runs
            return
        for one in asked:
            place, was = found.get(one), old.get(one)
            if place is None:
                assert was is None or was[1] < since_ms
            else:
                assert place[1] >= since_ms
                assert place == was or place[0] >= view.end_offset
        if self.ids.is_in_memory(view.end_offset):
            for one in asked:
                place = self.expected.get(one)
                is_new = place is not None and place[0] >= view.end_offset
                assert self.ids.find_since(one, view.end_offset) == (place if is_new else None)

    def begin(self) -> UpkeepJob | None:
        return self.ids.upkeep_job(runs_named_in, self.before_ms)

    def finish(self) -> None:
        assert self.job is not None
        self.merges_count += 1
        self.ids.finish(self.job)
        self.job = None

    def take_snapshot(self) -> None:
        frozen, expected, before_ms = self.ids.freeze(), dict(self.expected), self.before_ms
        self.go_on_before_writing()
        self.write_snapshot(snapshot.encode(frozen), (expected, before_ms))
        self.ids.thaw(frozen)

    def restore(self, number: int) -> None:
        self.ids = self.empty()
        data = self.fs.read_file(self.path(number))
        self.ids.restore(snapshot.decode(data, self.fs, FOLDER))
        expected, before_ms = self.snapshots[number]
        self.expected, self.before_ms = dict(expected), max(before_ms, self.before_ms)
        ends = [offset + 1 for offset, _ in expected.values()]
        assert self.ids.end_offset <= max(ends, default=0)
        self.next_offset = max(ends, default=0)

    def check(self) -> None:
        young = {one: at for one, at in self.expected.items() if at[1] >= self.before_ms}
        assert len(self.ids) >= len(young)
        assert len(self.ids.runs) < 20
        if young:
            assert self.ids.offset_min is not None
            assert self.ids.offset_min <= min(offset for offset, _ in young.values())

    def check_entries(self) -> None:
        young = {one: at for one, at in self.expected.items() if at[1] >= self.before_ms}
        view = self.ids.view()
        assert view.find(self.fs, FOLDER, [*IDS, b"never"], self.before_ms) == young


@pytest.mark.parametrize("seed", range(30))
def test_it_has_what_was_added_and_not_forgotten(seed: int) -> None:
    world = World(seed)
    world.play()
    assert world.merges_count > 5


@pytest.mark.parametrize("seed", range(40))
def test_after_a_power_loss_at_any_operation_each_snapshot_is_whole(seed: int) -> None:
    rng = random.Random(f"power {seed}")
    world = World(seed)
    world.lose_power_and_go_on(rng, 150)


def entries(count: int, seed: int = 0) -> list[tuple[bytes, int, int]]:
    rng = random.Random(seed)
    ids = [digest_of(b"%d" % rng.randrange(1 << 40)) for _ in range(count)]
    return sorted((one, rng.randrange(1 << 40), rng.randrange(1 << 40)) for one in set(ids))


@pytest.mark.parametrize("count", [1, CHUNK_ENTRIES - 1, CHUNK_ENTRIES, 3 * CHUNK_ENTRIES + 7])
def test_a_run_has_what_was_written_and_opens_as_it_was(count: int) -> None:
    fs = SimFileSystem()
    fs.make_directory(FOLDER)
    written = entries(count)
    run = write_run(fs, FOLDER, written)
    assert run is not None
    again = open_run(fs, FOLDER, run.name_digest)
    assert again == run
    assert list(entries_of(fs, FOLDER, again)) == written
    assert (run.offset_min, run.offset_max) == (
        min(offset for _, offset, _ in written),
        max(offset for _, offset, _ in written),
    )
    wanted = [one for one, _, _ in written] + [digest_of(b"never")]
    found = find_in_run(fs, FOLDER, run, wanted)
    assert found == {one: (offset, time_ms) for one, offset, time_ms in written}
    assert write_run(fs, FOLDER, []) is None


def test_ids_with_the_same_prefix_are_told_apart_over_the_edge_of_a_chunk() -> None:
    fs = SimFileSystem()
    fs.make_directory(FOLDER)
    same = [(b"same" + number.to_bytes(12, "big"), number, 5) for number in range(1, 1_200)]
    written = [(b"aaaa" + bytes(12), 0, 5), *same]
    run = write_run(fs, FOLDER, written)
    assert run is not None
    found = find_in_run(fs, FOLDER, run, [*(one for one, _, _ in same), b"same" + bytes(12)])
    assert found == {one: (offset, time_ms) for one, offset, time_ms in same}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damage_is_found(data: st.DataObject) -> None:
    fs = SimFileSystem()
    fs.make_directory(FOLDER)
    run = write_run(fs, FOLDER, entries(700))
    assert run is not None
    path = f"{FOLDER}/{run.name}"
    content = bytearray(fs.read_file(path))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    file = fs.open(path)
    file.write_at(0, content)
    with pytest.raises(ValueError, match=r"damaged|version|other entries"):
        open_run(fs, FOLDER, run.name_digest)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_snapshot_that_is_not_whole_is_refused(data: st.DataObject) -> None:
    world = World(5)
    for _ in range(100):
        world.step()
    encoded = bytearray(snapshot.encode(world.ids.freeze()))
    at = data.draw(st.integers(0, len(encoded) - 1))
    if data.draw(st.booleans()):
        del encoded[at:]
    else:
        encoded[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ValueError, match="snapshot"):
        snapshot.decode(bytes(encoded), world.fs, FOLDER)


def test_what_a_run_takes() -> None:
    """In memory and on the disk, an id."""
    fs = SimFileSystem()
    fs.make_directory(FOLDER)
    run = write_run(fs, FOLDER, entries(10_000))
    assert run is not None
    assert len(run.prefixes) * run.prefixes.itemsize == 4 * run.size
    assert len(fs.read_file(f"{FOLDER}/{run.name}")) < (ENTRY.size + 0.1) * run.size
