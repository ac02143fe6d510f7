"""What `/metrics` tells of delayed messages: how many are pending, delivered, and how late."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

LATENESS_BUCKETS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 250, 500, 1_000, 5_000, 60_000)


class DelayedMetrics(Collector):
    """Of one broker."""

    def __init__(self, look: Callable[[], tuple[int, int | None]]) -> None:
        """`look`: how many are pending in the partitions that this broker leads, and when the first
        of them is due."""
        self._look = look
        self.delivered_count = 0
        self.cancelled_count = 0
        self._lateness_counts = [0] * (len(LATENESS_BUCKETS_MS) + 1)
        self._lateness_sum_ms = 0

    def note_delivered(self, lateness_ms: int) -> None:
        """A message was appended so long after it was due."""
        self.delivered_count += 1
        self._lateness_counts[bisect_left(LATENESS_BUCKETS_MS, lateness_ms)] += 1
        self._lateness_sum_ms += lateness_ms

    def collect(self) -> Iterator[Metric]:
        pending_count, first_due_ms = self._look()
        yield GaugeMetricFamily(
            "tidewheel_delayed_pending",
            "Messages of the partitions led here that are hidden until they are due.",
            value=pending_count,
        )
        if first_due_ms is not None:
            yield GaugeMetricFamily(
                "tidewheel_delayed_next_due_timestamp_seconds",
                "When the first of them is due.",
                value=first_due_ms / 1_000,
            )
        yield CounterMetricFamily(
            "tidewheel_delayed_delivered", "Messages delivered.", value=self.delivered_count
        )
        yield CounterMetricFamily(
            "tidewheel_delayed_cancelled", "Messages cancelled.", value=self.cancelled_count
        )
        buckets: list[tuple[str, float]] = []
        total = 0
        bounds = (*(str(bound_ms / 1_000) for bound_ms in LATENESS_BUCKETS_MS), "+Inf")
        for bound, count in zip(bounds, self._lateness_counts, strict=True):
            total += count
            buckets.append((bound, total))
        yield HistogramMetricFamily(
            "tidewheel_delayed_lateness_seconds",
            "How long after they were due messages were appended for readers.",
            buckets=buckets,
            sum_value=self._lateness_sum_ms / 1_000,
        )
