"""What `/metrics` tells of message ids: those remembered, and duplicates dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class DedupMetrics(Collector):
    """Of one broker."""

    def __init__(self, remembered: Callable[[], int], dropped: Callable[[], int]) -> None:
        """`remembered`: how many ids the replicas here know; `dropped`: how many messages."""
        self._remembered = remembered
        self._dropped = dropped

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "tidewheel_dedup_ids_remembered",
            "Message ids that the replicas here remember (dedup.window.ms).",
            value=self._remembered(),
        )
        yield CounterMetricFamily(
            "tidewheel_dedup_duplicates_dropped",
            "Messages that were acknowledged and not stored, since the partition had their id.",
            value=self._dropped(),
        )
