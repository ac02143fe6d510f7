"""`tidewheel quotas` and `audit`: what an organization may use, and has done, over REST."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Final

import typer

from tidewheel.cli.over_rest import Account, run_rest
from tidewheel.cli.session import JsonOption, print_json, print_line, print_table, table

AUDIT_EVENTS: Final = 50


def quotas(as_json: JsonOption = False) -> None:
    """What your organization may use, and uses (after `login`).

    Operators of a cell set limits there: `quotas show` and `quotas set`, with --tenant.
    """

    def command(account: Account) -> None:
        quota = account.rest.get(account.at("quota")).body
        if as_json:
            print_json(quota)
            return
        own, used = quota["spec"], quota["used"]
        made = table("LIMIT", "VALUE", "USED", "SET BY", right=frozenset({"VALUE", "USED"}))
        for name, value in quota["limits"].items():
            source = f"plan {quota['plan']}" if own.get(name) is None else "this organization"
            made.add_row(name, _number(value), _number(used.get(name)), source)
        print_table(made)

    run_rest(command)


def audit(
    count: Annotated[
        int, typer.Option("--count", "-n", metavar="N", min=1, help="So many, the newest first.")
    ] = AUDIT_EVENTS,
    resource: Annotated[
        str | None, typer.Option(metavar="ID", help="What happened to this.")
    ] = None,
    action: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this: topic.create, say.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Who did what in your organization (after `login`)."""

    def command(account: Account) -> None:
        found = account.items("audit-events", resource_id=resource, action=action)
        events = list(islice(found, count))
        if as_json:
            print_json(events)
            return
        if not events:
            print_line("Nothing yet.")
            return
        made = table("WHEN", "WHO", "WHAT", "RESOURCE")
        for event in events:
            what = event["resource_name"] or event["resource_id"]
            made.add_row(event["at"][:19], _who(event), event["action"], what)
        print_table(made)

    run_rest(command)


def _who(event: dict[str, Any]) -> str:
    return str(event["actor_name"] or event["actor_id"] or event["actor_kind"])


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
