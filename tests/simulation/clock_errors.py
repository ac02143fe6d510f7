"""CLOCK ERRORS, a part of the fault model (faults.py): clocks that are hours and days off.

The wall clock of a broker's machine, or of the store's, or both, which are often one machine's,
jumps by an hour to a month, ahead or back: for less than a tick, for some seconds, or until the
faults end. Then somebody sets it right. Now and then both are wrong while the broker starts, before
it knows what date it is:

    wall clock     12:00:01  12:00:02  ◄30 days►  12:00:03  12:00:04
    what is an hour old at most stays, and so do offsets, producers, sessions and leases

    store       12:00 ◄40 days──────────────► 12:00
    broker                 starts ◄40 days──► 12:00

In these cells most topics keep their records, and tables their tombstones, for hours or days, so
that none may go because of its age, nor anybody's offset or sequence: what is deleted is held
against the time of the world (retention.py, compacted.py), the rest against what was promised. A
store's clock does not stay wrong for as long as it takes until it is believed, clock.settle.ms: who
then deletes by it has been told to.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.simulation.admin import TopicPlan
from tests.simulation.keyed import is_keyed
from tests.simulation.world import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.cell import Cell

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
# Among the numbers of brokers.
STORE = 0
# Not as far back as offsets are kept: what is written then would be old when the clock is right.
JUMP_MS_CHOICES = (2 * HOUR_MS, 3 * DAY_MS, 40 * DAY_MS, 40 * DAY_MS, -2 * HOUR_MS, -3 * DAY_MS)
DURATION_MS_CHOICES = (5, 60, 600, 2000)
INTERVAL_MS = 700
STAYS_CHANCE = 0.1
LONG_CHANCE = 0.8
# Of the starts of a broker, so many while its clock and the store's are wrong.
START_CHANCE = 0.6
START_DURATION_MS_CHOICES = (600, 2000, 2000)
SETTLE_MS = 4000
PROPERTIES = {
    "clock.settle.ms": str(SETTLE_MS),
    # Producers date their records by the time of the world.
    "log.message.timestamp.after.max.ms": str(2**63 - 1),
    "log.retention.check.interval.ms": "200",
    "offsets.retention.check.interval.ms": "300",
    "producer.id.expiration.check.interval.ms": "300",
}


def keep_for_long(rng: Random, plans: list[TopicPlan]) -> None:
    """Most topics forget within hours or days."""
    for plan in plans:
        if rng.random() >= LONG_CHANCE:
            continue
        if is_keyed(plan.name):
            plan.configs["delete.retention.ms"] = str(rng.choice((HOUR_MS, DAY_MS)))
        else:
            for name in ("retention.ms", "retention.bytes", "segment.ms"):
                plan.configs.pop(name, None)
            plan.configs["retention.ms"] = str(rng.choice((HOUR_MS, DAY_MS, 7 * DAY_MS)))
            plan.configs["segment.ms"] = rng.choice(("200", "600"))


class ClockErrors:
    """Draws whose clock is off, by how much and for how long."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._world = cell.world
        self._random = cell.world.stream("clock errors")
        self._starts_random = cell.world.stream("clock errors at starts")
        self._is_on = False
        # What is to be taken off again, by broker, or STORE.
        self._errors_ms: dict[int, int] = {}

    def start(self) -> None:
        self._is_on = True
        self._next()

    def stop(self) -> None:
        """All clocks are right, as far as clocks are."""
        self._is_on = False
        for who in list(self._errors_ms):
            self._set_right(who)

    def node_starts(self, node_id: int) -> None:
        """A new life begins."""
        rng = self._starts_random
        if not self._is_on or rng.random() >= START_CHANCE:
            return
        error_ms = rng.choice(JUMP_MS_CHOICES)
        duration_ms = rng.choice(START_DURATION_MS_CHOICES)
        if not self._errors_ms.keys().isdisjoint((STORE, node_id)):
            return
        self._world.count("starts with wrong clocks")
        for who in (STORE, node_id):
            self._set_wrong(who, error_ms)
            self._world.at(duration_ms * US_PER_MS, self._set_right, who)

    def _next(self) -> None:
        delay_ms = self._random.expovariate(1 / INTERVAL_MS) + 20
        self._world.at(int(delay_ms * US_PER_MS), self._strike)

    def _strike(self) -> None:
        if not self._is_on:
            return
        rng = self._random
        node_id = rng.choice(self._cell.node_ids)
        whose = rng.choice(((node_id,), (node_id,), (STORE,), (STORE, node_id)))
        error_ms = rng.choice(JUMP_MS_CHOICES)
        duration_ms = rng.choice(DURATION_MS_CHOICES)
        stays = whose == (node_id,) and rng.random() < STAYS_CHANCE
        for who in whose:
            if who in self._errors_ms:
                continue
            self._world.count("clocks of the store wrong" if who == STORE else "clocks wrong")
            self._set_wrong(who, error_ms)
            if not stays:
                self._world.at(duration_ms * US_PER_MS, self._set_right, who)
        self._next()

    def _set_wrong(self, who: int, error_ms: int) -> None:
        self._add(who, error_ms)
        self._errors_ms[who] = error_ms

    def _set_right(self, who: int) -> None:
        error_ms = self._errors_ms.pop(who, None)
        if error_ms is not None:
            self._add(who, -error_ms)

    def _add(self, who: int, error_ms: int) -> None:
        hours = error_ms / HOUR_MS
        if who == STORE:
            self._world.note("store", f"clock set by {hours:+.0f} h")
            self._cell.store.clock_offset_ms += error_ms
            return
        node = self._cell.nodes[who]
        node.note(f"clock set by {hours:+.0f} h")
        node.set_clock(node.skew_ms + error_ms, node.clock_rate)
