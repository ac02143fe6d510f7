"""Reading from a cell is left off and gone on with by itself, and its use is read by one at a time."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("cells", "0002_progress")]

    operations = [
        migrations.AddField(
            model_name="cellprogress",
            name="read_failures",
            field=models.IntegerField(default=0),
        ),
        migrations.AddField(
            model_name="cellprogress",
            name="read_retry_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="cellprogress",
            name="usage_due_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
