"""Python's Kafka clients as programs that read, as those of the other languages in `projected`.

Usage: python_readers.py CLIENT BOOTSTRAP TOPIC GROUP
CLIENT is librdkafka, aiokafka or kafka-python. A TOPIC that begins with ^ is a pattern. Prints
`got PARTITION OFFSET VALUE` for each record, from the earliest on, until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from typing import Any


def show(partition: int | None, offset: int | None, value: bytes | str | None) -> None:
    text = value.decode() if isinstance(value, bytes) else value
    print("got", partition, offset, text, flush=True)


def show_batches(batches: dict[Any, Iterable[Any]]) -> None:
    for records in batches.values():
        for one in records:
            show(one.partition, one.offset, one.value)


def librdkafka(bootstrap: str, topic: str, group: str) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
            "check.crcs": True,
            "topic.metadata.refresh.interval.ms": 1000,
        }
    )
    consumer.subscribe([topic])
    while True:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None, message.error()
            show(message.partition(), message.offset(), message.value())


def aiokafka(bootstrap: str, topic: str, group: str) -> None:
    from aiokafka import AIOKafkaConsumer

    async def read() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=100,
            metadata_max_age_ms=1000,
        )
        consumer.subscribe(**_topics(topic))
        await consumer.start()
        while True:
            show_batches(await consumer.getmany(timeout_ms=1000))

    asyncio.run(read())


def kafka_python(bootstrap: str, topic: str, group: str) -> None:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=100,
        metadata_max_age_ms=1000,
    )
    consumer.subscribe(**_topics(topic))
    while True:
        show_batches(consumer.poll(1000))


def _topics(topic: str) -> dict[str, Any]:
    return {"pattern": topic} if topic.startswith("^") else {"topics": [topic]}


READERS = {"librdkafka": librdkafka, "aiokafka": aiokafka, "kafka-python": kafka_python}

if __name__ == "__main__":
    READERS[sys.argv[1]](*sys.argv[2:])
