"""What stands before the processes of a control plane on one machine: `python -m
control_plane.prepare`, one process for `./tidewheel up`.

1. The database is made when it is not there, and its tables are those of this version. Then
   `--ready-fd` gets one line.
2. From standard input comes one JSON document: `cell`, as of `register_cell`, and `operator`, the
   e-mail address and password of the first person.
3. The cell is registered, and the person is made when there is none of that address.

In production the same is done step by step, by the commands that docs/deployment.md names; this
one saves a small machine from starting Python three times.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

import django

from control_plane.started import say

MAINTENANCE_DATABASE = "postgres"


def make_database() -> None:
    """The one of the settings, in its server; nothing when it is there."""
    import psycopg
    from django.conf import settings
    from psycopg import sql

    wanted = settings.DATABASES["default"]
    with psycopg.connect(
        host=wanted["HOST"],
        port=wanted["PORT"] or None,
        user=wanted["USER"] or None,
        password=wanted["PASSWORD"] or None,
        dbname=MAINTENANCE_DATABASE,
        autocommit=True,
    ) as connection:
        name = wanted["NAME"]
        there = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
        if there.fetchone() is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))


def migrate() -> None:
    """Nothing when all is done, which is seen in a tenth of the time."""
    from django.core.management import call_command
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor

    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        call_command("migrate", verbosity=0, interactive=False)


def register(cell: dict[str, Any]) -> None:
    from control_plane.cells.facade import do_register_cell
    from control_plane.operations.facade import SYSTEM

    do_register_cell(SYSTEM, **cell)


def make_operator(email: str, password: str) -> None:
    """A person who is an operator, and whose address needs no mail: nobody reads any here."""
    from allauth.account.models import EmailAddress
    from django.db import transaction

    from control_plane.accounts.models import User

    if User.objects.filter(email=email).exists():
        return
    with transaction.atomic():
        user = User.objects.create_superuser(email, password)
        EmailAddress.objects.create(user=user, email=email, verified=True, primary=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m control_plane.prepare", allow_abbrev=False)
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings.development")
    django.setup()
    make_database()
    migrate()
    if not say(options.ready_fd, "migrated"):
        return 1
    told = sys.stdin.read()
    if not told:
        # Whoever has started it has ended.
        return 1
    document = json.loads(told)
    register(document["cell"])
    make_operator(**document["operator"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
