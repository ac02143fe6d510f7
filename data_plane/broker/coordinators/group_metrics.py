"""What a scraper sees of consumer groups: states, counters, and how far each group is behind.

The lag is summed up for each group and topic over the partitions whose ends this broker knows,
those that it leads. How many it does not know stands beside it; in a cell of one broker that is
none. Everything is computed when somebody scrapes and costs nothing in between.

The lags are of the default tenant's groups: other tenants' names are not for whoever scrapes,
unless `metrics.tenant.labels` says that they are. Then all series have a label `tenant`.

Of a topic that shows a part of another one's records the lag is what is shown, counted by a thread:
a scrape gets what the one before it has had counted (fetch/shown_lags.py), and nothing is known at
the first.

Deliberately absent: series per partition (`tidewheel lag` shows those); more than LAG_SERIES_MAX
groups' topics, which a scraper should not have to carry; and lags of a coordinator with more than
LAG_OFFSETS_MAX offsets, whom adding them up would hold up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from data_plane.cell.tenants import DEFAULT_TENANT
from data_plane.groups.lag import group_lag

if TYPE_CHECKING:
    from data_plane.broker.services import Services
    from data_plane.groups.coordinator import GroupCoordinator
    from data_plane.groups.record_formats import CommittedOffset, OffsetKey

_Committed = Iterator[tuple["OffsetKey", "CommittedOffset"]]

LAG_SERIES_MAX: Final = 2_000
LAG_OFFSETS_MAX: Final = 20_000

# The coordinator's counters: field, what a scraper calls it (without _total), and its meaning.
_COUNTERS: Final = (
    ("rebalances_started", "tidewheel_group_rebalances_started", "Join phases begun."),
    ("rebalances_completed", "tidewheel_group_rebalances_completed", "Rebalances that ended well."),
    ("members_expired", "tidewheel_group_members_expired", "Members whose session ended."),
    ("offset_commits", "tidewheel_group_offset_commits", "Offsets committed."),
    ("offset_deletions", "tidewheel_group_offset_deletions", "Offsets deleted on request."),
    ("offset_expirations", "tidewheel_group_offset_expirations", "Offsets that expired."),
    ("groups_deleted", "tidewheel_groups_deleted", "Groups deleted or expired."),
    ("append_failures", "tidewheel_group_append_failures", "Failed writes of groups."),
)


class GroupMetrics(Collector):
    """Reads the coordinator when somebody scrapes."""

    def __init__(
        self,
        services: Services,
        coordinator: Callable[[], GroupCoordinator],
        *,
        has_tenants: bool = False,
    ) -> None:
        """`has_tenants`: whether everybody's groups are named."""
        self._services = services
        self._has_tenants = has_tenants
        self._coordinator = coordinator

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        coordinator = self._coordinator()
        groups = GaugeMetricFamily(
            "tidewheel_groups", "Consumer groups by state.", labels=["state"]
        )
        for state, count in coordinator.groups_by_state().items():
            groups.add_metric([state], count)
        yield groups
        yield GaugeMetricFamily(
            "tidewheel_group_offsets", "Committed offsets.", value=coordinator.offset_count()
        )
        yield GaugeMetricFamily(
            "tidewheel_group_appends_in_flight",
            "Writes to __consumer_offsets that have not settled.",
            value=coordinator.append_count(),
        )
        for field, name, text in _COUNTERS:
            yield CounterMetricFamily(name, text, value=getattr(coordinator.counters, field))
        refused = CounterMetricFamily(
            "tidewheel_group_refusals",
            "Requests that a limit of their tenant did not allow.",
            labels=["quota"],
        )
        for quota, count in coordinator.counters.refused.items():
            refused.add_metric([quota], count)
        yield refused
        yield from self._lags(coordinator)

    def _lags(self, coordinator: GroupCoordinator) -> Iterator[Metric]:
        labels = ["tenant", "group", "topic"] if self._has_tenants else ["group", "topic"]
        lags = GaugeMetricFamily(
            "tidewheel_group_lag",
            "Records between a group's committed offsets and the ends of the partitions led here.",
            labels=labels,
        )
        unknown = GaugeMetricFamily(
            "tidewheel_group_lag_unknown_partitions",
            "Partitions with committed offsets whose ends this broker does not know.",
            labels=labels,
        )
        ages = GaugeMetricFamily(
            "tidewheel_group_lag_seconds",
            "Age of the oldest record that a group has still to read of a subscription.",
            labels=labels,
        )
        series: Iterator[tuple[tuple[str, str, str], _Committed]] = iter(())
        if coordinator.offset_count() <= LAG_OFFSETS_MAX:
            series = self._committed(coordinator)
        for (tenant, group, topic), committed in islice(series, LAG_SERIES_MAX):
            values = [tenant, group, topic] if self._has_tenants else [group, topic]
            if self._is_virtual(tenant, topic):
                self._add_shown(lags, unknown, ages, values, tenant, committed)
                continue
            found = group_lag(committed, _Ends(self._services, tenant))
            known = [one.lag for one in found if one.lag is not None]
            lags.add_metric(values, sum(known))
            unknown.add_metric(values, len(found) - len(known))
        self._services.shown_lags.count()
        yield lags
        yield unknown
        yield ages

    def _is_virtual(self, tenant: str, name: str) -> bool:
        topic = self._services.image.topic(tenant, name)
        return topic is not None and topic.is_virtual

    def _add_shown(
        self,
        lags: GaugeMetricFamily,
        unknown: GaugeMetricFamily,
        ages: GaugeMetricFamily,
        values: list[str],
        tenant: str,
        committed: _Committed,
    ) -> None:
        services = self._services
        look = services.shown_lags.look
        found = [
            look(tenant, key.group_id, key.topic, key.partition, one.offset)
            for key, one in committed
        ]
        known = [lag for lag in found if lag is not None]
        unknown.add_metric(values, len(found) - len(known))
        if known:
            lags.add_metric(values, sum(lag.records_count for lag in known))
            now_ms = services.wall_clock.wall_ms(services.metadata.now_ms())
            oldest = min((lag.oldest_ms for lag in known if lag.records_count), default=now_ms)
            ages.add_metric(values, max(now_ms - oldest, 0) / 1000)

    def _committed(
        self, coordinator: GroupCoordinator
    ) -> Iterator[tuple[tuple[str, str, str], _Committed]]:
        """By tenant, group and topic."""
        tenant_ids = {DEFAULT_TENANT: DEFAULT_TENANT}
        if self._has_tenants:
            tenants = self._services.image.tenants
            tenant_ids |= {name: tenant.tenant_id for name, tenant in sorted(tenants.items())}
        for tenant, tenant_id in tenant_ids.items():
            offsets = sorted(coordinator.committed_offsets(tenant_id).items())
            by_topic = groupby(offsets, lambda item: (item[0].group_id, item[0].topic))
            for (group, topic), committed in by_topic:
                yield (tenant, group, topic), committed


class _Ends:
    """(log start, high watermark) of a tenant's partitions led here, asked for one by one."""

    def __init__(self, services: Services, tenant: str) -> None:
        self._services = services
        self._tenant = tenant

    def get(self, key: tuple[str, int]) -> tuple[int, int] | None:
        name, index = key
        topic = self._services.image.topic(self._tenant, name)
        if topic is None:
            return None
        projections = self._services.projections
        partition = projections.leading(self._tenant, name, topic.id_bytes, index)
        if partition is None:
            return None
        return partition.log.log_start_offset, partition.high_watermark
