"""Retries and dead letters in a cell of three whose brokers are killed: a handler fails on every
message, and says so by plain Produce.

A broker that is killed before it has noted a date trusts none for five minutes after its next start
(ADR 29), and asks for nacks to be sent again for so long. It notes one with each checkpoint; here
that is twice a second, and nobody is killed before.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from data_plane.log.log_directory import CHECKPOINT_FILE
from stack.broker_process import WITH_FEATURES
from tests.faults.cell import Cell

PARTITIONS = 3
MESSAGES = 300
ATTEMPTS = 3
SECONDS_MAX = 240.0
CHECKPOINTS = {"log.flush.offset.checkpoint.interval.ms": "500"}


class FailingHandler:
    """It reads all partitions of the subscription, and nacks all that it gets."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        settings = {"group.id": "handlers", "auto.offset.reset": "error"}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
        indexes = range(2 * PARTITIONS)
        self._consumer.assign([TopicPartition("pay", index, 0) for index in indexes])
        self.refused: list[str] = []
        # How often each message was delivered as which attempt.
        self.delivered: Counter[tuple[str, int]] = Counter()

    def step(self) -> None:
        message = self._consumer.poll(0.2)
        if message is None or message.error() is not None:
            return
        headers = dict(headers_of(message))
        attempt = int(headers.get("tw-attempt", b"1"))
        self.delivered[(message.value() or b"").decode(), attempt] += 1
        index, offset = message.partition(), message.offset()
        assert index is not None
        self._producer.produce(
            "pay",
            partition=index | 1,
            headers=[("tw-nack", f"{index}:{offset}".encode()), ("tw-reason", b"no luck")],
            on_delivery=self._told,
        )
        self._producer.poll(0)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(str(error))

    def close(self) -> None:
        self._producer.flush(10)
        self._consumer.close()


def headers_of(message: Message) -> list[tuple[str, bytes]]:
    return list(message.headers() or [])  # type: ignore[arg-type]


def dead_letters(bootstrap: str, seconds: float, count: int) -> list[dict[str, bytes]]:
    """Their headers, with the value as `value`; until there are so many, or for so long."""
    reader = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "topic.metadata.refresh.interval.ms": 500}
    )
    reader.assign([TopicPartition("pay.dlq", index, 0) for index in range(PARTITIONS)])
    found: list[dict[str, bytes]] = []
    end = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            headers = {name: bytes(value or b"") for name, value in headers_of(message)}
            found.append({**headers, "value": message.value() or b""})
    reader.close()
    return found


def has_noted_a_date(cell: Cell, broker: int) -> bool:
    checkpoints = (cell.folder / f"broker-{broker}").rglob(CHECKPOINT_FILE)
    return any("vouched_date_ms" in checkpoint.read_text() for checkpoint in checkpoints)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [0, 2])
def test_each_message_is_tried_and_then_dead_once(tmp_path: Path, kills: int) -> None:
    with Cell(tmp_path, module=WITH_FEATURES, settings=CHECKPOINTS) as cell:
        bootstrap = cell.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        orders = NewTopic("orders", PARTITIONS, 3, config={"tidewheel.headers": "true"})
        admin.create_topics([orders])["orders"].result()
        policy = {
            "tidewheel.source": "orders",
            "tidewheel.retry.backoff": "fixed:1s",
            "tidewheel.retry.attempts.max": str(ATTEMPTS),
            "tidewheel.retry.breaker": "false",
        }
        admin.create_topics([NewTopic("pay", -1, -1, config=policy)])["pay"].result()
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        for number in range(MESSAGES):
            producer.produce("orders", str(number).encode(), partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        end = time.monotonic() + SECONDS_MAX
        wanted = MESSAGES * ATTEMPTS
        with closing(FailingHandler(bootstrap)) as handler:
            for kill in range(1, kills + 1):
                while len(handler.delivered) < wanted * kill // (kills + 1):
                    assert time.monotonic() < end, (len(handler.delivered), handler.refused)
                    handler.step()
                while not has_noted_a_date(cell, kill):
                    assert time.monotonic() < end
                    handler.step()
                cell.kill9(kill)
                cell.start(kill)
            while len(handler.delivered) < wanted:
                assert time.monotonic() < end, (len(handler.delivered), handler.refused)
                handler.step()
        assert not handler.refused
        attempts = {(str(n), a) for n in range(MESSAGES) for a in range(1, ATTEMPTS + 1)}
        assert handler.delivered == Counter(dict.fromkeys(attempts, 1))
        letters = dead_letters(bootstrap, SECONDS_MAX, MESSAGES)
        letters += dead_letters(bootstrap, 3.0, MESSAGES + 1)[MESSAGES:]
        assert Counter(one["value"] for one in letters) == Counter(
            str(number).encode() for number in range(MESSAGES)
        )
        assert {one["tw-attempt"] for one in letters} == {str(ATTEMPTS).encode()}
        assert {one["tw-reason"] for one in letters} == {b"no luck"}
