"""`tidewheel dlq redrive`, `purge` and `redrives`: dead letters are put back, or done with.

Over REST, for those who are logged in at a control plane. The cell does it by itself, one operation
for each partition, all of the same id.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer

from tidewheel.cli.help import PlainCommand, PlainGroup, examples
from tidewheel.cli.over_rest import Account, present_login, run_rest
from tidewheel.cli.session import (
    PROGRAM,
    JsonOption,
    YesOption,
    command_line,
    confirm,
    note,
    print_json,
    print_line,
    print_table,
    table,
    usage,
)
from tidewheel.retry_policy import DEAD_LETTERS_SUFFIX

LOOK_S: Final = 0.5
MARKS_AT_ONCE: Final = 100_000
"""Offsets, as many as a cell looks at for one call."""
OVER: Final = ("done", "cancelled", "gone")
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_AGO: Final = re.compile(r"([0-9]{1,9})([smhd])")
_PLACE: Final = re.compile(r"([0-9]{1,10}):([0-9]{1,18})")

redrives = typer.Typer(
    cls=PlainGroup,
    help="List, pause, resume and cancel operations on dead letters.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="A subscription, or its dead-letter topic.")
]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="As `redrives list` shows it.")]
AccountOption = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="ID",
        help="Act as this service account, by its id in `keys list --json`. People need it; a key "
        "acts as its own.",
    ),
]
FilterOption = Annotated[
    str,
    typer.Option(
        "--filter",
        metavar="FILTER",
        show_default=False,
        help='Only those whose tags match, such as "eu and not test".',
    ),
]
FromOption = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="Only dead since: 1h (ago), or a date."),
]
UntilOption = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Only dead before: 1h (ago), or a date."),
]
PlaceOption = Annotated[
    list[str] | None,
    typer.Option("--place", metavar="PARTITION:OFFSET", help="Only this one; repeatable."),
]
MessageIdOption = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="ID", help="Only those with this tw-id; repeatable."),
]
ReasonOption = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Only those whose reason contains this.")
]
ExceptionOption = Annotated[
    str,
    typer.Option(
        "--exception",
        metavar="CLASS",
        help="Only those with this exception: ValueError, app.BankError.",
    ),
]
AllOption = Annotated[bool, typer.Option("--all", help="All of them.")]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", min=0, metavar="N", help="Only in this one.")
]
WaitOption = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Show how far it is, until it has ended.")
]


def redrive(
    topic: TopicArgument,
    filter: FilterOption = "",
    from_: FromOption = None,
    until: UntilOption = None,
    place: PlaceOption = None,
    message_id: MessageIdOption = None,
    reason: ReasonOption = "",
    exception: ExceptionOption = "",
    all_: AllOption = False,
    again: Annotated[
        bool, typer.Option("--again", help="Also those that were redriven before.")
    ] = False,
    partition: PartitionOption = None,
    target: Annotated[
        str, typer.Option("--to", metavar="TOPIC", help="Into this topic; else back.")
    ] = "",
    rate: Annotated[
        int,
        typer.Option("--rate", min=0, metavar="N", help="So many a second in all; 0: no limit."),
    ] = 0,
    wait: WaitOption = True,
    account_id: AccountOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Put dead letters back into their subscription, or into another topic."""
    selection = _selection(filter, from_, until, message_id, reason, exception, all_)
    places = _places(place, partition)
    _check_selection(selection, places)
    selection["again"] = again
    to = f'into "{target}"' if target else "back into their subscription"
    words = f"Put dead letters of {topic} {to}?"
    body = {"target_topic": target}

    def command(account: Account) -> None:
        _begin(account, topic, selection, places, partition, body, rate, account_id, words, yes)(
            wait, as_json
        )

    run_rest(command)


def purge(
    topic: TopicArgument,
    filter: FilterOption = "",
    from_: FromOption = None,
    until: UntilOption = None,
    place: PlaceOption = None,
    message_id: MessageIdOption = None,
    reason: ReasonOption = "",
    exception: ExceptionOption = "",
    all_: AllOption = False,
    partition: PartitionOption = None,
    wait: WaitOption = True,
    account_id: AccountOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take dead letters for done with: no redrive ever puts them back."""
    selection = _selection(filter, from_, until, message_id, reason, exception, all_)
    places = _places(place, partition)
    _check_selection(selection, places)
    words = f"Purge dead letters of {topic}? They can never be redriven."
    body = {"purge": True}

    def command(account: Account) -> None:
        _begin(account, topic, selection, places, partition, body, 0, account_id, words, yes)(
            wait, as_json
        )

    run_rest(command)


@redrives.command("list", cls=PlainCommand)
def list_redrives(
    topic: TopicArgument, account_id: AccountOption = None, as_json: JsonOption = False
) -> None:
    """List what is under way, and what was lately."""

    def command(account: Account) -> None:
        there = _topic(account, topic)
        found = [
            {"partition": partition} | one
            for partition in range(there["spec"]["partitions"])
            for one in _listed(account, there, partition, account_id)
        ]
        if as_json:
            print_json(found)
        elif not found:
            print_line("No redrives.")
        else:
            _print(found)

    run_rest(command)


@redrives.command("pause", cls=PlainCommand)
def pause(topic: TopicArgument, id_: IdArgument, account_id: AccountOption = None) -> None:
    """Pause one: what is on its way arrives."""
    run_rest(lambda account: _change(account, topic, id_, "pause", account_id))


@redrives.command("resume", cls=PlainCommand)
def resume(topic: TopicArgument, id_: IdArgument, account_id: AccountOption = None) -> None:
    """Resume one that is paused."""
    run_rest(lambda account: _change(account, topic, id_, "resume", account_id))


@redrives.command("cancel", cls=PlainCommand)
def cancel(topic: TopicArgument, id_: IdArgument, account_id: AccountOption = None) -> None:
    """Cancel one: it ends where it is."""
    run_rest(lambda account: _change(account, topic, id_, "cancel", account_id))


class Marked:
    """Which dead letters of a topic were redriven or purged, asked for as far as it is needed.

    Nothing is, where the organization has no such topic."""

    def __init__(self, account: Account, topic: str) -> None:
        self._account = account
        self._topic = next(account.items("topics", name=topic, deleted="false"), None)
        self._known: dict[tuple[int, int], frozenset[int]] = {}

    def has(self, partition: int, offset: int) -> bool:
        """Whether one was."""
        if self._topic is None:
            return False
        part = offset // MARKS_AT_ONCE
        known = self._known.get((partition, part))
        if known is None:
            start = part * MARKS_AT_ONCE
            address = _address(self._account, self._topic, "/redriven")
            query = {"from_offset": start, "until_offset": start + MARKS_AT_ONCE}
            found = self._account.rest.get(address, partition=partition, **query).body
            known = frozenset((*found["redriven"], *found["purged"]))
            self._known[partition, part] = known
        return offset in known


def marked_of(topic: str) -> Marked | None:
    """For who is logged in at an organization; None for all others."""
    login = present_login()
    if login is None or not login.organization_id:
        return None
    return Marked(Account(login, login.rest()), topic)


def add_to(app: typer.Typer) -> None:
    """Add all of these to `tidewheel dlq`."""
    app.command(
        "redrive",
        cls=PlainCommand,
        epilog=examples(
            PROGRAM,
            "dlq redrive orders.pay --all",
            "dlq redrive orders.pay --reason timeout --from 1h --rate 100",
            "dlq redrive orders.pay --place 3:17 --to orders",
        ),
    )(redrive)
    app.command(
        "purge",
        cls=PlainCommand,
        epilog=examples(PROGRAM, "dlq purge orders.pay --exception ValueError"),
    )(purge)
    app.add_typer(redrives, name="redrives")


# Asking


def _topic(account: Account, name: str) -> dict[str, Any]:
    """The dead-letter topic of a subscription, or the topic itself."""
    names = (name, name + DEAD_LETTERS_SUFFIX)
    looks = (account.items("topics", name=wanted, deleted="false") for wanted in names)
    found = next((one for look in looks for one in look), None)
    if found is None:
        usage(
            f'There is no topic "{name}", and no "{name}{DEAD_LETTERS_SUFFIX}"',
            "Name the dead-letter topic, if it is called otherwise",
        )
    return found


def _address(account: Account, topic: dict[str, Any], what: str = "") -> str:
    return account.at(f"topics/{topic['id']}/redrives{what}")


def _named(account_id: str | None) -> dict[str, str]:
    return {} if account_id is None else {"service_account_id": account_id}


def _listed(
    account: Account, topic: dict[str, Any], partition: int, account_id: str | None
) -> Iterator[dict[str, Any]]:
    address = f"topics/{topic['id']}/redrives"
    return account.items(address, partition=partition, **_named(account_id))


def _begin(
    account: Account,
    name: str,
    selection: dict[str, Any],
    places: dict[int, list[int]],
    partition: int | None,
    body: dict[str, Any],
    rate: int,
    account_id: str | None,
    words: str,
    yes: bool,
) -> Callable[[bool, bool], None]:
    """Begin in each partition; what is returned shows what comes of it, and perhaps waits."""
    topic = _topic(account, name)
    partitions = list(range(topic["spec"]["partitions"]))
    if places:
        partitions = sorted(places)
    elif partition is not None:
        partitions = [partition]
    if rate and rate < len(partitions):
        usage(f"--rate {rate} is less than one a second in each of {len(partitions)} partitions")
    confirm(words, yes)
    operation_id = secrets.token_hex(8)
    begun = []
    for number, index in enumerate(partitions):
        # What is left over of the rate goes to the first ones.
        share = rate // len(partitions) + (number < rate % len(partitions))
        chosen = selection | ({"offsets": places[index]} if places else {})
        wanted = {"partition": index, "operation_id": operation_id, "selection": chosen}
        wanted |= body | {"rate_max": share} | _named(account_id)
        answer = account.rest.post(_address(account, topic), wanted).body
        begun.append({"partition": index} | answer)

    def show(wait: bool, as_json: bool) -> None:
        found = begun
        if wait:
            found = _wait(account, topic, operation_id, partitions, account_id, as_json)
        if as_json:
            print_json(found)
            return
        _print(found)
        if not wait:
            print_line(f"See: {command_line(f'dlq redrives list {name}')}")

    return show


def _wait(
    account: Account,
    topic: dict[str, Any],
    operation_id: str,
    partitions: list[int],
    account_id: str | None,
    is_quiet: bool,
) -> list[dict[str, Any]]:
    """Until all have ended."""
    last = ""
    while True:
        found = [
            {"partition": partition} | one
            for partition in partitions
            for one in _listed(account, topic, partition, account_id)
            if one["operation_id"] == operation_id
        ]
        if all(one["status"] in (*OVER, "paused") for one in found):
            return found
        moved = sum(one["moved"] for one in found)
        held = next((one["held"] for one in found if one["held"]), "")
        said = f"{moved:,} so far" + (f"; held: {held}" if held else "")
        if said != last and not is_quiet:
            note(said)
        last = said
        time.sleep(LOOK_S)


def _change(
    account: Account, name: str, operation_id: str, wish: str, account_id: str | None
) -> None:
    topic = _topic(account, name)
    changed = []
    for partition in range(topic["spec"]["partitions"]):
        known = {one["operation_id"]: one for one in _listed(account, topic, partition, account_id)}
        one = known.get(operation_id)
        if one is not None and one["status"] not in OVER:
            body = {"partition": partition, "operation_id": operation_id, "wish": wish}
            address = _address(account, topic, "/change")
            answer = account.rest.post(address, body | _named(account_id)).body
            changed.append({"partition": partition} | answer)
    if not changed:
        usage(
            f"No operation {operation_id} of {topic['name']} is under way",
            f"List them: `{command_line(f'dlq redrives list {name}')}`",
        )
    _print(changed)


# What is typed, and shown


def _selection(
    filter: str,
    start: str | None,
    end: str | None,
    message_ids: list[str] | None,
    reason: str,
    exception: str,
    is_all: bool,
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in (
        ("filter", filter),
        ("message_ids", message_ids),
        ("reason", reason),
        ("exception", exception),
        ("all", is_all),
    ):
        if value:
            found[name] = value
    for name, text in (("from", start), ("until", end)):
        if text is not None:
            found[f"{name}_time"] = _typed_time(text, f"--{name}")
    return found


def _check_selection(selection: dict[str, Any], places: dict[int, list[int]]) -> None:
    if not selection and not places:
        usage(
            "Say which: --filter, --from, --until, --place, --id, --reason or --exception",
            "All of them: --all",
        )
    if selection.get("all") and (len(selection) > 1 or places):
        usage("--all goes with no other condition")


def _typed_time(text: str, option: str) -> str:
    match = _AGO.fullmatch(text)
    try:
        if match is not None:
            ago = timedelta(seconds=int(match[1]) * _UNITS[match[2]])
            at = datetime.now(UTC) - ago
        else:
            # Without a zone it is the local time.
            at = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        usage(f"{option} {text!r} is no time", f"Write {option} 2h, or {option} 2027-01-31T12:00Z")
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _places(texts: list[str] | None, partition: int | None) -> dict[int, list[int]]:
    """Offsets by partition."""
    found: dict[int, list[int]] = {}
    for text in texts or ():
        match = _PLACE.fullmatch(text)
        if match is None:
            usage(f"--place {text!r} is not PARTITION:OFFSET", "Write it as --place 3:17")
        found.setdefault(int(match[1]), []).append(int(match[2]))
    if found and partition is not None:
        usage("--place names the partition already: leave out --partition")
    return found


def _print(found: list[dict[str, Any]]) -> None:
    numbers = ("PARTITION", "MOVED", "OVER LIMIT", "NO ORIGIN")
    made = table(
        "ID", "PARTITION", "WHAT", "STATUS", *numbers[1:], "HELD", right=frozenset(numbers)
    )
    for one in found:
        made.add_row(
            one["operation_id"],
            str(one["partition"]),
            "purge" if one["purge"] else "redrive",
            one["status"],
            f"{one['moved']:,}",
            f"{one['over_limit']:,}",
            f"{one['no_origin']:,}",
            one["held"],
        )
    print_table(made)
