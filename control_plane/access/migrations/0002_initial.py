"""Tables of `access`: what refers to other apps."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("access", "0001_initial"),
        ("accounts", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="apikey",
            name="organization",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="accounts.organization",
            ),
        ),
        migrations.AddField(
            model_name="apikey",
            name="rotated_from",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="access.apikey",
            ),
        ),
        migrations.AddField(
            model_name="grant",
            name="organization",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="accounts.organization",
            ),
        ),
        migrations.AddField(
            model_name="serviceaccount",
            name="organization",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="accounts.organization",
            ),
        ),
        migrations.AddField(
            model_name="grant",
            name="service_account",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="access.serviceaccount",
            ),
        ),
        migrations.AddField(
            model_name="apikey",
            name="service_account",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="access.serviceaccount",
            ),
        ),
        migrations.AddConstraint(
            model_name="serviceaccount",
            constraint=models.UniqueConstraint(
                condition=models.Q(("deleted_at", None)),
                fields=("organization", "name"),
                name="service_account_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="grant",
            constraint=models.UniqueConstraint(
                condition=models.Q(("deleted_at", None)),
                fields=(
                    "service_account",
                    "role",
                    "resource_type",
                    "pattern_type",
                    "resource_name",
                ),
                name="grant_once",
            ),
        ),
        migrations.AddIndex(
            model_name="apikey",
            index=models.Index(fields=["service_account", "id"], name="keys_of_account"),
        ),
    ]
