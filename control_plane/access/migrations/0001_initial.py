"""Tables of `access`."""

import django.contrib.postgres.fields
from django.db import migrations, models

import control_plane.tenancy.ids


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="ApiKey",
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
                ("id", control_plane.tenancy.ids.TypedIdField("key", serialize=False)),
                ("name", models.CharField(blank=True, default="", max_length=64)),
                (
                    "scopes",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(
                            choices=[("kafka", "Kafka"), ("rest", "Rest")], max_length=8
                        ),
                        size=None,
                    ),
                ),
                ("secret_hash", models.CharField(max_length=64, unique=True)),
                ("verifiers", models.JSONField(default=dict)),
                (
                    "networks",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=64),
                        blank=True,
                        default=list,
                        size=None,
                    ),
                ),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                ("last_used_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "ordering": ("id",),
            },
        ),
        migrations.CreateModel(
            name="Grant",
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
                ("id", control_plane.tenancy.ids.TypedIdField("grant", serialize=False)),
                (
                    "role",
                    models.CharField(
                        choices=[
                            ("producer", "Producer"),
                            ("consumer", "Consumer"),
                            ("manager", "Manager"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "resource_type",
                    models.CharField(
                        choices=[
                            ("topic", "Topic"),
                            ("group", "Group"),
                            ("transactional_id", "Transactional Id"),
                        ],
                        max_length=20,
                    ),
                ),
                (
                    "pattern_type",
                    models.CharField(
                        choices=[("literal", "Literal"), ("prefixed", "Prefixed")],
                        default="literal",
                        max_length=10,
                    ),
                ),
                ("resource_name", models.CharField(max_length=249)),
            ],
            options={
                "ordering": ("id",),
            },
        ),
        migrations.CreateModel(
            name="ServiceAccount",
            fields=[
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("id", control_plane.tenancy.ids.TypedIdField("sa", serialize=False)),
                ("name", models.CharField(max_length=64)),
                ("description", models.CharField(blank=True, default="", max_length=500)),
                (
                    "role",
                    models.CharField(
                        choices=[
                            ("owner", "Owner"),
                            ("admin", "Admin"),
                            ("developer", "Developer"),
                            ("viewer", "Viewer"),
                        ],
                        default="viewer",
                        max_length=16,
                    ),
                ),
                ("deleted_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "ordering": ("id",),
            },
        ),
    ]
