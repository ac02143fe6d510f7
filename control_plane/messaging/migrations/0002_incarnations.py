"""A topic that is had back is another resource of its cell."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("messaging", "0001_initial")]

    operations = [
        migrations.AddField("topic", "incarnation", models.PositiveIntegerField(default=1)),
    ]
