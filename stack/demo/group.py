"""The demo's consumer group: members that come and go, and the history of who had what."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tidewheel import Client
from tidewheel.consumer import Consumer
from tidewheel.message import Message, TopicPartition
from tidewheel.retry_policy import RetryPolicy
from tidewheel.settings import ClientSettings

from stack.demo.ledger import Ledger

BATCH_MESSAGES_MAX: Final = 500
"""Small enough that the loop turns often and producer and consumers share it fairly."""


Handler = Callable[[Consumer, Sequence[Message]], Awaitable[Sequence[Message]]]
"""What is done with a batch; those of it that are entered in the ledger."""


@dataclass(frozen=True, slots=True)
class Reads:
    """What of a topic a group reads, by which policy it comes back, and who handles it."""

    filter: str | None = None
    retry: RetryPolicy | None = None
    handler: Handler | None = None


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """Something that happened in the group, `at_s` seconds after the demo's start."""

    at_s: float
    member: str
    what: str
    partitions: tuple[int, ...] = ()


class Group:
    """Members of one consumer group that all write to one ledger."""

    def __init__(
        self, bootstrap: str, topic: str, name: str, ledger: Ledger, reads: Reads | None = None
    ) -> None:
        self.name = name
        self._reads = Reads() if reads is None else reads
        self.history: list[GroupEvent] = []
        self.received_by: dict[str, int] = {}
        self._bootstrap = bootstrap
        self._topic = topic
        self._ledger = ledger
        self._started_s = time.perf_counter()
        self._consumers: dict[str, Consumer] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._history_ended = False
        self._held: dict[str, set[int]] = {}

    def start_member(self, member: str) -> None:
        """A new consumer joins."""
        self.received_by[member] = 0
        self._note(member, "joins")
        self._tasks[member] = asyncio.create_task(self._consume(member), name=member)

    async def stop_member(self, member: str) -> None:
        """A consumer commits, leaves the group and is gone. Raises what it failed with."""
        self._note(member, "leaves")
        if member in self._consumers:
            self._consumers[member].stop()
        await self._tasks.pop(member)

    async def stop(self) -> None:
        """All members leave; that is the end, and no longer part of the history."""
        self._history_ended = True
        for member in list(self._tasks):
            await self.stop_member(member)

    def cancel(self) -> None:
        """Give up at once."""
        for task in self._tasks.values():
            task.cancel()

    def check(self) -> None:
        """Raise what a member failed with, if one failed."""
        for task in self._tasks.values():
            if task.done():
                task.result()

    def has_partitions(self, member: str) -> bool:
        """Whether a member has been given partitions."""
        return any(
            event.member == member and event.what == "gets" and event.partitions
            for event in self.history
        )

    async def _consume(self, member: str) -> None:
        settings = ClientSettings(client_id=member)
        async with Client(self._bootstrap, settings=settings) as client:
            consumer = client.subscribe(
                self._topic,
                group=self.name,
                filter=self._reads.filter,
                retry=self._reads.retry,
                on_assigned=lambda partitions: self._note(member, "gets", partitions),
                on_revoked=lambda partitions: self._note(member, "gives up", partitions),
                on_lost=lambda partitions: self._note(member, "loses", partitions),
            )
            self._consumers[member] = consumer
            record_received = self._ledger.record_received
            handler = self._reads.handler
            async for batch in consumer.batches(BATCH_MESSAGES_MAX):
                now_s = time.perf_counter()
                for message in batch if handler is None else await handler(consumer, batch):
                    record_received(
                        message.key, message.value, message.partition, message.offset, now_s
                    )
                self.received_by[member] += len(batch)
            await consumer.close()

    def _note(self, member: str, what: str, partitions: Sequence[TopicPartition] = ()) -> None:
        if self._history_ended or (what == "gives up" and not partitions):
            return
        numbers = tuple(sorted(partition.partition for partition in partitions))
        held = self._held.setdefault(member, set())
        if what == "gets":
            held.update(numbers)
            if not numbers:
                # A rebalance tells what comes on top, which often is nothing.
                what, numbers = ("keeps", tuple(sorted(held))) if held else ("waits", ())
        elif what in ("gives up", "loses"):
            held.difference_update(numbers)
        at_s = time.perf_counter() - self._started_s
        self.history.append(GroupEvent(at_s, member, what, numbers))
