"""Handlers that nack, with a broker that runs the retries."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator

import pytest
from tidewheel import (
    App,
    Client,
    DeadLetter,
    Exponential,
    Message,
    ProducerRecord,
    RetryLater,
    TopicPartition,
)
from tidewheel.dead_letters import dead_letter_of
from tidewheel.resumes import DEATHS_MAX, KILLS_MAX

from stack.broker_process import WITH_FEATURES
from tests.broker_process import BrokerProcess
from tests.sdk.conftest import QUICK, until
from tests.sdk.test_client_contract import take

TAGGED = {"tidewheel.headers": True}
MESSAGES = 100
RUN_TIMEOUT_S = 60

KILLED_AT_SEVEN = """
import asyncio, os, sys
from tidewheel import App, Client, ConsumerSettings, Fixed

bootstrap, name = sys.argv[1], sys.argv[2]
quick = ConsumerSettings(session_timeout_ms=1500, heartbeat_interval_ms=200, fetch_wait_ms=50)

async def main():
    async with Client(bootstrap, consumer=quick) as client:
        app, handled = App(client), 0

        @app.subscriber(name, group=name, retry=Fixed("1s", attempts=3))
        async def handle(message):
            nonlocal handled
            if message.value == b"7":
                os._exit(9)
            handled += 1
            with open(sys.argv[3], "ab") as done:
                done.write(message.value + b" ")

        async def stop_at_the_end():
            while True:
                await asyncio.sleep(0.2)
                lags = await client.admin.lag(name, seconds=False) if handled else []
                if lags and not sum(lag.messages for lag in lags if lag.partition.partition == 0):
                    app.stop()

        watching = asyncio.create_task(stop_at_the_end())
        await app.run()
        watching.cancel()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    properties = {
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
    }
    folder = tmp_path_factory.mktemp("retrying")
    with BrokerProcess(folder, set=properties, module=WITH_FEATURES) as broker:
        yield broker.bootstrap


async def test_each_message_ends_once_as_done_or_dead(bootstrap: str, name: str) -> None:
    async with Client(bootstrap, consumer=QUICK) as client:
        await client.admin.create_topic(name, partitions=3, configs=TAGGED)
        records = (ProducerRecord(b"%d" % n, f"k{n % 20}") for n in range(MESSAGES))
        await client.topic(name).send_many(records)
        app, done = App(client), list[int]()
        attempts: defaultdict[int, list[int]] = defaultdict(list)

        @app.subscriber(name, group=name, retry=Exponential("100ms", cap="1s", attempts=3))
        async def handle(message: Message) -> None:
            number = int(message.value)
            attempts[number].append(message.attempt)
            match number % 10:
                case 3:
                    raise DeadLetter("of no use")
                case 5 if message.attempt == 1:
                    raise RetryLater("300ms")
                case 7:
                    raise ValueError("never")
            done.append(number)

        running = asyncio.create_task(app.run(handle_signals=False))
        dead = await take(client.subscribe(await dead_letters_of(client, name)), MESSAGES // 5)
        await until(lambda: len(done) >= MESSAGES * 4 // 5)
        app.stop()
        await running
        told = {int(m.value): dead_letter_of(m) for m in dead}
        assert sorted([*done, *told]) == list(range(MESSAGES))
        for number, one in told.items():
            assert one is not None
            assert one.topic == name
            assert one.reason == ("of no use" if number % 10 == 3 else "never")
            assert one.attempts == (1 if number % 10 == 3 else 3)
        for number, seen in attempts.items():
            assert seen == {3: [1], 5: [1, 2], 7: [1, 2, 3]}.get(number % 10, [1])


async def test_keys_keep_their_order_through_retries(bootstrap: str, name: str) -> None:
    async with Client(bootstrap, consumer=QUICK) as client:
        await client.admin.create_topic(name, partitions=3, configs=TAGGED)
        records = (ProducerRecord(b"%d" % n, f"k{n % 10}") for n in range(MESSAGES))
        await client.topic(name).send_many(records)
        app = App(client)
        done: defaultdict[bytes, list[int]] = defaultdict(list)
        policy = Exponential("100ms", cap="1s", attempts=3, order="key")

        @app.subscriber(name, group=name, retry=policy, concurrency=4)
        async def handle(message: Message) -> None:
            number = int(message.value)
            if number % 7 == 3 and message.attempt <= number % 3:
                raise ValueError("not now")
            if number % 25 == 5:
                raise ValueError("never")
            done[message.key].append(number)

        running = asyncio.create_task(app.run(handle_signals=False))
        buried = await take(client.subscribe(await dead_letters_of(client, name)), 4)
        await until(lambda: sum(map(len, done.values())) >= MESSAGES - 4)
        app.stop()
        await running
        assert sorted(int(m.value) for m in buried) == [5, 30, 55, 80]
        for key, numbers in done.items():
            wanted = [n for n in range(MESSAGES) if f"k{n % 10}".encode() == key and n % 25 != 5]
            assert numbers == wanted
        assert (await client.admin.retry_policy(f"{name}.{name}")).order == "key"


async def test_who_asks_is_told_that_retries_pause(bootstrap: str, name: str) -> None:
    async with Client(bootstrap, consumer=QUICK) as client:
        await client.admin.create_topic(name, partitions=2, configs=TAGGED)
        records = (ProducerRecord(b"%d" % n, partition=1) for n in range(120))
        await client.topic(name).send_many(records)
        policy = Exponential("1h", cap="2h")
        consumer = client.subscribe(name, group=name, retry=policy)
        messages = await take(consumer, 120)
        assert await client.admin.retry_pauses(f"{name}.{name}") == []
        await consumer.nack(messages)
        (pause,) = await client.admin.retry_pauses(f"{name}.{name}")
        assert pause.partition == TopicPartition(f"{name}.{name}", 3)
        assert (pause.nacked, pause.passed) == (120, 120)
        assert abs(pause.since_ms / 1000 - time.time()) < 30


async def dead_letters_of(client: Client, name: str) -> str:
    """The topic, once there is one."""
    topic = f"{name}.{name}.dlq"
    await until(lambda: client.admin.topic_exists(topic))
    return topic


@pytest.mark.slow
async def test_a_process_that_is_killed_by_a_message_gets_past_it(
    bootstrap: str, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    handled = tmp_path_factory.mktemp("killer") / "handled"
    async with Client(bootstrap, consumer=QUICK) as client:
        await client.admin.create_topic(name, partitions=3, configs=TAGGED)
        await client.topic(name).send_many(
            ProducerRecord(b"%d" % n, "k", partition=0) for n in range(12)
        )
        command = [sys.executable, "-c", KILLED_AT_SEVEN, bootstrap, name, str(handled)]
        statuses: list[int] = []
        while not statuses or statuses[-1] == 9:
            assert len(statuses) <= DEATHS_MAX + KILLS_MAX
            ended = await asyncio.to_thread(
                subprocess.run, command, timeout=RUN_TIMEOUT_S, check=False, env=os.environ
            )
            statuses.append(ended.returncode)
        assert statuses == [9] * (DEATHS_MAX + KILLS_MAX) + [0]
        (dead,) = await take(client.subscribe(await dead_letters_of(client, name)), 1)
        told = dead_letter_of(dead)
        assert told is not None
        assert (dead.value, told.attempts) == (b"7", 1)
        assert told.reason == "2 processes have died handling it alone"
        assert set(handled.read_bytes().split()) == {b"%d" % n for n in range(12)} - {b"7"}
