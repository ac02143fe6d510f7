"""What is delayed: listed, counted and cancelled, on the memory broker and on a real one alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tidewheel import CancelOutcome, Client, ProducerRecord, Topic, sync
from tidewheel import delayed as module
from tidewheel.errors import ConfigurationError, TooLate, TopicNotFound, UnknownMessage
from tidewheel.filters import InvalidFilter
from tidewheel.testing import MemoryBroker
from tidewheel.testing.delayed_requests import MemoryDelayed

from tests.sdk.test_client_contract import take

MakeClient = Callable[..., Client]
TAGGED = {"tidewheel.headers": True}
MINUTES = [50, 10, 30, 10, 20, 40]
"""When the messages are due; those of partition 0 and 1 in turn."""


async def filled(client: Client, name: str) -> tuple[Topic, int]:
    """And the time from which on they are due."""
    await client.admin.create_topic(name, partitions=2, configs=TAGGED)
    topic, now_ms = client.topic(name), client.clock.now_ms()
    for number, minutes in enumerate(MINUTES):
        await topic.send(
            f"{number}",
            key="k",
            headers=[("h", "v")],
            tags=["eu"] if number % 3 else ["us"],
            deliver_at=now_ms + minutes * 60_000,
            partition=number % 2,
        )
    return topic, now_ms


async def values(topic: Topic, **wanted: Any) -> list[int]:
    return [int(one.message.value) async for one in topic.delayed.list(**wanted)]


async def test_lists_are_by_time(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        topic, now_ms = await filled(client, name)
        assert await values(topic) == [1, 3, 4, 2, 5, 0]
        assert await values(topic, partition=0) == [4, 2, 0]
        assert await values(topic, filter="eu") == [1, 4, 2, 5]
        since, until = timedelta(minutes=20, seconds=-60), now_ms + 40 * 60_000
        assert await values(topic, since=since, until=until) == [4, 2]
        assert await values(topic, filter="us", until=until) == [3]
        assert await values(topic, filter="nowhere") == []
        assert await values(topic, since=timedelta(days=1)) == []
        first = await anext(topic.delayed.list(value_bytes_max=1))
        message = first.message
        assert first.deliver_at_ms == now_ms + 600_000
        assert first.deliver_at == datetime.fromtimestamp(first.deliver_at_ms / 1000, UTC)
        assert (message.topic, message.partition, message.offset) == (name, 1, 0)
        assert (message.key, message.value, message.tags) == (b"k", b"1", ("eu",))
        assert message.headers == (("h", b"v"), ("tw-tag", b"eu"))
        assert not first.is_cut
        await topic.send("long", delay="1m", partition=0)
        cut = await anext(topic.delayed.list(value_bytes_max=2))
        assert (cut.message.value, cut.is_cut) == (b"lo", True)


async def test_counts(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        topic, now_ms = await filled(client, name)
        delayed = topic.delayed
        assert await delayed.count() == 6
        assert await delayed.count(since=timedelta(minutes=15)) == 4
        assert await delayed.count(until=now_ms + 20 * 60_000) == 2
        assert await delayed.count(since=5, until=datetime.fromtimestamp(1, UTC)) == 0
        edges = [now_ms + minutes * 60_000 for minutes in (0, 10, 20, 45, 60)]
        assert await delayed.histogram(edges) == [0, 2, 3, 1]
        calendar = await delayed.calendar("14m", 3)
        assert [one.count for one in calendar] == [2, 1, 2]
        assert calendar[1].start - calendar[0].start == timedelta(minutes=14)
        assert await delayed.next_due() == datetime.fromtimestamp(now_ms / 1000 + 600, UTC)
        with pytest.raises(ConfigurationError, match="ascending"):
            await delayed.histogram([7, 5])
        with pytest.raises(ConfigurationError, match="1 to 1000 steps"):
            await delayed.calendar("1h", 1_001)


async def test_many_in_pages(
    make_client: MakeClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE", 150)
    monkeypatch.setattr(module, "CANCELS_MAX", 100)
    monkeypatch.setattr(module, "CANCELS_LOOKED_AT", 350)
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=2, configs=TAGGED)
        topic, now_ms = client.topic(name), client.clock.now_ms()
        records = [
            ProducerRecord(f"{n}", deliver_at=now_ms + 3_600_000 + n, partition=n % 2, tags=["t"])
            for n in range(1_000)
        ]
        await topic.send_many(records)
        assert await values(topic) == list(range(1_000))
        summary = await topic.delayed.cancel(filter="t", until=now_ms + 3_600_000 + 900)
        assert (summary.cancelled, summary.refused) == (900, ())
        assert await values(topic) == list(range(900, 1_000))
        assert await topic.delayed.count() == 100


async def test_cancelled_by_filter(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        topic, now_ms = await filled(client, name)
        found = [one async for one in topic.delayed.cancel_each(filter="us")]
        assert found == [CancelOutcome(0, 0, True), CancelOutcome(1, 1, True)]
        assert await values(topic) == [1, 4, 2, 5]
        summary = await topic.delayed.cancel(since=now_ms + 25 * 60_000, partition=0)
        assert (summary.cancelled, summary.refused) == (1, ())
        assert await values(topic) == [1, 4, 5]
        await topic.delayed.cancel_at(1, 0)
        await topic.delayed.cancel_at(1, 0)
        assert (await topic.delayed.cancel(filter="us")).cancelled == 0
        assert (await topic.delayed.cancel(everything=True)).cancelled == 2
        assert await topic.delayed.count() == 0
        with pytest.raises(UnknownMessage):
            await topic.delayed.cancel_at(1, 77)
        await topic.send("x", deliver_at=5, partition=0)
        await take(client.subscribe(name), 1)
        with pytest.raises(TooLate):
            await topic.delayed.cancel_at(0, 6)


async def test_what_makes_no_sense_is_said_before_anything_is_asked(
    make_client: MakeClient, name: str
) -> None:
    async with make_client() as client:
        topic, _ = await filled(client, name)
        delayed = topic.delayed
        for nothing in ({}, {"filter": "eu", "everything": True}):
            with pytest.raises(ConfigurationError, match="are to be cancelled"):
                await delayed.cancel(**nothing)  # type: ignore[arg-type]
        with pytest.raises(InvalidFilter, match="column 7"):
            await delayed.cancel(filter="eu and")
        with pytest.raises(InvalidFilter):
            await values(topic, filter="(")
        with pytest.raises(ConfigurationError, match="no time zone"):
            await delayed.count(until=datetime(2030, 1, 1))
        with pytest.raises(TopicNotFound):
            await client.topic(f"{name}x").delayed.count()
        assert await delayed.count() == 6
        await client.admin.create_topic(f"{name}p", partitions=1)
        assert await values(client.topic(f"{name}p")) == []


async def test_the_virtual_clock_empties_the_list() -> None:
    broker = MemoryBroker()
    broker.create_topic("orders", configs={"tidewheel.headers": "true"})
    async with broker.client() as client:
        orders = client.topic("orders")
        await asyncio.gather(*(orders.send(f"{n}", delay=f"{n}h") for n in (1, 2, 3)))
        assert [one.count for one in await orders.delayed.calendar("2h", 2)] == [1, 2]
        await broker.clock.advance(2 * 3_600)
        assert await values(orders) == [3]
        await orders.delayed.cancel(everything=True)
        await broker.clock.advance(2 * 3_600)
        assert [m.value for m in broker.messages("orders")] == [b"1", b"2"]


async def test_what_is_delivered_meanwhile_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = MemoryBroker()
    broker.create_topic("orders", configs={"tidewheel.headers": "true"})
    describe = MemoryDelayed.describe

    async def described_slowly(self: MemoryDelayed, *asked: Any) -> Any:
        found = await describe(self, *asked)
        await broker.clock.advance(3_600)
        return found

    monkeypatch.setattr(MemoryDelayed, "describe", described_slowly)
    async with broker.client() as client:
        orders = client.topic("orders")
        for hours in (1, 2, 3):
            await orders.send(f"{hours}", delay=f"{hours}h")
        summary = await orders.delayed.cancel(everything=True)
        assert summary.cancelled == 2
        (late,) = summary.refused
        assert (late.partition, late.offset, late.is_cancelled) == (0, 0, False)
        assert "too late" in late.reason
        await broker.clock.advance(86_400)
        assert [m.value for m in broker.messages("orders")] == [b"1"]


def test_programs_without_a_loop(bootstrap: str, name: str) -> None:
    with sync.Client(bootstrap) as client:
        client.admin.create_topic(name, partitions=2, configs=TAGGED)
        topic = client.topic(name)
        topic.send_many(
            ProducerRecord(f"{n}", delay=f"{n * 60 + 30}m", id=f"{n}") for n in range(300)
        )
        delayed = topic.delayed
        assert [int(one.message.value) for one in delayed.list()] == list(range(300))
        assert delayed.count() == 300
        assert delayed.count(until=timedelta(minutes=60)) == 1
        assert [one.count for one in delayed.calendar("1d", 2)] == [24, 24]
        assert sum(delayed.histogram([0, timedelta(days=1), timedelta(days=20)])) == 300
        first = next(delayed.list())
        assert delayed.next_due() == first.deliver_at
        delayed.cancel_at(first.message.partition, first.message.offset)
        assert len(list(delayed.cancel_each(until=timedelta(hours=150)))) == 149
        assert delayed.cancel(everything=True).cancelled == 150
        assert delayed.next_due() is None
