"""Keys for REST alone waited for a cell that is never told of them."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("access", "0002_initial")]

    operations = [
        migrations.RunSQL(
            "UPDATE access_apikey SET status = 'ready', observed_generation = generation "
            "WHERE NOT 'kafka' = ANY (scopes)",
            migrations.RunSQL.noop,
        ),
    ]
