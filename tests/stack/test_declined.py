"""The demo's failing handler, on the memory broker: what has to come of it, and what is blamed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tidewheel import Message
from tidewheel.consumer import Consumer
from tidewheel.testing import Letters, MemoryBroker, VirtualClock

from stack.demo.declined import (
    ATTEMPTS,
    POLICY,
    Declined,
    DeclinedOutcome,
    faults_of,
    rows_of,
)
from stack.demo.flights import Flight

SUBSCRIPTION = "flights.pay"
CANCELLED = b'{"row":1,"dep_time":null,"dep_delay":null}'
LATE = b'{"row":2,"dep_time":2000,"dep_delay":200}'
ON_TIME = b'{"row":3,"dep_time":517,"dep_delay":2}'
FLIGHTS = [Flight(row, b"N1", value) for row, value in enumerate((CANCELLED, LATE, ON_TIME), 1)]


def outcome_of(
    seen: Callable[[Sequence[Message]], Sequence[Message]] = lambda batch: batch,
    sent: Sequence[Flight] = FLIGHTS,
    meddle: Callable[[MemoryBroker], None] = lambda broker: None,
    redriven: Callable[[MemoryBroker, str], int] | None = None,
) -> tuple[DeclinedOutcome, list[bytes]]:
    """After what is sent has been handled, with `seen` of each batch; and what came first."""

    async def run() -> tuple[DeclinedOutcome, list[bytes]]:
        broker = MemoryBroker(VirtualClock(autojump=True))
        broker.create_topic("flights", partitions=1, configs={"tidewheel.headers": "true"})
        declined = Declined(SUBSCRIPTION, broker.clock.now_ms)
        first: list[bytes] = []

        async def handle(consumer: Consumer) -> None:
            async for batch in consumer.batches():
                first.extend(m.value for m in await declined.handle(consumer, seen(batch)))

        async with broker.client() as client:
            consumer = client.subscribe(
                "flights", group="g", subscription=SUBSCRIPTION, retry=POLICY
            )
            await consumer.open()
            for flight in FLIGHTS:
                declined.book(flight)
            for flight in sent:
                await client.topic("flights").send(flight.value, key=flight.key)
            task = asyncio.create_task(handle(consumer))
            deadline_ms = broker.clock.now_ms() + 60_000
            while broker.clock.now_ms() < deadline_ms:
                await broker.clock.sleep(1)
            meddle(broker)

            async def redrive(topic: str, partitions: Sequence[int], reason: str) -> int:
                assert (topic, partitions) == (f"{SUBSCRIPTION}.dlq", [0])
                assert redriven is not None
                moved = redriven(broker, reason)
                await broker.clock.sleep(5)
                return moved

            putting_back = None if redriven is None else redrive
            outcome = await declined.finish(client, 0.0, lambda: None, putting_back)
            consumer.stop()
            await task
            return outcome, first

    return asyncio.run(run())


def test_declined_flights_come_again_and_end_once() -> None:
    outcome, first = outcome_of()
    assert first == [CANCELLED, LATE, ON_TIME]
    assert outcome.is_good
    assert (outcome.declined, outcome.paid, outcome.dead) == (2, 1, 1)
    assert outcome.retries == (ATTEMPTS - 1) + 1
    assert not any(faults_of(outcome).values())
    retries, letters = (text for _, text in rows_of(outcome))
    assert "2 payments declined" in retries
    assert letters.startswith("1 after 3 attempts")


def test_what_does_not_come_again_is_blamed() -> None:
    outcome, _ = outcome_of(lambda batch: [m for m in batch if m.attempt == 1])
    assert (outcome.is_good, outcome.unaccounted, outcome.wrong_attempts) == (False, 2, 2)


def test_what_never_came_is_blamed() -> None:
    outcome, _ = outcome_of(sent=FLIGHTS[1:])
    assert (outcome.is_good, outcome.unaccounted) == (False, 1)


def test_a_dead_letter_too_many_is_blamed() -> None:
    def twice(broker: MemoryBroker) -> None:
        (letter,) = broker.messages(f"{SUBSCRIPTION}.dlq")
        again = (letter.topic, letter.partition, -1, 0, letter.key, letter.value, letter.headers)
        broker.append(Message(*again))

    outcome, _ = outcome_of(meddle=twice)
    assert (outcome.is_good, outcome.dead_twice) == (False, 1)


def test_dead_letters_that_are_put_back_are_paid() -> None:
    outcome, first = outcome_of(redriven=lambda broker, reason: put_back(broker, reason))
    assert first == [CANCELLED, LATE, ON_TIME]
    assert (outcome.is_good, outcome.dead, outcome.redriven) == (True, 1, 1)
    assert "1 put back" in rows_of(outcome)[1][1]


def test_what_is_put_back_and_does_not_come_or_comes_twice_is_blamed() -> None:
    lost, _ = outcome_of(redriven=lambda _broker, _reason: 1)
    assert (lost.is_good, lost.not_redriven) == (False, 1)
    twice, _ = outcome_of(
        redriven=lambda broker, reason: (
            put_back(broker, reason) and put_back(broker, reason, again=True)
        )
    )
    assert (twice.is_good, twice.not_redriven) == (False, 1)


def put_back(broker: MemoryBroker, reason: str, *, again: bool = False) -> int:
    return broker.redrive(SUBSCRIPTION, Letters(reason=reason, again=again)).moved
