"""The benchmarks' producer: what it counts as sent has been sent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.direct_producer import DirectProducer
from tests.conformance.test_librdkafka import create, read_all

FLUSH_SECONDS_MAX = 30.0
Settings = dict[str, str | int | float | bool]


def test_all_that_it_queues_arrives(bootstrap: str, name: Callable[[str], str]) -> None:
    topic = name("direct")
    create(bootstrap, topic, partitions=2)
    # A queue that is full again and again, and calls that are taken in part.
    settings: Settings = {"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 700}
    with DirectProducer(settings, topic, b"the value") as producer:
        producer.send(4_500)
        producer.send(500, partition=1)
        assert producer.flush(FLUSH_SECONDS_MAX) == 0
        assert producer.failed == 0
    got = read_all(bootstrap, topic, 5_000, partitions=2)
    assert {message.value() for message in got} == {b"the value"}
    assert sum(message.partition() == 1 for message in got) >= 500


def test_what_the_broker_refuses_is_counted(bootstrap: str, name: Callable[[str], str]) -> None:
    topic = name("direct-small")
    create(bootstrap, topic, max_message_bytes="500")
    with DirectProducer({"bootstrap.servers": bootstrap}, topic, bytes(1_000)) as producer:
        producer.send(20)
        assert producer.flush(FLUSH_SECONDS_MAX) == 0
        assert producer.failed == 20
        assert producer.first_failure == "Broker: Message size too large"


def test_what_librdkafka_refuses_is_an_error(bootstrap: str, name: Callable[[str], str]) -> None:
    settings: Settings = {"bootstrap.servers": bootstrap, "message.max.bytes": 1_000}
    with (
        DirectProducer(settings, name("direct-large"), bytes(5_000)) as producer,
        pytest.raises(RuntimeError, match="too large"),
    ):
        producer.send(1)


def test_an_unknown_setting_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"no\.such\.setting"):
        DirectProducer({"no.such.setting": 1}, "topic", b"value")
