"""What `/metrics` tells of dead letters that are put back or purged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


class RedriveMetrics(Collector):
    """Of one broker."""

    def __init__(self) -> None:
        self.redriven_count = 0
        self.purged_count = 0
        # Attempts to move letters that failed, by reason.
        self.held_counts: Counter[str] = Counter()

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "tidewheel_dead_letters_redriven",
            "Dead letters that were put back, by the leaders of their partitions.",
            value=self.redriven_count,
        )
        yield CounterMetricFamily(
            "tidewheel_dead_letters_purged",
            "Dead letters that were purged.",
            value=self.purged_count,
        )
        held = CounterMetricFamily(
            "tidewheel_redrives_held",
            "Attempts to put dead letters back that failed, by reason; they are tried again.",
            labels=["reason"],
        )
        for reason, count in sorted(self.held_counts.items()):
            held.add_metric([reason], count)
        yield held
