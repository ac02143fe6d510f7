"""The demo's second tenant: it sends and reads flights of its own beside the first one's, in a
topic of the same name, with the same row numbers, and keeps books of its own.

A message that came to the wrong tenant would be in the wrong books: it has another text than the
one that was sent there under its row number.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from tidewheel import Client
from tidewheel.settings import ClientSettings, ProducerSettings

from stack.demo.flights import Flight
from stack.demo.ledger import Ledger, Verdict
from stack.demo.tenants import DemoTenant

FLIGHTS: Final = 20_000
KEYS: Final = 100
BATCH_MESSAGES_MAX: Final = 500
STALLED_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Beside:
    """What came of the second tenant. `topics` are what it sees, and `messages` what is in its
    topic."""

    slug: str
    verdict: Verdict
    topics: tuple[str, ...]
    messages: int
    made_s: float

    def is_good(self, topic: str) -> bool:
        """It has all that is its own, and nothing else."""
        return (
            self.verdict.is_good
            and self.topics == (topic,)
            and self.messages == self.verdict.sent == FLIGHTS
        )


class Neighbour:
    """One run of it."""

    def __init__(self, tenant: DemoTenant, topic: str) -> None:
        self._tenant = tenant
        self._topic = topic
        self._ledger = Ledger(FLIGHTS)

    async def run(self) -> Beside:
        settings = ClientSettings(client_id=f"demo-{self._tenant.slug}")
        producer = ProducerSettings.throughput()
        async with Client(self._tenant.url, settings=settings, producer=producer) as client:
            reading = asyncio.create_task(self._read(client))
            try:
                topic = client.topic(self._topic, value_serializer=attrgetter("value"))
                await topic.send_many(self._booked(), key=attrgetter("key"))
                await reading
            finally:
                reading.cancel()
            ends = await client.admin.offsets(self._topic)
            topics = await client.admin.topics()
        return Beside(
            self._tenant.slug,
            self._ledger.verdict(),
            tuple(sorted(one.name for one in topics)),
            sum(ends.values()),
            self._tenant.made_s,
        )

    def _booked(self) -> Iterator[Flight]:
        for row in range(1, FLIGHTS + 1):
            value = f'{{"row":{row},"tenant":"{self._tenant.slug}"}}'.encode()
            flight = Flight(row, f"{self._tenant.slug}-{row % KEYS}".encode(), value)
            self._ledger.record_sent(*flight)
            yield flight

    async def _read(self, client: Client) -> None:
        """Until everything has come, or nothing comes any more."""
        consumer = client.subscribe(self._topic, group=f"{self._topic}-{self._tenant.slug}")
        async for batch in consumer.batches(BATCH_MESSAGES_MAX, wait_s=STALLED_S):
            now_s = time.perf_counter()
            for one in batch:
                self._ledger.record_received(one.key, one.value, one.partition, one.offset, now_s)
            if not batch or self._ledger.received >= FLIGHTS:
                break
        await consumer.close()
