"""The client for programs without an event loop.

    with Client() as client:
        client.topic("orders").send("hello", key="k")
        for message in client.subscribe("orders", group="pay"):
            print(message.value)

A loop in a thread of the client's own does the waiting. Code of the application stays on its own
threads: serializers, deserializers and partitioner functions run in the thread that calls, and
what would have to run elsewhere (interceptors, rebalance callbacks, handlers) is left to the
asynchronous client. One client may be used from several threads, a consumer from one at a time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from dataclasses import replace
from itertools import islice
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from tidewheel import client as asynchronous
from tidewheel.consumer import Consumer as AsyncConsumer
from tidewheel.consumer_options import Commit, Start
from tidewheel.errors import (
    ClientClosed,
    ConfigurationError,
    SerializationFailed,
)
from tidewheel.message import ProducerRecord, Receipt
from tidewheel.partitioner import Partitioner
from tidewheel.producer import SendSummary
from tidewheel.producer import Topic as AsyncTopic
from tidewheel.retry_policy import RetryPolicy
from tidewheel.sender import Delivery
from tidewheel.serialization import Deserializer, Serializer, encode_plain
from tidewheel.settings import ClientSettings, ConsumerSettings, ProducerSettings
from tidewheel.sync_admin import Admin, Call
from tidewheel.sync_consumer import Consumer
from tidewheel.sync_delayed import DelayedMessages
from tidewheel.transport.port import Transport

__all__ = ["Admin", "Client", "Consumer", "Topic"]

T = TypeVar("T")

CHUNK: Final = 1_000
"""`send_many` hands records over in lists of this size."""


class _Loop:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="tidewheel-loop", daemon=True
        )
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for it; an interrupt here cancels it there."""
        if not self._thread.is_alive():
            coroutine.close()
            raise ClientClosed("The client is closed")
        future: Future[T] = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the thread."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()


class Client:
    """As `tidewheel.Client`, in blocking form; arguments it lacks are asynchronous only."""

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        settings: ClientSettings | None = None,
        producer: ProducerSettings | None = None,
        consumer: ConsumerSettings | None = None,
        transport: Transport | None = None,
    ) -> None:
        self._partitioner: Partitioner = (producer or ProducerSettings()).partitioner
        self._client = asynchronous.Client(
            bootstrap,
            settings=settings,
            producer=producer,
            consumer=consumer,
            transport=transport,
        )
        self._loop: _Loop | None = None

    @classmethod
    def from_env(cls, **settings: Any) -> Self:
        """A client for TIDEWHEEL_URL."""
        return cls(None, **settings)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(asynchronous.CLOSE_TIMEOUT_S if exception_type is None else 1.0)

    def open(self) -> None:
        """Find a first broker. Raises BrokerUnreachable."""
        if self._loop is None:
            self._loop = _Loop()
            try:
                self._loop.call(self._client.open())
            except BaseException:
                self._loop.stop()
                self._loop = None
                raise

    def close(self, timeout_s: float = asynchronous.CLOSE_TIMEOUT_S) -> None:
        """Close consumers, flush, let go."""
        if self._loop is not None:
            loop, self._loop = self._loop, None
            try:
                loop.call(self._client.close(timeout_s))
            finally:
                loop.stop()

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            coroutine.close()
            raise ClientClosed("The client is not open", hint="Use it inside `with Client(...)`")
        return self._loop.call(coroutine)

    @property
    def admin(self) -> Admin:
        """Topics, configurations, groups, lag."""
        return Admin(self._client.admin, self._call)

    def topic(
        self,
        name: str,
        *,
        partitioner: Partitioner | None = None,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
    ) -> Topic:
        """A handle to send to one topic."""
        chosen = partitioner if partitioner is not None else self._partitioner
        # A function is called here, on the caller's thread, and must not be called there again.
        inner = self._client.topic(name, partitioner="hash" if callable(chosen) else chosen)
        count = self._client.partition_count
        return Topic(inner, self._call, chosen, key_serializer, value_serializer, count)

    def send(self, topic: str, value: Any = None, **record: Any) -> Receipt:
        """Short for `client.topic(topic).send(value, …)`."""
        return self.topic(topic).send(value, **record)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything sent is acknowledged or has failed."""
        self._call(self._client.flush(timeout_s))

    def subscribe(
        self,
        *topics: str,
        group: str | None = None,
        filter: str | None = None,
        subscription: str | None = None,
        retry: RetryPolicy | None = None,
        start: Start = "earliest",
        commit: Commit = "after",
        settings: ConsumerSettings | None = None,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
    ) -> Consumer:
        """A consumer of these topics: iterate it. Arguments as for `tidewheel.Client`."""

        async def make() -> AsyncConsumer:
            return self._client.subscribe(
                *topics,
                group=group,
                filter=filter,
                subscription=subscription,
                retry=retry,
                start=start,
                commit=commit,
                settings=settings,
            )

        return Consumer(self._call(make()), self._call, key_deserializer, value_deserializer)


class Topic:
    """Sends to one topic."""

    def __init__(
        self,
        inner: AsyncTopic,
        call: Call,
        partitioner: Partitioner,
        key_serializer: Serializer | None,
        value_serializer: Serializer | None,
        partition_count: Callable[[str], Coroutine[Any, Any, int]],
    ) -> None:
        self.name = inner.name
        self._inner = inner
        self._call = call
        self._choose = partitioner if callable(partitioner) else None
        self._key_serializer = key_serializer or encode_plain
        self._value_serializer = value_serializer or encode_plain
        self._partition_count = partition_count

    def send(self, value: Any = None, **record: Any) -> Receipt:
        """Send one message and wait until the broker has it; arguments of ProducerRecord."""
        prepared = self._prepared(ProducerRecord(value, **record))

        async def send() -> Receipt:
            return await (await self._inner.send_record(prepared))

        receipt: Receipt = self._call(send())
        return receipt

    def cancel(self, receipt: Receipt) -> None:
        """Have a delayed message never delivered; as the asynchronous `receipt.cancel()`."""

        async def cancel() -> None:
            await receipt.cancel()

        self._call(cancel())

    @property
    def delayed(self) -> DelayedMessages:
        """Its delayed messages that are not due yet: list, count, cancel."""
        return DelayedMessages(self._inner.delayed, self._call)

    def enqueue(self, value: Any = None, **record: Any) -> Delivery:
        """Queue one message, waiting for room only; `flush`, then look at the delivery."""
        prepared = self._prepared(ProducerRecord(value, **record))
        delivery: Delivery = self._call(self._inner.send_record(prepared))
        return delivery

    def send_many(
        self, items: Iterable[Any], *, key: Callable[[Any], Any] | None = None
    ) -> SendSummary:
        """Send many messages, pipelined, and wait for all; see the asynchronous one."""
        total = SendSummary(0, 0, 0.0)
        records = (
            self._prepared(
                item
                if isinstance(item, ProducerRecord)
                else ProducerRecord(item, None if key is None else key(item))
            )
            for item in items
        )
        while chunk := list(islice(records, CHUNK)):
            summary: SendSummary = self._call(self._inner.send_many(chunk))
            total = SendSummary(
                total.sent + summary.sent,
                total.value_bytes + summary.value_bytes,
                total.elapsed_s + summary.elapsed_s,
            )
        return total

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything the client has sent is decided."""
        self._call(self._inner.flush(timeout_s))

    def _prepared(self, record: ProducerRecord) -> ProducerRecord:
        """Serialized and, by a partitioner function, placed: here, on the caller's thread."""
        try:
            key = self._key_serializer(record.key)
            value = self._value_serializer(record.value)
        except SerializationFailed:
            raise
        except Exception as broken:
            raise SerializationFailed(
                f'A serializer of "{self.name}" raised {broken!r}'
            ) from broken
        partition = record.partition
        if partition is None and self._choose is not None:
            count: int = self._call(self._partition_count(self.name))
            partition = self._choose(self.name, key, value, count)
            if not 0 <= partition < count:
                raise ConfigurationError(
                    f'The partitioner chose {partition} for "{self.name}", not one of {count}',
                    hint="Return a number from 0 to partition_count - 1",
                )
        return replace(record, key=key, value=value, partition=partition)
