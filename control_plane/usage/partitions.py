"""The partitions of the tables of use: made ahead, and dropped when they are older than what is
kept. By day for what is kept for weeks, by month for what is kept for a year; UTC.

Invariants
- There is a partition for everything from MADE_BACK ago, from when on brokers' samples are counted,
  to MADE_AHEAD from now.
- A partition goes when all of it is older than what its table keeps, by this clock and by the
  database's: one clock that has gone wrong drops nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from django.db import connection, transaction
from django.utils import timezone

MADE_AHEAD: Final = timedelta(days=3)
MADE_BACK: Final = timedelta(days=8)
"""More than brokers keep their samples for."""
LOCK_TIMEOUT_MS: Final = 5_000
"""A table is locked while it gets a partition. Who waits for that longer does it the next time."""


class KeptTable(NamedTuple):
    """A table, how long its rows are kept, and whether a partition is a month or a day."""

    name: str
    kept: timedelta
    is_monthly: bool


BY_10S: Final = KeptTable("usage_tenantusage10s", timedelta(days=7), False)
BY_MINUTE: Final = KeptTable("usage_tenantusageminute", timedelta(days=30), False)
BY_HOUR: Final = KeptTable("usage_tenantusagehour", timedelta(days=365), True)
TOPICS_BY_HOUR: Final = KeptTable("usage_topicusagehour", timedelta(days=365), True)
TABLES: Final = (BY_10S, BY_MINUTE, BY_HOUR, TOPICS_BY_HOUR)


def first_start(table: KeptTable, now: datetime) -> datetime:
    """From when on there are partitions."""
    return _start_of(table, now - min(MADE_BACK, table.kept))


def do_keep_partitions(now: datetime) -> None:
    """Make those that are missing, and drop those that are over."""
    with transaction.atomic(), connection.cursor() as cursor:
        # One at a time, and no longer in the way of readers than it takes.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('usage partitions', 0))")
        cursor.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
        cursor.execute("SELECT clock_timestamp()")
        surely = min(now, cursor.fetchone()[0])
        for table in TABLES:
            present = _present(table)
            for start in _between(table, first_start(table, now), now + MADE_AHEAD):
                if start not in present:
                    end = _next(table, start)
                    cursor.execute(
                        f"CREATE TABLE {_name(table, start)} PARTITION OF {table.name} "
                        f"FOR VALUES FROM ('{start.isoformat()}') TO ('{end.isoformat()}')"
                    )
            for start in present:
                if _next(table, start) <= surely - table.kept:
                    cursor.execute(f"DROP TABLE {_name(table, start)}")


def are_partitions_there(now: datetime) -> bool:
    """Whether everything that is counted now has its partition."""
    soon = now + MADE_AHEAD - timedelta(days=1)
    return all(
        _present(table).issuperset(_between(table, first_start(table, now), soon))
        for table in TABLES
    )


def do_make_partitions_if_missing() -> None:
    """For who is about to store and may be the first."""
    now = timezone.now()
    if not are_partitions_there(now):
        do_keep_partitions(now)


def _present(table: KeptTable) -> set[datetime]:
    """The beginnings of the partitions that there are."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT child.relname FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid "
            "WHERE inhparent = %s::regclass",
            [table.name],
        )
        return {_start_in(name) for (name,) in cursor.fetchall()}


def _between(table: KeptTable, first: datetime, last: datetime) -> Iterator[datetime]:
    while first <= last:
        yield first
        first = _next(table, first)


def _start_of(table: KeptTable, at: datetime) -> datetime:
    day = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day.replace(day=1) if table.is_monthly else day


def _next(table: KeptTable, start: datetime) -> datetime:
    if not table.is_monthly:
        return start + timedelta(days=1)
    return (start + timedelta(days=31)).replace(day=1)


def _name(table: KeptTable, start: datetime) -> str:
    return f"{table.name}_{start:%Y%m%d}"


def _start_in(name: str) -> datetime:
    return datetime.strptime(name.rpartition("_")[2], "%Y%m%d").replace(tzinfo=UTC)
