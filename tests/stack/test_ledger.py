"""The demo's books: every kind of fault is found, and honest redelivery is none."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.demo.ledger import Ledger, percentile

Sent = list[tuple[int, bytes | None, bytes]]
Received = list[tuple[bytes | None, bytes, int, int]]

KEYS = (b"N1", b"N2", None)


def value_of(row: int) -> bytes:
    return b'{"row":%d,"x":"y"}' % row


def sent_rows(count: int) -> Sent:
    return [(row, KEYS[row % 3], value_of(row)) for row in range(1, count + 1)]


def delivered(sent: Sent) -> Received:
    """Every row once, in order, spread over partitions by key."""
    return [(key, value, KEYS.index(key), row) for row, key, value in sent]


def books(sent: Sent, received: Received) -> Ledger:
    ledger = Ledger(len(sent))
    for row, key, value in sent:
        ledger.record_sent(row, key, value, at_s=1.0)
    for key, value, partition, offset in received:
        ledger.record_received(key, value, partition, offset, at_s=1.5)
    return ledger


@given(count=st.integers(1, 60), seed=st.integers(0, 2**32))
def test_any_interleaving_of_partitions_is_good(count: int, seed: int) -> None:
    sent = sent_rows(count)
    chooser = random.Random(seed)
    queues = [[m for m in delivered(sent) if m[2] == partition] for partition in range(3)]
    received = []
    while any(queues):
        received.append(chooser.choice([queue for queue in queues if queue]).pop(0))
    ledger = books(sent, received)
    assert ledger.verdict().is_good
    assert list(ledger.latencies_s) == [0.5] * count


@given(start=st.integers(0, 9), length=st.integers(1, 10))
def test_redelivery_of_a_stretch_is_counted_and_not_blamed(start: int, length: int) -> None:
    sent = sent_rows(30)
    received = delivered(sent)
    again = received[start : start + length]
    cut = start + length
    verdict = books(sent, [*received[:cut], *again, *received[cut:]]).verdict()
    assert verdict.is_good
    assert verdict.redelivered == len(again)


def test_a_missing_flight_is_named() -> None:
    sent = sent_rows(9)
    verdict = books(sent, [m for m in delivered(sent) if m[3] != 4]).verdict()
    assert not verdict.is_good
    assert (verdict.missing, verdict.received, verdict.examples) == (1, 8, ("row 4 is missing",))


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ((b"N2", b'{"row":4,"x":"z"}', 1, 4), "altered"),
        ((b"N1", value_of(4), 1, 4), "altered"),
        ((b"N2", b"not JSON", 1, 4), "unknown"),
        ((b"N2", b'{"row":10}', 1, 4), "unknown"),
        ((b"N2", b'{"row":0}', 1, 4), "unknown"),
        ((b"N2", b'{"row":"4"}', 1, 4), "unknown"),
    ],
)
def test_a_changed_message_is_found(changed: tuple[bytes, bytes, int, int], fault: str) -> None:
    sent = sent_rows(9)
    received = [changed if m[3] == 4 else m for m in delivered(sent)]
    verdict = books(sent, received).verdict()
    assert not verdict.is_good
    assert getattr(verdict, fault) == 1


def test_wrong_order_within_a_key_is_found() -> None:
    sent = sent_rows(9)
    received = delivered(sent)
    received[0], received[3] = received[3], received[0]
    verdict = books(sent, received).verdict()
    assert not verdict.is_good
    assert verdict.out_of_order == 1


def test_a_second_copy_in_the_log_is_no_redelivery() -> None:
    sent = sent_rows(9)
    verdict = books(sent, [*delivered(sent), (KEYS[1], value_of(1), 0, 99)]).verdict()
    assert not verdict.is_good
    assert (verdict.duplicates, verdict.redelivered) == (1, 0)


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, f) for f in (0.5, 0.95, 0.99, 1.0)] == [50.0, 95.0, 99.0, 100.0]
    assert percentile([3.0], 0.5) == 3.0
