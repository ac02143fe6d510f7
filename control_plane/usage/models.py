"""What tenants have used, in tables that Postgres partitions by time, so that what is old goes by
dropping a partition. Nothing fills them yet, and nothing drops a partition.

Samples are per tenant by 10 seconds, minute and hour, and per topic by hour. A row's key is what it
counts and when that began; the same sample again is the same row. `UsageCursor` is how far a
broker's feed has been read, in one incarnation of the broker.
"""

from __future__ import annotations

from django.db import models

from control_plane.tenancy.ids import ID_CHARACTERS_MAX


class UsageNumbers(models.Model):
    """What is counted in an interval. Bytes are of record batches, as they are on the wire."""

    produce_bytes = models.BigIntegerField(default=0)
    produce_records = models.BigIntegerField(default=0)
    fetch_bytes = models.BigIntegerField(default=0)
    fetch_records = models.BigIntegerField(default=0)
    requests = models.BigIntegerField(default=0)
    throttled_ms = models.BigIntegerField(default=0)
    # Levels at the end of the interval; storage is of leaders only.
    storage_bytes = models.BigIntegerField(default=0)
    connections = models.BigIntegerField(default=0)

    class Meta:
        abstract = True


class TenantUsage(UsageNumbers):
    """Of a tenant; one table for each resolution."""

    pk = models.CompositePrimaryKey("organization_id", "starts_at")
    organization_id = models.CharField(max_length=ID_CHARACTERS_MAX)
    starts_at = models.DateTimeField()

    class Meta:
        abstract = True


class TenantUsage10s(TenantUsage):
    """Kept for 7 days."""


class TenantUsageMinute(TenantUsage):
    """Kept for 30 days."""


class TenantUsageHour(TenantUsage):
    """Kept for a year."""


class TopicUsageHour(UsageNumbers):
    """Of a topic, by hour, where anything was not zero."""

    pk = models.CompositePrimaryKey("organization_id", "topic_name", "starts_at")
    organization_id = models.CharField(max_length=ID_CHARACTERS_MAX)
    topic_name = models.CharField(max_length=249)
    starts_at = models.DateTimeField()


class UsageCursor(models.Model):
    """How far the usage of a broker's incarnation has been read."""

    pk = models.CompositePrimaryKey("cell_id", "node_id")
    cell_id = models.CharField(max_length=ID_CHARACTERS_MAX)
    node_id = models.IntegerField()
    incarnation = models.CharField(max_length=64)
    sequence = models.BigIntegerField()
    read_at = models.DateTimeField(auto_now=True)
