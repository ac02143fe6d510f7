"""Brokers' incarnations and levels, and numbers without those that nobody counts."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("usage", "0001_initial")]

    operations = [
        *(
            migrations.RemoveField(model_name=model, name="fetch_records")
            for model in (
                "tenantusage10s",
                "tenantusageminute",
                "tenantusagehour",
                "topicusagehour",
            )
        ),
        *(
            migrations.RemoveField(model_name="topicusagehour", name=name)
            for name in ("requests", "throttled_ms", "connections")
        ),
        migrations.AddField(
            model_name="usagecursor",
            name="endpoint",
            field=models.CharField(default="", max_length=255),
        ),
        migrations.CreateModel(
            name="UsageIncarnation",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "cell_id",
                        "node_id",
                        "incarnation",
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
                ("lost_ms", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="UsageLevel",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "cell_id",
                        "node_id",
                        "organization_id",
                        "topic_name",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("cell_id", models.CharField(max_length=40)),
                ("node_id", models.IntegerField()),
                ("organization_id", models.CharField(max_length=40)),
                ("topic_name", models.CharField(blank=True, max_length=249)),
                ("incarnation", models.CharField(max_length=64)),
                ("value", models.BigIntegerField()),
                ("measured_at", models.DateTimeField()),
            ],
            options={
                "indexes": [
                    models.Index(
                        fields=["cell_id", "organization_id"], name="usage_levels_of_tenant"
                    )
                ],
            },
        ),
    ]
