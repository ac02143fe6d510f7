"""When a cell's topics are to be listed, though its feed of changes goes back far enough."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("cells", "0003_read_by_itself")]

    operations = [
        migrations.AddField(
            model_name="cellprogress",
            name="lists_due",
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="cellprogress",
            name="lists_done",
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="cellprogress",
            name="listed_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
