"""Delayed messages with real clients and a real broker: invisible, then delivered once, not early,
over restarts, and from partitions that nobody asks for anything.
"""

from __future__ import annotations

import time
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.broker_process import BrokerProcess
from tests.conformance.conftest import SETTINGS
from tests.conformance.test_subscriptions import create

with warnings.catch_warnings():
    # The client reads its schemas by a call that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

# The client leaves the sockets of its wake-up pipes to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

SECONDS_MAX = 60.0
Header = tuple[str, bytes]
Send = Callable[[str, str, dict[str, list[Header]]], None]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, set=SETTINGS, module="features") as one:
        yield one


def with_librdkafka(bootstrap: str, topic: str, sent: dict[str, list[Header]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    failed: list[object] = []
    for value, headers in sent.items():
        producer.produce(
            topic,
            value.encode(),
            partition=0,
            headers=list(headers),
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert not failed


def with_kafka_python(bootstrap: str, topic: str, sent: dict[str, list[Header]]) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    pending = [
        producer.send(topic, value.encode(), headers=headers, partition=0)
        for value, headers in sent.items()
    ]
    try:
        for one in pending:
            one.get(SECONDS_MAX)
    finally:
        producer.close()


class Reader:
    """A consumer of a partition from its start on, and what it has got: (value, timestamp)."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.got: list[tuple[str, int]] = []
        self.headers: dict[str, set[str]] = {}

    def read(self, seconds: float, count: int = 1 << 30) -> list[str]:
        """Until so many came, or for so long."""
        end = time.monotonic() + seconds
        while len(self.got) < count and time.monotonic() < end:
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            value = (message.value() or b"").decode()
            self.got.append((value, message.timestamp()[1]))
            headers = message.headers() or []
            self.headers[value] = {header[0] for header in headers}
        return [value for value, _ in self.got]

    def close(self) -> None:
        self._consumer.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def metric(broker: BrokerProcess, name: str) -> float:
    url = f"http://127.0.0.1:{broker.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=SECONDS_MAX) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line.split()[-1] for line in lines if line.startswith(f"{name} ")))


@pytest.mark.parametrize("send", [with_librdkafka, with_kafka_python])
def test_a_message_comes_when_it_is_due_and_once(broker: BrokerProcess, send: Send) -> None:
    create(broker.bootstrap, "orders", 1, headers="true")
    began_ms = now_ms()
    delays = {"third": b"3s", "second": b"2s", "now": b"", "first": b"1s"}
    sent = {
        value: [("tw-delay", delay), ("tw-tag", b"eu")] if delay else []
        for value, delay in delays.items()
    }
    sent["past"] = [("tw-deliver-at", b"2001-02-03T04:05:06Z")]
    send(broker.bootstrap, "orders", sent)
    reader = Reader(broker.bootstrap, "orders")
    assert reader.read(SECONDS_MAX, 5) == ["now", "past", "first", "second", "third"]
    assert len(reader.read(1.0)) == 5
    for number, value in enumerate(("first", "second", "third"), start=1):
        timestamp_ms = dict(reader.got)[value]
        assert timestamp_ms >= began_ms + number * 1_000
        assert reader.headers[value] == {"tw-tag", "tw-source", "tw-produced-at"}
    assert metric(broker, "tidewheel_delayed_delivered_total") == 4
    assert metric(broker, "tidewheel_delayed_pending") == 0
    reader.close()


@pytest.mark.parametrize("is_killed", [False, True])
def test_it_comes_after_a_restart_without_being_asked_for(
    broker: BrokerProcess, is_killed: bool
) -> None:
    create(broker.bootstrap, "orders", 1, headers="true")
    due_ms = now_ms() + 4_000
    sent = {f"{number}": [("tw-deliver-at", b"%d" % due_ms)] for number in range(500)}
    with_librdkafka(broker.bootstrap, "orders", sent)
    assert metric(broker, "tidewheel_delayed_pending") == 500
    assert metric(broker, "tidewheel_delayed_next_due_timestamp_seconds") == due_ms / 1_000
    if is_killed:
        broker.kill9()
    else:
        broker.stop()
    broker.start()
    # Nobody connects meanwhile.
    deadline = time.monotonic() + SECONDS_MAX
    while metric(broker, "tidewheel_delayed_delivered_total") < 500:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    reader = Reader(broker.bootstrap, "orders")
    assert reader.read(SECONDS_MAX, 500) == list(sent)
    assert len(reader.read(0.5)) == 500
    assert min(timestamp_ms for _, timestamp_ms in reader.got) >= due_ms
    reader.close()


def test_what_makes_no_sense_is_refused(broker: BrokerProcess) -> None:
    create(broker.bootstrap, "orders", 1, headers="true")
    refused = [("tw-delay", b"11y"), ("tw-delay", b"0"), ("tw-cancel", b"unknown")]
    for header in refused:
        with pytest.raises(AssertionError):
            with_librdkafka(broker.bootstrap, "orders", {"never": [header]})
    with_librdkafka(broker.bootstrap, "orders", {"now": []})
    reader = Reader(broker.bootstrap, "orders")
    assert reader.read(SECONDS_MAX, 1) == ["now"]
    reader.close()


@pytest.mark.parametrize("send", [with_librdkafka, with_kafka_python])
def test_what_is_cancelled_never_comes_and_what_is_moved_comes_then(
    broker: BrokerProcess, send: Send
) -> None:
    create(broker.bootstrap, "orders", 1, headers="true")
    delays = {"cancelled": b"4s", "moved": b"1h", "kept": b"4s"}
    waiting = {
        value: [("tw-delay", delay), ("tw-id", value.encode())] for value, delay in delays.items()
    }
    send(broker.bootstrap, "orders", waiting)
    for _ in range(2):
        # Who has not heard the answer asks again.
        send(broker.bootstrap, "orders", {"": [("tw-cancel", b"cancelled")]})
    send(broker.bootstrap, "orders", {"": [("tw-reschedule", b"moved"), ("tw-delay", b"1s")]})
    broker.kill9()
    broker.start()
    reader = Reader(broker.bootstrap, "orders")
    assert reader.read(SECONDS_MAX, 2) == ["moved", "kept"]
    assert len(reader.read(2.0)) == 2
    reader.close()
    send(broker.bootstrap, "orders", {"": [("tw-cancel", b"cancelled")]})
    refused = {"tw-cancel": b"kept", "tw-cancel-offset": b"2", "tw-reschedule": b"nobody"}
    for header, value in refused.items():
        times = [("tw-delay", b"1s")] if header == "tw-reschedule" else []
        with pytest.raises((AssertionError, KafkaError)):
            send(broker.bootstrap, "orders", {"": [(header, value), *times]})
