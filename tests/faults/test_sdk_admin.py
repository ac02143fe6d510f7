"""The SDK's administrative requests when the broker that they go to has died."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from tidewheel import Client
from tidewheel.errors import TidewheelError
from tidewheel.settings import ClientSettings

from tests.faults.cell import Cell

TIMEOUT_MS = 15_000


async def describe_while_brokers_die(cell: Cell) -> None:
    settings = ClientSettings(request_timeout_ms=TIMEOUT_MS)
    async with Client(cell.bootstrap, settings=settings) as client:
        # Knows who the controller is, and has never had anything to do with it.
        assert [topic.name for topic in await client.admin.topics()] == ["orders"]
        controller = cell.controller()
        cell.kill9(controller)
        began = time.monotonic()
        found = await client.admin.describe_topic("orders")
        assert len(found.partitions) == 3
        assert time.monotonic() - began < TIMEOUT_MS / 1000
        # Nobody at all: an error with words, and in time.
        cell.kill9(*(broker for broker in cell.ids if broker != controller))
        began = time.monotonic()
        with pytest.raises(TidewheelError, match=r"describing topic|controller"):
            await client.admin.describe_topic("orders")
        assert time.monotonic() - began < TIMEOUT_MS / 1000 + 5


@pytest.mark.timeout(180)
def test_a_topic_is_described_after_the_death_of_the_controller(tmp_path: Path) -> None:
    """librdkafka goes on asking the controller that it knew."""
    with Cell(tmp_path) as cell:
        cell.create_topic("orders", 3)
        asyncio.run(describe_while_brokers_die(cell))
