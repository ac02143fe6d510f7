"""`tidewheel consume`: messages to the screen or to the next program."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn

from tidewheel.cli.session import EXIT_INTERRUPTED, JsonOption, UrlOption, errors, note, run, usage
from tidewheel.client import Client
from tidewheel.consumer import Consumer
from tidewheel.consumer_options import Start
from tidewheel.errors import ConfigurationError, NoLeader, StorageFailed
from tidewheel.headers import duration_ms
from tidewheel.leaderless import explain
from tidewheel.message import TAG_HEADER, Message, TopicPartition

BATCH_MAX: Final = 2_000
IDLE_LOOK_S: Final = 0.2
# After so many looks in a row that found nothing the leader is asked whether there is anything.
IDLE_LOOKS_MAX: Final = 50
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


FilterOption = Annotated[
    str | None,
    typer.Option(
        "--filter",
        metavar="FILTER",
        help="With a group: only messages whose tags match, such as 'checkout or refund'; brokers "
        "do the filtering.",
    ),
]

CONSUME_EXAMPLES: Final = (
    "consume orders --until-end",
    "consume orders --from 10m --json",
    "consume orders --group pay --count 100",
    "consume orders --group pay --filter 'checkout or refund'",
)


def parse_start(text: str) -> Start:
    """`beginning`, `end`, an offset, a time, or a duration ago. Raises ConfigurationError."""
    if text == "beginning":
        return "earliest"
    if text == "end":
        return "latest"
    if text.isascii() and text.isdigit():
        return int(text)
    if re.fullmatch(r"\d+(ms|s|m|h|d)", text):
        return timedelta(milliseconds=duration_ms(text))
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is no place to start",
            hint="Use beginning, end, an offset (1234), a time (2026-01-31T12:00), "
            "or a duration ago (10m)",
        ) from None
    # A time without a zone is what the clock on the wall says.
    return when if when.tzinfo is not None else when.astimezone()


def consume(
    topic: Annotated[
        list[str], typer.Argument(metavar="TOPIC", help="What to read; several are mixed.")
    ],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="The beginning, end, an offset, a time, or a duration ago (10m). With a group: "
            "where to begin without a committed offset.",
        ),
    ] = "beginning",
    group: Annotated[
        str | None,
        typer.Option(
            "--group", "-g", metavar="GROUP", help="Read as a member of this group, and commit."
        ),
    ] = None,
    tags: FilterOption = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", metavar="N", min=1, help="Stop after so many.")
    ] = None,
    until_end: Annotated[
        bool,
        typer.Option("--until-end", "-e", help="Stop at what was the end when it started."),
    ] = False,
    values: Annotated[
        bool, typer.Option("--values", help="Print only the values, one per line.")
    ] = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Print messages as they come, until Ctrl-C, --count or --until-end."""
    if values and as_json:
        usage("Both --values and --json are given", "Give one of them")
    if until_end and group is not None:
        usage(
            "--until-end reads all partitions, a group only its share of them",
            "Leave out --group, or use --count",
        )
    try:
        where = parse_start(start)
    except ConfigurationError as error:
        usage(error.message, error.hint)
    if isinstance(where, int) and group is not None:
        usage("A group cannot start at an offset", "Use `tidewheel groups reset`, or no --group")
    show = _json_line if as_json else _value_line if values else _human_line
    reading = _Reading(show, count, until_end)

    async def command(client: Client) -> None:
        try:
            async with client.subscribe(*topic, group=group, filter=tags, start=where) as consumer:
                if isinstance(where, int):
                    await _tell_what_is_not_there(consumer, where)
                await reading.read(consumer)
        except (NoLeader, StorageFailed):
            for name in topic:
                if (why := await explain(client.admin, name)) is not None:
                    raise why from None
            raise

    try:
        run(command, url)
    except typer.Exit as ended:
        # Ctrl-C is how following ends; it is a failure only when something was still to come.
        if ended.exit_code == EXIT_INTERRUPTED and count is None and not until_end:
            raise typer.Exit(0) from None
        raise


async def _tell_what_is_not_there(consumer: Consumer, start: int) -> None:
    """An offset beyond the end is no error (what comes next is read), but a mistake perhaps."""
    ends = [(await consumer.watermarks(partition))[1] for partition in consumer.assignment]
    if ends and start > max(ends):
        note(
            f"{start} is past the end, which is {max(ends)}: only what is sent from now on is read"
        )


class _Reading:
    """Prints batches until the count, the end, or nobody wants more."""

    def __init__(self, show: Callable[[Message], str], count: int | None, until_end: bool) -> None:
        self._show = show
        self._left = count
        self._until_end = until_end
        self._ends: dict[TopicPartition, int] = {}
        self._next: dict[TopicPartition, int] = {}
        self._idle_looks = 0

    async def read(self, consumer: Consumer) -> None:
        if self._until_end:
            for partition in consumer.assignment:
                first, end = await consumer.watermarks(partition)
                if end > first:
                    self._ends[partition] = end
            await self._forget_reached(consumer)
            if not self._ends:
                return
        total, started_s = 0, time.monotonic()
        with Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[count]:,} messages, {task.fields[rate]:,.0f}/s"),
            console=errors,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not sys.stderr.isatty() or sys.stdout.isatty(),
        ) as progress:
            task = progress.add_task("", total=None, count=0, rate=0.0)
            batch_max = BATCH_MAX if self._left is None else min(BATCH_MAX, self._left)
            async for batch in consumer.batches(batch_max, wait_s=IDLE_LOOK_S):
                batch = self._wanted(batch)
                if batch:
                    await asyncio.to_thread(_write, "".join(map(self._show, batch)))
                    self._next.update({m.topic_partition: m.offset + 1 for m in batch})
                    total += len(batch)
                    rate = total / max(time.monotonic() - started_s, 1e-9)
                    progress.update(task, count=total, rate=rate)
                    self._idle_looks = 0
                else:
                    await self._forget_reached(consumer)
                    await self._check_stalled(consumer)
                if self._is_done():
                    await self._commit(consumer)
                    return

    def _wanted(self, batch: list[Message]) -> list[Message]:
        if self._left is not None:
            batch = batch[: self._left]
            self._left -= len(batch)
        if self._until_end:
            kept = []
            for message in batch:
                place = message.topic_partition
                end = self._ends.get(place)
                if end is None:
                    continue  # Sent after we started.
                if message.offset < end:
                    kept.append(message)
                if message.offset >= end - 1:
                    del self._ends[place]
            batch = kept
        return batch

    async def _forget_reached(self, consumer: Consumer) -> None:
        """Partitions whose last offsets hold no messages (markers, compacted) are at their end."""
        positions = await consumer.positions()
        for partition, end in list(self._ends.items()):
            if positions.get(partition, -1) >= end:
                del self._ends[partition]

    async def _check_stalled(self, consumer: Consumer) -> None:
        """Where an end is not reached, its leader may not be able to read that far. Raises why."""
        self._idle_looks += 1
        if self._idle_looks < IDLE_LOOKS_MAX:
            return
        self._idle_looks = 0
        for partition in list(self._ends):
            _, end = await consumer.watermarks(partition)
            # After an unclean election there may be less than there was.
            self._ends[partition] = min(self._ends[partition], end)

    def _is_done(self) -> bool:
        return self._left == 0 or (self._until_end and not self._ends)

    async def _commit(self, consumer: Consumer) -> None:
        # What was printed, and no more: the last batch may hold messages beyond the count.
        if consumer.options.group is not None:
            await consumer.commit(
                {p: self._next[p] for p in consumer.assignment & self._next.keys()}
            )


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def printable(data: bytes) -> str:
    """Text that cannot do anything to the terminal; bytes that are no UTF-8 as \\x escapes."""
    text = data.decode("utf-8", "backslashreplace")
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _value_line(message: Message) -> str:
    return "" if message.value is None else message.value.decode("utf-8", "backslashreplace") + "\n"


def _human_line(message: Message) -> str:
    moment = message.timestamp.astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    parts = [moment, f"{message.topic}[{message.partition}]@{message.offset}"]
    if message.key is not None:
        parts.append(f"key={printable(message.key)}")
    parts.extend(f"#{printable(tag.encode())}" for tag in message.tags)
    parts.extend(
        f"{name}={printable(value) if value is not None else 'null'}"
        for name, value in message.headers
        if name != TAG_HEADER
    )
    value = "(null)" if message.value is None else printable(message.value)
    return f"{'  '.join(parts)}  {value}\n"


def _json_line(message: Message) -> str:
    line: dict[str, Any] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp.astimezone(UTC).isoformat(timespec="milliseconds"),
        "timestamp_ms": message.timestamp_ms,
        **member_of("key", message.key),
        **member_of("value", message.value),
    }
    if message.headers:
        line["headers"] = [
            [name, None if value is None else value.decode("utf-8", "replace")]
            for name, value in message.headers
        ]
    return json.dumps(line, ensure_ascii=False) + "\n"


def member_of(name: str, data: bytes | None) -> dict[str, str | None]:
    """A key or a value as a member of a JSON object; what is no UTF-8 as base64."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        assert data is not None, "None decodes"
        return {f"{name}_base64": base64.b64encode(data).decode()}
