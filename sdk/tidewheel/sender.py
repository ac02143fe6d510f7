"""What is on its way: the client's bounded send queue, and who waits for which outcome.

The transport reports each record's outcome once, perhaps on a thread of its own. What happens
there is only bookkeeping of this module: an outcome is stored, a counter goes up. Whoever waits is
woken, and interceptors are called, on the event loop (`on_due`): from the first report on, since
the transport may have a second's worth of them, and some in each turn of the loop.

Invariants
- Every record that was queued gets exactly one report: a receipt or an error.
- `produced` is written by the loop only and `settled` by the reporting thread only (by the loop
  only when there are interceptors); their difference is what is outstanding.
- A waiter that registers before it looks never misses its outcome: the reporter stores the
  outcome before it looks for waiters.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from typing import Any, Final

from tidewheel.errors import ClientClosed, DeliveryTimedOut, QueueFull, TidewheelError, from_kafka
from tidewheel.interceptors import ProducerInterceptor
from tidewheel.message import Receipt
from tidewheel.settings import ProducerSettings
from tidewheel.transport.port import Fault, OnReport, ProducerTransport, Reported

PARTITION_COUNT_TTL_S: Final = 60.0
DUE_MAX: Final = 1_000
"""Outcomes that one turn of the loop deals with. After a broker's death the next one acknowledges
in a moment all that was sent meanwhile, and the rest of the application wants its turn, too."""


Cancel = Callable[[Receipt], Awaitable[None]]


class Delivery(Awaitable[Receipt]):
    """The outcome of one `send_nowait`: await it for the receipt, or ignore it and `flush`."""

    __slots__ = ("_fault", "_is_delayed", "_message", "_sender", "_topic", "_waiters")

    def __init__(self, sender: Sender, topic: str, *, is_delayed: bool = False) -> None:
        self._sender = sender
        self._is_delayed = is_delayed
        self._topic = topic
        self._message: Reported | None = None
        self._fault: Fault | None = None
        self._waiters: list[asyncio.Future[None]] | None = None

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._message is not None

    @property
    def error(self) -> TidewheelError | None:
        """Why the message failed, or None while it has not."""
        if self._fault is None:
            return None
        return from_kafka(self._fault, f'sending to "{self._topic}"')

    @property
    def receipt(self) -> Receipt | None:
        """The receipt, or None while there is none."""
        if self._message is None or self._fault is not None:
            return None
        return self._receipt(self._message)

    def __await__(self) -> Generator[Any, None, Receipt]:
        if not self.done:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
            if not self.done:
                yield from waiter
        if (error := self.error) is not None:
            raise (yield from self._sender.explained(error, self._topic).__await__())
        assert self._message is not None, "done"
        return self._receipt(self._message)

    def _receipt(self, message: Reported) -> Receipt:
        return receipt_of(message, self._sender.cancel if self._is_delayed else None)

    def settle(self, fault: Fault | None, message: Reported) -> None:
        """Take the transport's report, on its thread."""
        self._fault = fault
        self._message = message
        sender = self._sender
        sender.settled += 1
        if self._waiters is not None:
            sender.make_due(self._wake)

    def _wake(self) -> None:
        for waiter in self._waiters or ():
            if not waiter.done():
                waiter.set_result(None)


def receipt_of(message: Reported, cancel: Cancel | None = None) -> Receipt:
    """The receipt of a reported message."""
    offset, partition = message.offset(), message.partition()
    return Receipt(
        message.topic() or "",
        -1 if partition is None else partition,
        -1 if offset is None or offset < 0 else offset,
        message.timestamp()[1],
        cancel,
    )


class Tally:
    """Counts the outcomes of many records."""

    __slots__ = ("_sender", "failed", "first_fault", "sent")

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self.sent = 0
        self.failed = 0
        self.first_fault: Fault | None = None

    def settle(self, fault: Fault | None, message: Reported) -> None:
        """Take the transport's report, on its thread."""
        if fault is None:
            self.sent += 1
        else:
            if self.first_fault is None:
                self.first_fault = fault
            self.failed += 1
        self._sender.settled += 1


class Sender:
    """One client's producer: its queue, and waiting for room and for outcomes."""

    transport: ProducerTransport  # Set right after: making it needs `on_due`.
    # What keeps a topic from taking messages, as far as the brokers say so.
    why: Callable[[str], Awaitable[TidewheelError | None]] | None = None
    # Cancels what was sent with a delay.
    cancel: Cancel | None = None

    def __init__(
        self,
        settings: ProducerSettings,
        interceptors: Sequence[ProducerInterceptor],
        on_broken_interceptor: Callable[[BaseException], None],
    ) -> None:
        self.settings = settings
        self.interceptors = tuple(interceptors)
        self.closed = False
        self.produced = 0
        self.settled = 0
        self._due: deque[Callable[[], None]] = deque()
        # Whether the next turn of the loop goes on with what is due.
        self._is_going_on = False
        self._queue_messages_max = settings.queue_messages_max
        self._on_broken_interceptor = on_broken_interceptor
        self._loop = asyncio.get_running_loop()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._partition_counts: dict[str, tuple[int, float]] = {}

    @property
    def outstanding(self) -> int:
        """Records whose outcome is not known yet."""
        return self.produced - self.settled

    def make_due(self, callback: Callable[[], None]) -> None:
        """Have the loop call this soon. For the reporting thread."""
        due = self._due
        due.append(callback)
        if len(due) == 1:
            # With more of them a call of `on_due` is on its way, which leaves none behind.
            with contextlib.suppress(RuntimeError):
                # The loop is gone when the application ended without closing its client.
                self._loop.call_soon_threadsafe(self.on_due)

    def on_due(self) -> None:
        """On the loop, when reports came in: wake who waits, call interceptors."""
        if not self._is_going_on:
            self._go_on()

    def _go_on(self) -> None:
        self._is_going_on = False
        self._call_due(DUE_MAX)
        if self._due:
            self._is_going_on = True
            self._loop.call_soon(self._go_on)

    def _call_due(self, count_max: int) -> None:
        due = self._due
        for _ in range(min(count_max, len(due))):
            due.popleft()()
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def progress(self) -> None:
        """Wait until some reports have come in, if any are to come."""
        if self.closed:
            raise ClientClosed("The client is closed")
        if not self.outstanding:
            await asyncio.sleep(0.001)  # A full queue of the transport's own empties behind us.
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        if self.outstanding:
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
        if self.produced - self.settled >= self._queue_messages_max:
            raise QueueFull(f'The send queue is full; the message to "{topic}" was not taken')
        self.transport.produce(topic, value, key, partition, on_report, timestamp_ms, headers)
        self.produced += 1

    def intercepted(self, topic: str, on_report: OnReport) -> OnReport:
        """`on_report` after the interceptors' on_acknowledgement, both on the loop."""

        def report(fault: Fault | None, message: Reported) -> None:
            self.make_due(partial(self._acknowledge, topic, on_report, fault, message))

        return report

    def _acknowledge(
        self, topic: str, on_report: OnReport, fault: Fault | None, message: Reported
    ) -> None:
        receipt = receipt_of(message) if fault is None else None
        error = None if fault is None else from_kafka(fault, f'sending to "{topic}"')
        for interceptor in self.interceptors:
            try:
                interceptor.on_acknowledgement(topic, receipt, error)
            except Exception as broken:
                self._on_broken_interceptor(broken)
        on_report(fault, message)

    async def explained(self, error: TidewheelError, topic: str) -> TidewheelError:
        """`error`, with the cause if it is one that the brokers can name: librdkafka only tells
        that the time is over, not what it was answered until then."""
        if self.why is None or not isinstance(error, DeliveryTimedOut):
            return error
        cause = await self.why(topic)
        if cause is None:
            return error
        return DeliveryTimedOut(
            f"{error.message}: {cause.message}",
            hint=f"{cause.hint}. Sending again may store the message twice",
            kafka_name=error.kafka_name,
        )

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
                while self.outstanding:
                    await self.progress()
        except TimeoutError:
            left = self.outstanding
            raise DeliveryTimedOut(
                f"{left} messages were still not acknowledged after {timeout_s:g} s"
            ) from None

    async def abandon(self) -> None:
        """Let go without waiting: what is outstanding fails."""
        self.closed = True
        await self.transport.close()
        self._call_due(len(self._due))

    async def close(self, timeout_s: float) -> None:
        """Flush, then let go; what is still outstanding then fails."""
        if self.closed:
            return
        try:
            await self.flush(timeout_s)
        finally:
            self.closed = True
            await self.transport.close()
            self._call_due(len(self._due))
            # It leads back here through the transport, and a cycle would hold librdkafka's threads
            # until the garbage collector comes by.
            self.why = None
            self.cancel = None
