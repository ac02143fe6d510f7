"""What the broker counts, and how a scraper sees it.

Hot paths count with plain integer attributes; the Prometheus collector reads them when a scraper
asks, so that counting a produced batch costs one addition.

Deliberately absent: per-topic series. A tenant may have 10,000 partitions, and a scraper should not
have to carry them all; sizes per topic are read with DescribeLogDirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from data_plane.wire.registry import ApiKey

Sample = tuple[str, str, Callable[[], float]]


class BrokerCounters:
    """Counted on the hot paths; monotonic since the start."""

    __slots__ = (
        "fetched_bytes",
        "produced_batches",
        "produced_bytes",
        "produced_records",
        "refused_batches",
        "request_errors",
        "requests_by_api",
    )

    def __init__(self) -> None:
        self.produced_bytes = 0
        self.produced_batches = 0
        self.produced_records = 0
        self.refused_batches = 0
        self.fetched_bytes = 0
        self.request_errors = 0
        self.requests_by_api: dict[int, int] = {}


class BrokerCollector(Collector):
    """Turns counters and gauges into metric families."""

    def __init__(self, counters: BrokerCounters) -> None:
        self._counters = counters
        self._gauges: list[Sample] = []
        self._totals: list[Sample] = []

    def add_gauge(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        self._gauges.append((name, documentation, read))

    def add_total(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """A counter; `name` without the suffix `_total`."""
        self._totals.append((name, documentation, read))

    def collect(self) -> Iterable[Metric]:
        yield from self._collect_counters()
        for name, documentation, read in self._gauges:
            yield GaugeMetricFamily(name, documentation, value=read())
        for name, documentation, read in self._totals:
            yield CounterMetricFamily(name, documentation, value=read())

    def _collect_counters(self) -> Iterator[Metric]:
        counters = self._counters
        requests = CounterMetricFamily(
            "tidewheel_requests", "Requests received, by API.", labels=["api"]
        )
        for api_key, requests_count in sorted(counters.requests_by_api.items()):
            requests.add_metric([ApiKey(api_key).name.lower()], requests_count)
        yield requests
        for name, documentation, value in (
            ("tidewheel_request_errors", "Requests that failed inside.", counters.request_errors),
            ("tidewheel_produced_bytes", "Bytes of batches stored.", counters.produced_bytes),
            ("tidewheel_produced_batches", "Batches stored.", counters.produced_batches),
            ("tidewheel_produced_records", "Records stored.", counters.produced_records),
            ("tidewheel_refused_batches", "Batches refused.", counters.refused_batches),
            ("tidewheel_fetched_bytes", "Bytes of batches fetched.", counters.fetched_bytes),
        ):
            yield CounterMetricFamily(name, documentation, value=value)


def make_registry(collector: BrokerCollector) -> CollectorRegistry:
    """A registry of this broker alone, without the library's process-wide one."""
    registry = CollectorRegistry()
    registry.register(collector)
    return registry
