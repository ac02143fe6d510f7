"""What is held for pending messages, by offset, against a set: whatever the pending set goes
through between the asking and the answers, and however little memory there is."""

from __future__ import annotations

import random

import pytest

from data_plane.log.cold_files import Retired
from features.delayed import held
from features.delayed.held import BLOCK_BITS, HeldMessages, Window
from features.delayed.runs import RUN_SUFFIX
from features.delayed.snapshot import runs_named_in
from tests.features.run_world import FOLDER
from tests.features.test_pending_set import RUNS_MERGED, World

BLOCK = 1 << BLOCK_BITS


def asked(world: World, added: list[int]) -> list[int]:
    """Offsets in order: pending, done, and beside both."""
    return sorted({*added, *(one + 1 for one in added), 0, world.next_offset})


@pytest.mark.parametrize("seed", range(30))
def test_it_holds_what_was_pending_when_it_was_made(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "WINDOW_BYTES_MAX", 700)
    world = World(seed)
    added: list[int] = []
    for _ in range(10):
        for _ in range(60):
            world.step()
            added.append(max(world.next_offset - 1, 0))
            # Over several blocks, and the edges of some.
            if world.rng.random() < 0.1:
                world.next_offset += world.rng.choice([BLOCK - 1, BLOCK // 2, 3 * BLOCK])
        one = HeldMessages(world.fs, FOLDER, world.pending)
        expected, offsets = set(world.expected), asked(world, added)
        for number, offset in enumerate(offsets):
            if number % 5 == 0:
                (world.work if world.rng.random() < 0.5 else world.add)()
            assert one.needs(offset) is (offset in expected)
        one.close()
        one.close()
    assert not world.pending._frozen


def test_the_edges_of_a_block() -> None:
    world = World(1)
    edges = [0, BLOCK - 1, BLOCK, 2 * BLOCK - 1, 5 * BLOCK, 5 * BLOCK + 1]
    for offset in edges:
        world.pending.add(5, offset)
    one = HeldMessages(world.fs, FOLDER, world.pending)
    near = sorted({beside for edge in edges for beside in (edge - 1, edge, edge + 1)} - {-1})
    assert [offset for offset in near if one.needs(offset)] == edges
    assert one.needs(0), "whoever begins again is answered"


def test_a_window_takes_what_it_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "WINDOW_BYTES_MAX", 4 * held.BLOCK_BYTES)
    window = Window(2, 1 << 48)
    numbers = list(range(1, 40))
    random.Random(1).shuffle(numbers)
    window.add(number * BLOCK + 7 for number in numbers)
    assert 3 <= window.end <= 6
    for number in range(2, window.end):
        assert window.places_of(number).find(1) == 7
    dense = Window(0, 1 << 48)
    dense.add(range(2 * BLOCK))
    assert dense.end == 1, "never less than the block that is asked for"
    assert dense.places_of(0) == b"\1" * BLOCK


def test_runs_stay_until_it_is_closed() -> None:
    world = World(2)
    for _ in range(200):
        world.add()
        world.work()
    one = HeldMessages(world.fs, FOLDER, world.pending)
    expected, end_offset = set(world.expected), world.next_offset
    for _ in range(600):
        world.add()
        world.work()
    assert {offset for offset in range(end_offset + 9) if one.needs(offset)} == expected
    one.close()
    world.snapshots = {}
    for _ in range(600):
        world.add()
        world.work()
    names = [name for name in world.fs.list_directory(FOLDER) if name.endswith(RUN_SUFFIX)]
    assert len(names) <= len(world.pending.runs) + 2 * RUNS_MERGED


def test_runs_that_a_cut_has_taken_away_end_the_pass() -> None:
    """Its log's next fold knows nothing of it, and removes what it does not need itself."""
    world = World(3)
    for _ in range(200):
        world.add()
        world.work()
    one = HeldMessages(world.fs, FOLDER, world.pending)
    for name in world.fs.list_directory(FOLDER):
        if name.endswith(RUN_SUFFIX):
            world.fs.unlink(f"{FOLDER}/{name}")
    with pytest.raises(Retired):
        one.needs(0)
    assert runs_named_in(world.fs, FOLDER) == set()
