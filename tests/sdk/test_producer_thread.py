"""The thread that waits for delivery reports outlives what librdkafka tells it."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException
from tidewheel.transport.librdkafka.producer import LibrdkafkaProducer


class Loop:
    """Notes that it was woken."""

    def __init__(self) -> None:
        self.woken: list[Any] = []

    def call_soon_threadsafe(self, call: Any) -> None:
        self.woken.append(call)


class FatalProducer:
    """Tells of a fatal error at first, then has reports, then is closed."""

    def __init__(self, transport: LibrdkafkaProducer) -> None:
        self.transport = transport
        self.polls_count = 0

    def poll(self, timeout_s: float) -> int:
        self.polls_count += 1
        if self.polls_count == 1:
            raise KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no", True))
        self.transport._closed = self.polls_count == 3
        return int(self.polls_count == 2)


def test_reports_are_called_after_a_fatal_error() -> None:
    transport = object.__new__(LibrdkafkaProducer)
    loop: Any = Loop()
    transport._loop = loop
    transport._closed = False
    transport._on_due = print
    producer: Any = FatalProducer(transport)
    transport._wait(producer)
    assert producer.polls_count == 3
    assert loop.woken == [print, print]
