"""kafka-python's load for `cell_load.ForeignLoad`, which says what is printed.

Usage: kafka_python_load.py BOOTSTRAP TOPIC MESSAGES_PER_S
"""

from __future__ import annotations

import functools
import struct
import sys
import threading
import time
from collections import defaultdict
from typing import Any

from kafka import AsyncConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import CommitFailedError, KafkaError
from kafka.structs import OffsetAndMetadata

PAYLOAD = struct.Struct(">II80x")
COMMIT_INTERVAL_S = 0.2
print_lock = threading.Lock()


def event(*words: object) -> None:
    with print_lock:
        print(*words, flush=True)


def write(bootstrap: str, topic: str, rate: int, done: threading.Event) -> None:
    """Number messages per partition, over as many partitions as the metadata shows."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        acks="all",
        linger_ms=2,
        metadata_max_age_ms=1000,
    )
    numbers: dict[int, int] = defaultdict(int)

    def acknowledged(partition: int, number: int, record: Any) -> None:
        event("acknowledged", partition, number, record.offset)

    def failed(partition: int, number: int, error: Any) -> None:
        event("failed", partition, number, repr(error))

    began, sent = time.monotonic(), 0
    while not done.is_set():
        partition = sent % len(producer.partitions_for(topic))
        number, numbers[partition] = numbers[partition], numbers[partition] + 1
        event("sent", partition, number)
        future = producer.send(topic, PAYLOAD.pack(0, number), partition=partition)
        future.add_callback(functools.partial(acknowledged, partition, number))
        future.add_errback(functools.partial(failed, partition, number))
        sent += 1
        time.sleep(max(0.0, began + sent / rate - time.monotonic()))
    producer.flush(60)
    producer.close()
    event("written")


class Reader(AsyncConsumerRebalanceListener):  # type: ignore[misc]
    """A member of the group."""

    def __init__(self, name: str, bootstrap: str, topic: str) -> None:
        self._name = name
        self._topic = topic
        self._uncommitted: dict[TopicPartition, int] = {}
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=f"{topic}-readers",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=1000,
            metadata_max_age_ms=1000,
        )

    def run(self, done: threading.Event) -> None:
        self._consumer.subscribe([self._topic], listener=self)
        commit_at = time.monotonic()
        while not done.is_set():
            for where, records in self._consumer.poll(timeout_ms=50).items():
                for record in records:
                    message = PAYLOAD.unpack(record.value)
                    event("read", self._name, where.partition, record.offset, *message)
                    self._uncommitted[where] = record.offset + 1
            if time.monotonic() >= commit_at:
                self._commit()
                commit_at = time.monotonic() + COMMIT_INTERVAL_S
        self._commit()
        self._consumer.close()

    def _commit(self) -> None:
        wanted = dict(self._uncommitted)
        if not wanted:
            return
        try:
            self._consumer.commit(_as_offsets(wanted))
        except KafkaError as error:
            self._not_committed(error)
        else:
            self._committed(wanted)

    def _committed(self, wanted: dict[TopicPartition, int]) -> None:
        for where, offset in wanted.items():
            event("committed", self._name, where.partition, offset)
            if self._uncommitted.get(where) == offset:
                del self._uncommitted[where]

    def _not_committed(self, error: KafkaError) -> None:
        """Not acknowledged; what is read next is committed with the next attempt."""
        if not (isinstance(error, CommitFailedError) or error.retriable):
            raise error
        event("retried", self._name, repr(error))

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        wanted = dict(self._uncommitted)
        if wanted:
            # In the client's own thread, which may not wait for itself: not with `commit`.
            try:
                await self._consumer.commit_async(_as_offsets(wanted))
            except KafkaError as error:
                self._not_committed(error)
            else:
                self._committed(wanted)
        self._uncommitted.clear()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        for where in assigned:
            event("assigned", self._name, where.partition)


def _as_offsets(offsets: dict[TopicPartition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {where: OffsetAndMetadata(offset, "", -1) for where, offset in offsets.items()}


def guarded(who: str, work: Any) -> None:
    try:
        work()
    except Exception as error:
        event("error", who, repr(error))
        raise


def main(bootstrap: str, topic: str, rate: int) -> None:
    stop_writing, stop_reading = threading.Event(), threading.Event()
    work = {
        "writer": functools.partial(write, bootstrap, topic, rate, stop_writing),
        **{
            name: functools.partial(Reader(name, bootstrap, topic).run, stop_reading)
            for name in ("reader-0", "reader-1")
        },
    }
    threads = [threading.Thread(target=guarded, args=one) for one in work.items()]
    for thread in threads:
        thread.start()
    # Two lines: stop writing, stop reading.
    for stop in (stop_writing, stop_reading):
        sys.stdin.readline()
        stop.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
