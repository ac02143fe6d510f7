"""`tidewheel delayed`: delayed messages of a topic that are not due yet.

Over REST, for those who are logged in at a control plane: brokers tell nobody else what is pending.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer

from tidewheel.cli.help import PlainCommand, PlainGroup, examples
from tidewheel.cli.over_rest import Account, found, run_rest
from tidewheel.cli.session import (
    PROGRAM,
    JsonOption,
    YesOption,
    confirm,
    print_json,
    print_line,
    print_table,
    table,
    usage,
)

HELP = """List, count and cancel delayed messages that are not due yet.

For the topics of your organization, at a control plane: run `login` first.
"""

HOURS: Final = 24
DAYS: Final = 30
BAR_CHARACTERS: Final = 40
VALUE_BYTES_MAX: Final = 200
COMMANDS_MAX: Final = 100
"""Messages of one request."""

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_AHEAD: Final = re.compile(r"([0-9]{1,9})([smhd])")
_PLACE: Final = re.compile(r"([0-9]{1,10}):([0-9]{1,19})")

app = typer.Typer(cls=PlainGroup, help=HELP, no_args_is_help=True, rich_markup_mode=None)

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
FilterOption = Annotated[
    str,
    typer.Option(
        "--filter",
        metavar="FILTER",
        show_default=False,
        help='Only messages whose tags match, such as "eu and not test".',
    ),
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="TIME", help="Only messages due then or later: 2h (from now), or a date."
    ),
]
UntilOption = Annotated[
    str | None,
    typer.Option(
        "--until", metavar="TIME", help="Only messages due before: 2h (from now), or a date."
    ),
]
AccountOption = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="ID",
        help="Act as this service account, by its id in `keys list --json`. People need it; a key "
        "acts as its own.",
    ),
]


@app.command(
    "list",
    cls=PlainCommand,
    epilog=examples(PROGRAM, "delayed list flights --until 2h", "delayed list flights --json"),
)
def list_delayed(
    topic: TopicArgument,
    filter: FilterOption = "",
    from_: FromOption = None,
    until: UntilOption = None,
    count: Annotated[
        int,
        typer.Option("--count", "-n", min=1, metavar="N", help="List so many of each partition."),
    ] = 20,
    account_id: AccountOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the messages that are due next, by time."""
    query = _selection(filter, from_, until) | {"value_bytes_max": VALUE_BYTES_MAX}

    def command(account: Account) -> None:
        there = _topic(account, topic)
        items = []
        for partition in _partitions(there):
            pages = _pages(account, there, partition, account_id, query, count)
            items += [{"partition": partition} | item for item in pages]
        items.sort(key=lambda item: (item["deliver_at_ms"], item["partition"]))
        if as_json:
            print_json([_as_json(item) for item in items])
            return
        if not items:
            print_line("No delayed messages.")
            return
        numbers = frozenset({"PARTITION", "OFFSET"})
        made = table("DUE", "IN", "PARTITION", "OFFSET", "KEY", "VALUE", right=numbers)
        now = datetime.now(UTC)
        for item in items:
            due, record = _time(item["deliver_at_ms"]), item["record"]
            place = (str(item["partition"]), str(record["offset"]))
            made.add_row(_shown(due), _ahead(due - now), *place, *map(_text, _pair(record)))
        print_table(made)

    run_rest(command)


@app.command("count", cls=PlainCommand)
def count_delayed(
    topic: TopicArgument, account_id: AccountOption = None, as_json: JsonOption = False
) -> None:
    """Count the messages of each partition, and say when the first is due."""

    def command(account: Account) -> None:
        there = _topic(account, topic)
        counted = [
            (partition, _count(account, there, partition, account_id))
            for partition in _partitions(there)
        ]
        if as_json:
            print_json(
                [
                    {"partition": partition, "count": one["count"], "first_ms": one["first_ms"]}
                    for partition, one in counted
                ]
            )
            return
        made = table("PARTITION", "PENDING", "FIRST DUE", right=frozenset({"PARTITION", "PENDING"}))
        for partition, one in counted:
            first = "" if one["first_ms"] is None else _shown(_time(one["first_ms"]))
            made.add_row(str(partition), f"{one['count']:,}", first)
        print_table(made)
        print_line(f"{sum(one['count'] for _, one in counted):,} in all")

    run_rest(command)


@app.command(
    "calendar",
    cls=PlainCommand,
    epilog=examples(PROGRAM, "delayed calendar flights", "delayed calendar flights --days"),
)
def calendar(
    topic: TopicArgument,
    days: Annotated[
        bool, typer.Option("--days", help=f"For {DAYS} days by day, not {HOURS} hours by hour.")
    ] = False,
    account_id: AccountOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show as bars how many messages are due in each coming hour or day."""
    interval = timedelta(days=1) if days else timedelta(hours=1)
    number = DAYS if days else HOURS
    now = datetime.now(UTC)
    start = now.replace(minute=0, second=0, microsecond=0)
    start = start.replace(hour=0) if days else start

    def command(account: Account) -> None:
        there = _topic(account, topic)
        query = {
            "from": _said(start),
            "interval_s": int(interval.total_seconds()),
            "intervals": number,
        }
        counts, waiting = [0] * number, 0
        for partition in _partitions(there):
            one = _count(account, there, partition, account_id, **query)
            waiting += one["count"]
            counts = [sum(pair) for pair in zip(counts, one["counts"], strict=True)]
        bars = [(start + at * interval, count) for at, count in enumerate(counts)]
        if as_json:
            print_json([{"from": _said(at), "count": count} for at, count in bars])
            return
        for line in bar_chart([(_label(at, days), count) for at, count in bars]):
            print_line(line)
        print_line(f"{waiting - sum(counts):,} at other times, {waiting:,} in all")

    run_rest(command)


@app.command(
    "cancel",
    cls=PlainCommand,
    epilog=examples(
        PROGRAM,
        "delayed cancel flights --offset 0:1200",
        "delayed cancel flights --id LH-400 --partition 0",
        'delayed cancel flights --filter "airline:lh" --until 2h',
    ),
)
def cancel(
    topic: TopicArgument,
    offset: Annotated[
        list[str] | None,
        typer.Option(
            "--offset", metavar="PARTITION:OFFSET", help="Cancel this message; repeatable."
        ),
    ] = None,
    message_id: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="Cancel all with this tw-id; needs --partition."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Only in this one; else in all.")
    ] = None,
    filter: FilterOption = "",
    from_: FromOption = None,
    until: UntilOption = None,
    all_: Annotated[bool, typer.Option("--all", help="Cancel all of them.")] = False,
    account_id: AccountOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Cancel messages, so that they are never delivered."""
    selects = bool(filter or from_ or until or all_)
    if selects is bool(offset or message_id):
        usage("Say which messages: --offset or --id, or --filter, --from, --until or --all")
    if message_id and partition is None:
        usage("The same id may be in several partitions: add --partition")
    if partition is not None and offset and not message_id:
        usage("--offset names the partition already: leave out --partition")
    commands = [_place(text) for text in offset or ()]
    commands += [(partition or 0, "tw-cancel", text) for text in message_id or ()]
    selection = _selection(filter, from_, until)

    def command(account: Account) -> None:
        there = _topic(account, topic)
        if commands:
            _say(account, there, account_id, commands)
            result: dict[str, Any] = {"commands": len(commands), "refused": []}
        else:
            of = list(_partitions(there)) if partition is None else [partition]
            what = "all delayed messages" if all_ and not selection else "the messages that match"
            confirm(f"Cancel {what} in {topic}? They are never delivered.", yes)
            result = _cancel_matching(account, there, of, account_id, selection)
        if as_json:
            print_json(result)
        elif commands:
            print_line(f"Cancelled: {len(commands)} offsets or ids")
        else:
            late = f"; too late for {len(result['refused']):,}" if result["refused"] else ""
            print_line(f"Cancelled {result['cancelled']:,} messages{late}")

    run_rest(command)


def bar_chart(bars: list[tuple[str, int]], characters: int = BAR_CHARACTERS) -> Iterator[str]:
    """A line for each: its label, a bar in proportion, its number."""
    most = max((count for _, count in bars), default=0)
    width = max((len(label) for label, _ in bars), default=0)
    digits = len(f"{most:,}")
    for label, count in bars:
        # However few there are, the bar is visible.
        eighths = -(-count * characters * 8 // most) if most else 0
        bar = "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]
        yield f"{label:<{width}}  {count:>{digits},}  {bar}".rstrip()


# Asking


def _topic(account: Account, name: str) -> dict[str, Any]:
    return found(account.items("topics", name=name, deleted="false"), f'topic "{name}"')


def _partitions(topic: dict[str, Any]) -> range:
    return range(topic["spec"]["partitions"])


def _named(account_id: str | None) -> dict[str, str]:
    return {} if account_id is None else {"service_account_id": account_id}


def _pages(
    account: Account,
    topic: dict[str, Any],
    partition: int,
    account_id: str | None,
    query: dict[str, Any],
    count: int,
) -> Iterator[dict[str, Any]]:
    """The first so many of a partition."""
    address = f"topics/{topic['id']}/delayed"
    items = account.items(address, partition=partition, **_named(account_id), **query)
    for _, item in zip(range(count), items, strict=False):
        yield item


def _count(
    account: Account, topic: dict[str, Any], partition: int, account_id: str | None, **query: Any
) -> dict[str, Any]:
    address = account.at(f"topics/{topic['id']}/delayed/count")
    wanted = {"partition": partition, **_named(account_id), **query}
    body: dict[str, Any] = account.rest.get(address, **wanted).body
    return body


def _say(
    account: Account,
    topic: dict[str, Any],
    account_id: str | None,
    commands: list[tuple[int, str, str]],
) -> None:
    """Produce the commands, as records. Raises for those that are refused."""
    address = account.at(f"topics/{topic['id']}/messages")
    for partition in sorted({partition for partition, _, _ in commands}):
        records = [
            {"value": None, "headers": [{"key": key, "value": {"text": value}}]}
            for of, key, value in commands
            if of == partition
        ]
        for at in range(0, len(records), COMMANDS_MAX):
            body = {"partition": partition, "messages": records[at : at + COMMANDS_MAX]}
            account.rest.post(address, body | _named(account_id))


def _cancel_matching(
    account: Account,
    topic: dict[str, Any],
    partitions: list[int],
    account_id: str | None,
    selection: dict[str, str],
) -> dict[str, Any]:
    address = account.at(f"topics/{topic['id']}/delayed/cancel")
    times = {f"{name}_time": selection[name] for name in ("from", "until") if name in selection}
    cancelled, refused = 0, []
    for partition in partitions:
        cursor: str | None = None
        while True:
            body: dict[str, Any] = {"partition": partition, **times, **_named(account_id)}
            body["filter"] = selection.get("filter", "")
            answer = account.rest.post(address, body | ({"cursor": cursor} if cursor else {})).body
            cancelled += answer["cancelled"]
            refused += [{"partition": partition} | one for one in answer["refused"]]
            cursor = answer["next_cursor"]
            if cursor is None:
                break
    return {"cancelled": cancelled, "refused": refused}


# What is typed, and shown


def _selection(filter: str, start: str | None, end: str | None) -> dict[str, str]:
    found = {"filter": filter} if filter else {}
    for name, text in (("from", start), ("until", end)):
        if text is not None:
            found[name] = _said(_typed_time(text, f"--{name}"))
    return found


def _typed_time(text: str, option: str) -> datetime:
    match = _AHEAD.fullmatch(text)
    try:
        if match is not None:
            ahead = timedelta(seconds=int(match[1]) * _UNITS[match[2]])
            return datetime.now(UTC) + ahead
        # Without a zone it is the local time.
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        usage(f"{option} {text!r} is no time", f"Write {option} 2h, or {option} 2027-01-31T12:00Z")


def _place(text: str) -> tuple[int, str, str]:
    match = _PLACE.fullmatch(text)
    if match is None:
        usage(f"--offset {text!r} is not PARTITION:OFFSET", "Write it as --offset 0:1200")
    return int(match[1]), "tw-cancel-offset", match[2]


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)


def _said(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _shown(at: datetime) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _label(at: datetime, is_day: bool) -> str:
    # Days are those of UTC, as they are counted.
    return at.strftime("%a %d %b") if is_day else at.astimezone().strftime("%a %H:%M")


def _ahead(left: timedelta) -> str:
    seconds = max(0, int(left.total_seconds()))
    for unit, each in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * each:
            return f"{seconds // each}{unit}"
    return f"{seconds}s"


def _pair(record: dict[str, Any]) -> tuple[Any, Any]:
    return record["key"], record["value"]


def _text(shown: dict[str, Any] | None) -> str:
    if shown is None:
        return ""
    text = shown["text"]
    return text if text is not None and text.isprintable() else str(shown["base64"])


def _as_json(item: dict[str, Any]) -> dict[str, Any]:
    record = item["record"]
    return {
        "partition": item["partition"],
        "offset": record["offset"],
        "deliver_at_ms": item["deliver_at_ms"],
        "key": record["key"],
        "value": record["value"],
        "headers": record["headers"],
    }
