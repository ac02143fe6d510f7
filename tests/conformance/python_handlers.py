"""Python's Kafka clients as programs that nack, as those of the other languages in `retried`.

Usage: python_handlers.py CLIENT BOOTSTRAP TOPIC GROUP COUNT MODE
CLIENT is librdkafka, aiokafka or kafka-python. Reads COUNT messages as a group that commits by
itself, and what else comes within 1.5 s. With MODE `handle` it says of some that they have failed,
as test_retried_clients.py says.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from typing import Any

Headers = list[tuple[str, bytes]]
LINGER_S = 1.5
# Two of them send no record that has neither a key nor a value.
EMPTY = b""


class Handler:
    def __init__(self, count: str, mode: str) -> None:
        self._left = int(count)
        self._handles = mode == "handle"
        self._until_s = float("inf")

    def is_done(self) -> bool:
        return time.monotonic() >= self._until_s

    def nack(self, partition: int, offset: int, value: bytes, headers: Iterable[Any]) -> Headers:
        """The headers of the record that says what became of a message; none when it is done."""
        self._left -= 1
        if self._left == 0:
            self._until_s = time.monotonic() + LINGER_S
        found = {str(name): bytes(content) for name, content in headers}
        attempt = found.get("tw-attempt", b"1").decode()
        reason = found.get("tw-reason", b"-").decode()
        print("got", partition, offset, attempt, reason, value.decode(), flush=True)
        kind = value.partition(b":")[0]
        name = ""
        if kind == b"fail" or (kind == b"once" and attempt == "1"):
            name = "tw-nack"
        elif kind == b"dead":
            name = "tw-dead-letter"
        if not name or not self._handles:
            return []
        position = f"{partition}:{offset}".encode()
        return [(name, position), ("tw-reason", f"failed-{attempt}".encode())]


def librdkafka(bootstrap: str, topic: str, group: str, handler: Handler) -> None:
    from confluent_kafka import Consumer, Message, Producer

    failed: list[object] = []

    def answered(error: object, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    settings = {"group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.subscribe([topic])
    while not handler.is_done():
        message: Any = consumer.poll(0.2)
        if message is None:
            continue
        assert message.error() is None, message.error()
        partition = message.partition()
        found = message.headers() or []
        headers = handler.nack(partition, message.offset(), message.value(), found)
        if headers:
            nack: list[Any] = [*headers]
            producer.produce(topic, partition=partition | 1, headers=nack, on_delivery=answered)
            assert producer.flush(60) == 0
            assert not failed, failed
    consumer.close()


def aiokafka(bootstrap: str, topic: str, group: str, handler: Handler) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def read() -> None:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
        )
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer, consumer:
            while not handler.is_done():
                batches = await consumer.getmany(timeout_ms=200)
                for one in [one for records in batches.values() for one in records]:
                    headers = handler.nack(one.partition, one.offset, one.value, one.headers)
                    if headers:
                        retry = one.partition | 1
                        await producer.send_and_wait(topic, EMPTY, partition=retry, headers=headers)

    asyncio.run(read())


def kafka_python(bootstrap: str, topic: str, group: str, handler: Handler) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap)
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
    )
    while not handler.is_done():
        for records in consumer.poll(200).values():
            for one in records:
                headers = handler.nack(one.partition, one.offset, one.value, one.headers)
                if headers:
                    retry = one.partition | 1
                    producer.send(topic, EMPTY, headers=headers, partition=retry).get(60)
    consumer.close()
    producer.close()


HANDLERS = {"librdkafka": librdkafka, "aiokafka": aiokafka, "kafka-python": kafka_python}

if __name__ == "__main__":
    _, client, bootstrap, topic, group, count, mode = sys.argv
    HANDLERS[client](bootstrap, topic, group, Handler(count, mode))
