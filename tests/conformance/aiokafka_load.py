"""aiokafka's load for `cell_load.ForeignLoad`, which says what is printed.

Usage: aiokafka_load.py BOOTSTRAP TOPIC MESSAGES_PER_S
"""

from __future__ import annotations

import asyncio
import struct
import sys
import time
from collections import defaultdict
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

PAYLOAD = struct.Struct(">II80x")
COMMIT_INTERVAL_S = 0.2


def event(*words: object) -> None:
    print(*words, flush=True)


async def write(bootstrap: str, topic: str, rate: int, done: asyncio.Event) -> None:
    """Number messages per partition, over as many partitions as the metadata shows."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        acks="all",
        linger_ms=2,
        metadata_max_age_ms=1000,
    )
    await producer.start()
    numbers: dict[int, int] = defaultdict(int)
    open_answers: set[asyncio.Task[None]] = set()

    async def answered(partition: int, number: int, answer: Any) -> None:
        try:
            event("acknowledged", partition, number, (await answer).offset)
        except KafkaError as error:
            event("failed", partition, number, repr(error))

    began, sent = time.monotonic(), 0
    while not done.is_set():
        partition = sent % len(await producer.partitions_for(topic))
        number, numbers[partition] = numbers[partition], numbers[partition] + 1
        event("sent", partition, number)
        answer = await producer.send(topic, PAYLOAD.pack(0, number), partition=partition)
        task = asyncio.create_task(answered(partition, number, answer))
        open_answers.add(task)
        task.add_done_callback(open_answers.discard)
        sent += 1
        await asyncio.sleep(max(0.0, began + sent / rate - time.monotonic()))
    await asyncio.gather(*open_answers)
    await producer.stop()
    event("written")


class Reader(ConsumerRebalanceListener):  # type: ignore[misc]
    """A member of the group."""

    def __init__(self, name: str, bootstrap: str, topic: str) -> None:
        self._name = name
        self._topic = topic
        self._uncommitted: dict[TopicPartition, int] = {}
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=f"{topic}-readers",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=1000,
            metadata_max_age_ms=1000,
        )

    async def run(self, done: asyncio.Event) -> None:
        self._consumer.subscribe([self._topic], listener=self)
        await self._consumer.start()
        commit_at = time.monotonic()
        while not done.is_set():
            for where, records in (await self._consumer.getmany(timeout_ms=50)).items():
                for record in records:
                    message = PAYLOAD.unpack(record.value)
                    event("read", self._name, where.partition, record.offset, *message)
                    self._uncommitted[where] = record.offset + 1
            if time.monotonic() >= commit_at:
                await self._commit()
                commit_at = time.monotonic() + COMMIT_INTERVAL_S
        await self._commit()
        await self._consumer.stop()

    async def _commit(self) -> None:
        wanted = dict(self._uncommitted)
        if not wanted:
            return
        try:
            await self._consumer.commit(wanted)
        except (KafkaError, CommitFailedError, IllegalStateError) as error:
            if not (isinstance(error, CommitFailedError | IllegalStateError) or error.retriable):
                raise
            # Not acknowledged; what is read next is committed with the next attempt.
            event("retried", self._name, repr(error))
            return
        for where, offset in wanted.items():
            event("committed", self._name, where.partition, offset)
            if self._uncommitted.get(where) == offset:
                del self._uncommitted[where]

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        await self._commit()
        self._uncommitted.clear()

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        for where in assigned:
            event("assigned", self._name, where.partition)


async def main(bootstrap: str, topic: str, rate: int) -> None:
    stop_writing, stop_reading = asyncio.Event(), asyncio.Event()
    work = [
        asyncio.create_task(write(bootstrap, topic, rate, stop_writing)),
        *(
            asyncio.create_task(Reader(name, bootstrap, topic).run(stop_reading))
            for name in ("reader-0", "reader-1")
        ),
    ]
    # Two lines: stop writing, stop reading.
    for stop in (stop_writing, stop_reading):
        await asyncio.to_thread(sys.stdin.readline)
        stop.set()
    await asyncio.gather(*work)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
