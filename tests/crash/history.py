"""What clients were told, to be held against what the log says afterwards.

A `Writer` is one idempotent librdkafka producer that numbers its messages per partition and notes
which numbers were acknowledged, at which offset. After any number of broker deaths the log must
hold, per writer and partition:

- every acknowledged number (nothing acknowledged is lost), at the offset it was acknowledged with,
- each number at most once (no duplicates), in ascending order (no reordering),
- no number that was never sent.
"""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

_PAYLOAD = struct.Struct(">II")
PAYLOAD_FILLER_BYTES_MAX = 400


@dataclass(slots=True)
class Acknowledged:
    """Offsets by number, for one partition of one writer."""

    offset_by_number: dict[int, int] = field(default_factory=dict)


class Writer:
    """One idempotent producer and what it was told."""

    def __init__(self, writer_id: int, bootstrap: str, topic: str, partitions: int) -> None:
        self.writer_id = writer_id
        self._topic = topic
        self._partitions = partitions
        self._next_number = [0] * partitions
        self._random = random.Random(writer_id)
        self.acknowledged: dict[int, Acknowledged] = defaultdict(Acknowledged)
        self.failures: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "socket.timeout.ms": 5_000,
                "queue.buffering.max.messages": 20_000,
            }
        )

    def send(self, count: int) -> None:
        """Send `count` messages to partitions chosen at random, without waiting for answers."""
        for _ in range(count):
            partition = self._random.randrange(self._partitions)
            number = self._next_number[partition]
            filler = bytes(self._random.randrange(PAYLOAD_FILLER_BYTES_MAX))
            value = _PAYLOAD.pack(self.writer_id, number) + filler
            try:
                self._producer.produce(
                    self._topic, value, partition=partition, on_delivery=self._delivered
                )
            except BufferError:
                self._producer.poll(0.05)
                continue
            self._next_number[partition] += 1
        self._producer.poll(0)

    def poll(self, seconds: float) -> None:
        self._producer.poll(seconds)

    def finish(self, seconds_max: float) -> None:
        """Wait until everything sent is acknowledged."""
        left = self._producer.flush(seconds_max)
        assert left == 0, f"writer {self.writer_id}: {left} messages never answered"
        assert not self.failures, f"writer {self.writer_id}: {self.failures[:3]}"

    def sent(self, partition: int) -> int:
        return self._next_number[partition]

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        partition, offset = message.partition(), message.offset()
        assert value is not None
        _, number = _PAYLOAD.unpack_from(value)
        if error is not None:
            self.failures.append(f"{number} to partition {partition}: {error}")
            return
        assert partition is not None
        assert offset is not None
        self.acknowledged[partition].offset_by_number[number] = offset


def read_log(bootstrap: str, topic: str, partition: int) -> list[tuple[int, int, int]]:
    """(offset, writer id, number) of every record of the partition, in the log's order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "history-reader",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.queue.backoff.ms": 1,
        }
    )
    try:
        where = TopicPartition(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(where, timeout=30)
        consumer.assign([where])
        records: list[tuple[int, int, int]] = []
        while not records or records[-1][0] + 1 < end:
            if end == 0:
                break
            batch = consumer.consume(10_000, timeout=10)
            assert batch, f"{topic}-{partition}: stalled at {records[-1:]} of {end}"
            for message in batch:
                error = message.error()
                if error is not None:
                    raise KafkaException(error)
                value, offset = message.value(), message.offset()
                assert value is not None
                assert offset is not None
                records.append((offset, *_PAYLOAD.unpack_from(value)))
        return records
    finally:
        consumer.close()


def check(writers: list[Writer], bootstrap: str, topic: str, partitions: int) -> int:
    """Hold all histories against the log; the number of records checked."""
    checked = 0
    for partition in range(partitions):
        records = read_log(bootstrap, topic, partition)
        found: dict[int, dict[int, int]] = defaultdict(dict)
        last_number: dict[int, int] = {}
        for offset, writer_id, number in records:
            assert number > last_number.get(writer_id, -1), (
                f"{topic}-{partition} offset {offset}: writer {writer_id}'s number {number} "
                f"follows its {last_number[writer_id]}: repeated or out of order"
            )
            last_number[writer_id] = number
            found[writer_id][number] = offset
        for writer in writers:
            here = found[writer.writer_id]
            for number, offset in writer.acknowledged[partition].offset_by_number.items():
                assert here.get(number) == offset, (
                    f"{topic}-{partition}: writer {writer.writer_id}'s number {number} was "
                    f"acknowledged at offset {offset}, the log has it at {here.get(number)}"
                )
            assert len(here) <= writer.sent(partition)
        checked += len(records)
    return checked
