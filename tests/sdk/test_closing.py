"""Closing ends, whatever the broker does."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest
from tidewheel import client as client_module
from tidewheel.client import Client
from tidewheel.consumer import Consumer
from tidewheel.testing import MemoryBroker


async def reading(client: Client, group: str) -> Consumer:
    """A consumer that has its partitions."""
    consumer = client.subscribe("t", group=group)
    assert (await consumer.__anext__()).value == b"1"
    return consumer


def make_stuck(consumer: Consumer) -> None:
    """Neither committing nor leaving comes to an end."""
    transport = consumer._transport
    assert transport is not None

    async def never(*arguments: object) -> None:
        await asyncio.Event().wait()

    for name in ("commit", "close"):
        setattr(transport, name, never)


async def test_a_consumer_that_cannot_leave_does_not_keep_the_client(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client_module, "LEAVE_TIMEOUT_S", 0.2)
    broker = MemoryBroker()
    broker.create_topic("t")
    client = broker.client()
    await client.open()
    await client.send("t", b"1")
    stuck = await reading(client, "stuck")
    await reading(client, "well")
    make_stuck(stuck)
    before = asyncio.all_tasks()
    started_s = time.monotonic()
    with caplog.at_level(logging.WARNING, "tidewheel"):
        await client.close(0.1)
    assert time.monotonic() - started_s < 5
    # Not what the garbage of other tests says when it is collected.
    warnings = [record.getMessage() for record in caplog.records if record.name == "tidewheel"]
    assert ["(group stuck)" in warning for warning in warnings] == [True]
    assert not client.is_open
    # The other one left properly, and nothing goes on in the background.
    assert client._consumers == {stuck}
    assert asyncio.all_tasks() <= before


async def test_a_cancelled_body_leaves_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = MemoryBroker()
    broker.create_topic("t")
    is_reading, left = asyncio.Event(), asyncio.Event()

    async def body() -> None:
        async with broker.client() as client:
            await client.send("t", b"1")
            consumer = await reading(client, "g")
            transport = consumer._transport
            assert transport is not None
            close = transport.close

            async def slowly() -> None:
                # Longer than messages are waited for after an exception.
                await asyncio.sleep(1.2)
                await close()
                left.set()

            monkeypatch.setattr(transport, "close", slowly)
            is_reading.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(body())
    await is_reading.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left.is_set()
