"""A group's partition is the one that Kafka would choose."""

from __future__ import annotations

import pytest

from data_plane.groups.partitioning import java_string_hash, partition_for_group


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("abc", 96354),
        ("Aa", 2112),
        ("BB", 2112),
        # The one hash whose absolute value does not fit.
        ("polygenelubricants", -(2**31)),
        # Beyond the basic plane Java counts two units.
        ("\U0001f600", 55357 * 31 + 56832),
    ],
)
def test_java_string_hash(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_the_least_hash_counts_as_zero() -> None:
    assert partition_for_group("default", "polygenelubricants", 50) == 0


# Where Apache Kafka 4.3.1 put these groups' records, of five partitions.
@pytest.mark.parametrize(
    ("group_id", "partition"),
    [
        ("", 0),
        ("del-connect", 1),
        ("del-offsets", 2),
        ("del-opaque", 4),
        ("full", 0),
        ("leaving-join", 4),
        ("life", 1),
        ("outlive", 3),
        ("static", 3),
        ("sync-ends", 1),
    ],
)
def test_partitions_of_kafka(group_id: str, partition: int) -> None:
    assert partition_for_group("default", group_id, 5) == partition


def test_groups_of_tenants_are_spread_by_tenant_and_name() -> None:
    found = {partition_for_group(f"tenant-{number}", "pay", 50) for number in range(100)}
    assert len(found) > 25
    # A pair and not a text: no other one reads the same.
    assert partition_for_group("a", "b/c", 1 << 30) != partition_for_group("a/b", "c", 1 << 30)
