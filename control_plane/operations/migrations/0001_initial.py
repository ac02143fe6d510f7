"""Tables of `operations`."""

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
            name="AuditEvent",
            fields=[
                ("id", control_plane.tenancy.ids.TypedIdField("aud", serialize=False)),
                ("organization_id", models.CharField(blank=True, default="", max_length=40)),
                ("at", models.DateTimeField(auto_now_add=True)),
                (
                    "actor_kind",
                    models.CharField(
                        choices=[
                            ("user", "User"),
                            ("api_key", "Api Key"),
                            ("operator", "Operator"),
                            ("system", "System"),
                        ],
                        max_length=10,
                    ),
                ),
                ("actor_id", models.CharField(blank=True, default="", max_length=40)),
                ("actor_name", models.CharField(blank=True, default="", max_length=254)),
                ("address", models.GenericIPAddressField(blank=True, null=True)),
                ("action", models.CharField(max_length=60)),
                ("resource_id", models.CharField(max_length=40)),
                ("resource_name", models.CharField(blank=True, default="", max_length=254)),
                ("changes", models.JSONField(default=dict)),
            ],
            options={
                "ordering": ("id",),
                "indexes": [
                    models.Index(fields=["organization_id", "id"], name="audit_pages"),
                    models.Index(
                        fields=["organization_id", "resource_id"], name="audit_of_resource"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="IdempotentAnswer",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("actor_id", models.CharField(max_length=40)),
                ("key_hash", models.CharField(max_length=64)),
                ("request_hash", models.CharField(max_length=64)),
                ("status_code", models.IntegerField(null=True)),
                ("answer", models.BinaryField(null=True)),
                ("expires_at", models.DateTimeField(db_index=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("actor_id", "key_hash"), name="idempotency_key_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Operation",
            fields=[
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("id", control_plane.tenancy.ids.TypedIdField("op", serialize=False)),
                ("kind", models.CharField(max_length=40)),
                ("resource_id", models.CharField(max_length=40)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("pending", "Pending"),
                            ("running", "Running"),
                            ("succeeded", "Succeeded"),
                            ("failed", "Failed"),
                            ("canceled", "Canceled"),
                        ],
                        default="pending",
                        max_length=16,
                    ),
                ),
                ("arguments", models.JSONField(default=dict)),
                ("result", models.JSONField(default=dict)),
                ("error", models.CharField(blank=True, default="", max_length=1000)),
                ("actor_id", models.CharField(max_length=40)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
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
                "indexes": [models.Index(fields=["organization", "id"], name="operation_pages")],
            },
        ),
        migrations.CreateModel(
            name="OutboxEntry",
            fields=[
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("sequence", models.BigIntegerField()),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("tenant", "Tenant"),
                            ("topic", "Topic"),
                            ("credential", "Credential"),
                            ("grant", "Grant"),
                            ("quota", "Quota"),
                        ],
                        max_length=12,
                    ),
                ),
                ("resource_id", models.CharField(max_length=40)),
                ("generation", models.BigIntegerField()),
                ("attempts", models.IntegerField(default=0)),
                ("not_before", models.DateTimeField(auto_now_add=True)),
                ("last_error", models.CharField(blank=True, default="", max_length=1000)),
                ("done_at", models.DateTimeField(blank=True, null=True)),
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
                "indexes": [
                    models.Index(
                        condition=models.Q(("done_at", None)),
                        fields=["not_before", "id"],
                        name="outbox_pending",
                    ),
                    models.Index(
                        condition=models.Q(("done_at", None)),
                        fields=["resource_id"],
                        name="outbox_of_resource",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("organization", "sequence"), name="outbox_no_twice"
                    )
                ],
            },
        ),
    ]
