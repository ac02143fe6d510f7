"""The demo's delayed messages: when flights are due, and when all is well with them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tidewheel.testing import MemoryBroker, VirtualClock

from stack.demo.departures import (
    DAY_S,
    SHARE,
    Departures,
    DeparturesOutcome,
    delay_ms,
    faults_of,
    row_of,
)
from stack.demo.flights import Flight


def flight(row: int, departure: int) -> Flight:
    return Flight(row, b"N1", b'{"row":%d,"sched_dep_time":%d}' % (row, departure))


@pytest.mark.parametrize(
    ("departure", "share"), [(1200, 1 / 2), (600, 1 / 4), (2359, 1439 / 1440), (517, 317 / 1440)]
)
def test_a_flight_is_due_when_it_departs(departure: int, share: float) -> None:
    assert delay_ms(flight(1, departure)) == round(1000 * DAY_S * share)


def test_a_share_of_the_flights_comes_once_and_when_it_is_due() -> None:
    async def run() -> DeparturesOutcome | None:
        async with MemoryBroker(VirtualClock(autojump=True)).client() as client:
            departures = Departures("flights")
            await departures.start(client, 2)
            for row in range(1, 3 * SHARE + 1):
                departures.book(flight(row, 2300 - row))
            return await departures.finish(30)

    outcome = asyncio.run(run())
    assert outcome is not None
    assert outcome == DeparturesOutcome(3, 3, 0, 0, {"p50": 0.0, "p99": 0.0, "max": 0.0})
    assert outcome.is_good
    assert not any(faults_of(outcome).values())
    ((name, text),) = row_of(outcome)
    assert name == "delayed"
    assert text.startswith("3 of 3 flights came when they departed")
    for bad in (
        replace(outcome, received=2),
        replace(outcome, early=1),
        replace(outcome, repeated=1),
    ):
        assert not bad.is_good
        assert any(faults_of(bad).values())


def test_brokers_that_delay_nothing_get_none() -> None:
    departures = Departures("flights")
    departures.book(flight(SHARE, 1200))
    assert asyncio.run(departures.finish(1)) is None
    assert row_of(None) == []
