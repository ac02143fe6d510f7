"""aiokafka: produce with every codec, groups, seek by time, admin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

NameMaker = Callable[[str], str]
WAIT_SECONDS_MAX = 30


async def create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, partitions, 1)])
    finally:
        await admin.close()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_part_of_a_record_comes_back(
    bootstrap: str, name: NameMaker, codec: str | None
) -> None:
    async def scenario() -> None:
        topic = name("codec")
        await create(bootstrap, topic)
        sent = []
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=codec, linger_ms=20
        ) as producer:
            for index in range(500):
                # This client refuses a record with neither key nor value.
                key = None if index % 7 == 0 and index % 11 else b"key-%d" % index
                value = None if index % 11 == 0 else b"value-%d" % index
                headers = [("index", b"%d" % index)]
                timestamp = 1_700_000_000_000 + index
                await producer.send(
                    topic, value, key, partition=0, timestamp_ms=timestamp, headers=headers
                )
                sent.append((index, key, value, tuple(headers), timestamp))
            await producer.flush()
        got = await read(bootstrap, topic, len(sent))
        assert got == sent

    asyncio.run(asyncio.wait_for(scenario(), WAIT_SECONDS_MAX * 2))


async def read(
    bootstrap: str, topic: str, count: int
) -> list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes], ...], int]]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        return [
            (m.offset, m.key, m.value, tuple(m.headers), m.timestamp)
            for m in [await consumer.getone() for _ in range(count)]
        ]
    finally:
        await consumer.stop()


def test_idempotent_producer_and_group(bootstrap: str, name: NameMaker) -> None:
    async def scenario() -> None:
        topic, group = name("group"), name("g")
        await create(bootstrap, topic, 4)
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True
        ) as producer:
            for index in range(400):
                await producer.send(topic, b"%d" % index, partition=index % 4)
            await producer.flush()
        first = group_member(bootstrap, topic, group)
        second = group_member(bootstrap, topic, group)
        await first.start()
        seen = [await first.getone() for _ in range(400)]
        for partition in range(4):
            values = [int(m.value) for m in seen if m.partition == partition]
            assert values == list(range(partition, 400, 4))
        await first.commit()
        await second.start()
        while len(first.assignment()) != 2 or len(second.assignment()) != 2:
            assert not await first.getmany(timeout_ms=50)
        await second.stop()
        while len(first.assignment()) != 4:
            await first.getmany(timeout_ms=50)
        await first.stop()

    asyncio.run(asyncio.wait_for(scenario(), WAIT_SECONDS_MAX))


def group_member(bootstrap: str, topic: str, group: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=300,
    )


def test_seek_by_time(bootstrap: str, name: NameMaker) -> None:
    async def scenario() -> None:
        topic = name("time")
        await create(bootstrap, topic)
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for index in range(100):
                timestamp = 1_700_000_000_000 + index * 1000
                await producer.send(topic, b"x", partition=0, timestamp_ms=timestamp)
            await producer.flush()
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await consumer.start()
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        found = await consumer.offsets_for_times({partition: 1_700_000_049_500})
        assert found[partition].offset == 50
        consumer.seek(partition, 50)
        assert (await consumer.getone()).offset == 50
        await consumer.stop()

    asyncio.run(asyncio.wait_for(scenario(), WAIT_SECONDS_MAX))
