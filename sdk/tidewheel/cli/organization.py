"""`tidewheel quotas`, `usage` and `audit`: what an organization may use, has used and has done,
over REST."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Final

import typer

from tidewheel.cli.over_rest import Account, run_rest
from tidewheel.cli.session import (
    EXIT_USAGE,
    JsonOption,
    fail,
    print_json,
    print_line,
    print_table,
    table,
)

AUDIT_EVENTS: Final = 50
RESOLUTIONS: Final = ("10s", "minute", "hour")
FIGURES: Final = (
    *("produce_bytes", "produce_records", "fetch_bytes", "requests", "throttled_ms"),
    *("storage_bytes", "connections"),
)


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


def usage(
    resolution: Annotated[
        str,
        typer.Option(
            "--by", metavar="STEP", help="In steps of 10s (an hour of it), minute (a day) or hour."
        ),
    ] = "hour",
    topic: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only what this topic has used, by hour.")
    ] = None,
    topics: Annotated[
        bool, typer.Option("--topics", help="What each topic has used in the last 30 days.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """What your organization has used (after `login`); times are UTC."""
    if resolution not in RESOLUTIONS:
        fail(f"--by {resolution}: it is one of {', '.join(RESOLUTIONS)}", status=EXIT_USAGE)

    def command(account: Account) -> None:
        if topics:
            _show_use("TOPIC", "topic", list(account.items("usage/topics")), as_json)
            return
        found = list(account.items("usage", resolution=resolution, topic=topic))
        _show_use("FROM", "starts_at", found, as_json)

    run_rest(command)


def _show_use(title: str, name: str, rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    if not rows:
        print_line("Nothing yet.")
        return
    figures = [each for each in FIGURES if each in rows[0]]
    titles = [each.replace("_", " ").upper() for each in figures]
    made = table(title, *titles, right=frozenset(titles))
    for row in rows:
        made.add_row(str(row[name])[:249], *(_number(row[each]) for each in figures))
    print_table(made)


def audit(
    count: Annotated[
        int, typer.Option("--count", "-n", metavar="N", min=1, help="How many, the newest first.")
    ] = AUDIT_EVENTS,
    resource: Annotated[
        str | None, typer.Option(metavar="ID", help="Only what happened to this resource.")
    ] = None,
    action: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this action, such as topic.create.")
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
