"""An invitation's row is the queue of its mail. What is there was mailed when it was made."""

import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0002_initial")]

    operations = [
        migrations.AddField(
            "invitation",
            "invited_by_name",
            models.CharField(blank=True, default="", max_length=254),
        ),
        migrations.AddField("invitation", "mailed_at", models.DateTimeField(blank=True, null=True)),
        migrations.AddField("invitation", "mail_attempts", models.IntegerField(default=0)),
        migrations.AddField(
            "invitation",
            "mail_not_before",
            models.DateTimeField(default=django.utils.timezone.now),
        ),
        migrations.AddField(
            "invitation", "mail_error", models.CharField(blank=True, default="", max_length=500)
        ),
        migrations.AddIndex(
            "invitation",
            models.Index(
                fields=("mail_not_before",),
                condition=models.Q(mailed_at=None, accepted_at=None, revoked_at=None),
                name="invitations_to_mail",
            ),
        ),
        migrations.AddIndex(
            "invitation",
            models.Index(fields=("email", "created_at"), name="invitations_of_address"),
        ),
        migrations.RunSQL(
            "UPDATE accounts_invitation SET mailed_at = created_at", migrations.RunSQL.noop
        ),
    ]
