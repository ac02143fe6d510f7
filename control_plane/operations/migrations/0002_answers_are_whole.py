"""An answer is written when it is there; what was kept before lives an hour at most, and goes."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("operations", "0001_initial")]

    operations = [
        migrations.RunSQL("DELETE FROM operations_idempotentanswer", migrations.RunSQL.noop),
        migrations.AlterField("idempotentanswer", "answer", models.BinaryField()),
        migrations.AlterField("idempotentanswer", "status_code", models.IntegerField()),
    ]
