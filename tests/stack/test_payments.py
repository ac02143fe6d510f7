"""The demo's second group: which flights are its own, and when its books are in order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from tidewheel.filters import Filter
from tidewheel.testing import MemoryBroker

from stack.demo.flights import Flight
from stack.demo.ledger import Ledger
from stack.demo.payments import FILTER, Payments, PaymentsOutcome, faults_of, row_of


def flight(row: int, carrier: str, origin: str) -> Flight:
    value = {"row": row, "carrier": carrier, "flight": 7, "origin": origin, "dest": "IAH"}
    return Flight(row, b"N1", json.dumps(value, separators=(",", ":")).encode())


FLIGHTS = (
    flight(1, "UA", "EWR"),
    flight(2, "UA", "JFK"),
    flight(3, "AA", "LGA"),
    flight(4, "UA", "LGA"),
)
OURS = (1, 4)


def outcome_of(received: Sequence[int], plain_received: Sequence[int]) -> PaymentsOutcome:
    """After these rows have come to the group, and those to the plain readers."""
    plain = Ledger(len(FLIGHTS))
    payments = Payments("127.0.0.1:1", "flights", len(FLIGHTS), plain)

    async def run() -> PaymentsOutcome | None:
        async with MemoryBroker().client() as client:
            assert await payments.create_topic(client, 2)
            for one in FLIGHTS:
                plain.record_sent(*one)
                record = payments.record(one)
                assert (record.value, record.key) == (one.value, one.key)
                assert Filter(FILTER).matches(record.tags) == (one.row in OURS)
            for ledger, rows in ((payments._ledger, received), (plain, plain_received)):
                for row in rows:
                    one = FLIGHTS[row - 1]
                    ledger.record_received(one.key, one.value, 0, row, 0.0)
            return await payments.finish(client, 0.0)

    outcome = asyncio.run(run())
    assert outcome is not None
    return outcome


def test_what_a_plain_reader_counts_is_what_the_group_has_to_get() -> None:
    outcome = outcome_of(OURS, (1, 2, 3, 4))
    assert outcome.is_good
    assert (outcome.counted, outcome.verdict.received) == (2, 2)
    names = [name for name, _ in row_of(outcome)]
    assert names == ["subscription", "retries", "dead letters"]
    text = row_of(outcome)[0][1]
    assert "2 flights" in text
    assert "counts 2" in text
    assert not any(faults_of(outcome).values())


def test_what_is_missing_is_too_much_or_was_counted_otherwise_is_blamed() -> None:
    missing = outcome_of((1,), (1, 2, 3, 4))
    assert (missing.is_good, faults_of(missing)["missing by filter"]) == (False, 1)
    unwanted = outcome_of((1, 2, 4), (1, 2, 3, 4))
    assert (unwanted.is_good, faults_of(unwanted)["not wanted by filter"]) == (False, 1)
    uncounted = outcome_of(OURS, (1, 2, 3))
    assert (uncounted.is_good, faults_of(uncounted)["counted otherwise"]) == (False, 1)


def test_without_subscriptions_flights_are_plain() -> None:
    payments = Payments("127.0.0.1:1", "flights", len(FLIGHTS), Ledger(len(FLIGHTS)))
    assert payments.record(FLIGHTS[0]).tags == ()

    async def run() -> PaymentsOutcome | None:
        async with MemoryBroker().client() as client:
            return await payments.finish(client, 0.0)

    assert asyncio.run(run()) is None
    assert (row_of(None), faults_of(None)) == ([], {})
