"""What a tenant has made of late is counted by this."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("operations", "0003_who_makes_tenants")]

    operations = [
        migrations.AddIndex(
            "auditevent",
            models.Index(
                fields=("organization_id", "at"),
                condition=models.Q(
                    action__in=(
                        "api_key.create",
                        "grant.create",
                        "subscription.create",
                        "topic.create",
                        "topic.undelete",
                    )
                ),
                name="resources_made",
            ),
        ),
    ]
