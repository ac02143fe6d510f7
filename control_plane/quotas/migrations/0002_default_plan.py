"""The plan of tenants that sign up by themselves."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def make_default_plan(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    apps.get_model("quotas", "Plan").objects.create(name="trial", is_default=True)


class Migration(migrations.Migration):
    dependencies = [("quotas", "0001_initial")]

    operations = [migrations.RunPython(make_default_plan, migrations.RunPython.noop)]
