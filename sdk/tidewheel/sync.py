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
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from tidewheel import client as asynchronous
from tidewheel.admin import Admin as AsyncAdmin
from tidewheel.admin import OffsetTarget, PartitionLag
from tidewheel.consumer import Commit, Start
from tidewheel.consumer import Consumer as AsyncConsumer
from tidewheel.errors import (
    ClientClosed,
    ConfigurationError,
    DeserializationFailed,
    SerializationFailed,
)
from tidewheel.message import Message, ProducerRecord, Receipt, TopicPartition
from tidewheel.partitioner import Partitioner
from tidewheel.producer import SendSummary
from tidewheel.producer import Topic as AsyncTopic
from tidewheel.sender import Delivery
from tidewheel.serialization import Deserializer, Serializer, encode_plain
from tidewheel.settings import ClientSettings, ConsumerSettings, ProducerSettings
from tidewheel.transport.port import ClusterInfo, ConfigEntry, GroupInfo, TopicInfo, Transport

T = TypeVar("T")

CHUNK: Final = 1_000
"""`send_many` hands records over in lists of this size."""
FETCH_MAX: Final = 2_000
WAIT_S: Final = 1.0

Call = Callable[[Coroutine[Any, Any, Any]], Any]


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
        start: Start = "earliest",
        commit: Commit = "after",
        settings: ConsumerSettings | None = None,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
    ) -> Consumer:
        """A consumer of these topics: iterate it. Arguments as for `tidewheel.Client`."""

        async def make() -> AsyncConsumer:
            return self._client.subscribe(
                *topics, group=group, start=start, commit=commit, settings=settings
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


class Consumer:
    """Reads topics: iterate it, or take `batches()`. A message counts as processed when the next
    one is asked for; see `tidewheel.Consumer` for what is committed when."""

    def __init__(
        self,
        inner: AsyncConsumer,
        call: Call,
        key_deserializer: Deserializer | None,
        value_deserializer: Deserializer | None,
    ) -> None:
        self._inner = inner
        self._call = call
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._buffer: deque[Message] = deque()
        self._in_hand: list[Message] = []
        self._processed: dict[TopicPartition, int] = {}

    def __enter__(self) -> Self:
        self._call(self._inner.open())
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        """The next message; waits for it. Raises DeserializationFailed (go on to skip)."""
        self._finish()
        while not self._buffer:
            self._take(FETCH_MAX, WAIT_S)
        message = self._buffer.popleft()
        self._in_hand = [message]
        return self._prepared(message)

    def batches(
        self, messages_max: int = 1000, wait_s: float | None = None
    ) -> Iterator[list[Message]]:
        """Lists of 1 to `messages_max` messages; [] when `wait_s` is given and nothing came."""
        while True:
            self._finish()
            while not self._buffer:
                self._take(messages_max, WAIT_S if wait_s is None else wait_s)
                if wait_s is not None:
                    break
            self._in_hand = [
                self._buffer.popleft() for _ in range(min(messages_max, len(self._buffer)))
            ]
            yield [self._prepared(message) for message in self._in_hand]

    def _finish(self) -> None:
        for message in self._in_hand:
            self._processed[message.topic_partition] = message.offset + 1
        self._in_hand = []

    def _take(self, messages_max: int, wait_s: float) -> None:
        processed, self._processed = self._processed, {}
        self._buffer.extend(self._call(self._inner.take(messages_max, wait_s, processed)))

    def _prepared(self, message: Message) -> Message:
        if self._key_deserializer is None and self._value_deserializer is None:
            return message
        try:
            key, value = message.key, message.value
            if self._key_deserializer is not None:
                key = self._key_deserializer(key)
            if self._value_deserializer is not None:
                value = self._value_deserializer(value)
        except Exception as broken:
            raise DeserializationFailed(
                f"Reading {message!r} raised {broken!r}", consumed=message
            ) from broken
        return Message(
            message.topic,
            message.partition,
            message.offset,
            message.timestamp_ms,
            key,
            value,
            message.headers,
        )

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions this consumer reads now."""
        return self._inner.assignment

    def commit(self, position: Message | Mapping[TopicPartition, int] | None = None) -> None:
        """Commit and wait: a message's place, next offsets, or all handed out so far."""
        if position is None:
            offsets = dict(self._processed)
            for message in self._in_hand:
                offsets[message.topic_partition] = message.offset + 1
            self._call(self._inner.commit(offsets))
        else:
            self._call(self._inner.commit(position))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from `offset` in an assigned partition."""
        self._moved(self._inner.seek(partition, offset))

    def seek_to_time(self, when: datetime | timedelta | int) -> None:
        """Go on from a time in all assigned partitions."""
        self._moved(self._inner.seek_to_time(when))

    def seek_to_beginning(self) -> None:
        """Go on from the first message kept, in all assigned partitions."""
        self._moved(self._inner.seek_to_beginning())

    def seek_to_end(self) -> None:
        """Go on from what is sent from now on, in all assigned partitions."""
        self._moved(self._inner.seek_to_end())

    def _moved(self, seeking: Coroutine[Any, Any, None]) -> None:
        # What was fetched ahead goes back first, so that partitions that stay lose nothing.
        ahead: dict[TopicPartition, int] = {}
        for message in self._buffer:
            ahead.setdefault(message.topic_partition, message.offset)
        self._buffer.clear()
        self._in_hand = []
        for partition, offset in ahead.items():
            self._call(self._inner.seek(partition, offset))
        self._call(seeking)

    def close(self) -> None:
        """Commit what is processed (commit="after"), leave the group."""
        if self._processed and self._inner.assignment:
            processed, self._processed = self._processed, {}
            self._call(self._inner.take(0, 0.0, processed))
        self._buffer.clear()
        self._call(self._inner.close())


class Admin:
    """As `tidewheel.Admin`, in blocking form."""

    def __init__(self, inner: AsyncAdmin, call: Call) -> None:
        self._inner = inner
        self._call = call

    def cluster(self) -> ClusterInfo:
        """Cluster id and brokers."""
        found: ClusterInfo = self._call(self._inner.cluster())
        return found

    def topics(self, *, internal: bool = False) -> list[TopicInfo]:
        """All topics by name."""
        found: list[TopicInfo] = self._call(self._inner.topics(internal=internal))
        return found

    def describe_topic(self, name: str) -> TopicInfo:
        """Raises TopicNotFound."""
        found: TopicInfo = self._call(self._inner.describe_topic(name))
        return found

    def topic_exists(self, name: str) -> bool:
        """Whether there is such a topic."""
        return bool(self._call(self._inner.topic_exists(name)))

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | int | bool] | None = None,
    ) -> None:
        """Raises TopicExists, InvalidRequest."""
        self._call(
            self._inner.create_topic(
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
            )
        )

    def delete_topic(self, name: str) -> None:
        """Raises TopicNotFound."""
        self._call(self._inner.delete_topic(name))

    def create_partitions(self, name: str, total_count: int) -> None:
        """Grow a topic."""
        self._call(self._inner.create_partitions(name, total_count))

    def configs(self, name: str) -> list[ConfigEntry]:
        """All properties of a topic."""
        found: list[ConfigEntry] = self._call(self._inner.configs(name))
        return found

    def alter_configs(self, name: str, changes: Mapping[str, str | int | bool | None]) -> None:
        """Set properties; None takes one back to its default."""
        self._call(self._inner.alter_configs(name, changes))

    def set_draining(self, broker_id: int, is_draining: bool = True) -> None:
        """Have the cell move all replicas off a broker, or stop doing so."""
        self._call(self._inner.set_draining(broker_id, is_draining))

    def offsets(
        self, topics: str | Sequence[str], at: OffsetTarget = "latest"
    ) -> dict[TopicPartition, int]:
        """Offsets of all partitions of topics."""
        found: dict[TopicPartition, int] = self._call(self._inner.offsets(topics, at))
        return found

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Forget all messages below the given offsets."""
        found: dict[TopicPartition, int] = self._call(self._inner.delete_records(before))
        return found

    def groups(self) -> list[str]:
        """Names of all consumer groups."""
        found: list[str] = self._call(self._inner.groups())
        return found

    def describe_group(self, group: str) -> GroupInfo:
        """Raises GroupNotFound."""
        found: GroupInfo = self._call(self._inner.describe_group(group))
        return found

    def delete_group(self, group: str) -> None:
        """Raises GroupNotEmpty, GroupNotFound."""
        self._call(self._inner.delete_group(group))

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """The committed offsets of a group."""
        found: dict[TopicPartition, int] = self._call(self._inner.group_offsets(group))
        return found

    def lag(
        self, group: str, topics: Iterable[str] = (), *, seconds: bool = True
    ) -> list[PartitionLag]:
        """How far a group is behind, by partition."""
        found: list[PartitionLag] = self._call(self._inner.lag(group, topics, seconds=seconds))
        return found

    def reset_offsets(self, group: str, topic: str, to: OffsetTarget) -> dict[TopicPartition, int]:
        """Move a group without running members."""
        found: dict[TopicPartition, int] = self._call(self._inner.reset_offsets(group, topic, to))
        return found
