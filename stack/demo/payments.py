"""The demo's second group: it reads by tags, and has to get what a plain reader counts.

    flights       carrier:UA origin:EWR     on every message, as tags
    flights.pay   a subscription            those that match FILTER, and no others; what of them is
                                            declined comes again (declined.py)

Whether a flight is one of these is said here in Python, from what the message holds, which no
broker reads for that. The books of this group know such flights only, so that any other one is
unknown to them; and those that the first group has received of them are counted beside.

Brokers without subscriptions, Apache Kafka's for instance, get plain flights.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from typing import Final

from tidewheel import Client, ProducerRecord
from tidewheel.errors import InvalidRequest
from tidewheel.subscriptions import HEADERS_PROPERTY

from stack.demo.declined import POLICY, Declined, DeclinedOutcome, Redrive
from stack.demo.declined import faults_of as declined_faults
from stack.demo.declined import rows_of as declined_rows
from stack.demo.flights import Flight
from stack.demo.group import Group, Reads
from stack.demo.ledger import Ledger, Verdict

FILTER: Final = "carrier:UA and (origin:EWR or origin:LGA)"
CARRIER: Final = "UA"
ORIGINS: Final = ("EWR", "LGA")
MEMBER: Final = "payments-1"
LOOK_UP_S: Final = 0.1
_CARRIER_AND_ORIGIN: Final = re.compile(rb'"carrier":"(\w+)".*?"origin":"(\w+)"')


@dataclass(frozen=True, slots=True)
class PaymentsOutcome:
    """What the group got. `counted`: what the plain readers have received of it."""

    filter: str
    counted: int
    verdict: Verdict
    declined: DeclinedOutcome

    @property
    def is_good(self) -> bool:
        are_all = self.verdict.is_good and self.verdict.received == self.counted
        return are_all and self.declined.is_good


class Payments:
    """See the module. `plain` are the books of the group that reads all flights."""

    def __init__(self, bootstrap: str, topic: str, flights_max: int, plain: Ledger) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._plain = plain
        self._ledger = Ledger(flights_max)
        self._wanted_rows: list[int] = []
        self._name = f"{topic}-payments"
        self._declined = Declined(f"{topic}.{self._name}")
        self._group: Group | None = None

    async def create_topic(
        self, client: Client, partitions: int, *, is_there: bool = False
    ) -> bool:
        """Whether it is one whose tags are read, as one that `is_there` is."""
        try:
            configs = {HEADERS_PROPERTY: True}
            if not is_there:
                await client.admin.create_topic(self._topic, partitions=partitions, configs=configs)
        except InvalidRequest:
            await client.admin.create_topic(self._topic, partitions=partitions)
            return False
        reads = Reads(FILTER, POLICY, self._declined.handle)
        self._group = Group(self._bootstrap, self._topic, self._name, self._ledger, reads)
        return True

    def start(self) -> None:
        """The group has one member, from now on."""
        if self._group is not None:
            self._group.start_member(MEMBER)

    def cancel(self) -> None:
        """Give up at once."""
        if self._group is not None:
            self._group.cancel()

    def check(self) -> None:
        """Raise what the member failed with, if it did."""
        if self._group is not None:
            self._group.check()

    def record(self, flight: Flight) -> ProducerRecord:
        """What is sent of a flight; it is entered in the books if the group has to get it."""
        record = ProducerRecord(flight.value, flight.key)
        found = _CARRIER_AND_ORIGIN.search(flight.value)
        if self._group is None or found is None:
            return record
        carrier, origin = found[1].decode(), found[2].decode()
        record.tags = (f"carrier:{carrier}", f"origin:{origin}")
        if carrier == CARRIER and origin in ORIGINS:
            self._ledger.record_sent(*flight)
            self._declined.book(flight)
            self._wanted_rows.append(flight.row)
        return record

    async def finish(
        self, client: Client, stalled_s: float, redrive: Redrive | None = None
    ) -> PaymentsOutcome | None:
        """When all have come, or none has for so long; None where there is no such group."""
        group, ledger = self._group, self._ledger
        if group is None:
            return None
        received, since_s = ledger.received, time.perf_counter()
        while ledger.received < ledger.sent and time.perf_counter() - since_s < stalled_s:
            await asyncio.sleep(LOOK_UP_S)
            group.check()
            if ledger.received != received:
                received, since_s = ledger.received, time.perf_counter()
        declined = await self._declined.finish(client, stalled_s, group.check, redrive)
        await group.stop()
        counted = sum(map(self._plain.has_received, self._wanted_rows))
        return PaymentsOutcome(FILTER, counted, ledger.verdict(), declined)


def row_of(outcome: PaymentsOutcome | None) -> list[tuple[str, str]]:
    """Of the table at the end."""
    if outcome is None:
        return []
    text = (
        f"{outcome.verdict.received:,} flights by the filter `{outcome.filter}`; "
        f"a plain reader counts {outcome.counted:,}"
    )
    return [("subscription", text), *declined_rows(outcome.declined)]


def faults_of(outcome: PaymentsOutcome | None) -> dict[str, int]:
    """What is wrong with it, by its name."""
    if outcome is None:
        return {}
    verdict = outcome.verdict
    return {
        "missing by filter": verdict.missing,
        "not wanted by filter": verdict.unknown,
        "wrong by filter": verdict.altered + verdict.out_of_order + verdict.duplicates,
        "counted otherwise": abs(verdict.received - outcome.counted),
        **declined_faults(outcome.declined),
    }
