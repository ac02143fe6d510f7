"""`tidewheel produce`: messages from arguments, files or stdin."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from tidewheel.cli.reading import LineSplitter, Template, record_of_json, record_of_line
from tidewheel.cli.session import (
    JsonOption,
    UrlOption,
    errors,
    fail,
    note,
    parse_pairs,
    print_json,
    print_line,
    run,
    usage,
)
from tidewheel.client import Client
from tidewheel.errors import BatchSendFailed, ConfigurationError, MessageTooLarge
from tidewheel.headers import DELAY_MS_MAX, duration_ms, epoch_ms
from tidewheel.message import ProducerRecord
from tidewheel.settings import (
    MESSAGE_BYTES_MAX_DEFAULT,
    Acks,
    Compression,
    ProducerSettings,
)

CHUNK_BYTES: Final = 256 * 1024
PROGRESS_AFTER_S: Final = 0.5
PROGRESS_EVERY: Final = 2_000

PRODUCE_EXAMPLES: Final = (
    "produce orders hello world",
    "produce orders --key-separator : < pairs.txt",
    "produce orders --format json --file orders.jsonl",
    "produce orders --delay 30m 'remember the milk'",
)

Acknowledgements = Literal["all", "1", "0"]
Preset = Literal["throughput", "latency"]
InputFormat = Literal["lines", "json", "raw"]
PresetOption = Annotated[
    Preset | None, typer.Option("--preset", help="Large batches, or every message at once.")
]
DelayOption = Annotated[
    str | None,
    typer.Option(
        "--delay",
        metavar="DURATION",
        help="Deliver it so much later: 30s, 10m, 45d. The topic needs tidewheel.headers=true, or "
        "it is delivered at once.",
    ),
]
DeliverAtOption = Annotated[
    str | None,
    typer.Option(
        "--deliver-at",
        metavar="TIME",
        help="Deliver it then: 2027-01-01T08:00:00Z, or ms since 1970.",
    ),
]


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where to send.")],
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="MESSAGE", help="What to send; without any, stdin is read."),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            *("--file", "-f"),
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Read this; repeatable.",
        ),
    ] = None,
    input_format: Annotated[
        InputFormat,
        typer.Option(
            "--format",
            help="What the input is: a message per line, a JSON object per line (key, value, "
            "headers, tags, …), or one message as a whole.",
        ),
    ] = "lines",
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="TEXT", help="Key of every message.")
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Lines are KEY, this text, VALUE.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="KEY=VALUE", help="A header; repeatable."),
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", "-t", metavar="TAG", help="A tag; repeatable.")
    ] = None,
    delay: DelayOption = None,
    deliver_at: DeliverAtOption = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", metavar="N", min=0, help="Send to this one.")
    ] = None,
    preset: PresetOption = None,
    acks: Annotated[Acknowledgements, typer.Option(help="Who must have it.")] = "all",
    message_bytes_max: Annotated[
        int,
        typer.Option(metavar="BYTES", min=1_000, max=1_000_000_000, help="Refuse larger messages."),
    ] = MESSAGE_BYTES_MAX_DEFAULT,
    compression: Annotated[Compression | None, typer.Option(help="Of batches.")] = None,
    as_json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Send messages: from the arguments, from files, or from stdin."""
    if values and file:
        usage("Both messages and --file are given", "Give one of them")
    pairs = parse_pairs(header or [], "--header", "source=sensor-7")
    due = _checked_time(delay, deliver_at)
    base = ProducerRecord(
        key=key,
        headers=list(pairs.items()),
        tags=tag or [],
        delay=delay,
        deliver_at=due,
        partition=partition,
    )
    template = Template(base, key_separator.encode() if key_separator is not None else None)
    settings = _settings(preset, acks, compression, message_bytes_max, interactive=bool(values))
    source = _Source(values or [], file or [], input_format, template)
    run(lambda client: _produce(client, topic, source, as_json), url, producer=settings)


def _too_large_hint(topic: str) -> str:
    return (
        "Give --message-bytes-max BYTES, and let the topic take them: `tidewheel topics config "
        f"{topic} --set max.message.bytes=BYTES`"
    )


def _checked_time(delay: str | None, deliver_at: str | None) -> int | None:
    """What --deliver-at says, in ms since 1970. A time without meaning is a mistake of the command
    line, found before anything is sent."""
    if delay is not None and deliver_at is not None:
        usage("Both --delay and --deliver-at are given", "Give one of them")
    try:
        if delay is not None and not 0 < duration_ms(delay, what="--delay") <= DELAY_MS_MAX:
            usage(f"--delay {delay} is not from 1 ms to ten years", "Choose another one")
        if deliver_at is None or deliver_at.isdecimal():
            return None if deliver_at is None else int(deliver_at)
        at = datetime.fromisoformat(deliver_at)
        if at.tzinfo is None:
            usage(f"--deliver-at {deliver_at} has no time zone", "Write 2027-01-01T08:00:00Z")
        return epoch_ms(at)
    except ConfigurationError as error:
        usage(error.message, error.hint)
    except ValueError:
        usage(f"--deliver-at {deliver_at!r} is no time", "Write 2027-01-01T08:00:00Z")


def _settings(
    preset: Preset | None,
    acks: Acknowledgements,
    compression: str | None,
    message_bytes_max: int,
    *,
    interactive: bool,
) -> ProducerSettings:
    changes: dict[str, Any] = {
        "acks": cast(Acks, "all" if acks == "all" else int(acks)),
        "message_bytes_max": message_bytes_max,
    }
    if compression is not None:
        changes["compression"] = compression
    if preset == "throughput":
        return ProducerSettings.throughput(**changes)
    if preset == "latency" or interactive:
        return ProducerSettings.latency(**changes)
    return ProducerSettings(**changes)


class _Source:
    """The records to send, and how far reading them has come."""

    def __init__(
        self, values: list[str], files: list[Path], input_format: str, template: Template
    ) -> None:
        self._values = values
        self._files = files
        self._format = input_format
        self._template = template
        self.bytes_read = 0
        self.bytes_total: int | None = self._total()
        self.records_read = 0
        self.on_progress: Callable[[], None] | None = None

    def _total(self) -> int | None:
        """The size of the input when it is known before."""
        if self._values:
            return None
        if self._files:
            return sum(path.stat().st_size for path in self._files)
        status = os.fstat(sys.stdin.fileno())
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    async def records(self) -> AsyncIterator[ProducerRecord | bytes]:
        """Everything to send; plain lines as they are, which is the fastest to send."""
        async for chunk in self._chunks():
            for record in chunk:
                yield record
                self.records_read += 1
            if self.on_progress is not None:
                self.on_progress()

    async def _chunks(self) -> AsyncIterator[Iterable[ProducerRecord | bytes]]:
        """Records as they are read; parsed one by one, so that all before a bad one are sent."""
        if self._values:
            yield (self._record(v.encode(), number) for number, v in enumerate(self._values, 1))
        elif self._files:
            for path in self._files:
                with path.open("rb", buffering=0) as opened:
                    async for chunk in self._read(opened.fileno()):
                        yield chunk
        else:
            if sys.stdin.isatty():
                errors.print("[dim]Type messages, one per line; Ctrl-D ends.[/]")
            async for chunk in self._read(sys.stdin.fileno()):
                yield chunk

    async def _read(self, descriptor: int) -> AsyncIterator[Iterable[ProducerRecord | bytes]]:
        splitter = LineSplitter()
        whole = bytearray()
        while chunk := await _read_chunk(descriptor):
            self.bytes_read += len(chunk)
            if self._format == "raw":
                whole += chunk
            else:
                yield self._parsed(splitter.feed(chunk), splitter)
        if self._format == "raw":
            yield [self._record(bytes(whole), 1)]
        yield self._parsed(splitter.finish(), splitter)

    def _parsed(
        self, lines: Iterator[bytes], splitter: LineSplitter
    ) -> Iterable[ProducerRecord | bytes]:
        if self._format == "lines" and self._template.is_empty:
            return lines
        return (self._record(line, splitter.line_number) for line in lines)

    def _record(self, line: bytes, number: int) -> ProducerRecord:
        if self._format == "json":
            return record_of_json(line, number, self._template)
        return record_of_line(line, self._template)


async def _read_chunk(descriptor: int) -> bytes:
    """The next bytes, b"" at the end. The thread is a daemon: an interrupt waits for nobody."""
    loop = asyncio.get_running_loop()
    chunk: asyncio.Future[bytes] = loop.create_future()

    def finish(data: bytes, error: OSError | None) -> None:
        if chunk.done():
            return
        if error is None:
            chunk.set_result(data)
        else:
            chunk.set_exception(error)

    def read() -> None:
        data, failure = b"", None
        try:
            data = os.read(descriptor, CHUNK_BYTES)
        except OSError as error:
            failure = error
        # The loop may have ended in the meantime.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(finish, data, failure)

    threading.Thread(target=read, daemon=True).start()
    return await chunk


async def _produce(client: Client, topic: str, source: _Source, as_json: bool) -> None:
    if not await client.admin.topic_exists(topic):
        # Brokers that create topics on first use do so now; the others say that there is none.
        count = await client.partition_count(topic)
        noun = "partition" if count == 1 else "partitions"
        note(f"There was no topic {topic}; the broker has made it, with {count} {noun}")
    progress = Progress(
        TextColumn("sending"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[sent]:,} messages, {task.fields[rate]:,.0f}/s"),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not sys.stderr.isatty() or sys.stdin.isatty(),
    )
    task = progress.add_task("", total=source.bytes_total, sent=0, rate=0.0)
    started_s = time.monotonic()

    def show() -> None:
        elapsed_s = time.monotonic() - started_s
        if elapsed_s > PROGRESS_AFTER_S and not progress.live.is_started:
            progress.start()
        rate = source.records_read / max(elapsed_s, 1e-9)
        progress.update(task, completed=source.bytes_read, sent=source.records_read, rate=rate)

    source.on_progress = show
    try:
        sending = client.topic(topic).send_many(source.records())
        summary = await client.raise_if_stalled(topic, sending)
    except BatchSendFailed as failed:
        counts = f"{failed.sent} messages sent, {failed.failed} failed"
        hint = failed.first_error.hint
        if isinstance(failed.first_error, MessageTooLarge):
            hint = _too_large_hint(topic)
        fail(f"{counts}: {failed.first_error.message}", hint)
    except MessageTooLarge as error:
        fail(error.message, _too_large_hint(topic))
    except ConfigurationError as broken:
        before = source.records_read
        sent = f"; the {before:,} before it {'was' if before == 1 else 'were'} sent"
        fail(broken.message + (sent if before else ""), broken.hint)
    finally:
        if progress.live.is_started:
            progress.stop()
    if as_json:
        print_json(
            {
                "topic": topic,
                "sent": summary.sent,
                "value_bytes": summary.value_bytes,
                "elapsed_s": round(summary.elapsed_s, 3),
            }
        )
        return
    noun = "message" if summary.sent == 1 else "messages"
    text = f"Sent {summary.sent:,} {noun} to {topic}"
    if summary.sent >= PROGRESS_EVERY:
        text += f" in {summary.elapsed_s:.1f} s ({summary.messages_per_s:,.0f}/s)"
    print_line(text)
