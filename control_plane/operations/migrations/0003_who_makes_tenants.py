"""Organizations that one person, or one address, has made of late are counted by these."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("operations", "0002_answers_are_whole")]

    operations = [
        migrations.AlterField(
            "auditevent",
            "address",
            models.GenericIPAddressField(blank=True, null=True, unpack_ipv4=True),
        ),
        migrations.AddIndex(
            "auditevent",
            models.Index(
                fields=("actor_id", "at"),
                condition=models.Q(action="organization.create"),
                name="tenants_made_by",
            ),
        ),
        migrations.AddIndex(
            "auditevent",
            models.Index(
                fields=("address", "at"),
                condition=models.Q(action="organization.create"),
                name="tenants_made_at",
            ),
        ),
    ]
