"""What only real brokers can show: outages, acknowledgements, memberships, cancelled waits."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from pathlib import Path

import pytest
from tidewheel import Client, Consumer, ConsumerSettings, Message, ProducerSettings, TopicPartition
from tidewheel.errors import (
    BrokerUnreachable,
    ConsumerFenced,
    DeliveryTimedOut,
    TidewheelError,
    TopicNotFound,
)
from tidewheel.settings import ClientSettings, Compression
from tidewheel.transport.librdkafka.producer import producer_properties

from tests.broker_process import BrokerProcess
from tests.plugins.clients import client_threads
from tests.sdk.conftest import QUICK, until


def client_of(bootstrap: str, **producer: object) -> Client:
    return Client(bootstrap, producer=ProducerSettings(**producer), consumer=QUICK)  # type: ignore[arg-type]


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_acknowledgements(bootstrap: str, name: str, acks: int | str) -> None:
    async with client_of(bootstrap, acks=acks) as client:
        await client.admin.create_topic(name, partitions=1)
        for number in range(3):
            receipt = await client.send(name, b"%d" % number)
            assert receipt.offset == (-1 if acks == 0 else number)
        consumer = client.subscribe(name)
        assert [(await anext(consumer)).value for _ in range(3)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_compression(bootstrap: str, name: str, codec: Compression) -> None:
    async with client_of(bootstrap, compression=codec) as client:
        await client.admin.create_topic(name, partitions=1)
        values = [b"value %d " % number * 20 for number in range(500)]
        await client.topic(name).send_many(values)
        consumer = client.subscribe(name)
        assert [(await anext(consumer)).value for _ in values] == values


async def test_an_outage_and_the_return(tmp_path: Path, name: str) -> None:
    """Sends fail with a typed error while nobody is there; client and consumer find back."""
    with BrokerProcess(tmp_path) as broker:
        async with client_of(broker.bootstrap, delivery_timeout_ms=1500) as client:
            await client.admin.create_topic(name, partitions=1)
            topic = client.topic(name)
            consumer = client.subscribe(name)
            await topic.send(b"before")
            assert (await anext(consumer)).value == b"before"
            broker.kill9()
            with pytest.raises(DeliveryTimedOut, match="down or cut off"):
                await topic.send(b"into the void")
            await topic.flush(5)
            broker.start()
            receipt = None
            while receipt is None:
                try:
                    receipt = await topic.send(b"after")
                except DeliveryTimedOut:
                    continue
            async for message in consumer:
                if message.value == b"after":
                    break


async def test_closing_with_undeliverable_messages_says_so(tmp_path: Path, name: str) -> None:
    with BrokerProcess(tmp_path) as broker:
        client = client_of(broker.bootstrap)
        await client.open()
        await client.admin.create_topic(name, partitions=1)
        await client.send(name, b"1")
        broker.kill9()
        delivery = client.topic(name).send_nowait(b"2")
        with pytest.raises(DeliveryTimedOut, match="1 messages"):
            await client.close(0.3)
        assert isinstance(delivery.error, TidewheelError)
        broker.start()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
async def test_a_closed_client_lets_its_connections_go(bootstrap: str, name: str) -> None:
    """At once, and not when the garbage collector comes by one day."""
    before = client_threads()
    gc.disable()
    try:
        async with client_of(bootstrap) as client:
            await client.admin.create_topic(name, partitions=1)
            await client.send(name, b"1")
            consumer = client.subscribe(name, group=name)
            assert (await anext(consumer)).value == b"1"
            assert client_threads() - before
        await until(lambda: client_threads() <= before)
    finally:
        gc.enable()


async def test_nobody_there() -> None:
    """Refused connections and unknown names are told without waiting for the time-out."""
    settings = ClientSettings(connect_timeout_ms=600_000)
    for address, why in (
        ("127.0.0.1:1", r"127\.0\.0\.1:1: Connection refused"),
        ("[::1]:1,127.0.0.1:1", "Connection refused|Cannot assign"),
        ("no-such-host.invalid:9092", r"no-such-host\.invalid"),
    ):
        with pytest.raises(BrokerUnreachable, match=why):
            await Client(address, settings=settings).open()


async def test_who_takes_connections_and_says_nothing_is_given_the_time() -> None:
    settings = ClientSettings(connect_timeout_ms=300)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(BrokerUnreachable, match=r"within 0\.3 s") as caught:
            await Client(address, settings=settings).open()
    assert "ipv4#" not in str(caught.value)


async def test_one_address_that_answers_is_enough(bootstrap: str) -> None:
    async with Client(f"127.0.0.1:1,no-such-host.invalid:1,{bootstrap}") as client:
        assert (await client.admin.cluster()).brokers


async def test_static_members_keep_their_partitions_over_a_restart(
    bootstrap: str, name: str
) -> None:
    def settings(instance: str) -> ConsumerSettings:
        return ConsumerSettings(
            instance_id=instance,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=200,
            fetch_wait_ms=50,
        )

    moves: list[str] = []
    async with client_of(bootstrap) as client:
        await client.admin.create_topic(name, partitions=4)
        stays = client.subscribe(
            name,
            group=name,
            settings=settings("stays"),
            on_assigned=lambda p: moves.append("assigned"),
            on_revoked=lambda p: moves.append("revoked"),
        )
        running = asyncio.create_task(_consume(stays))
        restarts = client.subscribe(name, group=name, settings=settings("restarts"))
        other = asyncio.create_task(_consume(restarts))
        await until(lambda: len(restarts.assignment) == 2 == len(stays.assignment))
        before, held = restarts.assignment, list(moves)
        await restarts.close()
        await other
        again = client.subscribe(name, group=name, settings=settings("restarts"))
        other = asyncio.create_task(_consume(again))
        await until(lambda: len(again.assignment) == 2)
        assert again.assignment == before
        assert moves == held
        thief = client.subscribe(name, group=name, settings=settings("restarts"))
        stealing = asyncio.create_task(_consume(thief))
        with pytest.raises(ConsumerFenced, match="instance_id"):
            await other
        stays.stop()
        thief.stop()
        await asyncio.gather(running, stealing)


async def _consume(consumer: Consumer) -> list[Message]:
    return [message async for message in consumer]


async def test_patterns_subscribe_to_what_matches(bootstrap: str, name: str) -> None:
    async with client_of(bootstrap) as client:
        for suffix in ("a", "b", "x"):
            await client.admin.create_topic(f"{name}-{suffix}", partitions=1)
            await client.send(f"{name}-{suffix}", suffix)
        consumer = client.subscribe(f"^{name}-[ab]$", group=name)
        assert {(await anext(consumer)).value for _ in range(2)} == {b"a", b"b"}
        assert {p.topic for p in consumer.assignment} == {f"{name}-a", f"{name}-b"}


async def test_a_raising_rebalance_callback_reaches_the_caller(bootstrap: str, name: str) -> None:
    def broken(partitions: list[TopicPartition]) -> None:
        raise LookupError("mine")

    async with client_of(bootstrap) as client:
        await client.admin.create_topic(name, partitions=1)
        await client.send(name, b"1")
        consumer = client.subscribe(name, group=name, on_assigned=broken)
        with pytest.raises(LookupError, match="mine"):
            await anext(consumer)
        assert (await anext(consumer)).value == b"1"


async def test_a_topic_nobody_has(bootstrap: str, name: str) -> None:
    async with client_of(bootstrap, delivery_timeout_ms=8_000) as client:
        with pytest.raises(TopicNotFound, match="topics create"):
            await client.send(name, b"1")


def test_settings_become_librdkafka_properties() -> None:
    throughput = producer_properties(ProducerSettings.throughput())
    assert (throughput["linger.ms"], throughput["compression.type"]) == (50, "lz4")
    assert throughput["enable.idempotence"] is True
    assert producer_properties(ProducerSettings(acks=1))["enable.idempotence"] is False
    assert producer_properties(ProducerSettings(partitioner="random"))["partitioner"] == "random"


@pytest.mark.parametrize(
    ("settings", "expected_ms"),
    [
        (ProducerSettings(), 5_000),
        (ProducerSettings.throughput(), 5_000),
        (ProducerSettings.latency(), 5_000),
        (ProducerSettings(delivery_timeout_ms=6_000), 2_000),
        (ProducerSettings(delivery_timeout_ms=10), 1_000),
        # Sent again, it may be stored twice: rather wait, but not until it is too late.
        (ProducerSettings(acks=1), 15_000),
        (ProducerSettings(idempotent=False), 15_000),
        (ProducerSettings(request_timeout_ms=20_000), 20_000),
    ],
)
def test_a_send_without_an_answer_is_sent_again_in_time(
    settings: ProducerSettings, expected_ms: int
) -> None:
    properties = producer_properties(settings)
    assert properties["socket.timeout.ms"] == expected_ms
    assert 0 < properties["request.timeout.ms"] < expected_ms


async def test_properties_under_librdkafkas_names_win(bootstrap: str) -> None:
    """A value that librdkafka refuses shows that it was told."""
    wrong = {"socket.timeout.ms": "soon"}
    with pytest.raises(TidewheelError, match=r"socket\.timeout\.ms"):
        await Client(bootstrap, producer=ProducerSettings(librdkafka=wrong)).open()
    async with Client(bootstrap) as client:
        consumer = client.subscribe("t", group="g", settings=ConsumerSettings(librdkafka=wrong))
        with pytest.raises(TidewheelError, match=r"socket\.timeout\.ms"):
            await anext(consumer)
