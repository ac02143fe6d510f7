"""Sending: the client's bounded queue, delivery reports, and the `Topic` handle.

Records are queued in the transport, which sends them in batches. While any is outstanding, a
timer on the event loop asks the transport for reports every millisecond or so; bulk sending asks
in between by itself. There is no thread: reports, interceptors, partitioners and serializers all
run on the application's loop.

Invariants
- Every record that was queued gets exactly one report: a receipt or an error.
- At most `queue_messages_max` records and `queue_bytes_max` bytes are outstanding; beyond that
  `send` and `send_many` wait and `send_nowait` raises QueueFull.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from tidewheel.errors import (
    BatchSendFailed,
    ClientClosed,
    ConfigurationError,
    DeliveryTimedOut,
    InterceptorFailed,
    QueueFull,
    SerializationFailed,
    TidewheelError,
    from_kafka,
)
from tidewheel.headers import encode_headers, id_bytes
from tidewheel.interceptors import ProducerInterceptor
from tidewheel.message import Headers, ProducerRecord, Receipt
from tidewheel.partitioner import Partitioner, hash_partition, random_partition
from tidewheel.serialization import Serializer, encode_plain
from tidewheel.settings import ProducerSettings
from tidewheel.transport.port import Fault, OnReport, ProducerTransport, Reported

TICK_S_MIN: Final = 0.001
TICK_S_MAX: Final = 0.008
SERVE_EVERY: Final = 256
"""`send_many` runs due reports after so many records, and lets the loop run after eight times
as many, so that a long batch neither fills the queue nor starves other tasks."""

PARTITION_COUNT_TTL_S: Final = 60.0


class Delivery(Awaitable[Receipt]):
    """The outcome of one `send_nowait`: await it for the receipt, or ignore it and `flush`."""

    __slots__ = ("_error", "_receipt", "_topic", "_waiters")

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._receipt: Receipt | None = None
        self._error: TidewheelError | None = None
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._receipt is not None or self._error is not None

    @property
    def error(self) -> TidewheelError | None:
        """Why the message failed, or None while it has not."""
        return self._error

    @property
    def receipt(self) -> Receipt | None:
        """The receipt, or None while there is none."""
        return self._receipt

    def __await__(self) -> Generator[Any, None, Receipt]:
        if not self.done:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            yield from waiter
        if self._error is not None:
            raise self._error
        assert self._receipt is not None, "done"
        return self._receipt

    def settle(self, fault: Fault | None, message: Reported) -> None:
        """Take the transport's report."""
        if fault is None:
            self._receipt = receipt_of(message)
        else:
            self._error = from_kafka(fault, f'sending to "{self._topic}"')
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


def receipt_of(message: Reported) -> Receipt:
    """The receipt of a reported message."""
    offset = message.offset()
    return Receipt(
        message.topic() or "",
        -1 if (partition := message.partition()) is None else partition,
        -1 if offset is None or offset < 0 else offset,
        message.timestamp()[1],
    )


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


class _Tally:
    """Counts reports of a `send_many`."""

    __slots__ = ("failed", "first_fault", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.failed = 0
        self.first_fault: Fault | None = None

    def report(self, fault: Fault | None, message: Reported) -> None:
        if fault is None:
            self.sent += 1
        else:
            self.failed += 1
            if self.first_fault is None:
                self.first_fault = fault


class Sender:
    """One client's producer: queue, report timer, and waiting for room."""

    def __init__(
        self,
        transport: ProducerTransport,
        settings: ProducerSettings,
        interceptors: Sequence[ProducerInterceptor],
        on_broken_interceptor: Callable[[BaseException], None],
    ) -> None:
        self.transport = transport
        self.settings = settings
        self.interceptors = tuple(interceptors)
        self.closed = False
        self._on_broken_interceptor = on_broken_interceptor
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._delay_s = TICK_S_MIN
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._partition_counts: dict[str, tuple[int, float]] = {}

    def serve(self) -> int:
        """Run due reports and wake who waits for them; keep the timer running."""
        served = self.transport.serve()
        if served:
            self._delay_s = TICK_S_MIN
            while self._waiters:
                waiter = self._waiters.popleft()
                if not waiter.done():
                    waiter.set_result(None)
        return served

    def arm(self) -> None:
        """Make sure that reports are asked for while anything is outstanding."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self.serve():
            self._delay_s = min(self._delay_s * 1.3, TICK_S_MAX)
        if self.transport.outstanding() and not self.closed:
            self.arm()
        else:
            self._delay_s = TICK_S_MIN
            self._wake_all()

    def _wake_all(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    async def progress(self) -> None:
        """Wait until some reports have come in."""
        if self.closed:
            raise ClientClosed("The client is closed")
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        self._delay_s = TICK_S_MIN
        self.arm()
        await waiter

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        on_report: OnReport,
        timestamp_ms: int,
        headers: list[tuple[str, Any]] | None,
    ) -> None:
        """Queue one record. Raises QueueFull, ClientClosed and what the transport raises."""
        if self.closed:
            raise ClientClosed("The client is closed")
        self.transport.produce(topic, value, key, partition, on_report, timestamp_ms, headers)
        if self._timer is None:
            self.arm()

    def acknowledged(self, topic: str, on_report: OnReport) -> OnReport:
        """`on_report` with the interceptors' on_acknowledgement before it."""

        def report(fault: Fault | None, message: Reported) -> None:
            receipt = receipt_of(message) if fault is None else None
            error = None if fault is None else from_kafka(fault, f'sending to "{topic}"')
            for interceptor in self.interceptors:
                try:
                    interceptor.on_acknowledgement(topic, receipt, error)
                except Exception as broken:
                    self._on_broken_interceptor(broken)
            on_report(fault, message)

        return report

    def known_partition_count(self, topic: str) -> int | None:
        """The number of partitions if it was looked up within the last minute."""
        known = self._partition_counts.get(topic)
        return known[0] if known is not None and self._loop.time() < known[1] else None

    async def partition_count(self, topic: str) -> int:
        """The number of partitions, looked up at most once a minute. Raises TopicNotFound."""
        count = self.known_partition_count(topic)
        if count is None:
            count = await self.transport.partition_count(topic)
            self._partition_counts[topic] = (count, self._loop.time() + PARTITION_COUNT_TTL_S)
        return count

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until nothing is outstanding. Raises DeliveryTimedOut after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.transport.outstanding():
                    await self.progress()
        except TimeoutError:
            left = self.transport.outstanding()
            raise DeliveryTimedOut(
                f"{left} messages were still not acknowledged after {timeout_s:g} s"
            ) from None

    async def close(self, timeout_s: float) -> None:
        """Flush, then let go; what is still outstanding then fails."""
        if self.closed:
            return
        try:
            await self.flush(timeout_s)
        finally:
            self.closed = True
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            await self.transport.close()
            self._wake_all()


class Topic:
    """Sends to one topic. Made by `Client.topic`; cheap, and safe to keep.

    The arguments of `send` and `send_nowait` are those of `ProducerRecord`. Tags, delay,
    deliver_at and id travel as `tw-` headers: brokers act on them in topics created with
    `tidewheel.headers=true` and deliver them as plain headers elsewhere.
    """

    def __init__(
        self,
        sender: Callable[[], Awaitable[Sender]],
        opened_sender: Callable[[], Sender],
        name: str,
        partitioner: Partitioner,
        key_serializer: Serializer | None,
        value_serializer: Serializer | None,
    ) -> None:
        self.name = name
        self._sender = sender
        self._opened_sender = opened_sender
        self._choose = random_partition if partitioner == "random" else partitioner
        self._key_serializer = key_serializer or encode_plain
        self._value_serializer = value_serializer or encode_plain

    def __repr__(self) -> str:
        return f"Topic({self.name!r})"

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
        delivery = Delivery(self.name)
        report: OnReport = delivery.settle
        if sender.interceptors:
            record = self._intercepted(sender, record)
            report = sender.acknowledged(self.name, report)
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
        delivery = Delivery(self.name)
        report: OnReport = delivery.settle
        record = ProducerRecord(
            value, key, headers, tags, delay, deliver_at, id, partition, timestamp_ms
        )
        if sender.interceptors:
            record = self._intercepted(sender, record)
            report = sender.acknowledged(self.name, report)
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
        tally = _Tally()
        started_s = time.perf_counter()
        taken = value_bytes = 0
        if self._choose != "hash":
            await sender.partition_count(self.name)
        try:
            if isinstance(items, AsyncIterable):
                async for item in items:
                    value_bytes += await self._send_item(sender, item, key, tally)
                    taken += 1
                    if taken % SERVE_EVERY == 0:
                        sender.serve()
                    if tally.failed:
                        break
            else:
                for item in items:
                    value_bytes += await self._send_item(sender, item, key, tally)
                    taken += 1
                    if taken % SERVE_EVERY == 0:
                        sender.serve()
                        if tally.failed:
                            break
                        if taken % (8 * SERVE_EVERY) == 0:
                            await asyncio.sleep(0)
        finally:
            while tally.sent + tally.failed < taken:
                await sender.progress()
        if tally.first_fault is not None:
            first = from_kafka(tally.first_fault, f'sending to "{self.name}"')
            raise BatchSendFailed(
                f"{tally.failed} of {taken} messages failed; the first: {first}",
                sent=tally.sent,
                failed=tally.failed,
                first_error=first,
            ) from first
        return SendSummary(tally.sent, value_bytes, time.perf_counter() - started_s)

    async def _send_item(
        self, sender: Sender, item: Any, key: Callable[[Any], Any] | None, tally: _Tally
    ) -> int:
        """Queue one item of a `send_many`; returns the size of its value in bytes."""
        report: OnReport = tally.report
        record: ProducerRecord | None = None
        if isinstance(item, ProducerRecord):
            record = item
        elif sender.interceptors or self._choose != "hash":
            record = ProducerRecord(item, None if key is None else key(item))
        if record is not None:
            if sender.interceptors:
                record = self._intercepted(sender, record)
                report = sender.acknowledged(self.name, report)
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
        sender = await self._sender()
        if sender.transport.outstanding():
            await sender.progress()

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
