"""Tables of `messaging`."""

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
            name="Topic",
            fields=[
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("generation", models.BigIntegerField(default=1)),
                ("observed_generation", models.BigIntegerField(default=0)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("provisioning", "Provisioning"),
                            ("ready", "Ready"),
                            ("updating", "Updating"),
                            ("deleting", "Deleting"),
                            ("failed", "Failed"),
                        ],
                        default="provisioning",
                        max_length=16,
                    ),
                ),
                ("status_reason", models.CharField(blank=True, default="", max_length=1000)),
                ("deleted_at", models.DateTimeField(blank=True, null=True)),
                ("id", control_plane.tenancy.ids.TypedIdField("top", serialize=False)),
                ("name", models.CharField(max_length=249)),
                ("partitions", models.IntegerField()),
                ("replication_factor", models.IntegerField(default=0)),
                ("configs", models.JSONField(default=dict)),
                (
                    "managed_by",
                    models.CharField(
                        choices=[("api", "Api"), ("client", "Client")], default="api", max_length=8
                    ),
                ),
                ("deletion_protection", models.BooleanField(default=False)),
                ("kafka_topic_id", models.UUIDField(blank=True, null=True)),
                ("takes_over", models.BooleanField(default=False)),
                ("observed", models.JSONField(default=dict)),
                ("purge_after", models.DateTimeField(blank=True, null=True)),
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
                "ordering": ("id",),
                "indexes": [models.Index(fields=["organization", "id"], name="topic_pages")],
                "constraints": [
                    models.UniqueConstraint(fields=("organization", "name"), name="topic_name_once")
                ],
            },
        ),
    ]
