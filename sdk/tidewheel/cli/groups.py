"""`tidewheel groups` and `tidewheel lag`: consumer groups, how far they are, and moving them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from tidewheel.admin import PartitionLag
from tidewheel.cli.consume import parse_start
from tidewheel.cli.help import PlainCommand, PlainGroup
from tidewheel.cli.session import (
    JsonOption,
    UrlOption,
    YesOption,
    command_line,
    confirm,
    note,
    print_json,
    print_line,
    print_table,
    run,
    table,
    usage,
)
from tidewheel.client import Client
from tidewheel.errors import ConfigurationError

app = typer.Typer(
    cls=PlainGroup,
    help="List, describe, delete and reset consumer groups.",
    no_args_is_help=False,
    rich_markup_mode=None,
)

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="Its name.")]


@app.callback(invoke_without_command=True)
def main(context: typer.Context, as_json: JsonOption = False, url: UrlOption = None) -> None:
    """List, describe, delete and reset consumer groups; without a command: list them."""
    if context.invoked_subcommand is None:
        list_groups(as_json=as_json, url=url)


@app.command("list", cls=PlainCommand)
def list_groups(as_json: JsonOption = False, url: UrlOption = None) -> None:
    """All groups with their state, members and lag in messages."""

    async def command(client: Client) -> None:
        rows = []
        for group in await client.admin.groups():
            info = await client.admin.describe_group(group)
            lags = await client.admin.lag(group, seconds=False)
            rows.append((group, info.state, len(info.members), sum(x.messages for x in lags)))
        if as_json:
            names = ("group", "state", "members", "lag_messages")
            print_json([dict(zip(names, row, strict=True)) for row in rows])
            return
        if not rows:
            print_line(f"No groups yet. Start one: {command_line('consume TOPIC --group NAME')}")
            return
        made = table("GROUP", "STATE", "MEMBERS", "LAG", right=frozenset({"MEMBERS", "LAG"}))
        for group, state, members, messages in rows:
            made.add_row(group, state, str(members), f"{messages:,}")
        print_table(made)

    run(command, url)


@app.command("describe", cls=PlainCommand)
def describe(group: GroupArgument, as_json: JsonOption = False, url: UrlOption = None) -> None:
    """State, members, and who reads what."""

    async def command(client: Client) -> None:
        info = await client.admin.describe_group(group)
        if as_json:
            print_json(
                {
                    "group": group,
                    "state": info.state,
                    "protocol": info.protocol,
                    "coordinator": info.coordinator,
                    "members": [
                        {
                            "member_id": m.member_id,
                            "client_id": m.client_id,
                            "host": m.host,
                            "instance_id": m.instance_id,
                            "partitions": [list(p) for p in m.partitions],
                        }
                        for m in info.members
                    ],
                }
            )
            return
        protocol = f", {info.protocol}" if info.protocol else ""
        print_line(f"{group}  {info.state}{protocol}, coordinator {info.coordinator}")
        if not info.members:
            print_line("No members run now.")
            return
        made = table("MEMBER", "CLIENT", "HOST", "PARTITIONS")
        for m in info.members:
            places = ", ".join(map(str, m.partitions)) or "none"
            made.add_row(m.instance_id or m.member_id, m.client_id, m.host.lstrip("/"), places)
        print_table(made)

    run(command, url)


@app.command("delete", cls=PlainCommand)
def delete(
    group: GroupArgument,
    yes: YesOption = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Delete a group without members, with its offsets."""
    confirm(f"Delete group {group} and its offsets?", yes)

    async def command(client: Client) -> None:
        await client.admin.delete_group(group)
        if as_json:
            print_json({"deleted": group})
        else:
            print_line(f"Deleted {group}")

    run(command, url)


@app.command("reset", cls=PlainCommand)
def reset(
    group: GroupArgument,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="In this topic.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="The beginning, end, an offset, a time, or a duration ago (10m).",
        ),
    ],
    yes: YesOption = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Move a group without running members to another place in a topic."""
    try:
        where = parse_start(to)
    except ConfigurationError as error:
        usage(error.message, error.hint)
    confirm(f"Move group {group} in {topic} to {to}?", yes)

    async def command(client: Client) -> None:
        is_new = group not in await client.admin.groups()
        moved = await client.admin.reset_offsets(group, topic, where)
        if is_new:
            note(f"There was no group {group}: it is new, and begins there")
        if as_json:
            offsets = {str(p.partition): offset for p, offset in sorted(moved.items())}
            print_json({"group": group, "topic": topic, "offsets": offsets})
            return
        made = table("PARTITION", "NEW OFFSET", right=frozenset({"PARTITION", "NEW OFFSET"}))
        for partition, offset in sorted(moved.items()):
            made.add_row(str(partition.partition), f"{offset:,}")
        print_table(made)

    run(command, url)


def lag(
    group: Annotated[
        str | None, typer.Argument(metavar="GROUP", help="Without one: a line per group.")
    ] = None,
    as_json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """How far groups are behind, in messages and seconds.

    Seconds are the age of the oldest message that the group has not processed.
    """

    async def command(client: Client) -> None:
        if group is not None:
            _print_lag(group, await client.admin.lag(group), as_json)
            return
        found = {name: await client.admin.lag(name) for name in await client.admin.groups()}
        if as_json:
            print_json([_summary(name, lags) for name, lags in found.items()])
            return
        if not found:
            print_line(f"No groups yet. Start one: {command_line('consume TOPIC --group NAME')}")
            return
        made = table("GROUP", "LAG", "SECONDS", right=frozenset({"LAG", "SECONDS"}))
        for name, lags in found.items():
            summary = _summary(name, lags)
            made.add_row(name, f"{summary['messages']:,}", _seconds(summary["seconds"]))
        print_table(made)

    run(command, url)


def _summary(group: str, lags: Sequence[PartitionLag]) -> dict[str, Any]:
    known = [x.seconds for x in lags if x.seconds is not None]
    return {
        "group": group,
        "messages": sum(x.messages for x in lags),
        "seconds": max(known) if known else (None if lags else 0.0),
    }


def _print_lag(group: str, lags: Sequence[PartitionLag], as_json: bool) -> None:
    if as_json:
        partitions = [
            {
                "topic": x.partition.topic,
                "partition": x.partition.partition,
                "committed": x.committed,
                "end": x.end,
                "messages": x.messages,
                "seconds": x.seconds,
                "client": x.member,
            }
            for x in lags
        ]
        print_json({**_summary(group, lags), "partitions": partitions})
        return
    if not lags:
        print_line(f"{group} has committed nothing and reads nothing.")
        return
    numbers = frozenset({"PARTITION", "COMMITTED", "END", "LAG", "SECONDS"})
    made = table(
        *("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "SECONDS", "CLIENT"), right=numbers
    )
    for x in lags:
        made.add_row(
            x.partition.topic,
            str(x.partition.partition),
            "-" if x.committed is None else f"{x.committed:,}",
            f"{x.end:,}",
            f"{x.messages:,}",
            _seconds(x.seconds),
            x.member or "-",
        )
    print_table(made)
    total = _summary(group, lags)
    noun = "message" if total["messages"] == 1 else "messages"
    behind = f"{total['messages']:,} {noun} behind"
    if total["messages"] and total["seconds"] is not None:
        behind += f", the oldest {_seconds(total['seconds'])} s old"
    print_line(behind)


def _seconds(value: float | None) -> str:
    return "?" if value is None else f"{value:,.1f}"
