"""Apps of handlers: order, concurrency, commits, error policies, rebalances, draining."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import defaultdict
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidewheel import App, Client, Message, ProducerRecord, RetryInPlace, TopicPartition, from_json
from tidewheel.errors import ConfigurationError, HandlerFailed
from tidewheel.testing import MemoryBroker, VirtualClock

from tests.sdk.conftest import QUICK, until

MakeClient = Callable[..., Client]


async def test_every_message_is_handled_in_key_order(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=4)
        records = [ProducerRecord(b"%d" % n, f"k{n % 50}") for n in range(3000)]
        await client.topic(name).send_many(records)
        seen: defaultdict[bytes, list[int]] = defaultdict(list)
        running = most = 0
        app = App(client)

        @app.subscriber(name, group=name, concurrency=8)
        async def handle(message: Message) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            if message.offset % 97 == 0:
                await asyncio.sleep(0.001)
            seen[message.key].append(int(message.value))
            running -= 1
            if sum(map(len, seen.values())) == 3000:
                app.stop()

        await app.run(handle_signals=False)
        assert seen == {b"k%d" % k: list(range(k, 3000, 50)) for k in range(50)}
        assert 1 < most <= 8
        assert sum((await client.admin.group_offsets(name)).values()) == 3000


@settings(max_examples=40)
@given(
    keys=st.lists(st.sampled_from([b"a", b"b", b"c", None]), min_size=1, max_size=40),
    naps=st.lists(st.integers(0, 20), min_size=40, max_size=40),
    failures=st.lists(st.integers(0, 2), min_size=40, max_size=40),
    concurrency=st.integers(1, 6),
    stop_after=st.integers(0, 60),
)
def test_order_concurrency_and_commits_hold_for_any_timing(
    keys: list[bytes | None],
    naps: list[int],
    failures: list[int],
    concurrency: int,
    stop_after: int,
) -> None:
    """Handlers nap and fail at random on virtual time; the app may be stopped at any moment."""

    async def history() -> None:
        broker = MemoryBroker(VirtualClock(autojump=False))
        broker.create_topic("t", partitions=2)
        left = dict(enumerate(failures))
        started: list[tuple[bytes | None, int]] = []
        finished: set[int] = set()
        running: set[int] = set()
        async with broker.client(consumer=QUICK) as client:
            for number, key in enumerate(keys):
                await client.topic("t").send(b"%d" % number, key=key)
            app = App(client)

            @app.subscriber(
                "t",
                group="g",
                concurrency=concurrency,
                buffer_max=5,
                on_error=RetryInPlace("5ms", attempts=None),
            )
            async def handle(message: Message) -> None:
                number = int(message.value)
                started.append((message.key, number))
                running.add(number)
                assert len(running) <= concurrency
                same = [n for n in running if keys[n] == message.key and message.key is not None]
                assert len(same) <= 1, "two messages of one key at once"
                try:
                    await client.clock.sleep(naps[number] / 1000)
                    if left[number]:
                        left[number] -= 1
                        raise RuntimeError("again")
                    finished.add(number)
                finally:
                    running.remove(number)

            task = asyncio.create_task(app.run(handle_signals=False))
            for _ in range(stop_after if stop_after < 50 else 3000):
                await broker.clock.advance(0.01)
                if len(finished) == len(keys):
                    break
            app.stop()
            while not task.done():
                await broker.clock.advance(0.01)
            await task
        first_starts = list(dict.fromkeys(started))
        for key in (b"a", b"b", b"c"):
            numbers = [n for k, n in first_starts if k == key]
            assert numbers == sorted(numbers)
        committed = broker.committed("g")
        for place, log in enumerate(broker.log_of(broker.topic("t")).logs):
            position = committed.get(TopicPartition("t", place), 0)
            done = [int(m.value) in finished for m in log]
            prefix = done.index(False) if False in done else len(done)
            assert position == prefix, "exactly the finished prefix is committed at the end"
        if stop_after >= 50:
            assert finished == set(range(len(keys)))

    asyncio.run(history())


async def run_app(
    broker: MemoryBroker, handler: Callable[[Message], Awaitable[None]], **options: Any
) -> None:
    async with broker.client(consumer=QUICK) as client:
        app = App(client)
        app.subscriber("t", group="g", **options)(handler)
        async with asyncio.timeout(20):
            await app.run(handle_signals=False)


def broker_with(*values: bytes, partitions: int = 1) -> MemoryBroker:
    broker = MemoryBroker(VirtualClock(autojump=True))
    broker.create_topic("t", partitions=partitions)
    for value in values:
        broker.append(Message("t", 0, -1, 0, b"k", value))
    return broker


async def test_stop_on_error_names_the_message_and_delivers_it_again() -> None:
    broker = broker_with(b"1", b"2", b"3")
    calls: list[bytes] = []

    async def handle(message: Message) -> None:
        calls.append(message.value)
        if message.value == b"2":
            raise ValueError("broken")

    with pytest.raises(HandlerFailed, match=r"broken") as caught:
        await run_app(broker, handle, on_error="stop")
    assert caught.value.consumed.value == b"2"
    assert isinstance(caught.value.__cause__, ValueError)
    assert calls == [b"1", b"2"]
    assert broker.committed("g") == {TopicPartition("t", 0): 1}


async def test_retry_in_place_waits_longer_each_time_and_then_stops() -> None:
    broker = broker_with(b"1")
    times: list[int] = []

    async def handle(message: Message) -> None:
        times.append(broker.clock.now_ms())
        raise ValueError

    policy = RetryInPlace("1s", factor=3, cap="5s", attempts=4)
    with pytest.raises(HandlerFailed, match="4 times"):
        await run_app(broker, handle, on_error=policy)
    pauses = [(b - a) / 1000 for a, b in pairwise(times)]
    assert pauses == pytest.approx([1, 3, 5], abs=0.01)


async def test_skip_logs_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    broker = broker_with(b"bad", b"end")

    async with broker.client(consumer=QUICK) as client:
        app = App(client)

        @app.subscriber("t", group="g", on_error="skip")
        def handle(message: Message) -> None:
            if message.value == b"bad":
                raise ValueError("really bad")
            app.stop()

        await app.run(handle_signals=False)
    assert broker.committed("g") == {TopicPartition("t", 0): 2}
    assert "really bad" in caplog.text


async def test_what_cannot_be_deserialized_is_not_retried() -> None:
    broker = broker_with(b"{")

    async def handle(message: Message) -> None:
        raise AssertionError("never called")

    with pytest.raises(HandlerFailed, match="1 times"):
        await run_app(broker, handle, value_deserializer=from_json)


async def test_before_processing_commits_before_handlers_start() -> None:
    broker = broker_with(b"1")

    async def handle(message: Message) -> None:
        assert broker.committed("g") == {TopicPartition("t", 0): 1}
        raise RuntimeError("enough")

    with pytest.raises(HandlerFailed):
        await run_app(broker, handle, commit="before", on_error="stop")


async def test_a_stuck_key_lets_others_pass_and_holds_the_commit() -> None:
    broker = MemoryBroker(VirtualClock(autojump=True))
    broker.create_topic("t")
    for number in range(50):
        key = b"stuck" if number == 3 else b"%d" % number
        broker.append(Message("t", 0, -1, 0, key, b"%d" % number))
    free = asyncio.Event()
    done: set[int] = set()

    async with broker.client(consumer=QUICK) as client:
        app = App(client)

        @app.subscriber("t", group="g", concurrency=4)
        async def handle(message: Message) -> None:
            if message.key == b"stuck":
                await free.wait()
            done.add(message.offset)

        running = asyncio.create_task(app.run(handle_signals=False))
        await until(lambda: len(done) == 49)
        await until(lambda: broker.committed("g") == {TopicPartition("t", 0): 3})
        free.set()
        await until(lambda: broker.committed("g") == {TopicPartition("t", 0): 50})
        app.stop()
        await running


async def test_lost_partitions_are_not_committed() -> None:
    """The member is dropped while a handler runs; its late success changes nothing."""
    broker = broker_with(b"1")
    go_on = asyncio.Event()
    calls = 0

    async with broker.client(consumer=QUICK) as client:
        app = App(client)

        @app.subscriber("t", group="g")
        async def handle(message: Message) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                await go_on.wait()
            else:
                await asyncio.Event().wait()

        running = asyncio.create_task(app.run(handle_signals=False))
        await until(lambda: calls == 1)
        broker.drop_members("g")
        await until(lambda: len(broker.group("g").members) == 1)
        # The message has come again, and waits until its first handler has let go of the key.
        assert calls == 1
        go_on.set()
        await until(lambda: calls == 2)
        await broker.clock.advance(5)
        assert broker.committed("g") == {}
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_revoked_partitions_are_finished_and_committed_first() -> None:
    """A second member gets a partition only after the first one's running handler is done."""
    broker = MemoryBroker(VirtualClock(autojump=True))
    broker.create_topic("t", partitions=2)
    for partition in (0, 1):
        for number in range(3):
            broker.append(Message("t", partition, -1, 0, b"k%d" % partition, b"%d" % number))
    log: list[tuple[str, int, int]] = []
    hold = asyncio.Event()

    def app_of(who: str, client: Client) -> App:
        app = App(client)

        @app.subscriber("t", group="g")
        async def handle(message: Message) -> None:
            log.append((who, message.partition, message.offset))
            if who == "first":
                await hold.wait()

        return app

    async with broker.client(consumer=QUICK) as one, broker.client(consumer=QUICK) as two:
        first, second = app_of("first", one), app_of("second", two)
        tasks = [asyncio.create_task(first.run(handle_signals=False))]
        await until(lambda: len(log) == 2)
        tasks.append(asyncio.create_task(second.run(handle_signals=False)))
        await broker.clock.advance(3)
        assert all(who == "first" for who, _, _ in log)
        hold.set()
        await until(lambda: len(log) >= 6)
        moved = {partition for who, partition, _ in log if who == "second"}
        assert len(moved) == 1
        assert sorted((p, o) for _, p, o in log) == [(p, o) for p in (0, 1) for o in range(3)]
        first.stop()
        second.stop()
        await asyncio.gather(*tasks)
        assert set(broker.committed("g").values()) == {3}


async def test_back_pressure_pauses_and_resumes() -> None:
    broker = broker_with(*[b"%d" % number for number in range(200)])
    gate = asyncio.Event()
    seen: list[int] = []

    async with broker.client(consumer=QUICK) as client:
        app = App(client)

        @app.subscriber("t", group="g", buffer_max=10)
        async def handle(message: Message) -> None:
            await gate.wait()
            seen.append(int(message.value))

        running = asyncio.create_task(app.run(handle_signals=False))
        # The buffer is full for much longer than a poll may take; the membership must live on.
        await asyncio.sleep(1.2)
        assert len(broker.group("g").members) == 1
        gate.set()
        await until(lambda: len(seen) == 200)
        assert seen == list(range(200))
        app.stop()
        await running


async def test_sigterm_drains(make_client: MakeClient, name: str) -> None:
    client = make_client()
    app = App(client)
    finished: list[bytes] = []

    @app.subscriber(name, group=name)
    async def handle(message: Message) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await client.clock.sleep(0.2)
        finished.append(message.value)

    async with make_client() as admin_client:
        await admin_client.admin.create_topic(name, partitions=1)
        await admin_client.send(name, b"1")
        await app.run()
        assert finished == [b"1"]
        assert await admin_client.admin.group_offsets(name) == {TopicPartition(name, 0): 1}
        assert not client.is_open


async def test_options_are_checked() -> None:
    app = App("memory:1")
    for bad in (
        {"commit": "manual"},
        {"concurrency": 0},
        {"buffer_max": 0},
        {"on_error": "ignore"},
    ):
        with pytest.raises(ConfigurationError):
            app.subscriber("t", group="g", **bad)
    with pytest.raises(ConfigurationError, match="no handlers"):
        await app.run()
