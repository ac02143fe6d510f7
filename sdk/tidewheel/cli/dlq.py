"""`tidewheel dlq`: what has become a dead letter, and why."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any, Final

import typer

from tidewheel.cli import redrives
from tidewheel.cli.consume import IDLE_LOOK_S, member_of, parse_start, printable
from tidewheel.cli.help import PlainCommand, PlainGroup, examples
from tidewheel.cli.over_rest import speaks_rest
from tidewheel.cli.session import (
    PROGRAM,
    JsonOption,
    UrlOption,
    command_line,
    note,
    print_json,
    print_line,
    print_table,
    run,
    table,
    usage,
)
from tidewheel.client import Client
from tidewheel.consumer import Consumer
from tidewheel.consumer_options import Start
from tidewheel.dead_letters import Dead, Wanted, dead_letter_of, topic_of
from tidewheel.errors import ConfigurationError, TopicNotFound
from tidewheel.message import Message, TopicPartition
from tidewheel.retry_policy import DEAD_LETTERS_SUFFIX

COUNT_DEFAULT: Final = 100
BATCH_MAX: Final = 2_000
REASON_SHOWN_MAX: Final = 80
_PLACE: Final = re.compile(r"(\d{1,10}):(\d{1,19})")

LIST_EXAMPLES: Final = (
    "dlq list orders.pay",
    "dlq list orders.pay --reason timeout --from 1h",
    "dlq list orders.pay --by exception",
    "dlq show orders.pay 3:17",
)

app = typer.Typer(
    cls=PlainGroup,
    help="Look at dead letters, which are not retried any more, and put them back.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
redrives.add_to(app)

TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="A subscription, or its dead-letter topic.")
]


class By(Enum):
    """What dead letters are counted by."""

    REASON = "reason"
    EXCEPTION = "exception"
    ORIGIN = "origin"
    ATTEMPTS = "attempts"
    CONSUMER = "consumer"


_GROUPS: Final[dict[By, Callable[[Dead], str]]] = {
    By.REASON: lambda dead: dead.reason,
    By.EXCEPTION: lambda dead: dead.exception,
    By.ORIGIN: lambda dead: f"{dead.topic}/{dead.partition}",
    By.ATTEMPTS: lambda dead: str(dead.attempts),
    By.CONSUMER: lambda dead: dead.consumer,
}


@app.command("list", cls=PlainCommand, epilog=examples(PROGRAM, *LIST_EXAMPLES))
def list_dead(
    topic: TopicArgument,
    reason: redrives.ReasonOption = "",
    exception: redrives.ExceptionOption = "",
    origin: Annotated[
        str,
        typer.Option(
            "--origin", metavar="PLACE", help="Only those from TOPIC, or from TOPIC/PARTITION."
        ),
    ] = "",
    attempts: Annotated[
        int | None,
        typer.Option("--attempts", metavar="N", min=1, help="Only those delivered N times."),
    ] = None,
    start: Annotated[
        str,
        typer.Option("--from", metavar="WHERE", help="The beginning, a time, or how long ago: 1h."),
    ] = "beginning",
    count: Annotated[
        int, typer.Option("--count", "-n", metavar="N", min=1, help="Show at most so many.")
    ] = COUNT_DEFAULT,
    by: Annotated[
        By | None,
        typer.Option(
            "--by",
            metavar="WHAT",
            help="Only count them, by reason, exception, origin, attempts or consumer.",
        ),
    ] = None,
    redriven: Annotated[
        bool, typer.Option("--redriven", help="Also those that were redriven or purged.")
    ] = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """List dead letters: where they came from, how many attempts they had, and why they failed."""
    wanted = Wanted(reason, exception, origin.strip("/"), attempts)
    is_all = wanted == Wanted() and start == "beginning"
    nothing = "No dead letters." if is_all else "No dead letters match."
    try:
        where = parse_start(start)
    except ConfigurationError as error:
        usage(error.message, error.hint)

    async def command(client: Client) -> None:
        name = await topic_of(client.admin, topic)
        groups: Counter[str] = Counter()
        found: list[Dead] = []
        # Only a control plane knows.
        asks = not redriven and speaks_rest(url)
        marked = await asyncio.to_thread(redrives.marked_of, name) if asks else None
        async with aclosing(_read(client, topic, name, where)) as reading:
            async for dead in reading:
                if not wanted.matches(dead) or await _is_moved(marked, dead):
                    continue
                if by is not None:
                    groups[_GROUPS[by](dead)] += 1
                else:
                    found.append(dead)
                    if len(found) >= count:
                        break
        if by is not None:
            _print_groups(by, groups, as_json)
        else:
            _print_list(name, found, as_json, nothing)

    run(command, url)


async def _is_moved(marked: redrives.Marked | None, dead: Dead) -> bool:
    """Whether it was redriven or purged, if anybody knows."""
    place = dead.message.partition, dead.message.offset
    return marked is not None and await asyncio.to_thread(marked.has, *place)


async def _read(client: Client, asked: str, name: str, start: Start) -> AsyncGenerator[Dead, None]:
    """The dead letters of topic `name`, for somebody who asked for `asked`. Tells them when there
    is no such topic, and when it has other messages."""
    others = 0
    try:
        async with client.subscribe(name, start=start) as consumer:
            async for message in until_end(consumer):
                dead = dead_letter_of(message)
                if dead is None:
                    others += 1
                else:
                    yield dead
    except TopicNotFound:
        if name == asked:
            raise
        if name == asked + DEAD_LETTERS_SUFFIX:
            note(f'"{asked}" has no dead letters yet: "{name}" is made with the first one')
        else:
            note(
                f'The dead letters of "{asked}" go to "{name}" (tidewheel.dlq.topic), which does '
                f"not exist and is not made by itself: they wait until you create it, with "
                f"tidewheel.headers=true"
            )
    if others:
        note(f'"{name}" also has messages that are not dead letters: {others}')


@app.command("show", cls=PlainCommand, epilog=examples(PROGRAM, "dlq show orders.pay 3:17"))
def show(
    topic: TopicArgument,
    place: Annotated[
        str,
        typer.Argument(metavar="PLACE", help="PARTITION:OFFSET, as `dlq list` shows it."),
    ],
    as_json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Show one dead letter with its key, value, headers and times."""
    match = _PLACE.fullmatch(place)
    if match is None:
        usage(f"{place!r} is no place", "Write PARTITION:OFFSET, such as 3:17")
    partition, offset = int(match[1]), int(match[2])

    async def command(client: Client) -> None:
        name = await topic_of(client.admin, topic)
        wanted = TopicPartition(name, partition)
        async with client.subscribe(name, start=offset) as consumer:
            if wanted not in consumer.assignment:
                usage(f'"{name}" has no partition {partition}')
            await consumer.pause(consumer.assignment - {wanted})
            found = None
            async for message in until_end(consumer, {wanted}):
                if message.topic_partition == wanted:
                    found = message if message.offset == offset else None
                    break
        dead = None if found is None else dead_letter_of(found)
        if dead is None:
            usage(
                f"There is no dead letter at {place} of {name}",
                f"List them: `{command_line(f'dlq list {topic}')}`",
            )
        if as_json:
            print_json(_as_json(dead))
        else:
            _print_one(dead)

    run(command, url)


async def until_end(
    consumer: Consumer, partitions: frozenset[TopicPartition] | set[TopicPartition] | None = None
) -> AsyncIterator[Message]:
    """The messages of these partitions, or of all, up to their present ends."""
    ends = {}
    for place in consumer.assignment if partitions is None else partitions:
        first, end = await consumer.watermarks(place)
        if end > first:
            ends[place] = end
    while True:
        # The last offsets may hold no messages: then only the position gets there.
        positions = await consumer.positions()
        ends = {place: end for place, end in ends.items() if positions.get(place, -1) < end}
        batch = await consumer.fetch(BATCH_MAX, IDLE_LOOK_S if ends else 0.0)
        if not ends and not batch:
            return
        for message in batch:
            yield message


def _moment(epoch_ms: int | None) -> str:
    if epoch_ms is None:
        return ""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _short(text: str) -> str:
    line = printable(text.encode())
    return line if len(line) <= REASON_SHOWN_MAX else line[: REASON_SHOWN_MAX - 1] + "…"


def _print_list(name: str, found: list[Dead], as_json: bool, nothing: str) -> None:
    if as_json:
        print_json([_as_json(dead) for dead in found])
        return
    if not found:
        print_line(nothing)
        return
    made = table(
        "PLACE",
        "FAILED",
        "ORIGIN",
        "ATTEMPTS",
        "EXCEPTION",
        "REASON",
        right=frozenset({"ATTEMPTS"}),
    )
    for dead in found:
        made.add_row(
            f"{dead.message.partition}:{dead.message.offset}",
            _moment(dead.failed_at_ms),
            dead.origin,
            str(dead.attempts),
            _short(dead.exception),
            _short(dead.reason),
        )
    print_line(name)
    print_table(made)


def _print_groups(by: By, groups: Counter[str], as_json: bool) -> None:
    if as_json:
        print_json([{by.value: text, "count": count} for text, count in groups.most_common()])
        return
    made = table("COUNT", by.value.upper(), right=frozenset({"COUNT"}))
    for text, count in groups.most_common():
        made.add_row(f"{count:,}", _short(text) or "-")
    print_table(made)


def _print_one(dead: Dead) -> None:
    message = dead.message
    rows = [
        ("place", f"{message.topic} {message.partition}:{message.offset}"),
        ("origin", dead.origin),
        ("attempts", str(dead.attempts)),
        ("reason", dead.reason),
        ("exception", dead.exception),
        ("consumer", dead.consumer),
        ("produced", _moment(dead.produced_at_ms)),
        ("first failed", _moment(dead.first_failed_at_ms)),
        ("failed", _moment(dead.failed_at_ms)),
        ("key", "(null)" if message.key is None else message.key.decode("utf-8", "replace")),
    ]
    for name, text in rows:
        if text:
            print_line(f"{name:<14}{printable(text.encode())}")
    for name, value in message.headers:
        if not name.startswith("tw-") or name in ("tw-tag", "tw-id"):
            print_line(f"{'header':<14}{name}={printable(value or b'')}")
    print_line("(null)" if message.value is None else printable(message.value))


def _as_json(dead: Dead) -> dict[str, Any]:
    message = dead.message
    return {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "origin": dead.origin,
        "attempts": dead.attempts,
        "reason": dead.reason,
        "exception": dead.exception,
        "consumer": dead.consumer,
        "produced_at_ms": dead.produced_at_ms,
        "first_failed_at_ms": dead.first_failed_at_ms,
        "failed_at_ms": dead.failed_at_ms,
        **member_of("key", message.key),
        **member_of("value", message.value),
        "headers": [
            [name, None if value is None else value.decode("utf-8", "replace")]
            for name, value in message.headers
        ],
    }
