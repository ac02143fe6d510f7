"""Tables of `quotas`."""

import django.core.validators
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
            name="Plan",
            fields=[
                ("id", control_plane.tenancy.ids.TypedIdField("plan", serialize=False)),
                ("name", models.SlugField(max_length=64, unique=True)),
                ("is_default", models.BooleanField(default=False)),
                (
                    "produce_bytes_per_second",
                    models.BigIntegerField(
                        default=1000000, validators=[django.core.validators.MinValueValidator(0)]
                    ),
                ),
                (
                    "consume_bytes_per_second",
                    models.BigIntegerField(
                        default=4000000, validators=[django.core.validators.MinValueValidator(0)]
                    ),
                ),
                (
                    "requests_per_second",
                    models.BigIntegerField(
                        default=500, validators=[django.core.validators.MinValueValidator(0)]
                    ),
                ),
                (
                    "connections",
                    models.BigIntegerField(
                        default=100, validators=[django.core.validators.MinValueValidator(0)]
                    ),
                ),
                (
                    "partitions",
                    models.BigIntegerField(
                        default=100, validators=[django.core.validators.MinValueValidator(0)]
                    ),
                ),
                (
                    "storage_bytes",
                    models.BigIntegerField(
                        default=10737418240,
                        validators=[django.core.validators.MinValueValidator(0)],
                    ),
                ),
                (
                    "delayed_messages",
                    models.BigIntegerField(
                        default=100000, validators=[django.core.validators.MinValueValidator(0)]
                    ),
                ),
                (
                    "groups",
                    models.BigIntegerField(
                        default=100, validators=[django.core.validators.MinValueValidator(0)]
                    ),
                ),
                (
                    "message_bytes",
                    models.BigIntegerField(
                        default=1048576, validators=[django.core.validators.MinValueValidator(0)]
                    ),
                ),
                (
                    "topics",
                    models.BigIntegerField(
                        default=50, validators=[django.core.validators.MinValueValidator(0)]
                    ),
                ),
                (
                    "service_accounts",
                    models.BigIntegerField(
                        default=20, validators=[django.core.validators.MinValueValidator(0)]
                    ),
                ),
                (
                    "api_keys",
                    models.BigIntegerField(
                        default=50, validators=[django.core.validators.MinValueValidator(0)]
                    ),
                ),
                (
                    "grants",
                    models.BigIntegerField(
                        default=200, validators=[django.core.validators.MinValueValidator(0)]
                    ),
                ),
                (
                    "members",
                    models.BigIntegerField(
                        default=20, validators=[django.core.validators.MinValueValidator(0)]
                    ),
                ),
            ],
            options={
                "ordering": ("id",),
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("is_default", True)),
                        fields=("is_default",),
                        name="one_default_plan",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="TenantQuota",
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
                ("id", control_plane.tenancy.ids.TypedIdField("quota", serialize=False)),
                (
                    "produce_bytes_per_second",
                    models.BigIntegerField(
                        blank=True,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                    ),
                ),
                (
                    "consume_bytes_per_second",
                    models.BigIntegerField(
                        blank=True,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                    ),
                ),
                (
                    "requests_per_second",
                    models.BigIntegerField(
                        blank=True,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                    ),
                ),
                (
                    "connections",
                    models.BigIntegerField(
                        blank=True,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                    ),
                ),
                (
                    "partitions",
                    models.BigIntegerField(
                        blank=True,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                    ),
                ),
                (
                    "storage_bytes",
                    models.BigIntegerField(
                        blank=True,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                    ),
                ),
                (
                    "delayed_messages",
                    models.BigIntegerField(
                        blank=True,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                    ),
                ),
                (
                    "groups",
                    models.BigIntegerField(
                        blank=True,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                    ),
                ),
                (
                    "message_bytes",
                    models.BigIntegerField(
                        blank=True,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                    ),
                ),
                (
                    "topics",
                    models.BigIntegerField(
                        blank=True,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                    ),
                ),
                (
                    "service_accounts",
                    models.BigIntegerField(
                        blank=True,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                    ),
                ),
                (
                    "api_keys",
                    models.BigIntegerField(
                        blank=True,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                    ),
                ),
                (
                    "grants",
                    models.BigIntegerField(
                        blank=True,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                    ),
                ),
                (
                    "members",
                    models.BigIntegerField(
                        blank=True,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
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
                    models.UniqueConstraint(fields=("organization",), name="quota_once")
                ],
            },
        ),
    ]
