"""A cell of three brokers over a random history: leaders change, some hear of it later, paths are
cut, and work of threads takes its time. What is done beyond that, and what must hold, is the test's
own."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import TypeVar

from data_plane.log.log import Log
from data_plane.wire.records import BatchHeader, Record, decode_batch, iter_batch_headers
from features.catalogue import FEATURES
from tests.broker.cell_player import CellPlayer

SETTLED_MS = 2_500


class OffClock:
    """A broker's date, which a history sets off, and how far that is from the store's."""

    def __init__(self) -> None:
        self.off_ms = 0

    @property
    def skew_ms(self) -> int:
        return abs(self.off_ms)

    def wall_ms(self, now_ms: int) -> int:
        return now_ms + self.off_ms


class FaultyCell:
    """One history."""

    # Messages between brokers that are delivered in one step.
    delivered_max = 5

    def __init__(self, seed: int, configs: Mapping[str, str]) -> None:
        self.rng = random.Random(seed)
        self.cell = CellPlayer(3, configs=dict(configs), features=FEATURES)

    @property
    def now_ms(self) -> int:
        return self.cell.now_ms

    def step(self) -> None:
        raise NotImplementedError

    def check(self) -> None:
        """What must hold in the end. Raises AssertionError."""
        raise NotImplementedError

    def leaders(self) -> list[int]:
        """Those that take themselves for the leader."""
        return [one for one in self.cell.brokers if self.cell.replica(one).is_leader]

    def deliver(self) -> None:
        for _ in range(self.rng.randrange(1, self.delivered_max + 1)):
            if self.cell.events:
                self.cell.deliver()

    def work(self) -> None:
        """A thread of some broker has done something."""
        broker = self.cell.brokers[self.rng.choice(list(self.cell.brokers))]
        if broker.executor.queue:
            broker.executor.run_one()
            if self.is_woken():
                broker.services.wakes.run(broker.now_ms)

    def is_woken(self) -> bool:
        """Whether the loop hears of it at once."""
        return True

    def pass_time(self) -> None:
        ms = self.rng.choice([1, 1, 2, 5, 40])
        for broker in self.cell.brokers.values():
            broker.pass_time(ms)

    def elect(self) -> None:
        """Another leader, of which not all hear at once. All are in sync, so it may be any."""
        told = [one for one in self.cell.brokers if self.rng.random() < 0.6]
        self.cell.change(leader=self.rng.choice(list(self.cell.brokers)), only=told)

    def tell(self) -> None:
        self.cell.tell()

    def cut(self) -> None:
        self.cell.cuts.add(frozenset(self.rng.sample(list(self.cell.brokers), 2)))

    def heal(self) -> None:
        self.cell.cuts.clear()

    def settle(self) -> None:
        """Faults end, and time enough passes for all to be equal."""
        self.heal()
        self.tell()
        self.cell.run(SETTLED_MS)


Cell = TypeVar("Cell", bound=FaultyCell)


def play_to_its_end(one: Cell, steps: int) -> Cell:
    """Raises AssertionError."""
    for _ in range(steps):
        one.step()
    one.settle()
    one.check()
    return one


def batches_of(log: Log, offset: int) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """All of a log from there on, as it is stored."""
    while offset < log.log_end_offset:
        read = log.read_cold(
            offset, 1 << 20, max_offset=log.log_end_offset, at_least_one_batch=True
        )
        data = b"".join(bytes(buffer) for buffer in read.buffers)
        for header in iter_batch_headers(data, 0, len(data)):
            yield header._replace(position=0), decode_batch(data, header.position)
        offset = read.next_offset
