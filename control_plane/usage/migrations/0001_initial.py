"""Tables of `usage`."""

from typing import Any

from django.db import migrations, models

# Django knows no partitioned tables. The keys hold the time, by which Postgres partitions.
NUMBERS = (
    "produce_bytes",
    "produce_records",
    "fetch_bytes",
    "fetch_records",
    "requests",
    "throttled_ms",
    "storage_bytes",
    "connections",
)
COLUMNS = "".join(f"{name} bigint NOT NULL, " for name in NUMBERS)
TENANT_TABLES = ("usage_tenantusage10s", "usage_tenantusageminute", "usage_tenantusagehour")
CURSOR_TABLE = "usage_usagecursor"
TABLES: list[Any] = [
    *(
        f"CREATE TABLE {table} (organization_id varchar(40) NOT NULL, "
        f"starts_at timestamptz NOT NULL, {COLUMNS}"
        "PRIMARY KEY (organization_id, starts_at)) PARTITION BY RANGE (starts_at)"
        for table in TENANT_TABLES
    ),
    "CREATE TABLE usage_topicusagehour (organization_id varchar(40) NOT NULL, "
    f"topic_name varchar(249) NOT NULL, starts_at timestamptz NOT NULL, {COLUMNS}"
    "PRIMARY KEY (organization_id, topic_name, starts_at)) PARTITION BY RANGE (starts_at)",
    f"CREATE TABLE {CURSOR_TABLE} (cell_id varchar(40) NOT NULL, node_id integer NOT NULL, "
    "incarnation varchar(64) NOT NULL, sequence bigint NOT NULL, read_at timestamptz NOT NULL, "
    "PRIMARY KEY (cell_id, node_id))",
]
DROP: list[Any] = [
    f"DROP TABLE {table}" for table in (*TENANT_TABLES, "usage_topicusagehour", CURSOR_TABLE)
]


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(TABLES, DROP)],
            state_operations=[
                migrations.CreateModel(
                    name="TenantUsage10s",
                    fields=[
                        ("produce_bytes", models.BigIntegerField(default=0)),
                        ("produce_records", models.BigIntegerField(default=0)),
                        ("fetch_bytes", models.BigIntegerField(default=0)),
                        ("fetch_records", models.BigIntegerField(default=0)),
                        ("requests", models.BigIntegerField(default=0)),
                        ("throttled_ms", models.BigIntegerField(default=0)),
                        ("storage_bytes", models.BigIntegerField(default=0)),
                        ("connections", models.BigIntegerField(default=0)),
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "organization_id",
                                "starts_at",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("organization_id", models.CharField(max_length=40)),
                        ("starts_at", models.DateTimeField()),
                    ],
                    options={
                        "abstract": False,
                    },
                ),
                migrations.CreateModel(
                    name="TenantUsageHour",
                    fields=[
                        ("produce_bytes", models.BigIntegerField(default=0)),
                        ("produce_records", models.BigIntegerField(default=0)),
                        ("fetch_bytes", models.BigIntegerField(default=0)),
                        ("fetch_records", models.BigIntegerField(default=0)),
                        ("requests", models.BigIntegerField(default=0)),
                        ("throttled_ms", models.BigIntegerField(default=0)),
                        ("storage_bytes", models.BigIntegerField(default=0)),
                        ("connections", models.BigIntegerField(default=0)),
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "organization_id",
                                "starts_at",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("organization_id", models.CharField(max_length=40)),
                        ("starts_at", models.DateTimeField()),
                    ],
                    options={
                        "abstract": False,
                    },
                ),
                migrations.CreateModel(
                    name="TenantUsageMinute",
                    fields=[
                        ("produce_bytes", models.BigIntegerField(default=0)),
                        ("produce_records", models.BigIntegerField(default=0)),
                        ("fetch_bytes", models.BigIntegerField(default=0)),
                        ("fetch_records", models.BigIntegerField(default=0)),
                        ("requests", models.BigIntegerField(default=0)),
                        ("throttled_ms", models.BigIntegerField(default=0)),
                        ("storage_bytes", models.BigIntegerField(default=0)),
                        ("connections", models.BigIntegerField(default=0)),
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "organization_id",
                                "starts_at",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("organization_id", models.CharField(max_length=40)),
                        ("starts_at", models.DateTimeField()),
                    ],
                    options={
                        "abstract": False,
                    },
                ),
                migrations.CreateModel(
                    name="TopicUsageHour",
                    fields=[
                        ("produce_bytes", models.BigIntegerField(default=0)),
                        ("produce_records", models.BigIntegerField(default=0)),
                        ("fetch_bytes", models.BigIntegerField(default=0)),
                        ("fetch_records", models.BigIntegerField(default=0)),
                        ("requests", models.BigIntegerField(default=0)),
                        ("throttled_ms", models.BigIntegerField(default=0)),
                        ("storage_bytes", models.BigIntegerField(default=0)),
                        ("connections", models.BigIntegerField(default=0)),
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "organization_id",
                                "topic_name",
                                "starts_at",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("organization_id", models.CharField(max_length=40)),
                        ("topic_name", models.CharField(max_length=249)),
                        ("starts_at", models.DateTimeField()),
                    ],
                    options={
                        "abstract": False,
                    },
                ),
                migrations.CreateModel(
                    name="UsageCursor",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "cell_id",
                                "node_id",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("cell_id", models.CharField(max_length=40)),
                        ("node_id", models.IntegerField()),
                        ("incarnation", models.CharField(max_length=64)),
                        ("sequence", models.BigIntegerField()),
                        ("read_at", models.DateTimeField(auto_now=True)),
                    ],
                ),
            ],
        )
    ]
