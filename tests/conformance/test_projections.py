"""Clients of all kinds read projected partitions: all records, true positions, no stall.

A broker with the projections of tests/projections.py. Each client is a program that prints, a line
a record, `got PARTITION OFFSET VALUE` for what it reads as a group that commits by itself, and
`again PARTITION OFFSET VALUE` for what it reads of partition 0 after a seek.

In the source, batches of which nothing is shown stand at the start, in the middle and at the end;
there are more of them than a fetch scans at once, and the codecs take turns.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.broker_process import BrokerProcess
from tests.conformance import programs
from tests.conformance.conftest import SETTINGS
from tests.projections import DOUBLED, EVEN, KEEP, KEPT

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka import TopicPartition as PythonPartition

PARTITIONS = 2
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# kafkajs has no zstd without a package of its own.
KAFKAJS_CODECS = CODECS[:4]
READ_SECONDS_MAX = 60
# Beyond what is scanned at once, so that fetches end with nothing but a control batch.
GAP_RECORDS = 2_000
GAP_VALUE_BYTES = 400

# Prints what it reads; arguments as in the other languages' programs.
Lines = list[tuple[str, int, int, str]]
Client = Callable[[str, str, str, int, int, int, str], Lines]
UNCOMMITTED, COMMITTED = "read_uncommitted", "read_committed"


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("projecting")
    with BrokerProcess(folder, set=SETTINGS, module="tests.projections") as broker:
        yield broker.bootstrap


class Source:
    """A topic with records in all codecs and gaps, and what each projection shows of it."""

    def __init__(self, bootstrap: str, name: str, codecs: tuple[str, ...]) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.records: dict[int, list[tuple[int, bytes, str]]] = {}
        admin = AdminClient({"bootstrap.servers": bootstrap})
        topics = [
            NewTopic(name, PARTITIONS, 1),
            NewTopic(EVEN + name, PARTITIONS, 1),
            NewTopic(KEPT + name, PARTITIONS, 1),
            NewTopic(DOUBLED + name, 2 * PARTITIONS, 1),
        ]
        for future in admin.create_topics(topics).values():
            future.result()
        for index in range(PARTITIONS):
            self.records[index] = []
            self._gap(index, codecs[index % len(codecs)])
            for number, codec in enumerate(codecs):
                # In batches that are shown in part, and in one of which all is shown.
                keys = [KEEP if one % 3 == number % 3 else b"drop" for one in range(50)]
                self._send(index, codec, keys)
                self._send(index, codec, [KEEP] * 5)
                self._gap(index, codec)

    def _gap(self, index: int, codec: str) -> None:
        self._send(index, codec, [b"drop"] * GAP_RECORDS, "x" * GAP_VALUE_BYTES)

    def _send(self, index: int, codec: str, keys: list[bytes], filling: str = "") -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "linger.ms": 20,
                "enable.idempotence": True,
            }
        )
        records = self.records[index]
        for key in keys:
            value = f"{index}-{len(records)}"
            records.append((len(records), key, value))
            producer.produce(self.name, value + filling, key, partition=index)
        assert producer.flush(30) == 0

    def shown(self, prefix: str) -> dict[int, list[tuple[int, str]]]:
        """Partition of the projection → (offset, value)."""
        found: dict[int, list[tuple[int, str]]] = {}
        for index, records in self.records.items():
            virtual = 2 * index if prefix == DOUBLED else index
            found[virtual] = [
                (offset, value)
                for offset, key, value in records
                if prefix == DOUBLED or (offset % 2 == 0 if prefix == EVEN else key == KEEP)
            ]
        return found

    def ends(self, prefix: str) -> dict[int, int]:
        step = 2 if prefix == DOUBLED else 1
        return {step * index: len(records) for index, records in self.records.items()}


@pytest.fixture(scope="module")
def source(bootstrap: str) -> Source:
    return Source(bootstrap, "flights", CODECS)


@pytest.fixture(scope="module")
def source_without_zstd(bootstrap: str) -> Source:
    return Source(bootstrap, "ships", KAFKAJS_CODECS)


# The clients


def program(command: Callable[[], list[str]]) -> Client:
    def run(
        bootstrap: str,
        topic: str,
        group: str,
        count: int,
        offset: int,
        seek_count: int,
        isolation: str,
    ) -> Lines:
        arguments = [bootstrap, topic, group, str(count), str(offset), str(seek_count)]
        result = subprocess.run(
            [*command(), *arguments, isolation],
            capture_output=True,
            text=True,
            timeout=READ_SECONDS_MAX,
        )
        assert result.returncode == 0, f"{result.stdout[-2000:]}\n{result.stderr[-3000:]}"
        lines: Lines = []
        for line in result.stdout.splitlines():
            word, partition, found_offset, value = line.split(" ", 3)
            lines.append((word, int(partition), int(found_offset), value))
        return lines

    return run


def librdkafka(
    bootstrap: str,
    topic: str,
    group: str,
    count: int,
    offset: int,
    seek_count: int,
    isolation: str,
) -> Lines:
    config = {
        "bootstrap.servers": bootstrap,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 100,
        "fetch.wait.max.ms": 200,
        "check.crcs": True,
        "isolation.level": isolation,
    }
    lines: Lines = []
    deadline_s = time.monotonic() + READ_SECONDS_MAX

    def read(consumer: Consumer, word: str, wanted: int, linger_s: float) -> None:
        until_s = None
        while time.monotonic() < deadline_s:
            if wanted <= 0 and until_s is None:
                until_s = time.monotonic() + linger_s
            if until_s is not None and time.monotonic() >= until_s:
                return
            message = consumer.poll(0.1)
            if message is not None:
                assert message.error() is None, message.error()
                value = (message.value() or b"").decode()
                lines.append((word, message.partition() or 0, message.offset() or 0, value))
                wanted -= 1
        raise AssertionError(f"{wanted} more records of {topic} expected")

    consumer = Consumer({**config, "group.id": group})
    consumer.subscribe([topic])
    read(consumer, "got", count, 1.5)
    consumer.close()
    consumer = Consumer({**config, "group.id": f"{group}-seek"})
    consumer.assign([TopicPartition(topic, 0, offset)])
    read(consumer, "again", seek_count, 0)
    consumer.close()
    return lines


def aiokafka(
    bootstrap: str,
    topic: str,
    group: str,
    count: int,
    offset: int,
    seek_count: int,
    isolation: str,
) -> Lines:
    lines: Lines = []

    def note(word: str, batches: object) -> int:
        assert isinstance(batches, dict)
        found = [one for records in batches.values() for one in records]
        lines.extend((word, one.partition, one.offset, one.value.decode()) for one in found)
        return len(found)

    async def read() -> None:
        options = {
            "bootstrap_servers": bootstrap,
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 100,
            "fetch_max_wait_ms": 200,
            "isolation_level": isolation,
        }
        consumer = AIOKafkaConsumer(topic, group_id=group, **options)
        await consumer.start()
        wanted = count
        while wanted > 0:
            wanted -= note("got", await consumer.getmany(timeout_ms=200))
        for _ in range(15):
            note("got", await consumer.getmany(timeout_ms=100))
        await consumer.stop()
        consumer = AIOKafkaConsumer(**options)
        await consumer.start()
        partition = AioPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, offset)
        wanted = seek_count
        while wanted > 0:
            wanted -= note("again", await consumer.getmany(timeout_ms=200))
        await consumer.stop()

    asyncio.run(asyncio.wait_for(read(), READ_SECONDS_MAX))
    return lines


def kafka_python(
    bootstrap: str,
    topic: str,
    group: str,
    count: int,
    offset: int,
    seek_count: int,
    isolation: str,
) -> Lines:
    lines: Lines = []
    deadline_s = time.monotonic() + READ_SECONDS_MAX
    options = {
        "bootstrap_servers": bootstrap,
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 100,
        "fetch_max_wait_ms": 200,
        "isolation_level": isolation,
    }

    def poll(consumer: KafkaConsumer, word: str) -> int:
        assert time.monotonic() < deadline_s, f"more records of {topic} expected"
        found = [one for records in consumer.poll(100).values() for one in records]
        lines.extend((word, one.partition, one.offset, one.value.decode()) for one in found)
        return len(found)

    # One that is left open goes on connecting, and fails tests that have nothing to do with it.
    with closing(KafkaConsumer(topic, group_id=group, **options)) as consumer:
        wanted = count
        while wanted > 0:
            wanted -= poll(consumer, "got")
        for _ in range(15):
            poll(consumer, "got")
    with closing(KafkaConsumer(**options)) as consumer:
        partition = PythonPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, offset)
        wanted = seek_count
        while wanted > 0:
            wanted -= poll(consumer, "again")
    return lines


CLIENTS: dict[str, Client] = {
    "librdkafka": librdkafka,
    "java": program(lambda: programs.java_command("Projected")),
    "franz-go": program(lambda: [*programs.go_command(), "projected"]),
    "sarama": program(programs.sarama_command),
    "kafkajs": program(lambda: programs.node_command("projected.js")),
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
}
# They commit where they are; the others commit behind what they have delivered.
COMMIT_POSITIONS = {"librdkafka", "java", "aiokafka", "kafka-python"}


def strip(value: str) -> str:
    return value.rstrip("x")


@pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("prefix", [EVEN, KEPT, DOUBLED])
@pytest.mark.parametrize("client", CLIENTS)
def test_all_records_true_positions_no_stall(
    request: pytest.FixtureRequest, bootstrap: str, client: str, prefix: str
) -> None:
    source: Source = request.getfixturevalue(
        "source_without_zstd" if client == "kafkajs" else "source"
    )
    shown, ends = source.shown(prefix), source.ends(prefix)
    topic, group = prefix + source.name, f"{client}-{prefix}"
    count = sum(map(len, shown.values()))
    # Into the middle of a batch; what comes first is behind a gap or not.
    offset = source.records[0][GAP_RECORDS + 20][0]
    ahead = [one for one in shown[0] if one[0] >= offset][:40]
    lines = CLIENTS[client](bootstrap, topic, group, count, offset, len(ahead), UNCOMMITTED)
    for index, expected in shown.items():
        got = [(line[2], strip(line[3])) for line in lines if line[0] == "got" and line[1] == index]
        assert got == expected
    again = [(line[2], strip(line[3])) for line in lines if line[0] == "again"]
    assert again[: len(ahead)] == ahead
    committed = committed_offsets(bootstrap, group, topic)
    for index, expected in shown.items():
        if client in COMMIT_POSITIONS:
            assert committed[index] == ends[index]
        else:
            assert expected[-1][0] + 1 <= committed[index] <= ends[index]


def committed_offsets(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = [ConsumerGroupTopicPartitions(group)]
    found = admin.list_consumer_group_offsets(asked)[group].result()
    return {one.partition: one.offset for one in found.topic_partitions if one.topic == topic}
