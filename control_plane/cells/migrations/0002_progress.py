"""How far this control plane is with each cell."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("cells", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="CellProgress",
            fields=[
                (
                    "cell",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="progress",
                        serialize=False,
                        to="cells.cell",
                    ),
                ),
                ("failures", models.IntegerField(default=0)),
                ("retry_at", models.DateTimeField(blank=True, null=True)),
                ("feed_store_id", models.CharField(blank=True, default="", max_length=200)),
                ("feed_version", models.BigIntegerField(blank=True, null=True)),
                ("followed_until", models.DateTimeField(blank=True, null=True)),
                ("compared_digests", models.CharField(blank=True, default="", max_length=200)),
                ("compared_at", models.DateTimeField(blank=True, null=True)),
            ],
        ),
    ]
