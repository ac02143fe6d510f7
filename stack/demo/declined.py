"""The demo's failing handler: payments are declined, and their flights come back by the policy.

    cancelled (no departure)      declined each time: a dead letter after ATTEMPTS deliveries
    three hours late and more     declined the first time, paid the second
    all others                    paid at once

Which those are is said here in Python, before they are sent. At the end each that was declined has
to have come as often as this says, each time as the next attempt, and to be either paid or in the
dead-letter topic, once. A message that is read again after a rebalance is the same delivery.

Then the handler is mended, and the dead letters are put back (redrive.py): each has to come once
more, and is paid. Without an operator to ask they stay where they are.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tidewheel import Client, Fixed, Message
from tidewheel.consumer import Consumer
from tidewheel.dead_letters import dead_letter_of
from tidewheel.errors import NackFailed
from tidewheel.retry_policy import DEAD_LETTERS_SUFFIX

from stack.demo.flights import Flight
from stack.demo.ledger import percentile

ATTEMPTS: Final = 3
DELAY_S: Final = 1.0
POLICY: Final = Fixed(f"{DELAY_S:g}s", attempts=ATTEMPTS)
REDRIVEN_HEADER: Final = "tw-redriven"
Redrive = Callable[[str, Sequence[int], str], Awaitable[int]]
"""Puts letters of these partitions of a topic back, by their reason; how many those were."""
REASON: Final = "the flight was cancelled"
LATE_MINUTES: Final = 180
LOOK_UP_S: Final = 0.1
NACK_AGAIN_S: Final = 0.2
_CANCELLED: Final = b'"dep_time":null'
_LATENESS: Final = re.compile(rb'"dep_delay":(\d+)')
_ROW: Final = re.compile(rb'"row":(\d+)')


@dataclass(frozen=True, slots=True)
class DeclinedOutcome:
    """What came of them. `retries` counts deliveries after the first. Lateness in milliseconds:
    from the nack's sending and the delay, to the time that the broker has put on what came back."""

    declined: int
    paid: int
    dead: int
    retries: int
    unaccounted: int
    wrong_attempts: int
    dead_twice: int
    early: int
    redriven: int
    not_redriven: int
    lateness_ms: dict[str, float]

    @property
    def is_good(self) -> bool:
        return not any(faults_of(self).values())


def deliveries_of(value: bytes) -> int:
    """How often a flight comes.

    >>> deliveries_of(b'{"row":1,"dep_time":null,"dep_delay":null}')
    3
    >>> deliveries_of(b'{"row":2,"dep_time":2000,"dep_delay":200}')
    2
    >>> deliveries_of(b'{"row":3,"dep_time":517,"dep_delay":2}')
    1
    """
    if _CANCELLED in value:
        return ATTEMPTS
    found = _LATENESS.search(value)
    return 2 if found is not None and int(found[1]) >= LATE_MINUTES else 1


def wall_clock_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


class Declined:
    """See the module."""

    def __init__(self, subscription: str, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._now_ms = now_ms
        self._dead_letters = subscription + DEAD_LETTERS_SUFFIX
        # By row, of those that are declined: how often each has to come, and how it came.
        self._expected: dict[int, int] = {}
        self._attempts: dict[int, list[int]] = {}
        self._places: set[tuple[int, int]] = set()
        # By row and attempt.
        self._nacked_at_ms: dict[tuple[int, int], int] = {}
        self._late_ms: list[float] = []
        self._dead: Counter[int] = Counter()
        self._dead_partitions: set[int] = set()
        # What was put back, by row, and how many the brokers say that were.
        self._again: Counter[int] = Counter()
        self._put_back: int | None = None

    def book(self, flight: Flight) -> None:
        """It is about to be sent."""
        if (deliveries := deliveries_of(flight.value)) > 1:
            self._expected[flight.row] = deliveries

    async def handle(self, consumer: Consumer, batch: Sequence[Message]) -> list[Message]:
        """Nack what is declined. Those that have come for the first time."""
        declined = [one for one in batch if self._is_declined(one)]
        now_ms = self._now_ms()
        for one in declined:
            self._nacked_at_ms.setdefault((_row_of(one), one.attempt), now_ms)
        while declined:
            try:
                await consumer.nack(declined, reason=REASON)
            except NackFailed as failed:
                # A broker has just been killed.
                if not failed.retriable:
                    raise
                declined = list(failed.consumed)
                await asyncio.sleep(NACK_AGAIN_S)
            else:
                break
        return [one for one in batch if one.attempt == 1 and not _is_redriven(one)]

    def _is_declined(self, message: Message) -> bool:
        deliveries = deliveries_of(message.value)
        if deliveries == 1 and message.attempt == 1:
            return False
        place = message.partition, message.offset
        if place not in self._places:
            self._places.add(place)
            self._note(_row_of(message), message)
        if _is_redriven(message):
            return False
        return _CANCELLED in message.value or message.attempt < deliveries

    def _note(self, row: int, message: Message) -> None:
        if _is_redriven(message):
            self._again[row] += 1
            return
        self._attempts.setdefault(row, []).append(message.attempt)
        nacked_at_ms = self._nacked_at_ms.get((row, message.attempt - 1))
        if nacked_at_ms is not None:
            self._late_ms.append(message.timestamp_ms - nacked_at_ms - 1000 * DELAY_S)

    async def finish(
        self,
        client: Client,
        stalled_s: float,
        check: Callable[[], None],
        redrive: Redrive | None = None,
    ) -> DeclinedOutcome:
        """When all are paid or dead letters, or nothing has happened for so long; and what
        `redrive` puts back is paid. Raises what `check` and `redrive` raise."""
        deliveries = sum(self._expected.values())
        await self._until_so_many_have_come(deliveries, stalled_s, check)
        if any(deliveries == ATTEMPTS for deliveries in self._expected.values()):
            await self._read_dead_letters(client, stalled_s)
            if redrive is not None and self._dead:
                partitions = sorted(self._dead_partitions)
                self._put_back = await redrive(self._dead_letters, partitions, REASON)
                deliveries += self._put_back
                await self._until_so_many_have_come(deliveries, stalled_s, check)
        return self._outcome()

    async def _until_so_many_have_come(
        self, deliveries: int, stalled_s: float, check: Callable[[], None]
    ) -> None:
        came, since_s = -1, time.perf_counter()
        while len(self._places) < deliveries and time.perf_counter() - since_s < stalled_s:
            await asyncio.sleep(LOOK_UP_S)
            check()
            if len(self._places) != came:
                came, since_s = len(self._places), time.perf_counter()

    async def _read_dead_letters(self, client: Client, stalled_s: float) -> None:
        deadline_s = time.perf_counter() + stalled_s
        while not await client.admin.topic_exists(self._dead_letters):
            if time.perf_counter() >= deadline_s:
                return
            await asyncio.sleep(LOOK_UP_S)
        wanted = sum(deliveries == ATTEMPTS for deliveries in self._expected.values())
        async with client.subscribe(self._dead_letters, start="earliest") as consumer:
            # What came twice would come after the others.
            async for batch in consumer.batches(wait_s=1.0):
                for message in batch:
                    self._note_dead_letter(message)
                if not batch and (
                    self._dead.total() >= wanted or time.perf_counter() >= deadline_s
                ):
                    break

    def _note_dead_letter(self, message: Message) -> None:
        letter = dead_letter_of(message)
        if letter is not None and letter.reason == REASON and letter.attempts == ATTEMPTS:
            self._dead[_row_of(message)] += 1
            self._dead_partitions.add(message.partition)

    def _outcome(self) -> DeclinedOutcome:
        late_ms = sorted(self._late_ms)
        to_die = {row for row, deliveries in self._expected.items() if deliveries == ATTEMPTS}
        to_be_paid = self._expected.keys() - to_die
        paid = {row for row in to_be_paid if len(self._attempts.get(row, ())) > 1}
        names = {"p50": 0.5, "p99": 0.99, "max": 1.0}
        return DeclinedOutcome(
            declined=len(self._expected),
            paid=len(paid),
            dead=len(self._dead),
            retries=sum(len(attempts) - 1 for attempts in self._attempts.values()),
            unaccounted=len(to_be_paid - paid) + len(to_die ^ self._dead.keys()),
            wrong_attempts=sum(
                attempts != [*range(1, self._expected.get(row, 1) + 1)]
                for row, attempts in self._attempts.items()
            ),
            dead_twice=sum(count > 1 for count in self._dead.values()),
            early=sum(late < 0 for late in late_ms),
            redriven=len(self._again),
            not_redriven=self._count_not_redriven(),
            lateness_ms={n: percentile(late_ms, f) for n, f in names.items() if late_ms},
        )

    def _count_not_redriven(self) -> int:
        """Those that were to be put back and did not come, or came twice; and how many the brokers
        have miscounted."""
        if self._put_back is None:
            return self._again.total()
        each_once = Counter(dict.fromkeys(self._dead, 1))
        differing = (self._again - each_once) + (each_once - self._again)
        return differing.total() + abs(self._put_back - len(self._dead))


def _is_redriven(message: Message) -> bool:
    return message.header(REDRIVEN_HEADER) is not None


def _row_of(message: Message) -> int:
    found = _ROW.search(message.value)
    return 0 if found is None else int(found[1])


def rows_of(outcome: DeclinedOutcome) -> list[tuple[str, str]]:
    """Of the table at the end."""
    late = "  ".join(f"{name} {value:,.0f} ms" for name, value in outcome.lateness_ms.items())
    return [
        (
            "retries",
            f"{outcome.declined:,} payments declined, {outcome.retries:,} deliveries again after "
            f"{DELAY_S:g} s: {outcome.paid:,} paid then; late by {late}",
        ),
        (
            "dead letters",
            f"{outcome.dead:,} after {ATTEMPTS} attempts: {REASON}; {outcome.redriven:,} put back "
            "by a redrive, and paid",
        ),
    ]


def faults_of(outcome: DeclinedOutcome) -> dict[str, int]:
    """What is wrong with them, by its name."""
    return {
        "neither paid nor a dead letter": outcome.unaccounted,
        "with other attempts": outcome.wrong_attempts,
        "dead letters twice": outcome.dead_twice,
        "again too early": outcome.early,
        "not put back once": outcome.not_redriven,
    }
