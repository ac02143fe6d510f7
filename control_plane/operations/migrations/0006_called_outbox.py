"""What operators read above the outbox. No table changes."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("operations", "0005_what_is_over")]

    operations = [
        migrations.AlterModelOptions(
            name="outboxentry",
            options={"ordering": ("id",), "verbose_name_plural": "outbox"},
        ),
    ]
