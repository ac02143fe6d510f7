"""The demo's delayed messages: each twentieth flight comes when it departs.

    sched_dep_time 1200   half of the day ─► due half of DAY_S after it is sent

They are sent to a topic of their own while the others go, so that brokers are killed and started
meanwhile, and read by one consumer. Each has to come once, and never before it is due, by the time
that the broker has put on it; how much later, is counted.

Brokers that delay nothing, Apache Kafka's for instance, get none.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from dataclasses import dataclass
from typing import Final

from tidewheel import Client, Message, ProducerRecord
from tidewheel.subscriptions import HEADERS_PROPERTY

from stack.demo.flights import Flight
from stack.demo.ledger import percentile

SHARE: Final = 20
DAY_S: Final = 12.0
DAY_MINUTES: Final = 24 * 60
SEND_EVERY_S: Final = 0.2
LOOK_UP_S: Final = 0.1
_DEPARTURE: Final = re.compile(rb'"sched_dep_time":(\d+)')
_ROW: Final = re.compile(rb'"row":(\d+)')


@dataclass(frozen=True, slots=True)
class DeparturesOutcome:
    """What came of them. Lateness in milliseconds, by the delivered messages' timestamps."""

    sent: int
    received: int
    early: int
    repeated: int
    lateness_ms: dict[str, float]

    @property
    def is_good(self) -> bool:
        return self.received == self.sent and not self.early and not self.repeated


def delay_ms(flight: Flight) -> int:
    """From when it is sent to when it departs.

    >>> delay_ms(Flight(1, None, b'{"row":1,"sched_dep_time":1200}'))
    6000
    """
    found = _DEPARTURE.search(flight.value)
    clock = int(found[1]) if found is not None else 0
    minutes = clock // 100 * 60 + clock % 100
    return max(1, round(1000 * DAY_S * minutes / DAY_MINUTES))


class Departures:
    """See the module. `topic` is that of all flights."""

    def __init__(self, topic: str) -> None:
        self.topic = f"{topic}-departures"
        self._waiting: list[tuple[Flight, int]] = []
        # By row: when it is due, and when it was delivered.
        self._due_ms: dict[int, int] = {}
        self._delivered_ms: dict[int, int] = {}
        self._places: dict[int, tuple[int, int]] = {}
        self._repeated = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._all_are_booked = asyncio.Event()

    async def start(self, client: Client, partitions: int) -> None:
        """Make the topic, and read it from now on."""
        configs = {HEADERS_PROPERTY: True}
        await client.admin.create_topic(self.topic, partitions=partitions, configs=configs)
        reading, sending = self._read(client), self._send(client)
        self._tasks = [asyncio.create_task(reading), asyncio.create_task(sending)]

    def book(self, flight: Flight) -> None:
        """Have it sent soon, if it is one of the share."""
        if self._tasks and flight.row % SHARE == 0:
            self._waiting.append((flight, delay_ms(flight)))

    def cancel(self) -> None:
        """Give up at once."""
        for task in self._tasks:
            task.cancel()

    def check(self) -> None:
        """Raise what sending or reading has failed with, if it did."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def _send(self, client: Client) -> None:
        topic = client.topic(self.topic)
        while self._waiting or not self._all_are_booked.is_set():
            taken, self._waiting = self._waiting, []
            now_ms = client.clock.now_ms()
            records = []
            for flight, after_ms in taken:
                self._due_ms[flight.row] = now_ms + after_ms
                at = now_ms + after_ms
                records.append(ProducerRecord(flight.value, flight.key, deliver_at=at))
            await topic.send_many(records)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_are_booked.wait(), SEND_EVERY_S)

    async def _read(self, client: Client) -> None:
        async for message in client.subscribe(self.topic, group=f"{self.topic}-readers"):
            self._receive(message)

    def _receive(self, message: Message) -> None:
        found = _ROW.search(message.value)
        row = int(found[1]) if found is not None else 0
        # What was read before a rebalance and not committed comes again, and is the same message.
        place = message.partition, message.offset
        self._repeated += self._places.setdefault(row, place) != place
        self._delivered_ms[row] = message.timestamp_ms

    async def finish(self, stalled_s: float) -> DeparturesOutcome | None:
        """When all have come, or none has for so long after the last was due; None where there are
        none."""
        if not self._tasks:
            return None
        self._all_are_booked.set()
        received, since_s = -1, time.perf_counter()
        while time.perf_counter() - since_s < stalled_s + DAY_S:
            await asyncio.sleep(LOOK_UP_S)
            self.check()
            if self._tasks[1].done() and len(self._delivered_ms) >= len(self._due_ms):
                break
            if len(self._delivered_ms) != received:
                received, since_s = len(self._delivered_ms), time.perf_counter()
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return self._outcome()

    def _outcome(self) -> DeparturesOutcome:
        came = self._delivered_ms
        late_ms = sorted(
            float(came[row] - due_ms) for row, due_ms in self._due_ms.items() if row in came
        )
        names = {"p50": 0.5, "p99": 0.99, "max": 1.0}
        return DeparturesOutcome(
            sent=len(self._due_ms),
            received=sum(row in self._due_ms for row in came),
            early=sum(value < 0 for value in late_ms),
            repeated=self._repeated,
            lateness_ms={n: percentile(late_ms, f) for n, f in names.items() if late_ms},
        )


def row_of(outcome: DeparturesOutcome | None) -> list[tuple[str, str]]:
    """Of the table at the end."""
    if outcome is None:
        return []
    late = "  ".join(f"{name} {value:,.0f} ms" for name, value in outcome.lateness_ms.items())
    text = (
        f"{outcome.received:,} of {outcome.sent:,} flights came when they departed (a day is "
        f"{DAY_S:.0f} s), {outcome.early:,} early; late by {late}"
    )
    return [("delayed", text)]


def faults_of(outcome: DeparturesOutcome | None) -> dict[str, int]:
    """What is wrong with them, by its name."""
    if outcome is None:
        return {}
    return {
        "delayed ones missing": max(0, outcome.sent - outcome.received),
        "early": outcome.early,
        "delayed ones delivered twice": outcome.repeated,
    }
