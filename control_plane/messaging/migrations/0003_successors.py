"""Clients' topics under the names of what is deleted here."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("messaging", "0002_incarnations")]

    operations = [
        migrations.AddField(
            model_name="topic",
            name="has_successor",
            field=models.BooleanField(db_default=False, default=False),
        ),
    ]
