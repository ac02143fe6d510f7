"""The hash partitioner agrees with Kafka's: librdkafka's murmur2 is the reference."""

from __future__ import annotations

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidewheel.partitioner import hash_partition, murmur2, random_partition


@given(st.binary(max_size=300), st.integers(1, 10_000))
def test_agrees_with_librdkafka(key: bytes, count: int) -> None:
    assert hash_partition(key, count) == confluent_kafka.murmur2(key, count)


@pytest.mark.parametrize(
    ("key", "expected"),
    [  # From the test of Kafka's own Utils.murmur2, as signed 32-bit numbers.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_agrees_with_kafkas_java_client(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_random_reaches_every_partition() -> None:
    assert {random_partition("t", b"k", None, 4) for _ in range(500)} == {0, 1, 2, 3}
