"""Samples of brokers' use, stored once, in three resolutions; and what is shown of it.

Invariants
- A sample (broker, incarnation, sequence) is counted in the transaction that remembers it, or not
  at all. It may be brought any number of times, in any order, by several workers.
- All resolutions are written together: they add up to the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db import connection, models, transaction
from django.db.models import Sum
from django.utils import timezone
from psycopg import sql

from control_plane.accounts.models import Organization
from control_plane.usage.models import (
    TenantUsage,
    TenantUsage10s,
    TenantUsageHour,
    TenantUsageMinute,
    TopicUsageHour,
    UsageCursor,
    UsageIncarnation,
    UsageLevel,
)
from control_plane.usage.partitions import (
    BY_10S,
    BY_HOUR,
    BY_MINUTE,
    TOPICS_BY_HOUR,
    KeptTable,
    first_start,
)
from control_plane.usage.samples import (
    HOUR_MS,
    MINUTE_MS,
    TEN_SECONDS_MS,
    Folded,
    Level,
    LevelKey,
    Levels,
    Numbers,
    fold,
)
from data_plane.contract.cell_operations_pb2 import LostUsage, UsageSample

log = logging.getLogger(__name__)

RESOLUTIONS: Final[Mapping[str, type[TenantUsage]]] = {
    "10s": TenantUsage10s,
    "minute": TenantUsageMinute,
    "hour": TenantUsageHour,
}
NOW_IS: Final = timedelta(minutes=1)
"""Over what rates of the present are averaged."""
LEVEL_OLDEST: Final = timedelta(minutes=10)
LEVELS_KEPT: Final = timedelta(days=1)

_TENANT_NUMBERS: Final = (
    *("produce_bytes", "produce_records", "fetch_bytes", "requests", "throttled_ms"),
    *("storage_bytes", "connections"),
)
_TOPIC_NUMBERS: Final = ("produce_bytes", "produce_records", "fetch_bytes", "storage_bytes")
_LEVELS: Final = ("storage_bytes", "connections")


def do_store_samples(cell_id: str, endpoint: str, samples: Sequence[UsageSample]) -> int:
    """Count those that are not counted yet; how many those were. All are of one broker, in the
    order in which it has them. Partitions for them are there."""
    if not samples:
        return 0
    node_id = samples[0].broker_id
    with transaction.atomic():
        # Levels are about all brokers of a cell, so these are taken in one by one.
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"usage of {cell_id}"]
            )
        fresh = _fresh(cell_id, node_id, samples)
        if fresh:
            _count(cell_id, fresh)
        last = samples[-1]
        UsageCursor.objects.update_or_create(
            cell_id=cell_id,
            node_id=node_id,
            defaults={
                "endpoint": endpoint,
                "incarnation": last.incarnation,
                "sequence": last.sequence,
            },
        )
    return len(fresh)


def do_forget_old_levels(now: datetime) -> None:
    """Those of what has not been heard of for long, and holds no more."""
    UsageLevel.objects.filter(measured_at__lt=now - LEVELS_KEPT).delete()


def do_forget_names(organization_id: str) -> None:
    """Of a tenant that is no more: its totals stay for as long as they are kept, the names of its
    topics do not."""
    TopicUsageHour.objects.filter(organization_id=organization_id).delete()
    UsageLevel.objects.filter(organization_id=organization_id).delete()


def series_of(
    organization_id: str, resolution: str, topic_name: str | None, start: datetime, end: datetime
) -> models.QuerySet[Any]:
    """The intervals with use that begin from `start` on and before `end`, in order: of the tenant,
    or, by hour, of one topic."""
    rows: models.QuerySet[Any]
    if topic_name is None:
        rows = RESOLUTIONS[resolution]._default_manager.all()
    else:
        rows = TopicUsageHour.objects.filter(topic_name=topic_name)
    within = rows.filter(organization_id=organization_id, starts_at__gte=start, starts_at__lt=end)
    return within.order_by("starts_at")


def topics_between(
    organization_id: str, start: datetime, end: datetime
) -> models.QuerySet[TopicUsageHour, dict[str, Any]]:
    """By name, what each topic has used in the hours that begin in between."""
    rows = TopicUsageHour.objects.filter(
        organization_id=organization_id, starts_at__gte=start, starts_at__lt=end
    )
    counts = ("produce_bytes", "produce_records", "fetch_bytes")
    summed = rows.values("topic_name").annotate(**{name: Sum(name) for name in counts})
    return summed.order_by("topic_name")


def use_now(organization_id: str, now: datetime | None = None) -> dict[str, int]:
    """By the names of limits: rates of the last minute that is whole, and levels."""
    now = now or timezone.now()
    whole = now.astimezone(UTC).replace(second=0, microsecond=0) - NOW_IS
    rows = TenantUsageMinute.objects.filter(organization_id=organization_id)
    minute = rows.filter(starts_at=whole).first() or TenantUsageMinute()
    last = rows.filter(starts_at__gt=now - LEVEL_OLDEST).order_by("-starts_at").first()
    seconds = int(NOW_IS.total_seconds())
    return {
        "produce_bytes_per_second": minute.produce_bytes // seconds,
        "consume_bytes_per_second": minute.fetch_bytes // seconds,
        "requests_per_second": minute.requests // seconds,
        "storage_bytes": 0 if last is None else last.storage_bytes,
        "connections": 0 if last is None else last.connections,
    }


def _fresh(cell_id: str, node_id: int, samples: Sequence[UsageSample]) -> list[UsageSample]:
    """Those that are not counted yet, which are from now on."""
    incarnations = UsageIncarnation.objects.filter(cell_id=cell_id, node_id=node_id)
    named = incarnations.filter(incarnation__in={sample.incarnation for sample in samples})
    rows = {row.incarnation: row for row in named}
    fresh: list[UsageSample] = []
    for sample in samples:
        row = rows.get(sample.incarnation)
        if row is None:
            row = UsageIncarnation(
                cell_id=cell_id, node_id=node_id, incarnation=sample.incarnation, sequence=0
            )
            rows[sample.incarnation] = row
        if sample.broker_id != node_id or sample.sequence <= row.sequence:
            continue
        row.sequence = sample.sequence
        if sample.HasField("lost"):
            row.lost_ms += sample.lost.duration_ms
            reason = LostUsage.Reason.Name(sample.lost.reason)
            log.warning(
                "use of broker %s in cell %s was lost before sample %s of %s: %s, %s ms",
                *(node_id, cell_id, sample.sequence, sample.incarnation, reason),
                sample.lost.duration_ms,
            )
        fresh.append(sample)
    UsageIncarnation.objects.bulk_create(
        rows.values(),
        update_conflicts=True,
        unique_fields=["cell_id", "node_id", "incarnation"],
        update_fields=["sequence", "lost_ms"],
    )
    return fresh


def _count(cell_id: str, samples: Sequence[UsageSample]) -> None:
    now = timezone.now()
    names = {row.tenant for sample in samples for row in sample.topics}
    names |= {row.tenant for sample in samples for row in sample.tenants}
    found = Organization.objects.filter(slug__in=names).values_list("slug", "id")
    organization_of = dict(found)
    levels = _levels(cell_id, samples[0].broker_id, organization_of.values())
    folded = fold(samples, organization_of, levels, _ms(now))
    _write(folded, now)
    UsageLevel.objects.bulk_create(
        [
            UsageLevel(
                cell_id=cell_id,
                node_id=key.node_id,
                organization_id=key.organization_id,
                topic_name=key.topic_name,
                incarnation=level.incarnation,
                value=level.value,
                measured_at=_at(level.measured_ms),
            )
            for key, level in levels.changed.items()
        ],
        update_conflicts=True,
        unique_fields=["cell_id", "node_id", "organization_id", "topic_name"],
        update_fields=["incarnation", "value", "measured_at"],
    )


def _levels(cell_id: str, node_id: int, organization_ids: Iterable[str]) -> Levels:
    """What the cell's brokers have said of these tenants, and this broker of all."""
    rows = UsageLevel.objects.filter(cell_id=cell_id)
    levels = Levels()
    wanted = models.Q(organization_id__in=list(organization_ids)) | models.Q(node_id=node_id)
    for row in rows.filter(wanted):
        key = LevelKey(row.node_id, row.organization_id, row.topic_name)
        said = levels.of_tenants.setdefault(row.organization_id, {})
        said[key] = Level(row.incarnation, row.value, _ms(row.measured_at))
    return levels


def _write(folded: Folded, now: datetime) -> None:
    for table, interval_ms in (
        (BY_10S, TEN_SECONDS_MS),
        (BY_MINUTE, MINUTE_MS),
        (BY_HOUR, HOUR_MS),
    ):
        rows = {
            (organization_id, _at(start_ms)): numbers
            for (organization_id, start_ms), numbers in folded.tenants_by(interval_ms).items()
        }
        _add(table, ("organization_id", "starts_at"), _TENANT_NUMBERS, rows, now)
    topics = {
        (organization_id, name, _at(start_ms)): numbers
        for (organization_id, name, start_ms), numbers in folded.topics.items()
    }
    keys = ("organization_id", "topic_name", "starts_at")
    used = {key: numbers for key, numbers in topics.items() if numbers != Numbers()}
    _add(TOPICS_BY_HOUR, keys, _TOPIC_NUMBERS, used, now)
    for organization_id, name, starts_at in topics.keys() - used.keys():
        # Where there is no row there is none to make.
        emptied = TopicUsageHour.objects.filter(organization_id=organization_id, topic_name=name)
        emptied.filter(starts_at=starts_at).update(storage_bytes=0)


def _add(
    table: KeptTable,
    keys: Sequence[str],
    names: Sequence[str],
    rows: Mapping[tuple[Any, ...], Numbers],
    now: datetime,
) -> None:
    """Counts are added to those that are there; levels replace them."""
    first = first_start(table, now)
    values = [
        (*key, *(getattr(numbers, name) for name in names))
        for key, numbers in sorted(rows.items(), key=lambda item: item[0])
        if key[-1] >= first
    ]
    if not values:
        return
    statement = sql.SQL(
        "INSERT INTO {table} ({columns}) VALUES ({places}) ON CONFLICT ({keys}) DO UPDATE SET {new}"
    ).format(
        table=sql.Identifier(table.name),
        columns=sql.SQL(", ").join(map(sql.Identifier, (*keys, *names))),
        places=sql.SQL(", ").join(sql.Placeholder() * (len(keys) + len(names))),
        keys=sql.SQL(", ").join(map(sql.Identifier, keys)),
        new=sql.SQL(", ").join(_updated(table.name, name) for name in names),
    )
    with connection.cursor() as cursor:
        cursor.executemany(statement, values)


def _updated(table: str, name: str) -> sql.Composed:
    column = sql.Identifier(name)
    if name in _LEVELS:
        return sql.SQL("{0} = excluded.{0}").format(column)
    return sql.SQL("{0} = {1}.{0} + excluded.{0}").format(column, sql.Identifier(table))


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _at(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
