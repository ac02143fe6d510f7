"""What a process that starts in a cell makes of the first date that its store tells."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from data_plane.cell.changes import CreateTopic
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.metadata_store import InMemoryMetadataStore
from data_plane.server.composition import make_wall_clock
from tests.broker.member_player import Clock
from tests.server.test_entry import Machine

MINUTE_MS = 60_000
SETTLE_MS = 5 * MINUTE_MS
MONTH_MS = 30 * 24 * 60 * MINUTE_MS
TOPIC_ID = UUID(int=9)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> InMemoryMetadataStore:
    return InMemoryMetadataStore(MetadataImage("cluster"), lambda: clock.now_ms)


def create_topic(store: InMemoryMetadataStore) -> None:
    store.apply([CreateTopic("default", "t", TOPIC_ID, ((1,),))], store.read().version, "r")


def start(machine: Machine, *, off_ms: int = 0, with_log: bool = False) -> bool:
    """A process starts, asks the store once, stops cleanly; whether it has trusted the answer.
    `off_ms`: by how much the store is wrong."""
    entry = machine.enter()
    begun_ms = machine.clock.now_ms
    config = machine.settings.effective()
    assert entry.logs.start(begun_ms) == []
    clock = make_wall_clock(entry, config, begun_ms)
    if with_log:
        entry.logs.create(TOPIC_ID, "t", 0)
    now_ms = machine.clock.now_ms
    clock.observe(now_ms, now_ms + off_ms)
    clock.store_answered(now_ms + off_ms, now_ms, now_ms)
    entry.logs.vouched_date.look(clock.vouched_offset_ms, now_ms)
    entry.logs.close(now_ms)
    return clock.doubt == ""


def test_a_cell_that_has_nothing_yet_goes_by_the_first_answer(
    store: InMemoryMetadataStore, clock: Clock
) -> None:
    assert start(Machine(store, clock))


def test_who_comes_to_a_cell_that_has_something_waits(
    store: InMemoryMetadataStore, clock: Clock
) -> None:
    """What it gets from others may be gone before it has stood."""
    create_topic(store)
    assert not start(Machine(store, clock))
    assert not start(Machine(store, clock), off_ms=MONTH_MS)


@pytest.mark.parametrize("off_ms", [MONTH_MS, -MONTH_MS])
def test_a_start_with_data_goes_by_the_date_that_it_knows(
    store: InMemoryMetadataStore, clock: Clock, off_ms: int
) -> None:
    machine = Machine(store, clock)
    assert start(machine, with_log=True)
    clock.now_ms += MINUTE_MS // 2
    assert not start(machine, off_ms=off_ms)
    clock.now_ms += MINUTE_MS // 4
    assert start(machine), "a wrong date has left no trace"
    clock.now_ms += MONTH_MS
    assert not start(machine), "nobody knows that it was off for a month"


def test_logs_of_which_no_date_is_known_wait(store: InMemoryMetadataStore, clock: Clock) -> None:
    machine = Machine(store, clock)
    entry = machine.enter()
    entry.logs.start(clock.now_ms)
    entry.logs.create(TOPIC_ID, "t", 0)
    entry.logs.close(clock.now_ms)
    assert not start(machine)


@pytest.mark.parametrize("off_ms", [MONTH_MS, -MONTH_MS])
def test_in_the_same_boot_elapsed_time_tells_what_date_it_is(
    store: InMemoryMetadataStore, clock: Clock, off_ms: int
) -> None:
    machine = Machine(store, clock)
    machine.booted_ms = clock.now_ms - MINUTE_MS
    assert start(machine, with_log=True)
    for _ in range(3):
        clock.now_ms += 10 * MINUTE_MS
        assert not start(machine, off_ms=off_ms)
    assert start(machine), "however long no process was there, and though some were in doubt"
    # A steady clock of another process counts from elsewhere.
    clock.now_ms += 20 * MINUTE_MS
    machine.booted_ms += 7
    assert start(machine, off_ms=7)


def test_after_another_boot_elapsed_time_tells_nothing(
    store: InMemoryMetadataStore, clock: Clock
) -> None:
    machine = Machine(store, clock)
    machine.booted_ms = clock.now_ms - MINUTE_MS
    assert start(machine, with_log=True)
    machine.fs.power_loss(random.Random(1))
    machine.booted_ms = clock.now_ms + MINUTE_MS
    clock.now_ms += 2 * MINUTE_MS
    assert not start(machine), "in doubt, it writes no date of this boot"
    clock.now_ms += 2 * MINUTE_MS
    assert not start(machine)
