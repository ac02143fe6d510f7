"""Consumers that read by tags, on the memory broker and on a real one alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tidewheel import App, Client, Message, Subscription, TopicPartition, sync
from tidewheel.consumer import Consumer
from tidewheel.errors import (
    ConfigurationError,
    InvalidRequest,
    MessageRefused,
    SubscriptionConflict,
    TopicExists,
    TopicNotFound,
)
from tidewheel.filters import InvalidFilter

from tests.sdk.conftest import until
from tests.sdk.test_client_contract import take

MakeClient = Callable[..., Client]
FILTER = "checkout or refund"
TAGGED = {"tidewheel.headers": True}


async def fill(client: Client, name: str, *tag_lists: str, partition: int = 0) -> None:
    """A message for each, with its tags, which are its value, too."""
    for tags in tag_lists:
        await client.topic(name).send(tags, tags=tags.split(), partition=partition)


def values_of(messages: list[Message]) -> list[str]:
    return [message.value.decode() for message in messages]


async def values(consumer: Consumer, count: int) -> list[str]:
    return values_of(await take(consumer, count))


async def test_a_group_gets_what_matches_under_its_offsets(
    make_client: MakeClient, name: str
) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=2, configs=TAGGED)
        await fill(client, name, "login", "checkout eu", "refund", "login", "checkout")
        await fill(client, name, "refund us", partition=1)
        messages = await take(client.subscribe(name, group="pay", filter=FILTER), 4)
        found = {(m.partition, m.offset): m for m in messages}
        assert sorted(found) == [(0, 1), (0, 2), (0, 4), (2, 0)]
        assert found[0, 1].tags == ("checkout", "eu")
        assert {message.topic for message in messages} == {f"{name}.pay"}
        made = await client.admin.subscription(f"{name}.pay")
        assert made == Subscription(f"{name}.pay", name, FILTER)


async def test_what_matches_later_comes_behind_much_that_does_not(
    make_client: MakeClient, name: str
) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1, configs=TAGGED)
        consumer = client.subscribe(name, group=name, filter="not login")
        reading = asyncio.create_task(take(consumer, 2))
        await fill(client, name, *["login"] * 20, "checkout", *["login"] * 20)
        await client.topic(name).send("untagged")
        assert values_of(await reading) == ["checkout", "untagged"]


async def test_the_next_member_uses_the_same_subscription_and_goes_on(
    make_client: MakeClient, name: str
) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1, configs=TAGGED)
        await fill(client, name, "checkout", "login", "refund")
        consumer = client.subscribe(name, group=name, filter=FILTER)
        async for message in consumer:
            await consumer.commit(message)
            break
        await consumer.close()
        topic_id = (await client.admin.describe_topic(f"{name}.{name}")).topic_id
        again = client.subscribe(name, group=name, filter="checkout  or (refund)")
        assert await values(again, 1) == ["refund"]
        assert (await client.admin.describe_topic(f"{name}.{name}")).topic_id == topic_id


async def test_members_that_start_at_once_share_one(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1, configs=TAGGED)
        consumers = [client.subscribe(name, group=name, filter=FILTER) for _ in range(4)]
        await asyncio.gather(*(consumer.open() for consumer in consumers))


async def test_a_member_that_disagrees_is_told_and_the_others_go_on(
    make_client: MakeClient, name: str
) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1, configs=TAGGED)
        consumer = client.subscribe(name, group=name, filter=FILTER)
        await fill(client, name, "checkout")
        assert await values(consumer, 1) == ["checkout"]
        other = client.subscribe(name, group=name, filter="login")
        with pytest.raises(
            SubscriptionConflict, match='by the filter "checkout or refund"'
        ) as told:
            await other.open()
        assert "subscriptions edit" in told.value.hint
        await fill(client, name, "login", "refund")
        assert await values(consumer, 1) == ["refund"]


async def test_an_edit_holds_for_who_reads_and_offsets_stay(
    make_client: MakeClient, name: str
) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1, configs=TAGGED)
        consumer = client.subscribe(name, group=name, filter=FILTER)
        await fill(client, name, "checkout", "login")
        assert await values(consumer, 1) == ["checkout"]
        edited = await client.admin.edit_subscription(f"{name}.{name}", "login")
        assert edited == Subscription(f"{name}.{name}", name, "login")
        await fill(client, name, "refund", "login")
        (message,) = await take(consumer, 1)
        # The first one, or by who had scanned it already the second one.
        assert (message.value, message.offset) in ((b"login", 1), (b"login", 3))
        with pytest.raises(SubscriptionConflict):
            await client.subscribe(name, group=name, filter=FILTER).open()
        await client.subscribe(name, group=name, filter="login").open()


async def test_a_name_of_ones_own_and_a_reader_without_a_group(
    make_client: MakeClient, name: str
) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1, configs=TAGGED)
        await fill(client, name, "checkout", "login")
        mine = f"{name}-mine"
        reader = client.subscribe(name, filter="login", subscription=mine)
        assert await values(reader, 1) == ["login"]
        # It is a topic; who knows its name needs no filter.
        assert await values(client.subscribe(mine), 1) == ["login"]
        await client.admin.create_topic(f"{name}-2", partitions=1, configs=TAGGED)
        with pytest.raises(SubscriptionConflict, match=f'reads "{name}", not "{name}-2"'):
            await client.subscribe(f"{name}-2", filter="login", subscription=mine).open()


async def test_what_makes_no_sense_is_said_before_anything_is_asked(
    make_client: MakeClient, name: str
) -> None:
    async with make_client() as client:
        with pytest.raises(InvalidFilter, match="column 1: the \\( is not closed"):
            client.subscribe(name, group="g", filter="(a")
        with pytest.raises(ConfigurationError, match="A filter goes with one topic"):
            client.subscribe(name, "other", group="g", filter="a")
        with pytest.raises(ConfigurationError, match="A filter goes with one topic"):
            client.subscribe("^a.*", group="g", filter="a")
        with pytest.raises(ConfigurationError, match="A filter needs a group"):
            client.subscribe(name, filter="a")
        with pytest.raises(ConfigurationError, match="cannot be called"):
            client.subscribe(name, group="pay / eu", filter="a")
        with pytest.raises(ConfigurationError, match="cannot be called"):
            client.subscribe(name, filter="a", subscription=name)
        with pytest.raises(ConfigurationError, match="names what filter= makes"):
            client.subscribe(name, group="g", subscription="mine")


async def test_subscriptions_are_looked_after_like_topics(
    make_client: MakeClient, name: str
) -> None:
    async with make_client() as client:
        admin, pay = client.admin, f"{name}.pay"
        await admin.create_topic(name, partitions=2, configs=TAGGED)
        assert await admin.create_subscription(pay, name, FILTER) == Subscription(pay, name, FILTER)
        with pytest.raises(TopicExists):
            await admin.create_subscription(pay, name, "")
        assert len((await admin.describe_topic(pay)).partitions) == 4
        await admin.create_partitions(name, 3)
        assert len((await admin.describe_topic(pay)).partitions) == 6
        assert pay not in [topic.name for topic in await admin.topics()]
        for refused in (
            admin.subscription(name),
            admin.edit_subscription(name, "a"),
            admin.create_subscription(f"{pay}2", pay, ""),
            admin.create_partitions(pay, 8),
            admin.alter_configs(pay, {"tidewheel.source": "other"}),
            admin.alter_configs(pay, {"tidewheel.filter": "(a"}),
            admin.delete_topic(name),
            admin.delete_records({TopicPartition(pay, 0): 0}),
        ):
            with pytest.raises(InvalidRequest):
                await refused
        with pytest.raises(MessageRefused):
            await client.topic(pay).send("x", partition=0)
        with pytest.raises(TopicNotFound):
            await admin.subscription("nobody.made.it")
        await admin.delete_topic(pay)
        await admin.delete_topic(name)
        assert not await admin.topic_exists(name)


async def test_only_topics_whose_tags_are_read_can_be_filtered(
    make_client: MakeClient, name: str
) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1)
        with pytest.raises(InvalidRequest, match="has no tags"):
            await client.subscribe(name, group=name, filter="a").open()
        with pytest.raises(InvalidRequest):
            await client.subscribe("nobody.made.it", group=name, filter="a").open()


async def test_the_lag_of_a_group_that_reads_by_tags(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1, configs=TAGGED)
        consumer = client.subscribe(name, group=name, filter=FILTER)
        await fill(client, name, "checkout", "login", "refund", "login", "checkout", "login")
        (message,) = await take(consumer, 1)
        await consumer.commit(message)
        lag = {one.partition.partition: one for one in await client.admin.lag(name)}
        assert (lag[0].committed, lag[0].end, lag[0].messages) == (1, 6, 2)
        assert lag[0].seconds is not None
        assert 0 <= lag[0].seconds < 60
        assert lag[1].messages == 0
        assert lag[1].seconds == 0
        (message, other) = await take(consumer, 2)
        await consumer.commit(other)
        lag = {one.partition.partition: one for one in await client.admin.lag(name)}
        # The last record does not count.
        assert (lag[0].committed, lag[0].end, lag[0].messages) == (5, 6, 0)
        assert lag[0].seconds == 0


async def test_handlers_of_an_app_get_what_matches(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1, configs=TAGGED)
        await fill(client, name, "login", "checkout")
        app, found = App(client), list[str]()

        @app.subscriber(name, group=name, filter=FILTER)
        async def handle(message: Message) -> None:
            found.append(message.value.decode())

        running = asyncio.create_task(app.run(handle_signals=False))
        await until(lambda: len(found) == 1)
        app.stop()
        await running
        assert found == ["checkout"]


def test_programs_without_a_loop(bootstrap: str, name: str) -> None:
    with sync.Client(bootstrap) as client:
        client.admin.create_topic(name, partitions=1, configs=TAGGED)
        client.topic(name).send("1", tags=["login"])
        client.topic(name).send("2", tags=["refund"])
        for message in client.subscribe(name, group=name, filter=FILTER):
            assert (message.value, message.tags) == (b"2", ("refund",))
            break
        assert client.admin.subscription(f"{name}.{name}").filter == FILTER
        assert client.admin.edit_subscription(f"{name}.{name}", "").filter == ""
        made = client.admin.create_subscription(f"{name}-all", name)
        assert client.admin.subscription(made.name) == made
