"""What operators read above the list of brokers. No table changes."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("cells", "0004_lists")]

    operations = [
        migrations.AlterModelOptions(
            name="brokerstatus",
            options={"ordering": ("cell", "node_id"), "verbose_name_plural": "brokers"},
        ),
    ]
