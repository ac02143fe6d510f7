"""Sending to topics: the `Topic` handle.

A handle turns values into records (interceptors, serializers, headers, partitioner), all on the
application's event loop, and gives them to the client's `Sender`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from tidewheel.delayed import DelayedMessages
from tidewheel.errors import (
    BatchSendFailed,
    ConfigurationError,
    InterceptorFailed,
    QueueFull,
    SerializationFailed,
    from_kafka,
)
from tidewheel.headers import encode_headers, id_bytes
from tidewheel.message import Headers, ProducerRecord, Receipt
from tidewheel.partitioner import Partitioner, hash_partition, random_partition
from tidewheel.sender import Delivery, Sender, Tally
from tidewheel.serialization import Serializer, encode_plain
from tidewheel.transport.port import OnReport

YIELD_EVERY: Final = 2_048
"""`send_many` lets other tasks run after so many records."""


@dataclass(frozen=True, slots=True)
class SendSummary:
    """What a `send_many` did: messages acknowledged, bytes of values, seconds."""

    sent: int
    value_bytes: int
    elapsed_s: float

    @property
    def messages_per_s(self) -> float:
        """Acknowledged messages per second."""
        return self.sent / self.elapsed_s if self.elapsed_s > 0 else 0.0


class Topic:
    """Sends to one topic. Made by `Client.topic`; cheap, and safe to keep.

    The arguments of `send` and `send_nowait` are those of `ProducerRecord`. Tags, delay,
    deliver_at and id travel as `tw-` headers: brokers act on them in topics created with
    `tidewheel.headers=true` and deliver them as plain headers elsewhere. A message with a delay
    is delivered then, as another record; until then its receipt can `cancel` it.
    """

    def __init__(
        self,
        sender: Callable[[], Awaitable[Sender]],
        opened_sender: Callable[[], Sender],
        name: str,
        partitioner: Partitioner,
        key_serializer: Serializer | None,
        value_serializer: Serializer | None,
        delayed_in: Callable[[str], DelayedMessages],
    ) -> None:
        self.name = name
        self._delayed_in = delayed_in
        self._sender = sender
        self._opened_sender = opened_sender
        self._choose = random_partition if partitioner == "random" else partitioner
        self._key_serializer = key_serializer or encode_plain
        self._value_serializer = value_serializer or encode_plain

    def __repr__(self) -> str:
        return f"Topic({self.name!r})"

    @property
    def delayed(self) -> DelayedMessages:
        """Its delayed messages that are not due yet: list, count, cancel."""
        return self._delayed_in(self.name)

    async def send(
        self,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers = (),
        tags: Sequence[str] = (),
        delay: str | float | timedelta | None = None,
        deliver_at: datetime | int | None = None,
        id: str | bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Receipt:
        """Send one message and wait until the broker has it.

        Returns its receipt. Raises SendError classes, TopicNotFound, ConfigurationError.
        """
        record = ProducerRecord(
            value, key, headers, tags, delay, deliver_at, id, partition, timestamp_ms
        )
        return await (await self.send_record(record))

    async def send_record(self, record: ProducerRecord) -> Delivery:
        """Queue one record, waiting for room; await the returned delivery for its receipt."""
        sender = await self._sender()
        if sender.interceptors:
            record = self._intercepted(sender, record)
        delivery = Delivery(sender, self.name, is_delayed=record.is_delayed)
        report: OnReport = delivery.settle
        if sender.interceptors:
            report = sender.intercepted(self.name, report)
        if self._needs_partition_count(record):
            await sender.partition_count(self.name)
        while True:
            try:
                self._produce(sender, record, report)
            except QueueFull:
                await sender.progress()
            else:
                return delivery

    def send_nowait(
        self,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers = (),
        tags: Sequence[str] = (),
        delay: str | float | timedelta | None = None,
        deliver_at: datetime | int | None = None,
        id: str | bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Queue one message without waiting. The client must be open (`async with`).

        Returns its delivery: await it, or call `flush` later. Raises QueueFull when the queue
        has no room (see `wait_for_room`), and ConfigurationError when a partitioner function
        or an id without a key needs the partition count and `prepare` was not awaited.
        """
        sender = self._opened_sender()
        record = ProducerRecord(
            value, key, headers, tags, delay, deliver_at, id, partition, timestamp_ms
        )
        if sender.interceptors:
            record = self._intercepted(sender, record)
        delivery = Delivery(sender, self.name, is_delayed=record.is_delayed)
        report: OnReport = delivery.settle
        if sender.interceptors:
            report = sender.intercepted(self.name, report)
        self._produce(sender, record, report)
        return delivery

    async def send_many(
        self,
        items: Iterable[Any] | AsyncIterable[Any],
        *,
        key: Callable[[Any], Any] | None = None,
    ) -> SendSummary:
        """Send many messages, pipelined, and wait until the broker has all of them.

        Args:
            items: values, or `ProducerRecord`s for keys, headers and the rest.
            key: makes the key of an item that is a plain value.

        At most the client's queue is ahead of the broker; a slow broker slows the iteration
        down. After the first failure no more items are taken, what is on its way is awaited,
        and BatchSendFailed says how many were stored.
        """
        sender = await self._sender()
        tally = Tally(sender)
        started_s = time.perf_counter()
        taken = value_bytes = 0
        if self._choose != "hash":
            await sender.partition_count(self.name)
        try:
            if isinstance(items, AsyncIterable):
                async for item in items:
                    value_bytes += await self._send_item(sender, item, key, tally)
                    taken += 1
                    if tally.failed:
                        break
            else:
                for item in items:
                    value_bytes += await self._send_item(sender, item, key, tally)
                    taken += 1
                    if tally.failed:
                        break
                    if taken % YIELD_EVERY == 0:
                        await asyncio.sleep(0)
        finally:
            while tally.sent + tally.failed < taken:
                await sender.progress()
        if tally.first_fault is not None:
            first = from_kafka(tally.first_fault, f'sending to "{self.name}"')
            first = await sender.explained(first, self.name)
            raise BatchSendFailed(
                f"{tally.failed} of {taken} messages failed; the first: {first}",
                sent=tally.sent,
                failed=tally.failed,
                first_error=first,
            ) from first
        return SendSummary(tally.sent, value_bytes, time.perf_counter() - started_s)

    async def _send_item(
        self, sender: Sender, item: Any, key: Callable[[Any], Any] | None, tally: Tally
    ) -> int:
        """Queue one item of a `send_many`; returns the size of its value in bytes."""
        report: OnReport = tally.settle
        record: ProducerRecord | None = None
        if isinstance(item, ProducerRecord):
            record = item
        elif sender.interceptors or self._choose != "hash":
            record = ProducerRecord(item, None if key is None else key(item))
        if record is not None:
            if sender.interceptors:
                record = self._intercepted(sender, record)
                report = sender.intercepted(self.name, report)
            if self._needs_partition_count(record):
                await sender.partition_count(self.name)
        while True:
            try:
                if record is not None:
                    return self._produce(sender, record, report)
                value = self._encoded(self._value_serializer, item, "value")
                key_data = (
                    None if key is None else self._encoded(self._key_serializer, key(item), "key")
                )
                sender.produce(self.name, value, key_data, -1, report, 0, None)
                return len(value) if value is not None else 0
            except QueueFull:
                await sender.progress()

    async def prepare(self) -> None:
        """Look the topic up, so that `send_nowait` can partition. Raises TopicNotFound."""
        await (await self._sender()).partition_count(self.name)

    async def wait_for_room(self) -> None:
        """Wait until some outstanding message is decided, after `send_nowait` said QueueFull."""
        await (await self._sender()).progress()

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything the client has sent is decided, this topic's and others'."""
        await (await self._sender()).flush(timeout_s)

    def _needs_partition_count(self, record: ProducerRecord) -> bool:
        if record.partition is not None:
            return False
        return self._choose != "hash" or (record.id is not None and record.key is None)

    def _intercepted(self, sender: Sender, record: ProducerRecord) -> ProducerRecord:
        for interceptor in sender.interceptors:
            try:
                record = interceptor.on_send(self.name, record)
            except Exception as broken:
                raise InterceptorFailed(
                    f"{type(interceptor).__name__}.on_send raised {broken!r}; the message to "
                    f'"{self.name}" was not sent'
                ) from broken
        return record

    def _produce(self, sender: Sender, record: ProducerRecord, report: OnReport) -> int:
        value = self._encoded(self._value_serializer, record.value, "value")
        key = self._encoded(self._key_serializer, record.key, "key")
        headers = encode_headers(record)
        partition = self._partition(sender, record, key, value)
        sender.produce(
            self.name, value, key, partition, report, record.timestamp_ms or 0, headers or None
        )
        return len(value) if value is not None else 0

    def _encoded(self, serializer: Serializer, value: Any, what: str) -> bytes | None:
        try:
            return serializer(value)
        except SerializationFailed:
            raise
        except Exception as broken:
            raise SerializationFailed(
                f'The {what} serializer of "{self.name}" raised {broken!r}'
            ) from broken

    def _partition(
        self, sender: Sender, record: ProducerRecord, key: bytes | None, value: bytes | None
    ) -> int:
        """The partition, or -1 to leave it to the transport's hash."""
        if record.partition is not None:
            return record.partition
        if not self._needs_partition_count(record):
            return -1
        count = sender.known_partition_count(self.name)
        if count is None:
            raise ConfigurationError(
                f'The number of partitions of "{self.name}" is not known yet',
                hint="Await `topic.prepare()` once before send_nowait",
            )
        if not callable(self._choose):
            assert record.id is not None, "only an id without a key is hashed here"
            return hash_partition(id_bytes(record.id), count)
        partition = self._choose(self.name, key, value, count)
        if not 0 <= partition < count:
            raise ConfigurationError(
                f'The partitioner chose {partition} for "{self.name}", not one of {count}',
                hint="Return a number from 0 to partition_count - 1",
            )
        return partition
