"""Handlers and consumers that nack, on the memory broker and its clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidewheel import (
    App,
    Client,
    DeadLetter,
    Delays,
    Exponential,
    Fixed,
    Message,
    ProducerSettings,
    RetryInPlace,
    RetryLater,
    RetryPolicy,
    TopicPartition,
)
from tidewheel.consumer import Consumer
from tidewheel.errors import (
    ConfigurationError,
    HandlerFailed,
    InvalidRequest,
    MessageRefused,
    NackFailed,
    RetriesUnsupported,
)
from tidewheel.nacks import Nack, cut
from tidewheel.testing import MemoryBroker

from tests.sdk.conftest import QUICK

Handler = Callable[[Message], Any]
FIVE = Fixed("5s", attempts=3)


def broker_with(*values: bytes, partitions: int = 1) -> MemoryBroker:
    broker = MemoryBroker()
    broker.create_topic("t", partitions=partitions, configs={"tidewheel.headers": "true"})
    for number, value in enumerate(values):
        broker.append(Message("t", number % partitions, -1, 0, b"k", value, (("trace", b"x"),)))
    return broker


@asynccontextmanager
async def running(
    broker: MemoryBroker, handler: Handler, **options: Any
) -> AsyncIterator[asyncio.Task[None]]:
    """An app of this handler. It is stopped at the end, and its error raised."""
    async with broker.client(consumer=QUICK) as client:
        app = App(client)
        app.subscriber("t", group="g", **options)(handler)
        task = asyncio.create_task(app.run(handle_signals=False))
        await broker.clock.advance(0.1)
        yield task
        app.stop()
        while not task.done():
            await broker.clock.advance(0.1)
        await task


async def test_what_fails_comes_back_by_the_policy_and_keeps_nobody_waiting() -> None:
    broker = broker_with(b"bad", b"good", b"good")
    calls: list[tuple[float, bytes, int]] = []
    begun_ms = broker.clock.now_ms()

    async def handle(message: Message) -> None:
        now_s = (broker.clock.now_ms() - begun_ms) / 1000
        calls.append((now_s, message.value, message.attempt))
        if message.value == b"bad" and message.attempt < 4:
            raise ValueError("not now")

    policy = Exponential("5s", cap="15s", attempts=16)
    async with running(broker, handle, retry=policy):
        assert [call[1:] for call in calls] == [(b"bad", 1), (b"good", 1), (b"good", 1)]
        await broker.clock.advance(60)
    begun_s = calls[0][0]
    retries = [(now_s - begun_s, attempt) for now_s, value, attempt in calls[3:]]
    assert retries == [(5, 2), (15, 3), (30, 4)]
    assert broker.committed("g") == {TopicPartition("t.g", 0): 3, TopicPartition("t.g", 1): 6}


async def test_after_the_last_attempt_it_is_a_dead_letter_with_its_story() -> None:
    broker = broker_with(b"good", b"bad")
    (_, produced) = broker.messages("t")

    def handle(message: Message) -> None:
        if message.value == b"bad":
            raise ValueError(f"no {message.attempt}")

    async with running(broker, handle, retry=FIVE):
        failed_ms = broker.clock.now_ms() - 100
        await broker.clock.advance(60)
        assert "t.g.dlq" in [topic.name for topic in broker.topics.values()]
    (dead,) = broker.messages("t.g.dlq")
    assert (dead.key, dead.value, dead.attempt) == (b"k", b"bad", 3)
    assert dict(dead.headers) == {
        "trace": b"x",
        "tw-source": b"t/0/1",
        "tw-attempt": b"3",
        "tw-produced-at": b"%d" % produced.timestamp_ms,
        "tw-first-failed-at": b"%d" % failed_ms,
        "tw-failed-at": b"%d" % (failed_ms + 10_000),
        "tw-reason": b"no 3",
        "tw-exception": b"ValueError",
        "tw-consumer": b"tidewheel",
        "tw-dead": b"t.g/0/0/4",
    }


async def test_a_handler_says_when_and_whether() -> None:
    broker = broker_with(b"later", b"dead", b"caused")
    calls: list[tuple[bytes, int, int]] = []

    def handle(message: Message) -> None:
        calls.append((message.value, message.attempt, broker.clock.now_ms()))
        if message.value == b"later" and message.attempt == 1:
            raise RetryLater("10m", "the bank is closed")
        if message.value == b"dead":
            raise DeadLetter("an order of nothing")
        if message.value == b"caused":
            try:
                _ = dict[str, str]()["customer"]
            except KeyError as missing:
                raise DeadLetter from missing

    async with running(broker, handle, retry=FIVE):
        await broker.clock.advance(700)
    first, *_, second = calls
    assert (second[:2], second[2] - first[2]) == ((b"later", 2), 600_000)
    (back,) = [m for m in broker.messages("t.g") if m.partition == 1]
    assert back.header("tw-reason") == b"the bank is closed"
    told = [
        (m.value, m.header("tw-reason"), m.header("tw-exception"), m.attempt)
        for m in broker.messages("t.g.dlq")
    ]
    assert told == [
        (b"dead", b"an order of nothing", None, 1),
        (b"caused", b"'customer'", b"KeyError", 1),
    ]


async def test_in_place_first_then_nacked() -> None:
    broker, calls = broker_with(b"bad"), list[int]()

    def handle(message: Message) -> None:
        calls.append(message.attempt)
        raise ValueError("no")

    in_place = RetryInPlace("100ms", attempts=2, then="nack")
    async with running(broker, handle, retry=FIVE, on_error=in_place):
        await broker.clock.advance(60)
    assert calls == [1, 1, 2, 2, 3, 3]


async def test_a_subscription_by_its_name_and_its_own_policy() -> None:
    broker, calls = broker_with(b"bad"), list[int]()
    configs = {"tidewheel.source": "t", "tidewheel.retry.backoff": "list:1s,2s"}
    broker.create_topic("mine", configs=configs)

    def handle(message: Message) -> None:
        calls.append(broker.clock.now_ms())
        if message.attempt < 3:
            raise ValueError("no")

    async with broker.client(consumer=QUICK) as client:
        app = App(client)
        app.subscriber("mine", group="g", on_error="nack")(handle)
        task = asyncio.create_task(app.run(handle_signals=False))
        await broker.clock.advance(10)
        app.stop()
        await broker.clock.advance(1)
        await task
    assert [at - calls[0] for at in calls] == [0, 1000, 3000]


async def test_a_plain_topic_is_handled_as_ever() -> None:
    calls: list[bytes] = []

    def handle(message: Message) -> None:
        calls.append(message.value)
        raise RetryLater("1s")

    broker = broker_with(b"1")
    with pytest.raises(HandlerFailed, match="failed 2 times"):
        async with running(broker, handle, on_error=RetryInPlace("1ms", attempts=2)):
            await broker.clock.advance(1)
    assert calls == [b"1", b"1"]
    assert broker.committed("g") == {}
    assert len(broker.messages("t")) == 1
    with pytest.raises(ConfigurationError, match="is no subscription"):
        async with running(broker, handle, on_error="nack"):
            await broker.clock.advance(1)


async def test_nothing_is_committed_before_the_nack_is_acknowledged() -> None:
    broker, calls = broker_with(b"bad", b"good"), list[bytes]()

    def handle(message: Message) -> None:
        calls.append(message.value)
        if message.value == b"bad" and message.attempt == 1:
            raise ValueError("no")

    broker.fail_sends("NOT_ENOUGH_REPLICAS", 5)
    async with running(broker, handle, retry=FIVE):
        await broker.clock.advance(1)
        assert calls == [b"bad"], "its key waits"
        assert broker.committed("g")[TopicPartition("t.g", 0)] == 0
        await broker.clock.advance(30)
        assert broker.committed("g")[TopicPartition("t.g", 0)] == 2
    assert calls == [b"bad", b"good", b"bad"]


async def test_a_nack_that_is_refused_stops_the_app_and_loses_nothing() -> None:
    broker, calls = broker_with(b"good", b"bad", b"good"), list[tuple[int, int]]()

    def handle(message: Message) -> None:
        calls.append((message.offset, message.attempt))
        if message.value == b"bad" and broker.send_faults:
            raise ValueError("no")

    broker.fail_sends("INVALID_RECORD")
    with pytest.raises(HandlerFailed, match=r"cannot be nacked: ValueError\('no'\)") as stopped:
        async with running(broker, handle, retry=FIVE):
            await broker.clock.advance(5)
    assert stopped.value.consumed.offset == 1
    assert isinstance(stopped.value.__cause__, NackFailed)
    assert "tidewheel.retries" in str(stopped.value)
    assert broker.committed("g") == {TopicPartition("t.g", 0): 1}
    async with running(broker, handle, retry=FIVE):
        await broker.clock.advance(5)
    assert calls == [(0, 1), (1, 1), (1, 1), (2, 1)]


async def test_brokers_without_retries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until they have a level of the feature, they know none of its properties."""
    from tidewheel.testing import memory, topics

    monkeypatch.setattr(topics, "POLICY_PROPERTIES", ())
    broker = broker_with(b"1")

    def handle(message: Message) -> None:
        raise DeadLetter("no")

    with pytest.raises(HandlerFailed, match="The brokers take no nacks") as stopped:
        async with running(broker, handle, filter=""):
            await broker.clock.advance(1)
    assert "tidewheel.retries" in str(stopped.value)

    def refuse(configs: dict[str, str]) -> None:
        if set(configs) & {"tidewheel.retry.backoff"}:
            raise InvalidRequest("Unknown topic config name: tidewheel.retry.backoff")

    monkeypatch.setattr(memory.MemoryBroker, "_check_policy", staticmethod(refuse))
    async with broker.client() as client:
        for subscription in ("t.g", "fresh"):
            consumer = client.subscribe("t", group="g", subscription=subscription, retry=FIVE)
            with pytest.raises(RetriesUnsupported, match=r"tidewheel\.retries"):
                await consumer.open()


def test_a_broker_without_retries_says_so(bootstrap: str, name: str) -> None:
    async def history() -> None:
        async with Client(bootstrap, consumer=QUICK) as client:
            tagged = {"tidewheel.headers": True}
            await client.admin.create_topic(name, partitions=1, configs=tagged)
            await client.admin.create_subscription(f"{name}.made", name)
            listed = {entry.name for entry in await client.admin.configs(f"{name}.made")}
            if "tidewheel.retry.backoff" in listed:
                await client.subscribe(name, group=name, retry=FIVE).open()
                assert await client.admin.retry_policy(f"{name}.{name}") == FIVE
                return
            with pytest.raises(RetriesUnsupported, match=r"tidewheel\.retry"):
                await client.subscribe(name, group=name, retry=FIVE).open()
            await client.topic(name).send("1")
            consumer = client.subscribe(f"{name}.made", group=name)
            async for message in consumer:
                with pytest.raises(RetriesUnsupported, match="take no nacks") as told:
                    await consumer.nack(message)
                assert "tidewheel.retries" in told.value.hint
                break
            assert await client.admin.group_offsets(name) == {}

    asyncio.run(history())


# Consumers without an app.


async def opened(client: Client, retry: RetryPolicy = FIVE) -> Consumer:
    consumer = client.subscribe("t", group="g", retry=retry)
    await consumer.open()
    return consumer


async def take(broker: MemoryBroker, consumer: Consumer, advance_s: float = 0.1) -> Message:
    asked = asyncio.ensure_future(anext(consumer))
    await broker.clock.advance(advance_s)
    return await asked


async def test_a_consumer_nacks_and_goes_on() -> None:
    broker = broker_with(b"1", b"2")
    async with broker.client(consumer=QUICK) as client:
        consumer = await opened(client)
        message = await take(broker, consumer)
        await consumer.nack(message, delay="1m", reason="later")
        await consumer.nack(message)  # Says nothing new.
        second = await take(broker, consumer)
        await consumer.dead_letter(second, error=ValueError("of no use"))
        back = await take(broker, consumer, 120)
        assert (back.value, back.attempt, back.partition) == (b"1", 2, 1)
        assert back.timestamp_ms - message.timestamp_ms in range(60_000, 61_000)
        await consumer.close()
        (dead,) = broker.messages("t.g.dlq")
        assert dead.header("tw-reason") == b"of no use"
        assert broker.committed("g") == {TopicPartition("t.g", 0): 2}


async def test_a_batch_is_nacked_together() -> None:
    broker = broker_with(*(b"%d" % n for n in range(500)), partitions=3)
    async with broker.client(consumer=QUICK) as client:
        consumer = await opened(client)
        nacked: list[bytes] = []
        async for batch in consumer.batches():
            await consumer.nack(batch, delay="1s")
            nacked += [message.value for message in batch]
            if len(nacked) == 500:
                break
        await broker.clock.advance(2)
        back = [m for m in broker.messages("t.g") if m.partition % 2]
        assert sorted(m.value for m in back) == sorted(nacked)
        assert {m.attempt for m in back} == {2}


async def test_one_refused_nack_of_a_batch_takes_no_other_with_it() -> None:
    broker = broker_with(b"1", b"2", b"3")
    async with broker.client(consumer=QUICK) as client:
        consumer = await opened(client)
        messages = [await take(broker, consumer) for _ in range(3)]
        # As librdkafka reports a batch in which one record is refused.
        broker.send_faults += ["_INVALID_DIFFERENT_RECORD", "INVALID_RECORD"]
        broker.send_faults += ["_INVALID_DIFFERENT_RECORD", "_INVALID_DIFFERENT_RECORD"]
        with pytest.raises(NackFailed) as failed:
            await consumer.nack(messages)
        assert [m.value for m in failed.value.consumed] == [b"2"]
        assert not failed.value.retriable
        await broker.clock.advance(10)
        assert sorted(m.value for m in broker.messages("t.g") if m.partition == 1) == [b"1", b"3"]


async def test_who_swallows_a_failed_nack_does_not_lose_the_message() -> None:
    broker = broker_with(b"1", b"2", b"3")
    async with broker.client(consumer=QUICK) as client:
        consumer = await opened(client)
        await take(broker, consumer)
        second = await take(broker, consumer)
        broker.fail_sends("_MSG_TIMED_OUT")
        with pytest.raises(NackFailed) as failed:
            await consumer.nack(second)
        assert failed.value.retriable
        await take(broker, consumer)
        await consumer.commit()
        assert broker.committed("g") == {TopicPartition("t.g", 0): 1}
        await consumer.nack(second)
        await consumer.commit()
        assert broker.committed("g") == {TopicPartition("t.g", 0): 3}


async def test_messages_of_plain_topics_are_not_nacked() -> None:
    broker = broker_with(b"1", partitions=2)
    async with broker.client(consumer=QUICK) as client:
        consumer = client.subscribe("t", group="g")
        message = await take(broker, consumer)
        with pytest.raises(InvalidRequest, match='"t" is no subscription'):
            await consumer.nack(message)
        assert len(broker.messages("t")) == 1


async def test_nacks_wait_for_all_replicas_whatever_the_client_sends_with() -> None:
    broker = broker_with(b"1")
    asked: list[Any] = []
    async with broker.client(producer=ProducerSettings(acks=0), consumer=QUICK) as client:
        make = client._transport.producer

        async def watched(settings: ProducerSettings, on_due: Callable[[], None]) -> Any:
            asked.append(settings.acks)
            return await make(settings, on_due)

        client._transport.producer = watched  # type: ignore[method-assign]
        consumer = await opened(client)
        message = await take(broker, consumer)
        await consumer.nack(message)
        await consumer.nack(message)
    assert asked == ["all"]


async def test_a_policy_is_looked_at_and_edited(caplog: pytest.LogCaptureFixture) -> None:
    broker = broker_with(b"1")
    async with broker.client(consumer=QUICK) as client:
        consumer = await opened(client, Delays(["1s", "5m"], attempts=None, jitter=0.5))
        found = await client.admin.retry_policy("t.g")
        assert found.configs() == {
            "tidewheel.retry.backoff": "list:1s,5m",
            "tidewheel.retry.attempts.max": "0",
            "tidewheel.retry.jitter": "0.5",
        }
        await client.admin.set_retry_policy("t.g", Fixed("7s", dead_letters="all.dead"))
        message = await take(broker, consumer)
        await consumer.nack(message)
        back = await take(broker, consumer, 10)
        assert back.timestamp_ms - broker.clock.now_ms() in range(-3_100, -2_800)
        await consumer.dead_letter(back)
        assert len(broker.messages("all.dead")) == 1
        await opened(client, FIVE)
        assert "has retries of its own" in caplog.text
        with pytest.raises(InvalidRequest):
            await client.admin.alter_configs("t.g", {"tidewheel.retry.backoff": "soon"})
        with pytest.raises(InvalidRequest):
            await client.admin.retry_policy("t")


async def test_what_brokers_refuse_the_memory_broker_refuses() -> None:
    broker = broker_with(b"1", b"2", partitions=2)
    async with broker.client(consumer=QUICK) as client:
        await opened(client)
        retries = client.topic("t.g")
        refused: list[tuple[int, list[tuple[str, str | None]]]] = [
            (1, []),
            (1, [("tw-nack", "0:1")]),
            (1, [("tw-nack", "1:0")]),
            (1, [("tw-nack", "2:0")]),
            (1, [("tw-nack", "0")]),
            (1, [("tw-nack", None)]),
            (1, [("tw-nack", "0:0"), ("tw-nack", "0:0")]),
            (1, [("tw-nack", "0:0"), ("tw-dead-letter", "0:0")]),
            (1, [("tw-nack", "0:0"), ("tw-delay", "soon")]),
            (1, [("tw-nack", "0:0"), ("tw-tag", "a")]),
            (0, [("tw-nack", "0:0")]),
        ]
        for partition, headers in refused:
            with pytest.raises(MessageRefused):
                await retries.send("ignored", partition=partition, headers=headers)
        await retries.send("", partition=3, headers=[("tw-nack", "2:0"), ("trace", "any")])
        # What is hidden was delivered to nobody.
        await client.topic("t").send("later", partition=0, delay="1h")
        await client.topic("t").send("now", partition=0)
        with pytest.raises(MessageRefused):
            await retries.send("", partition=1, headers=[("tw-nack", "0:1")])


@settings(max_examples=15, deadline=None)
@given(
    failures=st.lists(st.integers(0, 4), min_size=1, max_size=30),
    faults=st.lists(st.sampled_from(["NOT_ENOUGH_REPLICAS", "_MSG_TIMED_OUT"]), max_size=4),
    stops=st.lists(st.integers(1, 20), max_size=2),
    attempts=st.sampled_from([None, 1, 2, 3]),
    partitions=st.integers(1, 3),
)
def test_each_message_ends_once_as_done_or_dead(
    failures: list[int],
    faults: list[str],
    stops: list[int],
    attempts: int | None,
    partitions: int,
) -> None:
    """Messages fail so many times, some nacks do, and the app is stopped and begun again at any
    moment; what waits for its nack then is handled again, as the same attempt."""

    async def history() -> None:
        broker = broker_with(*(b"%d" % n for n in range(len(failures))), partitions=partitions)
        done = list[int]()
        seen: dict[int, list[int]] = {n: [] for n in range(len(failures))}

        async def handle(message: Message) -> None:
            number = int(message.value)
            seen[number].append(message.attempt)
            await broker.clock.sleep(0.01)
            if message.attempt <= failures[number]:
                raise ValueError("no")
            done.append(number)

        broker.send_faults += faults
        policy = Fixed("1s", attempts=attempts)
        for steps in [*stops, 36]:
            async with running(broker, handle, retry=policy, concurrency=4):
                await broker.clock.advance(steps / 2)
        dlq = broker.messages("t.g.dlq") if "t.g.dlq" in broker.topics else []
        dead = [int(m.value) for m in dlq]
        assert sorted(done + dead) == sorted(seen)
        for number, count in enumerate(failures):
            calls = count + 1 if attempts is None else min(count + 1, attempts)
            assert (number in dead) == (calls <= count)
            assert sorted(set(seen[number])) == list(range(1, calls + 1))
            assert seen[number] == sorted(seen[number]), "attempts never go back"

    asyncio.run(history())


def test_texts_are_cut_between_characters() -> None:
    assert cut("é" * 600, 1024) == ("é" * 512).encode()
    assert cut("aé", 2) == b"a"
    assert cut("\ud800", 10) == b"?"
    nack = Nack.after(Message("t.g", 6, 100, 0, b"k", b"v"), ValueError("x" * 5000))
    headers = dict(nack.headers("me"))
    assert nack.partition == 7
    assert headers["tw-nack"] == b"6:100"
    assert headers["tw-reason"] == b"x" * 1024
