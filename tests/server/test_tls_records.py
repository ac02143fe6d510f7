"""Records are counted however the stream is cut up, and what brings nothing is bounded."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.server.tls_records import (
    DATA_RECORDS_PER_FRUITLESS,
    FRUITLESS_RECORDS_MAX,
    TlsRecords,
)


def record(size: int, content_type: int = 23) -> bytes:
    return bytes((content_type, 3, 3)) + size.to_bytes(2, "big") + bytes(size)


def receive(records: TlsRecords, stream: bytes, rng: random.Random | None = None) -> None:
    view = memoryview(stream)
    while view:
        size = len(view) if rng is None else rng.randint(1, 40)
        records.received(view[:size])
        view = view[size:]


@given(st.lists(st.integers(1, 60), max_size=200), st.integers(0, 1 << 32))
def test_only_what_brings_nothing_counts(sizes: list[int], seed: int) -> None:
    rng = random.Random(seed)
    records = TlsRecords()
    fruitless = 0
    for size in sizes:
        receive(records, record(size), rng)
        if rng.random() < 0.7:
            records.gave_data()
        else:
            fruitless += 1
        # Fewer than 1,000 records with data earn nothing.
        assert records.all_read() == (fruitless <= FRUITLESS_RECORDS_MAX)


def test_half_a_record_is_none() -> None:
    records = TlsRecords()
    half = record(16_000)[:-1]
    for piece in (half[:3], half[3:5], half[5:6], half[6:]):
        records.received(memoryview(piece))
        assert records._unread_count == 0
    records.received(memoryview(b"\0" + record(1)))
    assert records._unread_count == 2


def test_data_earns_changes_of_keys() -> None:
    records = TlsRecords()
    for _ in range(3 * FRUITLESS_RECORDS_MAX):
        receive(records, record(22))
        assert records.all_read()
        receive(records, record(22) * DATA_RECORDS_PER_FRUITLESS)
        for _ in range(DATA_RECORDS_PER_FRUITLESS):
            records.gave_data()
        assert records.all_read()
    receive(records, record(22) * (FRUITLESS_RECORDS_MAX + 1))
    assert not records.all_read(), "no more is saved up than a new connection has"


def test_the_handshake_counts_for_nothing() -> None:
    records = TlsRecords()
    receive(records, record(40, 22) * 100)
    records.handshake_done()
    assert records.all_read()


@pytest.mark.parametrize("first", [0x80, 0, 19, 24])
def test_what_is_not_tls_is_not_trusted(first: int) -> None:
    records = TlsRecords()
    receive(records, record(4, first))
    records.handshake_done()
    assert not records.all_read()
