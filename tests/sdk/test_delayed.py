"""Delayed messages: what a client promises, on the memory broker and on a real one alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tidewheel import Client, Message, TopicPartition, sync
from tidewheel.errors import (
    ConfigurationError,
    MessageRefused,
    TooLate,
    TopicNotFound,
    UnknownMessage,
)
from tidewheel.message import Source
from tidewheel.testing import MemoryBroker

from tests.sdk.test_client_contract import take

MakeClient = Callable[..., Client]
TAGGED = {"tidewheel.headers": True}


async def test_messages_come_when_they_are_due_and_once(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1, configs=TAGGED)
        topic = client.topic(name)
        began_ms = client.clock.now_ms()
        at = datetime.fromtimestamp(began_ms / 1000, UTC) + timedelta(milliseconds=1200)
        third = await topic.send("third", key="k", delay="2s", tags=["eu"])
        await topic.send("second", deliver_at=at, headers=[("h", "v")])
        await topic.send("first", delay=timedelta(milliseconds=600), timestamp_ms=began_ms - 5)
        await topic.send("past", deliver_at=5)
        await topic.send("now")
        assert third.offset == 0
        messages = await take(client.subscribe(name, group=name), 5)
        assert {m.value for m in messages[:2]} == {b"past", b"now"}
        assert [m.value for m in messages[2:]] == [b"first", b"second", b"third"]
        by_value = {m.value: m for m in messages}
        due_after_ms = {b"first": 600, b"second": 1200, b"third": 2000}
        for value, after_ms in due_after_ms.items():
            assert by_value[value].timestamp_ms >= began_ms + after_ms
        delivered = by_value[b"third"]
        assert (delivered.key, delivered.tags) == (b"k", ("eu",))
        assert delivered.source == Source(name, 0, 0)
        assert delivered.produced_at == datetime.fromtimestamp(third.timestamp_ms / 1000, UTC)
        assert [n for n, _ in delivered.headers] == ["tw-tag", "tw-source", "tw-produced-at"]
        assert by_value[b"second"].header("h") == b"v"
        produced_at = by_value[b"first"].produced_at
        assert produced_at == datetime.fromtimestamp((began_ms - 5) / 1000, UTC)
        assert by_value[b"now"].source is None
        assert by_value[b"now"].produced_at is None
        # Five were stored, and four of them a second time.
        assert await client.admin.offsets(name, "latest") == {TopicPartition(name, 0): 9}
        again = client.subscribe(name)
        assert [m.value for m in await take(again, 5)] == [m.value for m in messages]
        assert await nothing_comes(again)


async def nothing_comes(consumer: object) -> bool:
    async for batch in consumer.batches(10, wait_s=0.5):  # type: ignore[attr-defined]
        return not batch
    return True


async def test_what_is_cancelled_never_comes(make_client: MakeClient, name: str) -> None:
    # What is cancelled is due in an hour and moved to now only afterwards: nothing here depends on
    # how fast it is done.
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1, configs=TAGGED)
        topic = client.topic(name)
        late = await topic.send("late", deliver_at=5)
        never = await topic.send("never", delay="1h", id="moved")
        kept = await topic.send("kept", delay="1h", id="moved")
        assert [m.value for m in await take(client.subscribe(name), 1)] == [b"late"]

        async def is_too_late() -> bool:
            with pytest.raises(TooLate, match="before it could be cancelled"):
                await late.cancel()
            return True

        # The refused command concerns none of the others.
        outcomes = await asyncio.gather(
            never.cancel(), is_too_late(), never.cancel(), topic.send("beside")
        )
        assert outcomes[1]
        await never.cancel()
        # Of what has this id, what is pending.
        await topic.send(headers=[("tw-reschedule", "moved"), ("tw-deliver-at", "1")])
        await topic.send("last", deliver_at=6)
        consumer = client.subscribe(name)
        values = [m.value for m in await take(consumer, 4)]
        assert values == [b"late", b"beside", b"kept", b"last"]
        assert await nothing_comes(consumer)
        await never.cancel()
        with pytest.raises(TooLate):
            await kept.cancel()


async def test_why_it_is_not_cancelled(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=2, configs=TAGGED)
        receipt = await client.topic(name).send("x", delay="1h", partition=1)
        with pytest.raises(UnknownMessage, match="no delayed message at"):
            await replace(receipt, offset=77).cancel()
        with pytest.raises(UnknownMessage, match="no delayed message at"):
            await replace(receipt, partition=0).cancel()
        await client.topic(name).send("at once", partition=0)
        with pytest.raises(UnknownMessage, match="no delayed message at"):
            await replace(receipt, partition=0).cancel()
        await receipt.cancel()
        await client.admin.delete_topic(name)
        with pytest.raises(TopicNotFound):
            await receipt.cancel()


async def test_what_cannot_be_cancelled_says_so(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1)
        plain = await client.topic(name).send("x", delay="1h")
        with pytest.raises(ConfigurationError, match=r"tidewheel\.headers=true"):
            await plain.cancel()
        with pytest.raises(ConfigurationError, match="delay= or deliver_at="):
            await (await client.topic(name).send("x")).cancel()
        values: list[Message] = await take(client.subscribe(name), 2)
        assert [m.value for m in values] == [b"x", b"x"]


@pytest.mark.parametrize(
    "header",
    [
        ("tw-delay", "0"),
        ("tw-delay", "11y"),
        ("tw-delay", "4015d"),
        ("tw-deliver-at", "tomorrow"),
        ("tw-deliver-at", "99999999999999"),
        ("tw-cancel-offset", "77"),
        ("tw-cancel-offset", "x"),
        ("tw-cancel", "nobody"),
        ("tw-reschedule-offset", "0"),
    ],
)
async def test_what_makes_no_sense_is_refused(
    make_client: MakeClient, name: str, header: tuple[str, str]
) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1, configs=TAGGED)
        with pytest.raises(MessageRefused):
            await client.topic(name).send("x", headers=[header])
        assert await client.admin.offsets(name, "latest") == {TopicPartition(name, 0): 0}


async def test_commands_by_id_and_to_another_time(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1, configs=TAGGED)
        topic = client.topic(name)
        await topic.send("gone", delay="1h", id="a")
        await topic.send("sooner", delay="1h", id="b")
        await topic.send(headers=[("tw-cancel", "a")])
        with pytest.raises(MessageRefused):
            await topic.send(headers=[("tw-reschedule", "a"), ("tw-deliver-at", "1")])
        for _ in range(2):
            await topic.send(headers=[("tw-reschedule", "b"), ("tw-deliver-at", "1")])
        await topic.send("last", deliver_at=2)
        consumer = client.subscribe(name)
        assert [m.value for m in await take(consumer, 2)] == [b"sooner", b"last"]
        assert await nothing_comes(consumer)


async def test_the_virtual_clock_delivers() -> None:
    broker = MemoryBroker()
    broker.create_topic("orders", configs={"tidewheel.headers": "true"})
    async with broker.client() as client:
        began_ms = broker.clock.now_ms()
        await client.topic("orders").send("o-1", delay="45d")
        await broker.clock.advance(45 * 86_400 - 0.001)
        assert broker.messages("orders") == []
        await broker.clock.advance(0.001)
        (message,) = broker.messages("orders")
        assert message.timestamp_ms == began_ms + 45 * 86_400_000


def test_programs_without_a_loop_cancel_too(bootstrap: str, name: str) -> None:
    with sync.Client(bootstrap) as client:
        client.admin.create_topic(name, partitions=1, configs=TAGGED)
        topic = client.topic(name)
        never = topic.send("never", delay="1h")
        topic.cancel(never)
        kept = topic.send("kept", deliver_at=5)
        for message in client.subscribe(name):
            assert message.value == b"kept"
            break
        with pytest.raises(TooLate):
            topic.cancel(kept)
        topic.cancel(never)
