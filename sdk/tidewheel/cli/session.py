"""What every command shares: its options, the client, errors and exit statuses.

Exit statuses: 0 done, 1 failed (with a message on stderr), 2 wrong usage, 130 interrupted.
Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Annotated, Any, Final, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from tidewheel.access import DEFAULT_BOOTSTRAP, redacted
from tidewheel.client import Client
from tidewheel.errors import BrokerUnreachable, TidewheelError
from tidewheel.settings import ClientSettings, ConsumerSettings, ProducerSettings

PROGRAM: Final = "./tidewheel" if "TIDEWHEEL_CHECKOUT" in os.environ else "tidewheel"
"""What the person typed, so that the commands in our messages can be copied as they are."""

CONNECT_TIMEOUT_MS: Final = 3_000
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

_url_given: ContextVar[str | None] = ContextVar("_url_given", default=None)
"""The --url of this command; None when the address is the environment's or the default."""

errors = Console(stderr=True, highlight=False, soft_wrap=True)

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="ADDRESS",
        envvar="TIDEWHEEL_URL",
        show_envvar=True,
        help="Brokers: host:port,host:port or tidewheel://user:password@host:port?ca=FILE; the "
        "default profile or 127.0.0.1:9092 if not given.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def fail(message: str, hint: str = "", status: int = EXIT_FAILED) -> NoReturn:
    """End with a message on stderr."""
    errors.print(f"[bold red]tidewheel:[/] {_escaped(message)}")
    if hint:
        errors.print(f"  {_escaped(_as_typed(hint))}")
    raise typer.Exit(status)


def command_line(words: str) -> str:
    """A command to copy, for the brokers that this one was for: `./tidewheel topics --url …`."""
    url = _url_given.get()
    shown = "" if url is None else f" --url {shlex.quote(redacted(url))}"
    return f"{PROGRAM} {words}{shown}"


def _as_typed(hint: str) -> str:
    """A hint with its commands as the person has to type them."""
    ours = "produce|consume|topics|groups|lag|dlq|brokers|partitions|drain|users|acls|subscriptions"
    hint = re.sub(
        rf"`(?:tidewheel|{re.escape(PROGRAM)}) ((?:{ours})\b[^`]*)`",
        lambda found: f"`{command_line(found[1])}`",
        hint,
    )
    return hint.replace("`tidewheel ", f"`{PROGRAM} ")


def _unreachable_hint(url: str | None) -> str:
    if url is None:
        address = f"its address is {DEFAULT_BOOTSTRAP} (else give --url or set TIDEWHEEL_URL)"
    else:
        name = "--url" if _url_given.get() is not None else "TIDEWHEEL_URL"
        address = f"{name} {redacted(url)} is its address"
    return (
        f"Check that the broker runs (`{PROGRAM} status`, with the --data that `{PROGRAM} up` was "
        f"given), that {address}, with a user and a password if it wants them "
        "(tidewheel://user:password@host:port), and that no firewall is in between"
    )


def note(text: str) -> None:
    """Something to know, beside the results."""
    errors.print(_escaped(text))


def usage(message: str, hint: str = "") -> NoReturn:
    """End because the arguments make no sense."""
    fail(message, hint, EXIT_USAGE)


def run(
    command: Callable[[Client], Awaitable[None]],
    url: str | None,
    *,
    producer: ProducerSettings | None = None,
    consumer: ConsumerSettings | None = None,
) -> None:
    """Run a command with an open client; turns errors into messages and exit statuses."""

    _url_given.set(None if url == os.environ.get("TIDEWHEEL_URL") else url)

    async def body() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "asyncio.run makes one"

        def interrupt() -> None:
            loop.remove_signal_handler(signal.SIGINT)  # So that the second ends us at once.
            task.cancel()

        # Commit what was printed and leave the group, instead of timing out in it. Ctrl-C too
        # goes by the loop: asyncio.run cancels wherever the signal finds it, also in the middle of
        # setting the result that the task waits for.
        if threading.current_thread() is threading.main_thread():
            loop.add_signal_handler(signal.SIGTERM, task.cancel)
            loop.add_signal_handler(signal.SIGINT, interrupt)
        settings = ClientSettings("tidewheel-cli", connect_timeout_ms=CONNECT_TIMEOUT_MS)
        client = Client(url, settings=settings, producer=producer, consumer=consumer)
        async with client:
            await command(client)

    with reporting_errors(url):
        asyncio.run(body())


@contextlib.contextmanager
def reporting_errors(url: str | None = None) -> Iterator[None]:
    """Errors become messages and exit statuses."""
    try:
        yield
    except BrokerUnreachable as error:
        fail(error.message, _unreachable_hint(url))
    except TidewheelError as error:
        fail(error.message, error.hint)
    except BrokenPipeError:
        # The reader of our output has left (`| head`): nothing is wrong, nobody listens.
        _drop_output()
        raise typer.Exit(0) from None
    except OSError as error:
        _drop_output()
        fail(f"{error.filename or 'The output'}: {error.strerror or error}")
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(EXIT_INTERRUPTED) from None


def write_any_text() -> None:
    """A terminal or pipe that is not UTF-8 gets escapes for what it cannot show, and no error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Python flushes what is left once more at exit, which must not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def confirm(question: str, yes: bool) -> None:
    """Ask before what cannot be undone; without a terminal --yes is needed."""
    if yes:
        return
    if not sys.stdin.isatty():
        usage(question, "Add --yes to do it without asking")
    if not typer.confirm(question, err=True):
        raise typer.Exit(EXIT_FAILED)


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")
    sys.stdout.flush()


def print_line(text: str) -> None:
    """One line on stdout."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def table(*columns: str, right: frozenset[str] = frozenset()) -> Table:
    """A plain table; the columns in `right` hold numbers."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
    for column in columns:
        # Folding instead of cutting off: what is copied from the screen must be whole.
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def print_table(made: Table) -> None:
    """A table on stdout; as wide as it needs to be when nobody sees it."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=200)
    # Rich ends the program with a failure of its own when the reader has left (`| head`).
    with console.capture() as captured:
        console.print(made)
    sys.stdout.write(captured.get())
    sys.stdout.flush()


def parse_pairs(pairs: list[str], what: str, example: str) -> dict[str, str]:
    """`KEY=VALUE` arguments as a mapping."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            usage(f"{what} {pair!r} is not KEY=VALUE", f"Write it as {what} {example}")
        found[key] = value
    return found


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")
