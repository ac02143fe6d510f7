"""What tenants have used, in tables that Postgres partitions by time, so that what is old goes by
dropping a partition (partitions.py).

Samples are per tenant by 10 seconds, minute and hour, and per topic by hour; all times are UTC. A
row's key is what it counts and when that began.

Invariant: a broker's sample is counted when, and only when, its sequence is above that of its
`UsageIncarnation`, which grows in the same transaction. `UsageCursor` only says where to go on.
"""

from __future__ import annotations

from django.db import models

from control_plane.tenancy.ids import ID_CHARACTERS_MAX
from control_plane.tenancy.models import NAME_CHARACTERS_MAX

INCARNATION_CHARACTERS_MAX = 64
ENDPOINT_CHARACTERS_MAX = 255


class UsageNumbers(models.Model):
    """What is counted in an interval. Bytes are of record batches, as they are stored and sent."""

    produce_bytes = models.BigIntegerField(default=0)
    produce_records = models.BigIntegerField(default=0)
    fetch_bytes = models.BigIntegerField(default=0)
    # At the end of the interval; of leaders only.
    storage_bytes = models.BigIntegerField(default=0)

    class Meta:
        abstract = True


class TenantUsage(UsageNumbers):
    """Of a tenant; one table for each resolution."""

    pk = models.CompositePrimaryKey("organization_id", "starts_at")
    organization_id = models.CharField(max_length=ID_CHARACTERS_MAX)
    starts_at = models.DateTimeField()
    requests = models.BigIntegerField(default=0)
    throttled_ms = models.BigIntegerField(default=0)
    # At the end of the interval.
    connections = models.BigIntegerField(default=0)

    class Meta:
        abstract = True


class TenantUsage10s(TenantUsage):
    """Kept for 7 days."""


class TenantUsageMinute(TenantUsage):
    """Kept for 30 days."""


class TenantUsageHour(TenantUsage):
    """Kept for a year."""


class TopicUsageHour(UsageNumbers):
    """Of a topic, by hour, where anything was not zero. Kept for a year."""

    pk = models.CompositePrimaryKey("organization_id", "topic_name", "starts_at")
    organization_id = models.CharField(max_length=ID_CHARACTERS_MAX)
    topic_name = models.CharField(max_length=NAME_CHARACTERS_MAX)
    starts_at = models.DateTimeField()


class UsageCursor(models.Model):
    """The last sample that was read of a broker: from there its feed is asked for the next time."""

    pk = models.CompositePrimaryKey("cell_id", "node_id")
    cell_id = models.CharField(max_length=ID_CHARACTERS_MAX)
    node_id = models.IntegerField()
    # Where the broker answered.
    endpoint = models.CharField(max_length=ENDPOINT_CHARACTERS_MAX, default="")
    incarnation = models.CharField(max_length=INCARNATION_CHARACTERS_MAX)
    sequence = models.BigIntegerField()
    read_at = models.DateTimeField(auto_now=True)


class UsageIncarnation(models.Model):
    """Of a broker's process: up to which sequence its samples are counted. Stays for ever: a row
    for each start of a broker, and without it an old sample would be counted again."""

    pk = models.CompositePrimaryKey("cell_id", "node_id", "incarnation")
    cell_id = models.CharField(max_length=ID_CHARACTERS_MAX)
    node_id = models.IntegerField()
    incarnation = models.CharField(max_length=INCARNATION_CHARACTERS_MAX)
    sequence = models.BigIntegerField()
    # For how long its samples say that use was lost before them.
    lost_ms = models.BigIntegerField(default=0)


class UsageLevel(models.Model):
    """What a broker said last of something that has a level: the storage of a topic's partitions
    that it leads, or, without a topic, a tenant's open connections."""

    pk = models.CompositePrimaryKey("cell_id", "node_id", "organization_id", "topic_name")
    cell_id = models.CharField(max_length=ID_CHARACTERS_MAX)
    node_id = models.IntegerField()
    organization_id = models.CharField(max_length=ID_CHARACTERS_MAX)
    topic_name = models.CharField(max_length=NAME_CHARACTERS_MAX, blank=True)
    incarnation = models.CharField(max_length=INCARNATION_CHARACTERS_MAX)
    value = models.BigIntegerField()
    measured_at = models.DateTimeField()

    class Meta:
        indexes = (
            models.Index(fields=("cell_id", "organization_id"), name="usage_levels_of_tenant"),
        )
