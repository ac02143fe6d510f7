"""librdkafka, through confluent-kafka."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic

WAIT_SECONDS_MAX = 30.0
NameMaker = Callable[[str], str]


def create(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(30)
    return admin


def consumer_of(bootstrap: str, group: str, **config: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 300,
            "fetch.queue.backoff.ms": 1,
            **{key.replace("_", "."): value for key, value in config.items()},
        }
    )


def read(consumer: Consumer, count: int) -> list[Message]:
    got: list[Message] = []
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while len(got) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(got), timeout=0.2):
            assert message.error() is None, message.error()
            got.append(message)
    assert len(got) == count
    return got


def read_all(bootstrap: str, topic: str, count: int, partitions: int = 1) -> list[Message]:
    consumer = consumer_of(bootstrap, f"reader-of-{topic}")
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        return read(consumer, count)
    finally:
        consumer.close()


def send_numbered(bootstrap: str, topic: str, partition: int, count: int, **config: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **config})
    failures: list[KafkaError] = []
    for index in range(count):
        producer.produce(
            topic,
            b"%d" % index,
            partition=partition,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(WAIT_SECONDS_MAX) == 0
    assert not failures, failures[:3]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_part_of_a_record_comes_back(bootstrap: str, name: NameMaker, codec: str) -> None:
    topic = name("codec")
    create(bootstrap, topic)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20}
    )
    sent = []
    for index in range(1000):
        key = None if index % 7 == 0 else b"key-%d" % index
        value = None if index % 11 == 0 else b"value-%d-" % index + b"x" * (index % 300)
        headers: list[tuple[str, bytes | None]] = [("index", b"%d" % index), ("nothing", None)]
        timestamp = 1_700_000_000_000 + index
        sent.append((key, value, headers, timestamp))
        producer.produce(topic, value, key, partition=0, headers=list(headers), timestamp=timestamp)
    assert producer.flush(WAIT_SECONDS_MAX) == 0
    got = [
        (m.key(), m.value(), m.headers(), m.timestamp()[1])
        for m in read_all(bootstrap, topic, len(sent))
    ]
    assert got == sent


def test_a_client_has_nothing_to_log(bootstrap: str) -> None:
    """Not that it has asked what metrics are wanted, either."""
    lines: list[logging.LogRecord] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record)

    logger = logging.Logger("librdkafka")
    logger.addHandler(Kept())
    producer = Producer({"bootstrap.servers": bootstrap, "debug": "telemetry"}, logger=logger)
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not any("Handled GetTelemetrySubscriptions" in line.getMessage() for line in lines):
        assert time.monotonic() < deadline
        producer.poll(0.1)
    assert [line.getMessage() for line in lines if line.levelno > logging.DEBUG] == []


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(bootstrap: str, name: NameMaker, acks: str) -> None:
    topic = name("acks")
    create(bootstrap, topic)
    send_numbered(bootstrap, topic, 0, 500, acks=acks)
    assert [m.value() for m in read_all(bootstrap, topic, 500)] == [b"%d" % i for i in range(500)]


def test_idempotent_producer_keeps_order(bootstrap: str, name: NameMaker) -> None:
    topic = name("idempotent")
    create(bootstrap, topic)
    config = {"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 10}
    send_numbered(bootstrap, topic, 0, 5000, **config)
    got = [m.value() for m in read_all(bootstrap, topic, 5000)]
    assert got == [b"%d" % i for i in range(5000)]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_group_shares_partitions_and_rebalances(
    bootstrap: str, name: NameMaker, strategy: str
) -> None:
    topic, group = name("rebalance"), name("group")
    create(bootstrap, topic, partitions=4)
    for partition in range(4):
        send_numbered(bootstrap, topic, partition, 25)
    first = consumer_of(bootstrap, group, partition_assignment_strategy=strategy)
    second = consumer_of(bootstrap, group, partition_assignment_strategy=strategy)
    try:
        first.subscribe([topic])
        assert len({(m.partition(), m.offset()) for m in read(first, 100)}) == 100
        first.commit(asynchronous=False)
        second.subscribe([topic])
        again = poll_until(
            lambda: len(first.assignment()) == 2 == len(second.assignment()), first, second
        )
        assert again == [], "nothing that was committed is read again"
        second.close()
        poll_until(lambda: len(first.assignment()) == 4, first)
    finally:
        first.close()


def poll_until(condition: Callable[[], bool], *consumers: Consumer) -> list[Message]:
    """Poll all consumers until the condition holds; the messages that came meanwhile."""
    got = []
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        for consumer in consumers:
            message = consumer.poll(0.05)
            if message is not None and not message.error():
                got.append(message)
    return got


def test_static_member_returns_without_rebalance(bootstrap: str, name: NameMaker) -> None:
    topic, group = name("static"), name("group")
    create(bootstrap, topic, partitions=2)
    member = consumer_of(bootstrap, group, group_instance_id="a")
    member.subscribe([topic])
    poll_until(lambda: len(member.assignment()) == 2, member)
    before = [m.member_id for m in describe_members(bootstrap, group)]
    member.close()
    assert [m.member_id for m in describe_members(bootstrap, group)] == before
    member = consumer_of(bootstrap, group, group_instance_id="a")
    member.subscribe([topic])
    poll_until(lambda: len(member.assignment()) == 2, member)
    after = describe_members(bootstrap, group)
    member.close()
    assert len(after) == 1
    assert after[0].group_instance_id == "a"
    assert after[0].member_id not in before, "the old member id is fenced"


def describe_members(bootstrap: str, group: str) -> list[Any]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    members: list[Any] = admin.describe_consumer_groups([group])[group].result(30).members
    return members


def test_commit_with_metadata_and_resume(bootstrap: str, name: NameMaker) -> None:
    topic, group = name("resume"), name("group")
    create(bootstrap, topic)
    send_numbered(bootstrap, topic, 0, 100)
    consumer = consumer_of(bootstrap, group)
    position = TopicPartition(topic, 0, 42, "so far")
    consumer.commit(offsets=[position], asynchronous=False)
    consumer.close()
    consumer = consumer_of(bootstrap, group)
    (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=10)
    assert (committed.offset, committed.metadata) == (42, "so far")
    consumer.assign([TopicPartition(topic, 0, committed.offset)])
    assert read(consumer, 58)[0].offset() == 42
    consumer.close()


def test_offsets_for_times(bootstrap: str, name: NameMaker) -> None:
    topic = name("times")
    create(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    for index in range(1000):
        producer.produce(topic, b"x", partition=0, timestamp=1_700_000_000_000 + index * 1000)
    assert producer.flush(WAIT_SECONDS_MAX) == 0
    consumer = consumer_of(bootstrap, name("group"))
    asked = [TopicPartition(topic, 0, 1_700_000_499_500)]
    assert consumer.offsets_for_times(asked, timeout=10)[0].offset == 500
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 1000)
    consumer.close()


def test_one_mebibyte_passes_and_more_than_the_limit_is_refused(
    bootstrap: str, name: NameMaker
) -> None:
    topic = name("large")
    create(bootstrap, topic, max_message_bytes="1100000")
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 3_000_000})
    value = bytes(range(256)) * 4096
    outcomes: list[int | None] = []
    for payload in (value, bytes(2_000_000), b"after"):
        producer.produce(
            topic,
            payload,
            partition=0,
            on_delivery=lambda error, _: outcomes.append(error.code() if error else None),
        )
        assert producer.flush(WAIT_SECONDS_MAX) == 0
    assert outcomes == [None, KafkaError.MSG_SIZE_TOO_LARGE, None]
    assert [m.value() for m in read_all(bootstrap, topic, 2)] == [value, b"after"]


def test_a_thousand_partitions(bootstrap: str, name: NameMaker) -> None:
    topic = name("thousand")
    create(bootstrap, topic, partitions=1000)
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(1000):
        producer.produce(topic, b"x", partition=partition)
    assert producer.flush(WAIT_SECONDS_MAX) == 0
    got = read_all(bootstrap, topic, 1000, partitions=1000)
    assert {m.partition() for m in got} == set(range(1000))


def test_topics_configs_and_partitions(bootstrap: str, name: NameMaker) -> None:
    topic = name("admin")
    admin = create(bootstrap, topic, partitions=2, retention_ms="3600000")
    with pytest.raises(KafkaException) as refused:
        create(bootstrap, topic)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaException) as refused:
        create(bootstrap, name("bad"), no_such_config="1")
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(30)
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while len(admin.list_topics(topic, timeout=10).topics[topic].partitions) != 5:
        assert time.monotonic() < deadline
    resource = ConfigResource(
        ConfigResource.Type.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
    asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
    value = None
    while value != "60000":
        assert time.monotonic() < deadline
        value = (
            next(iter(admin.describe_configs([asked]).values())).result(30)["retention.ms"].value
        )
    admin.delete_topics([topic])[topic].result(30)
    while topic in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline


def test_groups_are_listed_altered_and_deleted(bootstrap: str, name: NameMaker) -> None:
    topic, group = name("admin"), name("group")
    admin = create(bootstrap, topic)
    send_numbered(bootstrap, topic, 0, 10)
    wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7)])]
    admin.alter_consumer_group_offsets(wanted)[group].result(30)
    listed = admin.list_consumer_groups().result(30).valid
    assert group in {g.group_id for g in listed}
    asked = [ConsumerGroupTopicPartitions(group)]
    offsets = admin.list_consumer_group_offsets(asked)[group].result(30)
    assert [(p.partition, p.offset) for p in offsets.topic_partitions] == [(0, 7)]
    admin.delete_consumer_groups([group])[group].result(30)
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(30)
    assert refused.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


def test_delete_records_moves_the_start(bootstrap: str, name: NameMaker) -> None:
    topic = name("delete-records")
    admin = create(bootstrap, topic)
    send_numbered(bootstrap, topic, 0, 100)
    position = TopicPartition(topic, 0, 60)
    deleted = next(iter(admin.delete_records([position]).values())).result(30)
    assert deleted.low_watermark == 60
    assert read_all(bootstrap, topic, 40)[0].offset() == 60


def test_a_topic_is_created_by_its_first_message(bootstrap: str, name: NameMaker) -> None:
    topic = name("auto")
    send_numbered(bootstrap, topic, 0, 1)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 4
