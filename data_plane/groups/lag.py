"""How far a group is behind: records between what it has committed and what can be read.

Offsets count, not records: where compaction or aborted transactions left gaps, the lag is an upper
bound, as in Kafka's own tools.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from data_plane.groups.record_formats import CommittedOffset, OffsetKey


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a group; `lag` is None while its ends are not known here."""

    key: OffsetKey
    committed_offset: int
    lag: int | None


def partition_lag(committed_offset: int, log_start_offset: int, high_watermark: int) -> int:
    """Offsets still to be read. A position below the log's start goes on at the start, one beyond
    the end (the log lost its tail) has nothing to read."""
    return max(high_watermark - max(committed_offset, log_start_offset), 0)


class Ends(Protocol):
    """Where partitions begin and end; a mapping will do."""

    def get(self, key: tuple[str, int], /) -> tuple[int, int] | None: ...


def group_lag(
    offsets: Iterable[tuple[OffsetKey, CommittedOffset]], ends: Ends
) -> list[PartitionLag]:
    """Lags of committed offsets; `ends` has (log start offset, high watermark) by partition."""
    lags = []
    for key, committed in offsets:
        bounds = ends.get((key.topic, key.partition))
        lag = None if bounds is None else partition_lag(committed.offset, *bounds)
        lags.append(PartitionLag(key, committed.offset, lag))
    return lags
