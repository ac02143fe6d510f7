"""One message that fails keeps nobody waiting; and when nothing can be handled for an hour, nothing
is lost, and what has failed does not come back all at once.

    arrivals          one in each INTERVAL_S, for the whole hour
    at the return     of each age there is a message whose next attempt is due: in each INTERVAL_S
                      at most one for each delay of the policy, and then fewer and fewer

So the peak at the return is about the number of attempts that a message of the first minute has
had, times the rate of arrivals; it is reported, and held to that.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from math import log2
from pathlib import Path

import pytest
from tidewheel import App, Client, Exponential, Fixed, Message, TopicPartition
from tidewheel.testing import MemoryBroker

from stack.broker_process import WITH_FEATURES
from tests.broker_process import BrokerProcess
from tests.sdk.conftest import QUICK, until

HOUR_S = 3600
INTERVAL_S = 10
TAGGED = {"tidewheel.headers": "true"}
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
POISONED = 5_000
MESSAGES = 10_000
PER_SECOND = 2_000
RETRY_S = 10


class Handled:
    """What a handler has done, by the clock of the test."""

    def __init__(self, ends_s: float, while_s: float = 1) -> None:
        self.ends_s = ends_s
        self._while_s = while_s
        self.done: Counter[bytes] = Counter()
        self.attempts: list[int] = []
        self.by_while: Counter[int] = Counter()

    def handle(self, message: Message, now_s: float) -> None:
        if now_s < self.ends_s:
            raise ConnectionError("the bank is down")
        self.done[message.value] += 1
        self.attempts.append(message.attempt)
        self.by_while[int((now_s - self.ends_s) / self._while_s)] += 1

    def check(
        self, values: Sequence[bytes], arrivals: float, retries: float, *, is_bound: bool = True
    ) -> None:
        """`arrivals`: in a while."""
        assert self.done == Counter(values)
        peak = max(self.by_while.values())
        print(
            f"{len(values)} messages, at most {max(self.attempts)} attempts; at the return at most "
            f"{peak} in {self._while_s:g} s, in which {arrivals:g} arrive"
        )
        assert not is_bound or peak <= arrivals * (retries + 2), self.by_while


async def test_an_outage_of_an_hour_loses_nothing_and_ends_without_a_flood() -> None:
    broker = MemoryBroker()
    broker.create_topic("orders", partitions=1, configs=TAGGED)
    begun_ms = broker.clock.now_ms()
    handled = Handled(HOUR_S, INTERVAL_S)

    def now_s() -> float:
        return (broker.clock.now_ms() - begun_ms) / 1000

    async with broker.client() as client:
        app = App(client)
        policy = Exponential("5s", cap="2h", attempts=16)

        @app.subscriber("orders", group="pay", retry=policy, concurrency=100)
        async def pay(message: Message) -> None:
            handled.handle(message, now_s())

        running = asyncio.create_task(app.run(handle_signals=False))
        values = [b"%d" % number for number in range(HOUR_S // INTERVAL_S + 10)]
        for value in values:
            broker.append(Message("orders", 0, -1, 0, None, value))
            await broker.clock.advance(INTERVAL_S)
        while handled.done.total() < len(values):
            await broker.clock.advance(INTERVAL_S)
            assert now_s() < 5 * HOUR_S
        app.stop()
        while not running.done():
            await broker.clock.advance(0.1)
        await running
    handled.check(values, 1, log2(HOUR_S / 5))
    assert "orders.pay.dlq" not in [topic.name for topic in broker.topics.values()]
    # What arrived first had waited as long as the outage was, at most.
    assert now_s() < 2 * HOUR_S + 120
    assert broker.committed("pay")[TopicPartition("orders.pay", 0)] == len(values)


async def test_what_fails_at_the_same_moment_is_spread_by_jitter() -> None:
    broker = MemoryBroker()
    broker.create_topic("orders", partitions=1, configs=TAGGED)
    begun_ms = broker.clock.now_ms()
    handled = Handled(60)
    count = 1_000

    async with broker.client() as client:
        app = App(client)
        policy = Exponential("10s", cap="1m", attempts=16, jitter=0.5)

        @app.subscriber("orders", group="pay", retry=policy, concurrency=100)
        async def pay(message: Message) -> None:
            handled.handle(message, (broker.clock.now_ms() - begun_ms) / 1000)

        values = [b"%d" % number for number in range(count)]
        for value in values:
            broker.append(Message("orders", 0, -1, 0, None, value))
        running = asyncio.create_task(app.run(handle_signals=False))
        while handled.done.total() < count:
            await broker.clock.advance(10)
            assert broker.clock.now_ms() - begun_ms < 1_000_000
        app.stop()
        while not running.done():
            await broker.clock.advance(0.1)
        await running
    assert handled.done == Counter(values)
    peak = max(handled.by_while.values())
    print(f"{count} messages that failed at once: at the return at most {peak} a second")
    # Their last delays differ by up to 30 s.
    assert peak <= count / 5


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("pauses", [True, False])
async def test_an_outage_with_a_real_broker(tmp_path: Path, pauses: bool) -> None:
    """With retries that pause while everything fails, or that go on: then the peak is bound."""
    rate, seconds = 100, 12
    with BrokerProcess(tmp_path, set=SETTINGS, module=WITH_FEATURES) as broker:
        async with Client(broker.bootstrap, consumer=QUICK) as client:
            await client.admin.create_topic("orders", partitions=3, configs=TAGGED)
            policy = Exponential("500ms", cap="8s", attempts=16)
            await client.admin.create_subscription("orders.pay", "orders", retry=policy)
            switched = {"tidewheel.retry.breaker": str(pauses).lower()}
            await client.admin.alter_configs("orders.pay", switched)
            handled = Handled(seconds)
            app = App(client)

            @app.subscriber("orders.pay", group="pay", on_error="nack", concurrency=100)
            async def pay(message: Message) -> None:
                handled.handle(message, time.monotonic() - begun_s)

            begun_s = time.monotonic()
            running = asyncio.create_task(app.run(handle_signals=False))
            values = [b"%d" % number for number in range(rate * (seconds + 2))]
            for number, value in enumerate(values):
                await client.topic("orders").send(value, key=b"%d" % (number % 50))
                await asyncio.sleep(max(0.0, begun_s + number / rate - time.monotonic()))
            await within(lambda: handled.done.total() >= len(values), 40)
            app.stop()
            await running
    handled.check(values, rate, log2(seconds / 0.5), is_bound=not pauses)


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_one_poisoned_message_keeps_nobody_waiting(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, set=SETTINGS, module=WITH_FEATURES) as broker:
        async with Client(broker.bootstrap, consumer=QUICK) as client:
            without = await latencies_ms(client, "healthy", poisoned=None)
            with_one = await latencies_ms(client, "poisoned", poisoned=POISONED)
    p99s = [sorted(found)[len(found) * 99 // 100] for found in (without, with_one)]
    print(f"p99 of the others: {p99s[1]:.1f} ms, without a poisoned one {p99s[0]:.1f} ms")
    assert p99s[1] < 1000 * RETRY_S / 2


async def within(condition: Callable[[], bool], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        await until(condition)


async def latencies_ms(client: Client, name: str, *, poisoned: int | None) -> list[float]:
    """From sending to handling, of all messages but the poisoned one."""
    await client.admin.create_topic(name, partitions=1, configs=TAGGED)
    sent_s: list[float] = []
    took_s: dict[int, float] = {}
    failed_s: list[float] = []
    app = App(client)

    @app.subscriber(name, group=name, retry=Fixed(f"{RETRY_S}s", attempts=16))
    async def handle(message: Message) -> None:
        number = int(message.value)
        if number == poisoned:
            failed_s.append(time.monotonic())
            raise ValueError("poison")
        took_s[number] = time.monotonic() - sent_s[number]

    running = asyncio.create_task(app.run(handle_signals=False))
    topic = client.topic(name)
    begun_s = time.monotonic()
    for number in range(MESSAGES):
        await asyncio.sleep(max(0.0, begun_s + number / PER_SECOND - time.monotonic()))
        sent_s.append(time.monotonic())
        topic.send_nowait(b"%d" % number)
    wanted = MESSAGES - (poisoned is not None)
    await within(lambda: len(took_s) >= wanted, RETRY_S)
    if poisoned is not None:
        # All others are there, and its first retry is still to come.
        assert len(failed_s) == 1
        assert time.monotonic() < failed_s[0] + RETRY_S
        await within(lambda: len(failed_s) == 2, 2 * RETRY_S)
        assert failed_s[1] - failed_s[0] >= RETRY_S
    app.stop()
    await running
    return [1000 * one for one in took_s.values()]
