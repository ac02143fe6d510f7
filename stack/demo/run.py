"""The demo's course of events.

1. A cell of three brokers with a control plane, of its own, in a temporary folder, on free ports.
   Two tenants sign up over REST, each with a topic of the same name and a key (tenants.py).
2. The first one's topic has several partitions and three replicas; a group of two consumers reads
   it, and a second group some of it by tags (payments.py), with a handler that fails on some
   (declined.py). Some flights are sent once more, to be delivered when they depart (departures.py).
   The second tenant sends and reads beside it all the time (neighbour.py).
3. Most flights as fast as they go. When a third are acknowledged, one broker is killed; when two
   thirds are received, it is started again. In between, at one half, one consumer leaves and
   another takes its place.
4. The last flights at a fixed pace, from whose sending to their receipt the latency is measured
   (measured in step 3 it would only tell how long the queue was).
5. The killed broker is waited for until it is in sync again.
6. The books are closed, the table is printed; the exit status says whether all is well: whether
   each tenant has all that is its own, and nothing of the other's.

With brokers that somebody names there are no tenants: the topic is made over Kafka's protocol.

Producer and consumers share one event loop, on purpose: what the demo shows is the path of the
messages and that none is lost. How fast a broker is, the benchmarks say.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final

from tidewheel import Client, ProducerRecord, ProducerSettings
from tidewheel.access import redacted
from tidewheel.errors import BrokerUnreachable, TidewheelError
from tidewheel.interceptors import ProducerInterceptor
from tidewheel.settings import ClientSettings

from stack.broker_process import Stopped
from stack.control_plane import FIRST_PERSON, first_password
from stack.demo.declined import Redrive
from stack.demo.departures import Departures
from stack.demo.flights import FLIGHTS_COUNT, Flight, data_file, read_flights
from stack.demo.group import Group
from stack.demo.ledger import Ledger, percentile
from stack.demo.neighbour import Neighbour
from stack.demo.outage import Outage, Pulse
from stack.demo.payments import FILTER, Payments
from stack.demo.redrive import Redriver
from stack.demo.report import Outcome, Reporter, as_json
from stack.demo.tenants import DemoTenant, make_tenant
from stack.errors import EXIT_FAILED, EXIT_INTERRUPTED, StackError
from stack.events import PartEnded, StackEvent
from stack.hints import PROGRAM
from stack.options import StackOptions
from stack.supervisor import Supervisor
from stack.up import StopSignals

TOPIC: Final = "flights"
TENANTS: Final = ("east", "west")
PACED_COUNT: Final = 5_000
PACED_PER_S: Final = 1_000
STALLED_S: Final = 30.0
"""Without any new flight for this long, what has not come is missing."""
LOOK_UP_S: Final = 0.1
CLEANING_UP_S_MAX: Final = 40
BROKERS_TO_LOSE_ONE: Final = 3
"""With two replicas left, min.insync.replicas=2 still lets producers go on."""
DEMO_SETTINGS: Final = ("group.initial.rebalance.delay.ms=500",)
"""Both members join at once; nobody else has to be waited for."""
MEMBERS: Final = ("consumer-1", "consumer-2")
KILL_AT, REPLACE_AT, RETURN_AT = 1 / 3, 1 / 2, 2 / 3
"""Shares of the flights, acknowledged for the first, received for the others."""


def run_demo(partitions: int, brokers: int, bootstrap: str | None, *, as_json: bool = False) -> int:
    """Run the demo; `bootstrap` None starts brokers of its own. The exit status."""
    reporter = Reporter(quiet=as_json)
    source = data_file()
    with StopSignals() as signals, contextlib.ExitStack() as resources:
        supervisor, tenants = None, None
        if bootstrap is None:
            try:
                supervisor = _own_cell(brokers, resources, signals, reporter)
                tenants = _own_tenants(supervisor, partitions, signals, reporter)
            except Stopped:
                return EXIT_INTERRUPTED
        outage = None
        if supervisor is not None and brokers >= BROKERS_TO_LOSE_ONE:
            outage = Outage(supervisor, reporter.say)
        redrive = None
        if supervisor is not None and tenants is not None:
            redrive = Redriver(supervisor, tenants[0], STALLED_S).redrive
        demo = Demo(bootstrap or "", partitions, source, reporter, outage, tenants, redrive)
        try:
            outcome = asyncio.run(_supervised(demo, signals, supervisor))
        except asyncio.CancelledError:
            reporter.say("Interrupted; the broker is stopped and its data removed.")
            return EXIT_INTERRUPTED
        except TidewheelError as error:
            words = supervisor.last_words() if supervisor is not None else []
            raise StackError("\n".join([f"The demo failed: {_told(error)}", *words])) from error
        if as_json:
            print(json.dumps(_json(outcome)))
        else:
            reporter.summary(outcome)
        return 0 if outcome.is_good else EXIT_FAILED


_json = as_json


def _own_cell(
    brokers: int, resources: contextlib.ExitStack, signals: StopSignals, reporter: Reporter
) -> Supervisor:
    """Raises StackError, Stopped."""
    folder = resources.enter_context(tempfile.TemporaryDirectory(prefix="tidewheel-demo-"))
    # Postgres does not run as root, and nobody else may enter what root makes for itself.
    Path(folder).chmod(0o755)
    options = StackOptions(
        data=Path(folder),
        brokers=brokers,
        port=0,
        settings=DEMO_SETTINGS,
        more_listeners=True,
        control_plane=True,
    )
    supervisor = Supervisor(options, lambda: signals.requested)
    started_s = time.perf_counter()
    resources.enter_context(supervisor)
    what = "A broker of its own serves" if brokers == 1 else f"{brokers} brokers serve"
    took_s = time.perf_counter() - started_s
    assert supervisor.control_plane is not None, "it was asked for"
    rest = supervisor.control_plane.url
    reporter.say(f"{what} at {supervisor.bootstrap}, REST at {rest}, after {took_s:.1f} s.")
    return supervisor


def _own_tenants(
    supervisor: Supervisor, partitions: int, signals: StopSignals, reporter: Reporter
) -> tuple[DemoTenant, DemoTenant]:
    """Raises StackError, Stopped."""
    assert supervisor.control_plane is not None, "it was asked for"
    operator = (FIRST_PERSON, first_password(supervisor.folder))
    made = []
    for slug in TENANTS:
        tenant = make_tenant(
            supervisor.control_plane.url,
            operator,
            slug,
            TOPIC,
            partitions,
            lambda: signals.requested,
        )
        reporter.say(
            f"{slug} has signed up over REST; its topic {TOPIC} and its key are ready after "
            f"{tenant.made_s:.1f} s."
        )
        made.append(tenant)
    first, second = made
    return first, second


def _told(error: TidewheelError) -> str:
    """What happened and what to do, in the terms of this command's options."""
    if isinstance(error, BrokerUnreachable):
        return f"{error.message}. Check that brokers run there, and that --url is right"
    return str(error).replace("`tidewheel ", f"`{PROGRAM} ")


async def _supervised(demo: Demo, signals: StopSignals, supervisor: Supervisor | None) -> Outcome:
    """Run the demo until it ends, the user stops it, or its broker ends by itself."""
    task = asyncio.create_task(demo.run())
    ended: list[str] = []

    def report(event: StackEvent) -> None:
        if isinstance(event, PartEnded) and event.part != demo.expected_end:
            ended.append(f"In the middle of the demo: {event}")

    try:
        while not task.done():
            await asyncio.wait([task], timeout=LOOK_UP_S)
            words = supervisor.last_words() if supervisor is not None else []
            # A demo without a broker has failed; nobody waits for it to be started again.
            is_up = supervisor is None or (supervisor.watch(report) and bool(supervisor.brokers))
            # Asked last: the stack goes down for it, too, which is no failure then.
            if signals.requested:
                _limit_cleaning_up(supervisor)
                raise asyncio.CancelledError
            if ended or not is_up:
                raise StackError("\n".join([*ended, *words]))
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=5)
    return task.result()


def _limit_cleaning_up(supervisor: Supervisor | None) -> None:
    """Whatever hangs while the clients are closed, an interrupted demo ends."""

    def give_up(_number: int, _frame: FrameType | None) -> None:
        if supervisor is not None:
            supervisor.kill()
        os._exit(EXIT_INTERRUPTED)

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(CLEANING_UP_S_MAX)


class Demo:
    """One run against some brokers."""

    def __init__(
        self,
        bootstrap: str,
        partitions: int,
        source: Path,
        reporter: Reporter,
        outage: Outage | None,
        tenants: tuple[DemoTenant, DemoTenant] | None = None,
        redrive: Redrive | None = None,
    ) -> None:
        self._tenants = tenants
        self._redrive = redrive
        self._bootstrap = bootstrap if tenants is None else tenants[0].url
        self._partitions = partitions
        self._source = source
        self._reporter = reporter
        self._outage = outage
        self._pulse = Pulse()
        # Somebody's own brokers may have a topic of that name.
        self._topic = TOPIC if tenants is not None else f"{TOPIC}-{uuid.uuid4().hex[:6]}"
        self._ledger = Ledger(FLIGHTS_COUNT)
        self._value_bytes = 0
        self._payments = Payments(self._bootstrap, self._topic, FLIGHTS_COUNT, self._ledger)
        self._departures = Departures(self._topic)

    @property
    def expected_end(self) -> str:
        """The part of the stack whose end is no fault, "" when there is none."""
        victim = None if self._outage is None else self._outage.victim
        return "" if victim is None else f"broker-{victim}"

    async def run(self) -> Outcome:
        """All of it. Raises TidewheelError when the brokers do not play along."""
        started_s = time.perf_counter()
        flights = read_flights(self._source)
        pulse = () if self._outage is None else (self._pulse,)
        async with (
            self._client("demo-departures", ProducerSettings()) as departing,
            self._client("demo", ProducerSettings.throughput(), *pulse) as client,
        ):
            are_tagged = await self._payments.create_topic(
                client, self._partitions, is_there=self._tenants is not None
            )
            self._reporter.say(f"Topic {self._topic} has {self._partitions} partitions.")
            if are_tagged:
                self._reporter.say(f"A second group reads those with {FILTER}.")
                await self._departures.start(departing, self._partitions)
            group = Group(self._bootstrap, self._topic, f"{self._topic}-readers", self._ledger)
            async with self._members(group):
                return await self._run_with(client, group, flights, started_s)

    @contextlib.asynccontextmanager
    async def _members(self, group: Group) -> AsyncIterator[None]:
        for member in MEMBERS:
            group.start_member(member)
        self._payments.start()
        try:
            yield
        except BaseException:
            group.cancel()
            self._payments.cancel()
            self._departures.cancel()
            raise

    async def _run_with(
        self, client: Client, group: Group, flights: Iterator[Flight], started_s: float
    ) -> Outcome:
        self._reporter.say("consumer-1 and consumer-2 join the group.")
        await self._until(group, lambda: all(map(group.has_partitions, MEMBERS)))
        accidents = asyncio.create_task(self._accidents(client, group))
        neighbour = None
        if self._tenants is not None:
            neighbour = asyncio.create_task(Neighbour(self._tenants[1], self._topic).run())
        try:
            bulk_count = FLIGHTS_COUNT - PACED_COUNT
            bulk_started_s = time.perf_counter()
            await client.topic(self._topic).send_many(self._booked(flights, bulk_count))
            sending_s = time.perf_counter() - bulk_started_s
            value_bytes = self._value_bytes
            await self._until(group, lambda: self._ledger.received >= bulk_count)
            receiving_s = time.perf_counter() - bulk_started_s
            await accidents
            beside = None if neighbour is None else await neighbour
        finally:
            accidents.cancel()
            if neighbour is not None:
                neighbour.cancel()
        async with self._client("demo-paced", ProducerSettings.latency()) as paced_client:
            await self._send_paced(paced_client, flights)
        await self._until(group, lambda: self._ledger.received >= self._ledger.sent)
        payments = await self._payments.finish(client, STALLED_S, self._redrive)
        departures = await self._departures.finish(STALLED_S)
        await group.stop()
        lag = await client.admin.lag(group.name)
        ends = await client.admin.offsets(self._topic)
        seen = await client.admin.topics()
        latencies_ms = sorted(1000 * latency_s for latency_s in self._ledger.latencies_s)
        names = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
        return Outcome(
            verdict=self._ledger.verdict(),
            bootstrap=redacted(self._bootstrap),
            topic=self._topic,
            partition_messages=tuple(end for _, end in sorted(ends.items())),
            keys=self._ledger.keys,
            value_bytes=value_bytes,
            sending_s=sending_s,
            receiving_s=receiving_s,
            bulk_count=bulk_count,
            paced_count=PACED_COUNT,
            paced_per_s=PACED_PER_S,
            latency_ms={n: percentile(latencies_ms, f) for n, f in names.items() if latencies_ms},
            received_by=group.received_by,
            history=tuple(group.history),
            lag=sum(partition.messages for partition in lag),
            cell_history=tuple(self._outage.history) if self._outage is not None else (),
            is_healed=self._outage is None or self._outage.is_over,
            interrupted_s=self._pulse.longest_s if self._outage is not None else 0.0,
            elapsed_s=time.perf_counter() - started_s,
            payments=payments,
            departures=departures,
            tenant="" if self._tenants is None else self._tenants[0].slug,
            topics=tuple(sorted(one.name for one in seen)) if self._tenants is not None else (),
            beside=beside,
        )

    def _client(
        self, name: str, producer: ProducerSettings, *interceptors: ProducerInterceptor
    ) -> Client:
        settings = ClientSettings(client_id=name)
        return Client(
            self._bootstrap,
            settings=settings,
            producer=producer,
            producer_interceptors=interceptors,
        )

    def _booked(self, flights: Iterator[Flight], count: int) -> Iterator[ProducerRecord]:
        """The next `count` flights, entered in the books as they are taken."""
        for flight in itertools.islice(flights, count):
            self._ledger.record_sent(*flight)
            self._value_bytes += len(flight.value)
            self._departures.book(flight)
            yield self._payments.record(flight)

    async def _send_paced(self, client: Client, flights: Iterator[Flight]) -> None:
        """The remaining flights, one by one at their due times."""
        topic = client.topic(self._topic)
        # The first one pays for connecting and is not measured.
        for flight in itertools.islice(flights, 1):
            self._ledger.record_sent(*flight)
            record = self._payments.record(flight)
            await topic.send(record.value, key=record.key, tags=record.tags)
        start_s = time.perf_counter()
        for index, flight in enumerate(flights):
            await asyncio.sleep(max(0.0, start_s + index / PACED_PER_S - time.perf_counter()))
            record = self._payments.record(flight)
            self._ledger.record_sent(*flight, at_s=time.perf_counter())
            topic.send_nowait(record.value, key=record.key, tags=record.tags)
            if index % 500 == 0:
                self._show()
        await topic.flush(STALLED_S)

    async def _accidents(self, client: Client, group: Group) -> None:
        """What happens while the flights are under way."""
        if self._outage is not None:
            # By what is acknowledged: consumers may be far behind.
            await self._reached(KILL_AT, lambda: self._pulse.acknowledged)
            self._pulse.begin()
            await self._outage.kill(client, self._topic)
        await self._reached(REPLACE_AT, lambda: self._ledger.received)
        self._reporter.say("Half of the flights are through: consumer-3 replaces consumer-1.")
        await group.stop_member("consumer-1")
        group.start_member("consumer-3")
        if self._outage is not None:
            await self._reached(RETURN_AT, lambda: self._ledger.received)
            await self._outage.bring_back(client, self._topic)

    async def _reached(self, share: float, count: Callable[[], int]) -> None:
        while count() < share * FLIGHTS_COUNT:
            await asyncio.sleep(LOOK_UP_S)
            self._show()

    async def _until(self, group: Group, condition: Callable[[], bool]) -> None:
        """Wait for a condition, as long as flights keep coming in."""
        received, since_s = self._ledger.received, time.perf_counter()
        while not condition():
            await asyncio.sleep(LOOK_UP_S)
            group.check()
            self._payments.check()
            self._departures.check()
            self._show()
            if self._ledger.received != received:
                received, since_s = self._ledger.received, time.perf_counter()
            elif time.perf_counter() - since_s > STALLED_S:
                return

    def _show(self) -> None:
        self._reporter.progress(self._ledger.sent, self._ledger.received, FLIGHTS_COUNT)
