"""What is counted of the connections to other brokers, and how a scraper sees it.

One series for each broker that this one has asked for something, labelled with its id; a cell has
few. They stay when a connection ends and when a broker leaves, so that totals never fall.

Deliberately absent: what the requests are about. They are fetches; what of it stands in the log is
`tidewheel_replicated_bytes_total`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class PeerCounts:
    """Of one peer, since the start. Plain attributes, for the path of the bytes.

    - `connects_count`: connections that were made; `failures_count`: attempts that came to nothing.
    - `connections_count`, `in_flight_count`: now. While a connection that was given up ends, its
      successor may be there already. Requests that wait for a connection are in flight, too.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "connections_count",
        "connects_count",
        "failures_count",
        "in_flight_count",
        "responses_count",
    )

    def __init__(self) -> None:
        self.connections_count = 0
        self.in_flight_count = 0
        self.connects_count = 0
        self.failures_count = 0
        self.responses_count = 0
        self.bytes_in = 0
        self.bytes_out = 0

    @property
    def reconnects_count(self) -> int:
        """Connections after the first one."""
        return max(0, self.connects_count - 1)


_Read = Callable[[PeerCounts], int]
# (name, documentation, value)
_GAUGES: tuple[tuple[str, str, _Read], ...] = (
    (
        "tidewheel_peer_connections",
        "Connections to this broker.",
        lambda counts: counts.connections_count,
    ),
    (
        "tidewheel_peer_requests_in_flight",
        "Requests to this broker without an answer yet.",
        lambda counts: counts.in_flight_count,
    ),
)
_TOTALS: tuple[tuple[str, str, _Read], ...] = (
    (
        "tidewheel_peer_reconnects",
        "Connections to this broker after the first one.",
        lambda counts: counts.reconnects_count,
    ),
    (
        "tidewheel_peer_connection_failures",
        "Attempts to connect to this broker that failed.",
        lambda counts: counts.failures_count,
    ),
    (
        "tidewheel_peer_responses",
        "Answers from this broker, most of them to fetches.",
        lambda counts: counts.responses_count,
    ),
    (
        "tidewheel_peer_received_bytes",
        "Bytes that came from this broker in answers.",
        lambda counts: counts.bytes_in,
    ),
    (
        "tidewheel_peer_sent_bytes",
        "Bytes of requests to this broker.",
        lambda counts: counts.bytes_out,
    ),
)


class PeerCollector(Collector):
    """`read` gives, for each purpose that has connections of its own, the counts by node id."""

    def __init__(self, read: Callable[[], Sequence[Mapping[int, PeerCounts]]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        purposes = self._read()
        node_ids = sorted({node_id for purpose in purposes for node_id in purpose})
        for family, samples in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _TOTALS)):
            for name, documentation, read in samples:
                metric = family(name, documentation, labels=["peer"])
                for node_id in node_ids:
                    value = sum(read(each[node_id]) for each in purposes if node_id in each)
                    metric.add_metric([str(node_id)], value)
                yield metric
