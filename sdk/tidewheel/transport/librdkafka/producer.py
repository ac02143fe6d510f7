"""Producing through librdkafka, without a thread of our own.

librdkafka batches and sends in its threads. Delivery reports wait in its queue until somebody
polls, and run on the polling thread: we poll on the event loop only (`serve`), so that reports
need no hand-over between threads. A polling thread would take and release the interpreter lock
once per report, which beside a busy loop costs up to 5 ms each (ADR 0007).
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from confluent_kafka import KafkaException, Producer

from tidewheel.errors import QueueFull, TopicNotFound, from_kafka
from tidewheel.message import HeaderValue
from tidewheel.settings import ProducerSettings
from tidewheel.transport.librdkafka.connection import Connection, blocking, translated
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
        "queue.buffering.max.messages": settings.queue_messages_max,
        "queue.buffering.max.kbytes": max(1, settings.queue_bytes_max // 1024),
        "message.timeout.ms": max(settings.delivery_timeout_ms, int(settings.linger_ms) + 1),
        "message.max.bytes": settings.message_bytes_max,
        "topic.metadata.propagation.max.ms": TOPIC_PROPAGATION_MS,
        **settings.librdkafka,
    }


PURGE_TIMEOUT_S = 1.0
"""Reports of purged messages come at once; a bound in case they do not."""


class LibrdkafkaProducer:
    """A `ProducerTransport` over one librdkafka producer."""

    def __init__(self, connection: Connection, settings: ProducerSettings) -> None:
        self._connection = connection
        properties = {**connection.properties(), **producer_properties(settings)}
        try:
            self._producer = Producer(properties)
        except KafkaException as raised:
            raise translated(raised, "setting up the producer") from raised

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
        try:
            if headers:
                self._producer.produce(
                    topic, value, key, partition, on_report, None, timestamp_ms, headers
                )
            else:
                self._producer.produce(topic, value, key, partition, on_report, None, timestamp_ms)
        except BufferError:
            raise QueueFull(
                f'The send queue is full; "{topic}" takes messages too slowly'
            ) from None
        except KafkaException as raised:
            raise translated(raised, f'sending to "{topic}"') from raised

    def serve(self) -> int:
        """Run due delivery reports."""
        return self._producer.poll(0)

    def outstanding(self) -> int:
        """Records without a report."""
        return len(self._producer)

    async def partition_count(self, topic: str) -> int:
        """Ask a broker; creates the topic where brokers create topics on first use."""
        what = f'looking up topic "{topic}"'
        for _ in range(3):
            metadata = await blocking(
                what, self._producer.list_topics, topic, self._connection.request_timeout_s
            )
            found = metadata.topics.get(topic)
            if found is not None and found.error is None and found.partitions:
                return len(found.partitions)
            await asyncio.sleep(0.2)
        if found is not None and found.error is not None:
            raise from_kafka(found.error, what)
        raise TopicNotFound(f'Topic "{topic}" does not exist')

    async def close(self) -> None:
        """Drop what is outstanding and run its reports."""
        self._producer.purge()
        deadline = time.monotonic() + PURGE_TIMEOUT_S
        # librdkafka tells nobody but who asks.
        while len(self._producer) and time.monotonic() < deadline:
            if self.serve() == 0:
                await asyncio.sleep(0.001)
