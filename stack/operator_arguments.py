"""What the commands of operators take (operators.py)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from stack.help import CommandParser, whole_number

OPERATION_NAMES: Final = (
    "all, read, write, create, delete, alter, describe, describe-configs, alter-configs, "
    "idempotent-write"
)


def add_operator_commands(commands: Any, data: argparse.ArgumentParser, json_help: str) -> None:
    cell = _cell_options(data, json_help)
    tenants = commands.add_parser(
        "tenants",
        parents=[cell],
        help="Make and look after tenants.",
        description="Make, list, show, suspend, resume or delete the tenants of a cell.",
    )
    tenants.add_argument(
        "action",
        choices=("create", "list", "show", "suspend", "resume", "delete"),
        help="What to do: create, list, show, suspend, resume or delete.",
    )
    tenants.add_argument("name", nargs="?", metavar="NAME", help="The tenant.")
    tenants.add_argument(
        "--cluster-id", metavar="ID", help="What its clients are told; drawn if not given."
    )
    tenants.add_argument(
        "--undelete-ms",
        type=whole_number,
        metavar="N",
        help="With create: for how long its deleted topics can come back.",
    )
    tenants.add_argument(
        "--reason", default="", metavar="TEXT", help="With suspend: what its owner is told."
    )
    tenants.add_argument("--yes", "-y", action="store_true", help="Needed for delete.")
    _add_users(commands, cell)
    _add_acls(commands, cell)
    _add_quotas(commands, cell)
    _add_deleted(commands, cell)


def _add_users(commands: Any, cell: argparse.ArgumentParser) -> None:
    users = _of_tenant(commands, cell, "users", "Make users, and give them passwords.")
    users.description = "Make, list or revoke the users of a tenant, or give them new passwords."
    users.add_argument(
        "action",
        choices=("create", "list", "rotate", "revoke"),
        help="What to do: create, list, rotate (another password) or revoke.",
    )
    users.add_argument("user", nargs="?", metavar="USER", help="The user, without @tenant.")
    users.add_argument("--all", action="store_true", help="With list: of all tenants.")


def _add_acls(commands: Any, cell: argparse.ArgumentParser) -> None:
    acls = _of_tenant(commands, cell, "acls", "Say who may do what.")
    acls.description = "Grant rights to users of a tenant, list them, or take a grant back."
    acls.add_argument(
        "action", choices=("grant", "list", "revoke"), help="What to do: grant, list or revoke."
    )
    acls.add_argument("who", nargs="?", metavar="WHO", help="A user, or with revoke a grant.")
    acls.add_argument(
        "--topic", action="append", metavar="NAME", help="What for, NAME* for a prefix."
    )
    acls.add_argument("--group", action="append", metavar="GROUP", help="The same, of groups.")
    acls.add_argument("--cluster", action="store_true", help="For the cluster as a whole.")
    acls.add_argument(
        "--operation",
        action="append",
        metavar="NAME",
        choices=tuple(OPERATION_NAMES.split(", ")),
        help=f"Repeatable: {OPERATION_NAMES}.  [default: all]",
    )
    acls.add_argument("--deny", action="store_true", help="Forbid it instead.")


def _add_quotas(commands: Any, cell: argparse.ArgumentParser) -> None:
    quotas = _of_tenant(commands, cell, "quotas", "Show or set what a tenant may use.")
    quotas.description = "Show or set what a tenant may use."
    quotas.add_argument("action", choices=("show", "set"), help="What to do: show or set.")
    quotas.add_argument(
        "--limit",
        action="append",
        metavar="NAME=NUMBER",
        help="With set, repeatable: produce_bytes_per_s=1000000, say; NAME= takes it away.",
    )


def _add_deleted(commands: Any, cell: argparse.ArgumentParser) -> None:
    deleted = _of_tenant(commands, cell, "deleted", "Bring deleted topics back.")
    deleted.description = (
        "List the deleted topics that can come back (tidewheel.undelete.ms), bring one back, or "
        "purge one at once."
    )
    deleted.add_argument(
        "action",
        choices=("list", "undelete", "purge"),
        help="What to do: list, undelete or purge.",
    )
    deleted.add_argument("name", nargs="?", metavar="TOPIC", help="Which one.")
    deleted.add_argument("--all", action="store_true", help="With list: of all tenants.")
    deleted.add_argument("--yes", "-y", action="store_true", help="Needed for purge.")


def _of_tenant(
    commands: Any, cell: argparse.ArgumentParser, name: str, words: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, parents=[cell], help=words)
    parser.add_argument(
        "--tenant", default="default", metavar="NAME", help="Whose.  [default: %(default)s]"
    )
    return parser


def _cell_options(data: argparse.ArgumentParser, json_help: str) -> argparse.ArgumentParser:
    parser = CommandParser(add_help=False, parents=[data])
    parser.add_argument(
        "--cell",
        metavar="HOST:PORT",
        help="Where CellAdmin is, if that is no stack here; then with the next three.",
    )
    parser.add_argument("--cell-ca", type=Path, metavar="FILE", help="Its authority.")
    parser.add_argument("--cell-certificate", type=Path, metavar="FILE", help="Of the operator.")
    parser.add_argument("--cell-key", type=Path, metavar="FILE", help="Of that certificate.")
    parser.add_argument("--json", action="store_true", help=json_help)
    return parser
