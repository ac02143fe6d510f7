"""What a scraper sees of quotas: how often clients had to wait for which, and for how long.

By reason only: tenants have metrics of their own, which say how long their clients had to wait.
"""

from __future__ import annotations

from functools import partial

from data_plane.broker.quotas.quota_manager import REASONS, BrokerQuotas
from data_plane.broker.request.metrics import BrokerCollector


def add_quota_metrics(collector: BrokerCollector, quotas: BrokerQuotas) -> None:
    for reason in REASONS:
        collector.add_total(
            f"tidewheel_throttled_{reason}_answers",
            f"Answers whose clients had to wait: {REASONS[reason]}.",
            partial(_count, quotas, reason),
        )
        collector.add_total(
            f"tidewheel_throttled_{reason}_ms",
            f"For how long these clients had to wait, added up: {REASONS[reason]}.",
            partial(_duration_ms, quotas, reason),
        )
    collector.add_total(
        "tidewheel_refused_connections",
        "Connections that the limits of their tenants did not allow.",
        lambda: quotas.holdings.refused_connections_count,
    )


def _count(quotas: BrokerQuotas, reason: str) -> int:
    return quotas.throttled[reason].count


def _duration_ms(quotas: BrokerQuotas, reason: str) -> int:
    return quotas.throttled[reason].duration_ms
