"""Clients of all kinds read subscriptions: topics over another topic, with a filter on its tags.

They are made with Kafka's CreateTopics, and each client gets exactly the records whose tags match,
with the offsets that they have in the source; where nothing matches it moves on.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.broker_process import BrokerProcess
from tests.conformance.conftest import SETTINGS
from tests.conformance.test_projections import (
    CLIENTS,
    CODECS,
    COMMIT_POSITIONS,
    KAFKAJS_CODECS,
    UNCOMMITTED,
    committed_offsets,
    strip,
)

PARTITIONS = 2
GAP_RECORDS = 2_000
FILTER = "checkout and (region:eu or region:us) and not test"
TAGS = (
    ("checkout", "region:eu"),
    ("checkout",),
    ("region:us", "checkout", "odd (tag)"),
    (),
    ("checkout", "region:eu", "test"),
    ("refund", "region:eu"),
)
MATCHING = frozenset({0, 2})


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("subscribed")
    with BrokerProcess(folder, set=SETTINGS, module="features") as broker:
        yield broker.bootstrap


def create(bootstrap: str, name: str, partitions: int = -1, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {f"tidewheel.{key}": value for key, value in configs.items()}
    admin.create_topics([NewTopic(name, partitions, -1, config=config)])[name].result()


def shown_from(bootstrap: str, topic: str, index: int, offset: int) -> tuple[int, int]:
    """(how many records are shown from the offset on, the timestamp of the first in ms or -1)"""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    at = OffsetSpec.for_timestamp((1 << 62) + offset)
    found = admin.list_offsets({TopicPartition(topic, index): at}, request_timeout=20)
    (answer,) = found.values()
    result = answer.result()
    return result.offset, result.timestamp


class Source:
    """A topic with tagged records in all codecs and gaps, and what matches of them."""

    def __init__(self, bootstrap: str, name: str, codecs: tuple[str, ...]) -> None:
        self.bootstrap, self.name = bootstrap, name
        self.matching: dict[int, list[tuple[int, str]]] = {0: [], 1: [], 2: [], 3: []}
        self.ends: dict[int, int] = {}
        create(bootstrap, name, PARTITIONS, headers="true")
        for index in range(PARTITIONS):
            self.ends[2 * index] = 0
            for codec in codecs:
                self._send(index, codec, [5] * GAP_RECORDS, "x" * 400)
                # Batches of which some match, one of which all do, and one of which none does.
                self._send(index, codec, [one % len(TAGS) for one in range(50)])
                self._send(index, codec, [0] * 5)
                self._send(index, codec, [1] * 5)

    def _send(self, index: int, codec: str, kinds: list[int], filling: str = "") -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "linger.ms": 20,
                "enable.idempotence": True,
            }
        )
        for kind in kinds:
            offset = self.ends[2 * index]
            self.ends[2 * index] += 1
            value = f"{index}-{offset}"
            headers: list[tuple[str, str | bytes | None]] = [
                ("tw-tag", tag.encode()) for tag in TAGS[kind]
            ]
            producer.produce(self.name, value + filling, partition=index, headers=headers)
            if kind in MATCHING:
                self.matching[2 * index].append((offset, value))
        assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def source(bootstrap: str) -> Source:
    return Source(bootstrap, "flights", CODECS)


@pytest.fixture(scope="module")
def source_without_zstd(bootstrap: str) -> Source:
    return Source(bootstrap, "ships", KAFKAJS_CODECS)


@pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("client", CLIENTS)
def test_what_matches_and_nothing_else(
    request: pytest.FixtureRequest, bootstrap: str, client: str
) -> None:
    source: Source = request.getfixturevalue(
        "source_without_zstd" if client == "kafkajs" else "source"
    )
    topic = f"{client}-of-{source.name}"
    create(bootstrap, topic, source=source.name, filter=FILTER)
    count = sum(map(len, source.matching.values()))
    # The first batch of which something matches, from its middle on.
    offset = source.matching[0][5][0]
    ahead = [one for one in source.matching[0] if one[0] >= offset][:20]
    lines = CLIENTS[client](bootstrap, topic, client, count, offset, len(ahead), UNCOMMITTED)
    for index, expected in source.matching.items():
        got = [(line[2], strip(line[3])) for line in lines if line[0] == "got" and line[1] == index]
        assert got == expected
    again = [(line[2], strip(line[3])) for line in lines if line[0] == "again"]
    assert again[: len(ahead)] == ahead
    committed = committed_offsets(bootstrap, client, topic)
    for index, end in source.ends.items():
        if client in COMMIT_POSITIONS:
            assert committed[index] == end
        else:
            assert source.matching[index][-1][0] + 1 <= committed[index] <= end
        # Behind nothing, by our count; before, it was all of them.
        assert shown_from(bootstrap, topic, index, committed[index])[0] == 0
        assert shown_from(bootstrap, topic, index, 0)[0] == len(source.matching[index])


def test_an_edit_of_the_filter_is_live(bootstrap: str) -> None:
    create(bootstrap, "edited", 1, headers="true")
    create(bootstrap, "edited-sub", source="edited", filter="a")
    producer = Producer({"bootstrap.servers": bootstrap})
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "edited", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["edited-sub"])

    def send(*tags: str) -> None:
        for tag in tags:
            producer.produce("edited", tag, headers=[("tw-tag", tag.encode())])
        assert producer.flush(10) == 0

    def read() -> str:
        while True:
            message = consumer.poll(10)
            assert message is not None
            assert message.error() is None
            return (message.value() or b"").decode()

    send("b", "a", "b")
    assert read() == "a"
    resource = ConfigResource(
        ResourceType.TOPIC,
        "edited-sub",
        incremental_configs=[
            ConfigEntry("tidewheel.filter", "b", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result()
    send("a", "b")
    # What came before the edit was passed by the old filter, or is read by the new one.
    assert read() == "b"
    consumer.close()


def refusal(future: object) -> str:
    with pytest.raises(KafkaException) as caught:
        future.result()  # type: ignore[attr-defined]
    return str(caught.value.args[0].str())


def test_subscriptions_are_topics_for_every_admin_tool(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    create(bootstrap, "orders", 1, headers="true")
    create(bootstrap, "pay", 2, source="orders", filter="checkout")
    assert set(admin.list_topics(timeout=10).topics) >= {"orders"}
    assert "pay" not in admin.list_topics(timeout=10).topics
    assert len(admin.list_topics("pay", timeout=10).topics["pay"].partitions) == 2
    (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "pay")]).values()
    shown = {name: entry.value for name, entry in described.result().items()}
    assert (shown["tidewheel.source"], shown["tidewheel.filter"]) == ("orders", "checkout")
    for future in admin.create_partitions([NewPartitions("pay", 4)]).values():
        assert refusal(future) == "Topic 'pay' reads from topic 'orders': add partitions there."
    for future in admin.create_partitions([NewPartitions("orders", 3)]).values():
        future.result()
    assert len(admin.list_topics("pay", timeout=10).topics["pay"].partitions) == 6
    for future in admin.delete_topics(["orders"]).values():
        # librdkafka keeps no words of this answer.
        assert "Policy violation" in refusal(future)
    for future in admin.delete_topics(["orders", "pay"]).values():
        future.result()


@pytest.mark.parametrize(
    ("configs", "partitions", "message"),
    [
        ({"filter": "a"}, 1, "tidewheel.filter is set for a topic that has no tidewheel.source"),
        ({"source": "nowhere"}, -1, "tidewheel.source: topic 'nowhere' does not exist."),
        ({"source": ""}, -1, "tidewheel.source names a topic"),
        (
            {"source": "flights", "filter": "a b"},
            -1,
            "Invalid value a b for configuration tidewheel.filter: column 3: `and` or `or` is "
            "missing before b",
        ),
        (
            {"source": "flights"},
            3,
            "Topic 'wrong' has two partitions for each of its source 'flights': 4 (or -1).",
        ),
    ],
)
def test_what_cannot_be_subscribed_to(
    bootstrap: str, source: Source, configs: dict[str, str], partitions: int, message: str
) -> None:
    with pytest.raises(KafkaException) as caught:
        create(bootstrap, "wrong", partitions, **configs)
    assert caught.value.args[0].str() == message


def test_no_subscription_of_a_subscription(bootstrap: str, source: Source) -> None:
    create(bootstrap, "first", source=source.name)
    with pytest.raises(KafkaException, match="topic 'first' has a source itself"):
        create(bootstrap, "second", source="first")


def test_what_may_not_be_produced(bootstrap: str, source: Source) -> None:
    create(bootstrap, "quiet", source=source.name)
    failed: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap, "retries": 0})

    def done(error: object, message: object) -> None:
        failed.append(str(error))

    producer.produce("quiet", "x", partition=1, on_delivery=done)
    producer.produce(source.name, "x", headers=[("tw-tags", b"x")], on_delivery=done)
    producer.produce(source.name, "x", headers=[("tw-tag", b"")], on_delivery=done)
    assert producer.flush(20) == 0
    assert len(failed) == 3
    assert all("INVALID_RECORD" in error for error in failed), failed


def test_any_client_can_ask_for_the_lag(bootstrap: str, source: Source) -> None:
    """What is shown from an offset on, and the age of the first: by librdkafka's ListOffsets, at a
    time that no record has."""
    create(bootstrap, "lagging", source=source.name, filter=FILTER)

    expected = source.matching[0]
    first = expected[len(expected) // 2][0]
    for offset in (0, first, first + 1, expected[-1][0] + 1, source.ends[0]):
        left = [one for one, _ in expected if one >= offset]
        count, timestamp = shown_from(bootstrap, "lagging", 0, offset)
        assert count == len(left)
        assert (timestamp > 0) == bool(left)
    assert shown_from(bootstrap, "lagging", 1, 0) == (0, -1)
    # Of a topic that reads headers, what its consumers see.
    assert shown_from(bootstrap, source.name, 0, source.ends[0]) == (0, -1)
    assert shown_from(bootstrap, source.name, 0, 0)[0] == source.ends[0]
