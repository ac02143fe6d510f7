"""What a client promises, on the memory broker and on a real one alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tidewheel import (
    Client,
    ConsumerInterceptor,
    Delivery,
    Message,
    ProducerInterceptor,
    ProducerRecord,
    ProducerSettings,
    Receipt,
    TopicPartition,
    from_json,
    to_json,
)
from tidewheel.consumer import Consumer
from tidewheel.errors import (
    BatchSendFailed,
    ClientClosed,
    ConfigurationError,
    DeserializationFailed,
    GroupNotEmpty,
    GroupNotFound,
    InterceptorFailed,
    InvalidRequest,
    MessageTooLarge,
    QueueFull,
    SerializationFailed,
    TidewheelError,
    TopicExists,
    TopicNotFound,
)
from tidewheel.partitioner import hash_partition

from tests.sdk.conftest import QUICK, until

MakeClient = Callable[..., Client]


async def take(consumer: Consumer, count: int) -> list[Message]:
    messages: list[Message] = []
    async for message in consumer:
        messages.append(message)
        if len(messages) == count:
            break
    return messages


async def test_what_was_sent_arrives(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=3)
        topic = client.topic(name)
        receipt = await topic.send(
            "välue", key=b"k", headers=[("h", b"\x00\xff"), ("n", None)], tags=["a", "b:c"], id="i1"
        )
        assert receipt.partition == hash_partition(b"k", 3)
        assert (receipt.topic, receipt.offset) == (name, 0)
        (message,) = await take(client.subscribe(name, group=name), 1)
        assert (message.key, message.value) == (b"k", "välue".encode())
        assert message.header("h") == b"\x00\xff"
        assert message.header("n") is None
        assert message.tags == ("a", "b:c")
        assert message.id == b"i1"
        assert message.offset == receipt.offset
        assert message.timestamp_ms == receipt.timestamp_ms


async def test_null_key_and_value_and_given_timestamp_and_partition(
    make_client: MakeClient, name: str
) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=4)
        when_ms = client.clock.now_ms() - 5000
        receipt = await client.topic(name).send(None, partition=3, timestamp_ms=when_ms)
        assert receipt == Receipt(name, 3, 0, when_ms)
        (message,) = await take(client.subscribe(name), 1)
        assert message == Message(name, 3, 0, when_ms, None, None)


async def test_send_many_keeps_order_per_key_and_counts(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=3)
        items = [ProducerRecord(b"%d" % i, f"k{i % 7}") for i in range(5000)]
        summary = await client.topic(name).send_many(items)
        assert summary.sent == 5000
        assert summary.value_bytes == sum(len(r.value) for r in items)
        seen: dict[bytes, list[int]] = {}
        for message in await take(client.subscribe(name, group=name), 5000):
            seen.setdefault(message.key, []).append(int(message.value))
        assert seen == {b"k%d" % k: list(range(k, 5000, 7)) for k in range(7)}


async def test_send_many_of_values_with_key_function_and_async_items(
    make_client: MakeClient, name: str
) -> None:
    async def items() -> Any:
        for number in range(300):
            yield {"n": number}

    async with make_client() as client:
        await client.admin.create_topic(name, partitions=2)
        topic = client.topic(name, value_serializer=to_json)
        assert (await topic.send_many(items(), key=lambda item: str(item["n"] % 2))).sent == 300
        consumer = client.subscribe(name, group=name, value_deserializer=from_json)
        numbers = sorted(message.value["n"] for message in await take(consumer, 300))
        assert numbers == list(range(300))


async def test_send_nowait_fills_the_queue_and_flush_empties_it(
    make_client: MakeClient, name: str
) -> None:
    settings = ProducerSettings(queue_messages_max=50, linger_ms=100)
    async with make_client(producer=settings) as client:
        await client.admin.create_topic(name, partitions=1)
        topic = client.topic(name)
        deliveries: list[Delivery] = []

        def fill() -> None:
            # On a busy machine some may have been acknowledged before there are fifty.
            for number in range(5_000):
                deliveries.append(topic.send_nowait(b"%d" % number))

        with pytest.raises(QueueFull, match="wait_for_room"):
            fill()
        assert len(deliveries) >= 50
        assert sum(not delivery.done for delivery in deliveries) <= 50
        await topic.wait_for_room()
        deliveries.append(topic.send_nowait(b"one more"))
        await topic.flush(30)
        offsets = [delivery.receipt.offset for delivery in deliveries if delivery.receipt]
        assert offsets == list(range(len(deliveries)))
        assert (await deliveries[3]).offset == 3


async def test_partitioners(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=5)
        chosen = client.topic(name, partitioner=lambda topic, key, value, count: int(key or 0))
        with pytest.raises(ConfigurationError, match="prepare"):
            chosen.send_nowait(b"", key=b"4")
        assert (await chosen.send(b"", key=b"4")).partition == 4
        assert (await chosen.send_nowait(b"", key=b"2")).partition == 2
        with pytest.raises(ConfigurationError, match="partition_count - 1"):
            await chosen.send(b"", key=b"5")
        by_id = await client.topic(name).send(b"", id="o-17")
        assert by_id.partition == hash_partition(b"o-17", 5)
        anywhere = client.topic(name, partitioner="random")
        spread = {(await anywhere.send(b"", key=b"same")).partition for _ in range(40)}
        assert len(spread) > 1


async def test_errors_of_sending(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1)
        topic = client.topic(name)
        with pytest.raises(SerializationFailed, match="to_json"):
            await topic.send({"a": 1})
        with pytest.raises(MessageTooLarge):
            await topic.send(b"x" * 2_000_000)
        with pytest.raises(TopicNotFound, match="topics create"):
            await client.topic(f"{name}-nowhere").send(b"x")
        with pytest.raises(TopicNotFound, match="topics describe"):
            await topic.send(b"x", partition=77)
        with pytest.raises(ConfigurationError):
            await topic.send(b"x", delay="soon")
        for headers in ({"trace": "1"}, [("trace", 1)], ["trace"]):
            with pytest.raises(ConfigurationError, match="headers=\\["):
                await topic.send(b"x", headers=headers)  # type: ignore[arg-type]
        bad = [ProducerRecord(b"1"), ProducerRecord(b"2", partition=77), ProducerRecord(b"3")]
        with pytest.raises((BatchSendFailed, TopicNotFound)):
            await topic.send_many(bad)
        await topic.flush(10)


async def test_interceptors(make_client: MakeClient, name: str) -> None:
    class Sending(ProducerInterceptor):
        def __init__(self) -> None:
            self.outcomes: list[Receipt | TidewheelError | None] = []

        def on_send(self, topic: str, record: ProducerRecord) -> ProducerRecord:
            if record.value == b"bad":
                raise ValueError("no")
            record.headers = [*record.headers, ("trace", b"1")]
            return record

        def on_acknowledgement(
            self, topic: str, receipt: Receipt | None, error: TidewheelError | None
        ) -> None:
            self.outcomes.append(receipt or error)
            raise RuntimeError("must not matter")

    class Consuming(ConsumerInterceptor):
        def on_consume(self, message: Message) -> Message:
            if message.value == b"2":
                raise ValueError("no")
            message.value += b"!"
            return message

    sending = Sending()
    async with make_client(
        producer_interceptors=[sending], consumer_interceptors=[Consuming()]
    ) as client:
        await client.admin.create_topic(name, partitions=1)
        topic = client.topic(name)
        with pytest.raises(InterceptorFailed, match="not sent"):
            await topic.send(b"bad")
        first = await topic.send(b"1")
        await topic.send_many([b"2", b"3"])
        assert sending.outcomes[0] == first
        assert len(sending.outcomes) == 3
        consumer = client.subscribe(name, group=name)
        assert (await anext(consumer)).value == b"1!"
        with pytest.raises(InterceptorFailed) as caught:
            await anext(consumer)
        assert caught.value.consumed is not None
        assert caught.value.consumed.value == b"2"
        third = await anext(consumer)
        assert (third.value, third.header("trace")) == (b"3!", b"1")


async def test_deserializers_and_carrying_on(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1)
        await client.topic(name).send_many([b"1", b"{", b"[2]"])
        consumer = client.subscribe(name, value_deserializer=from_json)
        assert (await anext(consumer)).value == 1
        with pytest.raises(DeserializationFailed) as caught:
            await anext(consumer)
        assert caught.value.consumed.value == b"{"
        assert (await anext(consumer)).value == [2]


async def test_after_processing_commits_all_but_the_message_in_hand(
    make_client: MakeClient, name: str
) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1)
        await client.topic(name).send_many([b"%d" % number for number in range(10)])
        async with client.subscribe(name, group=name) as consumer:
            await take(consumer, 4)
        assert await client.admin.group_offsets(name) == {TopicPartition(name, 0): 3}
        async with client.subscribe(name, group=name) as consumer:
            rest = await take(consumer, 7)
        assert [message.value for message in rest] == [b"%d" % n for n in range(3, 10)]


async def test_idle_consumers_commit_too(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1)
        await client.topic(name).send(b"1")
        consumer = client.subscribe(name, group=name)
        await anext(consumer)
        waiting = asyncio.ensure_future(anext(consumer))

        async def committed() -> bool:
            return await client.admin.group_offsets(name) == {TopicPartition(name, 0): 1}

        await until(committed)
        consumer.stop()
        with pytest.raises(StopAsyncIteration):
            await waiting


async def test_before_processing_commits_first(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1)
        await client.topic(name).send_many([b"1", b"2"])
        consumer = client.subscribe(name, group=name, commit="before")
        first = await anext(consumer)
        committed = (await client.admin.group_offsets(name))[TopicPartition(name, 0)]
        assert committed > first.offset


async def test_manual_commits(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1)
        await client.topic(name).send_many([b"%d" % number for number in range(5)])
        place = TopicPartition(name, 0)
        async with client.subscribe(name, group=name, commit="manual") as consumer:
            messages = await take(consumer, 3)
            assert await consumer.committed() == {place: None}
            await consumer.commit(messages[0])
            assert await consumer.committed() == {place: 1}
            await consumer.commit()
            assert await consumer.committed() == {place: 3}
            await consumer.commit({place: 2})
        assert await client.admin.group_offsets(name) == {place: 2}
        # Closing with commit="after" does not take back what was committed by hand.
        async with client.subscribe(name, group=name) as consumer:
            second = (await take(consumer, 2))[-1]
            await consumer.commit(second)
        assert await client.admin.group_offsets(name) == {place: 4}
        with pytest.raises(ConfigurationError, match="group"):
            await client.subscribe(name).commit()


async def test_batches(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=2)
        await client.topic(name).send_many([b"%d" % number for number in range(2500)])
        sizes = []
        consumer = client.subscribe(name, group=name)
        async for batch in consumer.batches(1000, wait_s=5):
            sizes.append(len(batch))
            if sum(sizes) >= 2500 or not batch:
                break
        assert sum(sizes) == 2500
        assert max(sizes) <= 1000
        async for batch in consumer.batches(10, wait_s=0.1):
            assert batch == []
            break


async def test_starting_points_and_seeks(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1)
        topic, place = client.topic(name), TopicPartition(name, 0)
        now_ms = client.clock.now_ms()
        for age_s in (300, 200, 100, 0):
            await topic.send(b"%d" % age_s, timestamp_ms=now_ms - age_s * 1000)

        async def first(**start: Any) -> bytes:
            async with client.subscribe(name, **start) as consumer:
                value: bytes = (await anext(consumer)).value
                return value

        assert await first() == b"300"
        assert await first(start=2) == b"100"
        assert await first(start=timedelta(seconds=250)) == b"200"
        assert await first(start=timedelta(seconds=150), group=f"{name}-time") == b"100"
        async with client.subscribe(name, group=name) as consumer:
            assert (await anext(consumer)).value == b"300"
            await consumer.seek(place, 3)
            assert (await anext(consumer)).value == b"0"
            await consumer.seek_to_time(timedelta(seconds=250))
            assert (await anext(consumer)).value == b"200"
            await consumer.seek_to_beginning()
            assert (await anext(consumer)).value == b"300"
            await consumer.seek_to_end()
            await topic.send(b"new")
            assert (await anext(consumer)).value == b"new"
            assert await consumer.watermarks(place) == (0, 5)


async def test_an_offset_out_of_range_means_the_nearest(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1)
        await client.topic(name).send(b"old")
        async with client.subscribe(name, start=99) as consumer:
            await consumer.open()
            await client.topic(name).send(b"new")
            assert (await anext(consumer)).value == b"new"
        with pytest.raises(ConfigurationError, match="start=-1"):
            client.subscribe(name, start=-1)


async def test_latest_sees_only_what_comes(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1)
        await client.topic(name).send(b"old")
        consumer = client.subscribe(name, start="latest")
        await consumer.open()
        await client.topic(name).send(b"new")
        assert (await anext(consumer)).value == b"new"


async def test_pause_and_resume(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=2)
        consumer = client.subscribe(name, group=name)
        await client.topic(name).send(b"first", partition=0)
        await anext(consumer)
        await consumer.pause([TopicPartition(name, 0)])
        await client.topic(name).send(b"held", partition=0)
        await client.topic(name).send(b"through", partition=1)
        assert (await anext(consumer)).value == b"through"
        await consumer.resume([TopicPartition(name, 0)])
        assert (await anext(consumer)).value == b"held"


async def test_two_members_share_and_take_over(make_client: MakeClient, name: str) -> None:
    """Partitions move only after on_revoked; nothing is lost, little is doubled."""
    events: list[tuple[str, list[TopicPartition]]] = []
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=4)
        seen: list[tuple[str, Message]] = []

        async def consume(who: str, consumer: Consumer) -> None:
            async for message in consumer:
                seen.append((who, message))

        first = client.subscribe(
            name,
            group=name,
            on_assigned=lambda p: events.append(("assigned", p)),
            on_revoked=lambda p: events.append(("revoked", p)),
            on_lost=lambda p: events.append(("lost", p)),
        )
        second = client.subscribe(name, group=name)
        tasks = [asyncio.create_task(consume("first", first))]
        await until(lambda: len(first.assignment) == 4)
        tasks.append(asyncio.create_task(consume("second", second)))
        await until(lambda: len(first.assignment) == 2 == len(second.assignment))
        assert first.assignment.isdisjoint(second.assignment)
        assert {kind for kind, _ in events} == {"assigned", "revoked"}
        for number in range(40):
            await client.topic(name).send(b"%d" % number, partition=number % 4)
        await until(lambda: len(seen) >= 40)
        assert {who for who, _ in seen} == {"first", "second"}
        described = await client.admin.describe_group(name)
        assert sorted(len(m.partitions) for m in described.members) == [2, 2]
        await second.close()
        await until(lambda: len(first.assignment) == 4)
        for number in range(40, 60):
            await client.topic(name).send(b"%d" % number, partition=number % 4)
        await until(lambda: len(seen) >= 60)
        assert sorted(int(m.value) for _, m in seen) == list(range(60))
        await first.close()
        await asyncio.gather(*tasks)
        offsets = await client.admin.group_offsets(name)
        assert sum(offsets.values()) == 60


async def test_seeking_one_partition_loses_nothing_of_the_others(
    make_client: MakeClient, name: str
) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=3)
        for number in range(900):
            client.topic(name).send_nowait(b"%d" % number, partition=number % 3)
        await client.flush()
        seen: list[Message] = []
        async with client.subscribe(name, group=name) as consumer:
            async for message in consumer:
                seen.append(message)
                if len(seen) in (1, 300, 500):
                    await consumer.seek(TopicPartition(name, len(seen) % 3), 0)
                if {(m.partition, m.offset) for m in seen} >= {
                    (p, o) for p in range(3) for o in range(300)
                }:
                    break


async def test_seeking_in_on_assigned_chooses_where_to_begin(
    make_client: MakeClient, name: str
) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1)
        await client.topic(name).send_many([b"0", b"1", b"2"])

        async def on_assigned(partitions: list[TopicPartition]) -> None:
            await consumer.seek(partitions[0], 2)

        consumer = client.subscribe(name, group=name, on_assigned=on_assigned)
        assert (await anext(consumer)).value == b"2"


async def test_cancelled_waits_lose_nothing(make_client: MakeClient, name: str) -> None:
    async with make_client(producer=ProducerSettings(linger_ms=0)) as client:
        await client.admin.create_topic(name, partitions=1)
        consumer = client.subscribe(name, group=name)
        seen: list[int] = []

        async def produce() -> None:
            for number in range(300):
                await client.send(name, b"%d" % number)

        producing = asyncio.create_task(produce())
        while len(seen) < 300:
            try:
                async with asyncio.timeout(0.003):
                    seen.append(int((await anext(consumer)).value))
            except TimeoutError:
                continue
        await producing
        assert seen == list(range(300))


async def test_commit_inside_on_revoked(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1)
        await client.topic(name).send(b"1")

        async def on_revoked(partitions: list[TopicPartition]) -> None:
            await consumer.commit()

        consumer = client.subscribe(name, group=name, commit="manual", on_revoked=on_revoked)
        await anext(consumer)
        await consumer.close()
        assert await client.admin.group_offsets(name) == {TopicPartition(name, 0): 1}


async def test_topics_and_configs(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        admin = client.admin
        await admin.create_topic(name, partitions=2, configs={"retention.ms": 123_456})
        assert name in {topic.name for topic in await admin.topics()}
        assert len((await admin.describe_topic(name)).partitions) == 2
        with pytest.raises(TopicExists):
            await admin.create_topic(name, partitions=1)
        with pytest.raises(InvalidRequest):
            await admin.create_topic("not allowed")
        configs = {entry.name: entry.value for entry in await admin.configs(name)}
        assert configs["retention.ms"] == "123456"
        await admin.alter_configs(name, {"retention.ms": 99_999, "cleanup.policy": "compact"})
        configs = {entry.name: entry.value for entry in await admin.configs(name)}
        assert (configs["retention.ms"], configs["cleanup.policy"]) == ("99999", "compact")
        await admin.alter_configs(name, {"cleanup.policy": None})
        await admin.create_partitions(name, 3)
        assert len((await admin.describe_topic(name)).partitions) == 3
        await admin.delete_topic(name)

        async def gone() -> bool:
            return not await admin.topic_exists(name)

        await until(gone)
        with pytest.raises(TopicNotFound):
            await admin.delete_topic(name)
        with pytest.raises(TopicNotFound):
            await anext(client.subscribe(name, group=name))


async def test_lag_resets_and_groups(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        admin, place = client.admin, TopicPartition(name, 0)
        await admin.create_topic(name, partitions=1)
        with pytest.raises(GroupNotFound):
            await admin.lag(name)
        now_ms = client.clock.now_ms()
        for age_s in (90, 60, 30):
            await client.topic(name).send(b"x", timestamp_ms=now_ms - age_s * 1000)
        async with client.subscribe(name, group=name) as consumer:
            await take(consumer, 2)
            with pytest.raises(GroupNotEmpty):
                await admin.reset_offsets(name, name, "earliest")
        (lag,) = await admin.lag(name)
        assert (lag.partition, lag.committed, lag.end, lag.messages) == (place, 1, 3, 2)
        assert lag.seconds is not None
        assert 60 <= lag.seconds < 600
        assert (await admin.describe_group(name)).state == "Empty"
        assert await admin.reset_offsets(name, name, timedelta(seconds=45)) == {place: 2}
        assert await admin.reset_offsets(name, name, 77) == {place: 3}
        (lag,) = await admin.lag(name)
        assert (lag.messages, lag.seconds) == (0, 0.0)
        assert await admin.reset_offsets(name, name, "earliest") == {place: 0}
        assert await admin.delete_records({place: 2}) == {place: 2}
        assert await admin.offsets(name, "earliest") == {place: 2}
        assert name in await admin.groups()
        await admin.delete_group(name)
        assert name not in await admin.groups()


async def test_closed_clients_say_so(make_client: MakeClient, name: str) -> None:
    client = make_client()
    with pytest.raises(ClientClosed, match="async with"):
        client.subscribe(name)
    with pytest.raises(ClientClosed):
        await client.topic(name).send(b"x")
    async with client:
        await client.admin.create_topic(name, partitions=1)
        consumer = client.subscribe(name, group=name, settings=QUICK)
        waiting = asyncio.ensure_future(anext(consumer))
        await asyncio.sleep(0.05)
    with pytest.raises(StopAsyncIteration):
        await waiting
    with pytest.raises(ClientClosed):
        client.topic(name).send_nowait(b"x")


async def test_a_topic_that_exists_is_no_error_where_it_may(
    make_client: Callable[..., Client], name: str
) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=2, exist_ok=True)
        await client.admin.create_topic(name, partitions=5, exist_ok=True)
        assert len((await client.admin.describe_topic(name)).partitions) == 2
        with pytest.raises(TopicExists):
            await client.admin.create_topic(name)
