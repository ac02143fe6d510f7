"""Tables of `cells`."""

import django.db.models.deletion
from django.db import migrations, models

import control_plane.tenancy.ids


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Cell",
            fields=[
                ("id", control_plane.tenancy.ids.TypedIdField("cell", serialize=False)),
                ("name", models.SlugField(max_length=64, unique=True)),
                ("region", models.CharField(blank=True, default="", max_length=64)),
                ("admin_endpoints", models.JSONField(default=list)),
                ("bootstrap_servers", models.CharField(max_length=1000)),
                ("is_accepting", models.BooleanField(default=True)),
                ("tenants_max", models.PositiveIntegerField(default=1000)),
                ("partitions_max", models.PositiveIntegerField(default=20000)),
                ("cluster_id", models.CharField(blank=True, default="", max_length=64)),
                ("metadata_version", models.BigIntegerField(default=0)),
                ("last_seen_at", models.DateTimeField(blank=True, null=True)),
                ("last_error", models.CharField(blank=True, default="", max_length=1000)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "ordering": ("id",),
            },
        ),
        migrations.CreateModel(
            name="BrokerStatus",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("node_id", models.IntegerField()),
                ("host", models.CharField(max_length=255)),
                ("port", models.IntegerField()),
                ("rack", models.CharField(blank=True, default="", max_length=255)),
                ("is_fenced", models.BooleanField(default=False)),
                ("is_draining", models.BooleanField(default=False)),
                ("partitions", models.IntegerField(default=0)),
                ("leaders", models.IntegerField(default=0)),
                ("seen_at", models.DateTimeField()),
                (
                    "cell",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="brokers",
                        to="cells.cell",
                    ),
                ),
            ],
            options={
                "ordering": ("cell", "node_id"),
                "constraints": [
                    models.UniqueConstraint(fields=("cell", "node_id"), name="broker_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="Placement",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "cell",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="cells.cell",
                    ),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="accounts.organization",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("organization",), name="placed_once")
                ],
            },
        ),
    ]
