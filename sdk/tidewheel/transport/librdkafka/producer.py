"""Producing through librdkafka, with one thread that waits for delivery reports.

librdkafka batches and sends in its own threads and queues the reports; somebody has to wait for
them. Our thread does only that, and wakes the event loop once for all that came together. No code
of the application runs on it (ADR 0007).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException, Producer

from tidewheel.errors import ClientClosed, QueueFull, TopicNotFound, from_kafka
from tidewheel.message import HeaderValue
from tidewheel.settings import ProducerSettings
from tidewheel.transport.librdkafka.attempts import METADATA_ATTEMPT_S, until_answered
from tidewheel.transport.librdkafka.connection import (
    LOOK_UP_PAUSE_S,
    LOOK_UPS_MAX,
    Connection,
    blocking,
    faults,
    translated,
)
from tidewheel.transport.port import OnReport

TOPIC_PROPAGATION_MS = 5_000
"""A topic that the brokers still do not know after this time does not exist (librdkafka: 30 s)."""


def producer_properties(settings: ProducerSettings) -> dict[str, Any]:
    """librdkafka properties of a producer."""
    return {
        "acks": settings.acks,
        "enable.idempotence": settings.is_idempotent,
        "linger.ms": settings.linger_ms,
        "batch.size": min(settings.batch_bytes, settings.message_bytes_max),
        "batch.num.messages": 100_000,
        "compression.type": settings.compression,
        "partitioner": "random" if settings.partitioner == "random" else "murmur2_random",
        "queue.buffering.max.messages": settings.queue_messages_max + QUEUE_SLACK_MESSAGES,
        "queue.buffering.max.kbytes": max(1, settings.queue_bytes_max // 1024),
        "message.timeout.ms": max(settings.delivery_timeout_ms, int(settings.linger_ms) + 1),
        "socket.timeout.ms": settings.request_time_ms,
        # Told to the broker: it then says that the replicas are late, and the connection stays.
        "request.timeout.ms": max(1, settings.request_time_ms * 4 // 5),
        "message.max.bytes": settings.message_bytes_max,
        "topic.metadata.propagation.max.ms": TOPIC_PROPAGATION_MS,
    }


QUEUE_SLACK_MESSAGES = 10_000
"""The sender counts what is outstanding. librdkafka counts a message until its report has
returned, so that its limit, were it the same, would still be reached for a moment."""

POLL_S = 0.5
"""How long the thread waits in one go; bounds how long it outlives its producer."""

PURGE_TIMEOUT_S = 1.0
"""Reports of purged messages come at once; a bound in case they do not."""


class LibrdkafkaProducer:
    """A `ProducerTransport` over one librdkafka producer."""

    def __init__(
        self, connection: Connection, settings: ProducerSettings, on_due: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._on_due = on_due
        self._loop = asyncio.get_running_loop()
        self._closed = False
        properties = {
            **connection.properties(producer_properties(settings)),
            **settings.librdkafka,
        }
        with faults("setting up the producer"):
            producer = Producer(properties)
        # Nobody else holds it: its connections end with the last reference, and this object is in
        # a cycle with its owner, which may wait long for the garbage collector.
        self._producer: Producer | None = producer
        threading.Thread(
            target=self._wait, args=(producer,), name="tidewheel-producer", daemon=True
        ).start()

    def _wait(self, producer: Producer) -> None:
        """On the thread: let librdkafka call the reports that are there, then wake the loop. The
        last to let go of a closed producer, which takes its time to end its connections."""
        while not self._closed:
            try:
                has_called = producer.poll(POLL_S)
            except KafkaException:
                # A fatal error is told here, once. What fails because of it has its reports.
                has_called = 1
            if has_called:
                try:
                    self._loop.call_soon_threadsafe(self._on_due)
                except RuntimeError:
                    return  # The loop is gone: the application ended without closing its client.

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        on_report: OnReport,
        timestamp_ms: int,
        headers: list[tuple[str, HeaderValue]] | None,
    ) -> None:
        """Queue one record (see the port)."""
        producer = self._producer
        assert producer is not None, "nothing is sent once it is closed"
        try:
            if headers:
                producer.produce(
                    topic, value, key, partition, on_report, None, timestamp_ms, headers
                )
            else:
                producer.produce(topic, value, key, partition, on_report, None, timestamp_ms)
        except BufferError:
            raise QueueFull(f'The send queue of "{topic}" is full') from None
        except KafkaException as raised:
            raise translated(raised, f'sending to "{topic}"') from raised

    async def partition_count(self, topic: str) -> int:
        """Ask a broker; creates the topic where brokers create topics on first use."""
        what = f'looking up topic "{topic}"'

        async def ask(timeout_s: float, _is_unsure: bool) -> Any:
            if self._producer is None:
                raise ClientClosed("The client is closed")
            return await blocking(what, self._producer.list_topics, topic, timeout_s)

        for _ in range(LOOK_UPS_MAX):
            metadata = await until_answered(
                ask, self._connection.request_timeout_s, first_attempt_s=METADATA_ATTEMPT_S
            )
            found = metadata.topics.get(topic)
            if found is not None and found.error is None and found.partitions:
                return len(found.partitions)
            await asyncio.sleep(LOOK_UP_PAUSE_S)
        if found is not None and found.error is not None:
            raise from_kafka(found.error, what)
        raise TopicNotFound(f'Topic "{topic}" does not exist')

    async def close(self) -> None:
        """Drop what is outstanding, run its reports, and let the connections go."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        producer.purge()
        deadline = time.monotonic() + PURGE_TIMEOUT_S
        try:
            # The thread calls the reports of what was purged; librdkafka tells nobody when it has.
            while len(producer) and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        finally:
            self._closed = True
