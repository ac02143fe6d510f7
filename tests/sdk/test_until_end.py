"""Reading until the end where the end cannot be reached any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from tidewheel.cli.consume import IDLE_LOOKS_MAX, _Reading
from tidewheel.errors import StorageFailed
from tidewheel.message import TopicPartition

PLACE = TopicPartition("orders", 0)


class StalledConsumer:
    """Finds nothing, and hears what it is told about where the partition ends."""

    def __init__(self, *ends: int | Exception) -> None:
        self.assignment = [PLACE]
        self.options = SimpleNamespace(group=None)
        self._ends = list(ends)
        self.looks = 0

    async def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        end = self._ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return 0, end

    async def positions(self) -> dict[TopicPartition, int]:
        return {PLACE: 3}

    async def batches(self, count: int, wait_s: float) -> AsyncIterator[list[Any]]:
        while self.looks < 10 * IDLE_LOOKS_MAX:
            self.looks += 1
            yield []
        pytest.fail("it waits for ever")


def read(consumer: Any) -> None:
    asyncio.run(_Reading(str, None, until_end=True).read(consumer))


def test_a_disk_that_fails_meanwhile_ends_it_with_the_reason() -> None:
    consumer = StalledConsumer(5, StorageFailed("the disk"))
    with pytest.raises(StorageFailed):
        read(consumer)
    assert consumer.looks == IDLE_LOOKS_MAX


def test_it_goes_on_while_the_leader_has_more() -> None:
    consumer = StalledConsumer(5, 5, StorageFailed("the disk"))
    with pytest.raises(StorageFailed):
        read(consumer)
    assert consumer.looks == 2 * IDLE_LOOKS_MAX


def test_an_end_that_moved_back_is_reached() -> None:
    consumer = StalledConsumer(5, 3)
    read(consumer)
    assert consumer.looks == IDLE_LOOKS_MAX + 1
