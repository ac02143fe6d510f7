"""Settings, durations and headers: what is taken, what is refused and how."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tidewheel import ConsumerSettings, ProducerRecord, ProducerSettings
from tidewheel.errors import ConfigurationError, TidewheelError
from tidewheel.headers import DELAY_LEVELS, duration_ms, encode_headers
from tidewheel.rest import Refused


@pytest.mark.parametrize(
    "bad",
    [
        {"acks": 2},
        {"acks": 1, "idempotent": True},
        {"compression": "rar"},
        {"partitioner": "alphabetical"},
        {"linger_ms": -1},
        {"batch_bytes": 0},
        {"queue_messages_max": 0},
        {"message_bytes_max": 10},
        {"request_timeout_ms": 10},
    ],
)
def test_bad_producer_settings(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ProducerSettings(**bad)
    assert caught.value.hint


@pytest.mark.parametrize(
    "bad",
    [
        {"assignment": "mine"},
        {"isolation": "none"},
        {"session_timeout_ms": 400_000},
        {"heartbeat_interval_ms": 50_000},
        {"commit_interval_ms": 0},
        {"request_timeout_ms": 0},
    ],
)
def test_bad_consumer_settings(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        ConsumerSettings(**bad)


def test_presets_differ_in_lingering_and_can_be_changed() -> None:
    assert ProducerSettings.latency().linger_ms == 0
    assert ProducerSettings.throughput(acks=1).compression == "lz4"
    assert ProducerSettings.throughput(acks=1).is_idempotent is False
    assert ProducerSettings().is_idempotent


def test_durations() -> None:
    assert [duration_ms(level) for level in DELAY_LEVELS][:4] == [1000, 5000, 10_000, 30_000]
    assert duration_ms("45d") == 45 * 86_400_000
    assert duration_ms(timedelta(milliseconds=3)) == 3
    for bad in ("30", "1.5h", "-3s", "soon", "", "3 s"):
        with pytest.raises(ConfigurationError):
            duration_ms(bad)
    with pytest.raises(ConfigurationError):
        duration_ms(-1)


def test_record_headers() -> None:
    record = ProducerRecord(
        headers=[("trace", "1")], tags=["checkout", "region:eu"], delay="30m", id="o-17"
    )
    assert encode_headers(record) == [
        ("trace", "1"),
        ("tw-tag", b"checkout"),
        ("tw-tag", b"region:eu"),
        ("tw-delay", b"1800000ms"),
        ("tw-id", b"o-17"),
    ]
    at = datetime(2030, 1, 1, tzinfo=UTC)
    assert encode_headers(ProducerRecord(deliver_at=at)) == [("tw-deliver-at", b"1893456000000")]


@pytest.mark.parametrize(
    "record",
    [
        ProducerRecord(tags="checkout"),
        ProducerRecord(tags=[""]),
        ProducerRecord(tags=["x" * 129]),
        ProducerRecord(tags=["x"] * 65),
        ProducerRecord(id=b""),
        ProducerRecord(id="x" * 65),
        ProducerRecord(delay="1s", deliver_at=5),
        ProducerRecord(delay=timedelta(days=5000)),
        ProducerRecord(deliver_at=datetime(2030, 1, 1)),
    ],
)
def test_bad_record_headers(record: ProducerRecord) -> None:
    with pytest.raises(ConfigurationError):
        encode_headers(record)


def test_limits_are_inclusive() -> None:
    record = ProducerRecord(tags=["x" * 128] * 64, id="y" * 64)
    assert len(encode_headers(record)) == 65


def all_errors(root: type[TidewheelError]) -> list[type[TidewheelError]]:
    return [root, *(e for child in root.__subclasses__() for e in all_errors(child))]


def test_every_error_says_what_to_do_or_takes_it_from_the_raiser() -> None:
    without = {e.__name__ for e in all_errors(TidewheelError) if not e.default_hint}
    assert without == {
        "TidewheelError",
        "ConfigurationError",
        "SendError",
        "ConsumerError",
        "BrokerError",
        Refused.__name__,
    }
