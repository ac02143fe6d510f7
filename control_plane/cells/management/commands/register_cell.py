"""`python -m control_plane register_cell NAME`: a cell is known, and tenants are placed in it.

Said again, it changes the addresses. What an operator has set besides stays as it is: how much the
cell takes, and whether it takes anybody.
"""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.cells.facade import do_register_cell
from control_plane.operations.facade import SYSTEM
from control_plane.tenancy.errors import Refused


class Command(BaseCommand):
    """The command."""

    help = "Make a cell known, or change its addresses."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME")
        parser.add_argument(
            "--admin-endpoint",
            action="append",
            required=True,
            metavar="HOST:PORT",
            help="Of a broker's CellAdmin; repeatable, tried in this order.",
        )
        parser.add_argument(
            "--bootstrap-servers",
            required=True,
            metavar="HOST:PORT,HOST:PORT",
            help="What clients with a key connect to.",
        )
        parser.add_argument("--region", metavar="NAME")

    def handle(self, *arguments: Any, **options: Any) -> None:
        try:
            cell = do_register_cell(
                SYSTEM,
                options["name"],
                admin_endpoints=options["admin_endpoint"],
                bootstrap_servers=options["bootstrap_servers"],
                region=options["region"],
            )
        except Refused as error:
            raise CommandError(error.detail) from error
        self.stdout.write(f"{cell.name} is {cell.id}")
