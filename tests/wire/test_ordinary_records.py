"""The walk's shortcut over ordinary records: as the general walk says, or nothing."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.wire import kernel_records
from data_plane.wire.kernel_records import _walk_ordinary
from data_plane.wire.records import NewRecord, build_batch
from tests.wire.kernel_pairs import COMPILED, mutate, needs_compiled, outcome

Shape = tuple[int, int | None, int | None, Any]
"""Milliseconds after the base, sizes of key and value, headers."""

BASE_MS = 1_700_000_000_000
SIZES = st.sampled_from([None, 0, 1, 2, 62, 63, 64, 65, 100, 8_180, 8_191, 8_192, 9_000])
ORDINARY = st.tuples(
    st.integers(-1, 70) | st.sampled_from([8_191, 8_192, 10**6]),
    SIZES,
    SIZES,
    st.sampled_from([(), (), (), ((b"h", b"v"),)]),
)


def nothing(
    p: Any, pos: int, end: int, index: int, count: int, max_delta: int, absent_delta: int
) -> Any:
    """What the shortcut says when there is no ordinary record."""
    return index, pos, 0, max_delta, 0, 0


def outcomes(payload: Any, count: int) -> list[Any]:
    """Of the general walk, of the one with the shortcut, and of the compiled one where it is."""
    arguments = (payload, 0, len(payload), count, BASE_MS)
    found = [outcome(kernel_records.walk_records, *arguments, batch_index=0)]
    with mock.patch.object(kernel_records, "_walk_ordinary", nothing):
        found.append(outcome(kernel_records.walk_records, *arguments, batch_index=0))
    if COMPILED is not None:
        found.append(outcome(COMPILED.batches.walk_records, *arguments, batch_index=0))
    return found


def payload_of(shapes: list[Shape]) -> bytes:
    records = [
        NewRecord(
            BASE_MS + time,
            None if key is None else b"k" * key,
            None if value is None else b"v" * value,
            headers,
        )
        for time, key, value, headers in shapes
    ]
    return bytes(build_batch([NewRecord(BASE_MS, None, None), *records])[61:])


@settings(max_examples=400)
@given(st.lists(ORDINARY, max_size=8), st.integers(0, 2**32), st.integers(-1, 1), st.booleans())
def test_the_shortcut_changes_no_outcome(
    shapes: list[Shape], seed: int, extra: int, damaged: bool
) -> None:
    payload: bytes | bytearray = payload_of(shapes)
    if damaged:
        payload = mutate(random.Random(seed), payload)
    count = max(0, len(shapes) + 1 + extra)
    found = [*outcomes(payload, count), *outcomes(memoryview(payload), count)]
    assert all(other == found[0] for other in found), found


def test_no_single_byte_makes_a_difference() -> None:
    payload = payload_of([(3, 1, 2, ()), (70, None, 65, ()), (71, 0, None, ())])
    for at in range(len(payload)):
        for value in range(256):
            found = outcomes(payload[:at] + bytes([value]) + payload[at + 1 :], 4)
            assert all(other == found[0] for other in found), (at, value, found)


def test_ten_thousand_records_are_ordinary() -> None:
    shapes: list[Shape] = [
        (index // 50, 5 if index % 3 else None, 100, ()) for index in range(9_999)
    ]
    payload = payload_of(shapes)
    found = _walk_ordinary(payload, 0, len(payload), 0, 10_000, 0, -1)
    assert found == (10_000, len(payload), 0, 199, 9_951, 3_334)


@pytest.mark.parametrize("size", range(24))
def test_no_byte_behind_the_end_is_read(size: int) -> None:
    class Fenced(bytes):
        def __getitem__(self, at: Any) -> Any:
            assert 0 <= at < size
            return super().__getitem__(at)

    payload = payload_of([(0, 1, 1, ())] * 4)
    for at in range(size):
        for value in (0, 1, 0x7E, 0x7F, 0x80, 0xFF):
            changed = bytearray(payload)
            changed[at] = value
            _walk_ordinary(Fenced(changed), 0, size, 0, 5, 0, -1)


@needs_compiled
def test_compiled_too_no_byte_behind_the_end_is_read() -> None:
    command = [sys.executable, "-m", "tests.wire.fenced_walk"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert int(done.stdout) > 1_000
