"""Python's Kafka clients as programs that send, as those of the other languages in `delayed`.

Usage: python_producers.py CLIENT BOOTSTRAP TOPIC VALUE=DELAY ...
CLIENT is librdkafka, aiokafka or kafka-python. Sends records to partition 0, each with its delay as
a header; none for an empty one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence

Record = tuple[bytes, list[tuple[str, bytes]]]


def parsed(records: Sequence[str]) -> Iterator[Record]:
    for record in records:
        value, _, delay = record.partition("=")
        yield value.encode(), [("tw-delay", delay.encode())] if delay else []


def librdkafka(bootstrap: str, topic: str, *records: str) -> None:
    from confluent_kafka import Message, Producer

    failed: list[object] = []

    def answered(error: object, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for value, headers in parsed(records):
        producer.produce(topic, value, partition=0, headers=[*headers], on_delivery=answered)
    assert producer.flush(60) == 0
    assert not failed, failed


def aiokafka(bootstrap: str, topic: str, *records: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for value, headers in parsed(records):
                await producer.send_and_wait(topic, value, partition=0, headers=headers)

    asyncio.run(send())


def kafka_python(bootstrap: str, topic: str, *records: str) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for value, headers in parsed(records):
        producer.send(topic, value, headers=headers, partition=0).get(60)
    producer.close()


PRODUCERS = {"librdkafka": librdkafka, "aiokafka": aiokafka, "kafka-python": kafka_python}

if __name__ == "__main__":
    PRODUCERS[sys.argv[1]](*sys.argv[2:])
