"""kafka-python: produce with every codec, groups, seek by time, admin."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator

import pytest

with warnings.catch_warnings():
    # The client reads its schemas by a call that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import NewTopic

NameMaker = Callable[[str], str]
WAIT_MS_MAX = 30_000

# The client leaves the sockets of its wake-up pipes to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(autouse=True)
def _collected_here() -> Iterator[None]:
    """Its leftovers are collected while its own filters hold, not in somebody else's test."""
    yield
    gc.collect()


def create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics([NewTopic(topic, partitions, 1)])
    finally:
        admin.close()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_part_of_a_record_comes_back(
    bootstrap: str, name: NameMaker, codec: str | None
) -> None:
    topic = name("codec")
    create(bootstrap, topic)
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=20)
    sent = []
    for index in range(500):
        # This client refuses a record with neither key nor value.
        key = None if index % 7 == 0 and index % 11 else b"key-%d" % index
        value = None if index % 11 == 0 else b"value-%d" % index
        headers = [("index", b"%d" % index)]
        timestamp = 1_700_000_000_000 + index
        producer.send(topic, value, key, headers, partition=0, timestamp_ms=timestamp)
        sent.append((index, key, value, headers, timestamp))
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=WAIT_MS_MAX,
    )
    consumer.assign([TopicPartition(topic, 0)])
    got = []
    for message in consumer:
        headers = [(key, value) for key, value in message.headers]
        got.append((message.offset, message.key, message.value, headers, message.timestamp))
        if len(got) == len(sent):
            break
    consumer.close()
    assert got == sent


def test_group_commits_and_resumes(bootstrap: str, name: NameMaker) -> None:
    topic, group = name("group"), name("g")
    create(bootstrap, topic, 2)
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for index in range(100):
        producer.send(topic, b"%d" % index, partition=index % 2)
    producer.flush(30)
    producer.close()

    def read(count: int) -> list[bytes]:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=count,
            consumer_timeout_ms=WAIT_MS_MAX,
        )
        values = []
        for message in consumer:
            values.append(message.value)
            if len(values) == count:
                break
        consumer.commit()
        consumer.close()
        return values

    first, second = read(60), read(40)
    assert sorted(int(value) for value in first + second) == list(range(100))


def test_seek_by_time(bootstrap: str, name: NameMaker) -> None:
    topic = name("time")
    create(bootstrap, topic)
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for index in range(100):
        timestamp = 1_700_000_000_000 + index * 1000
        producer.send(topic, b"x", partition=0, timestamp_ms=timestamp)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=WAIT_MS_MAX)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    assert consumer.offsets_for_times({partition: 1_700_000_049_500})[partition].offset == 50
    assert consumer.end_offsets([partition]) == {partition: 100}
    consumer.close()
