"""What is over, and what is not yet, is found without reading all that ever was."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("operations", "0004_what_is_made")]

    operations = [
        migrations.AddIndex(
            "operation",
            models.Index(
                fields=("kind",),
                condition=models.Q(status__in=("pending", "running")),
                name="operations_open",
            ),
        ),
        migrations.AddIndex(
            "operation",
            models.Index(
                fields=("finished_at",),
                condition=models.Q(finished_at__isnull=False),
                name="operations_finished",
            ),
        ),
        migrations.AddIndex(
            "auditevent",
            models.Index(
                fields=("at",),
                condition=models.Q(action="organization.erase"),
                name="tenants_erased",
            ),
        ),
        migrations.AddIndex(
            "outboxentry",
            models.Index(
                fields=("done_at",),
                condition=models.Q(done_at__isnull=False),
                name="outbox_done",
            ),
        ),
    ]
