"""Lag, at the ends and beyond them."""

from __future__ import annotations

import pytest

from data_plane.groups.lag import PartitionLag, group_lag, partition_lag
from data_plane.groups.record_formats import CommittedOffset, OffsetKey


@pytest.mark.parametrize(
    ("committed_offset", "expected"),
    [(10, 10), (15, 5), (20, 0), (25, 0), (3, 10), (-1, 10)],
)
def test_lag_of_a_log_from_10_to_20(committed_offset: int, expected: int) -> None:
    assert partition_lag(committed_offset, 10, 20) == expected


def test_lag_of_a_group() -> None:
    here, elsewhere = OffsetKey("g", "orders", 0), OffsetKey("g", "orders", 1)
    offsets = [(here, CommittedOffset(4, -1, "", 0)), (elsewhere, CommittedOffset(9, -1, "", 0))]
    assert group_lag(offsets, {("orders", 0): (0, 7)}) == [
        PartitionLag(here, 4, 3),
        PartitionLag(elsewhere, 9, None),
    ]
