"""Subscriptions that keep the order of their keys, on the memory broker and its clock."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidewheel import App, DeadLetter, Delays, Fixed, Message, RetryLater, TopicPartition
from tidewheel.errors import ConfigurationError
from tidewheel.testing import MemoryBroker

from tests.sdk.conftest import QUICK

Handler = Callable[[Message], Any]
IN_ORDER = Fixed("5s", attempts=3, order="key")


def broker_with(*records: tuple[bytes | None, bytes], partitions: int = 1) -> MemoryBroker:
    """Each a key and a value; a key has one partition."""
    broker = MemoryBroker()
    broker.create_topic("t", partitions=partitions, configs={"tidewheel.headers": "true"})
    for key, value in records:
        index = (key or b"\0")[-1] % partitions
        broker.append(Message("t", index, -1, 0, key, value, ()))
    return broker


@asynccontextmanager
async def running(broker: MemoryBroker, handler: Handler, **options: Any) -> AsyncIterator[None]:
    async with broker.client(consumer=QUICK) as client:
        app = App(client)
        app.subscriber("t", group="g", **options)(handler)
        task = asyncio.create_task(app.run(handle_signals=False))
        await broker.clock.advance(0.1)
        yield
        app.stop()
        while not task.done():
            await broker.clock.advance(0.1)
        await task


def dead(broker: MemoryBroker) -> list[Message]:
    return list(broker.messages("t.g.dlq")) if "t.g.dlq" in broker.topics else []


async def test_a_key_waits_and_others_go_on() -> None:
    bad = [(b"a%d" % n, b"bad") for n in range(6)]
    broker = broker_with(*bad, *((key, b"next") for key, _ in bad), (b"b", b"1"), (b"b", b"2"))
    calls: list[tuple[bytes, bytes, int]] = []

    async def handle(message: Message) -> None:
        calls.append((message.key, message.value, message.attempt))
        if message.value == b"bad" and message.attempt < 3:
            raise ValueError("not now")

    # Fewer workers than keys that wait.
    async with running(broker, handle, retry=IN_ORDER, concurrency=2):
        assert sorted(calls) == sorted(
            [*((key, b"bad", 1) for key, _ in bad), (b"b", b"1", 1), (b"b", b"2", 1)]
        )
        await broker.clock.advance(2)
        # Nobody may begin behind what is not done.
        assert broker.committed("g").get(TopicPartition("t.g", 0), 0) == 0
        await broker.clock.advance(9)
        for key, _ in bad:
            assert [call[1:] for call in calls if call[0] == key] == [
                (b"bad", 1),
                (b"bad", 2),
                (b"bad", 3),
                (b"next", 1),
            ]
    assert broker.committed("g")[TopicPartition("t.g", 0)] == 14
    assert [m for m in broker.messages("t.g") if m.partition == 1] == []


async def test_handlers_say_when_and_the_last_attempt_is_a_dead_letter() -> None:
    records = [(b"a", b"later"), (b"a", b"dead"), (b"a", b"bad"), (b"a", b"good")]
    broker = broker_with(*records)
    calls: list[tuple[bytes, int, float]] = []
    begun_ms = broker.clock.now_ms()

    def handle(message: Message) -> None:
        calls.append((message.value, message.attempt, broker.clock.now_ms() - begun_ms))
        if message.value == b"later" and message.attempt == 1:
            raise RetryLater("10m", "the bank is closed")
        if message.value == b"dead":
            raise DeadLetter("of no use")
        if message.value == b"bad":
            raise ValueError("never")

    async with running(broker, handle, retry=IN_ORDER):
        await broker.clock.advance(700)
    values = [call[:2] for call in calls]
    assert values == [
        (b"later", 1),
        (b"later", 2),
        (b"dead", 1),
        (b"bad", 1),
        (b"bad", 2),
        (b"bad", 3),
        (b"good", 1),
    ]
    assert calls[1][2] - calls[0][2] == 600_000
    reasons = {m.value: m.header("tw-reason") for m in dead(broker)}
    assert reasons == {
        b"dead": b"of no use",
        b"bad": b"never (attempt 3, in the order of its key)",
    }


async def test_what_has_no_key_is_nacked_as_ever() -> None:
    broker = broker_with((None, b"bad"), (None, b"good"))
    calls: list[tuple[bytes, int]] = []

    def handle(message: Message) -> None:
        calls.append((message.value, message.partition))
        if message.value == b"bad" and message.attempt == 1:
            raise ValueError("not now")

    async with running(broker, handle, retry=IN_ORDER):
        await broker.clock.advance(10)
    assert calls == [(b"bad", 0), (b"good", 0), (b"bad", 1)]


async def test_much_behind_a_key_pauses_its_partition_alone() -> None:
    stuck = [(b"k0", b"%d" % n) for n in range(200)]
    others = [(b"k1", b"x%d" % n) for n in range(200)]
    broker = broker_with(*stuck, *others, partitions=2)
    calls: Counter[bytes] = Counter()

    def handle(message: Message) -> None:
        calls[message.value] += 1
        if message.value == b"0" and message.attempt < 3:
            raise ValueError("not now")

    async with running(broker, handle, retry=IN_ORDER, buffer_max=10):
        await broker.clock.advance(4)
        assert calls[b"0"] == 1
        assert calls[b"1"] == 0
        assert sum(calls[value] for _, value in others) == 200
        for _ in range(200):
            await broker.clock.advance(0.5)
        assert calls == Counter({value: 1 for _, value in [*stuck, *others]}) + Counter({b"0": 2})
    assert broker.committed("g")[TopicPartition("t.g", 0)] == 200


async def test_a_policy_that_is_edited_holds_for_the_next_failure() -> None:
    broker = broker_with((b"a", b"bad"), (b"a", b"good"))
    calls: list[bytes] = []

    def handle(message: Message) -> None:
        calls.append(message.value)
        if message.value == b"bad":
            raise ValueError("no")

    async with broker.client(consumer=QUICK) as admin:
        policy = Delays(["20s"], attempts=None, order="key")
        async with running(broker, handle, retry=policy):
            assert (await admin.admin.retry_policy("t.g")).order == "key"
            await admin.admin.set_retry_policy("t.g", Fixed("1s", attempts=2, order="key"))
            await broker.clock.advance(25)
            assert calls == [b"bad", b"bad", b"good"]


async def test_handlers_without_the_order_of_keys_are_refused() -> None:
    broker = broker_with((b"a", b"1"))
    with pytest.raises(ConfigurationError, match="keeps the order of its keys"):
        async with running(broker, lambda message: None, retry=IN_ORDER, key_order=False):
            pass
    with pytest.raises(ConfigurationError, match="order="):
        Fixed("1s", order="topic")  # type: ignore[arg-type]


@settings(max_examples=25, deadline=None)
@given(
    records=st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(0, 4)), min_size=1, max_size=30
    ),
    faults=st.lists(st.sampled_from(["NOT_ENOUGH_REPLICAS", "_MSG_TIMED_OUT"]), max_size=3),
    stops=st.lists(st.integers(1, 20), max_size=3),
    attempts=st.sampled_from([None, 1, 2, 3]),
    partitions=st.integers(1, 3),
)
def test_of_each_key_all_end_in_the_order_in_which_they_were_produced(
    records: list[tuple[str, int]],
    faults: list[str],
    stops: list[int],
    attempts: int | None,
    partitions: int,
) -> None:
    """Each message fails in so many calls, the app is stopped and begun again at any moment, some
    nacks fail: every message ends, as done or dead, and no earlier than those before it."""

    async def history() -> None:
        named = [(key.encode(), b"%d" % number) for number, (key, _) in enumerate(records)]
        broker = broker_with(*named, partitions=partitions)
        calls: Counter[int] = Counter()
        begun: dict[bytes, list[int]] = {}
        done: list[int] = []

        async def handle(message: Message) -> None:
            number = int(message.value)
            begun.setdefault(message.key, []).append(number)
            await broker.clock.sleep(0.01)
            calls[number] += 1
            if calls[number] <= records[number][1]:
                raise ValueError("no")
            done.append(number)

        broker.send_faults += faults
        policy = Fixed("1s", attempts=attempts, order="key")
        for steps in [*stops, 300]:
            async with running(broker, handle, retry=policy, concurrency=3):
                await broker.clock.advance(steps / 2)
        buried = [int(message.value) for message in dead(broker)]
        # At a stop what was handled and not committed yet is handled again.
        assert set(done) | set(buried) == set(range(len(records)))
        for numbers in begun.values():
            firsts = list(dict.fromkeys(numbers))
            assert firsts == sorted(firsts), "in the order in which they were produced"
            lives = [a for a, b in pairwise(numbers) if b < a]
            assert len(lives) <= len(stops), "and back only where an app began again"
        if attempts is None:
            assert buried == []
        assert not [m for m in broker.messages("t.g") if m.partition % 2]

    asyncio.run(history())
