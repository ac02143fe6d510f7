"""The `tidewheel` command: produce, consume, topics, groups, lag, dlq, brokers, partitions, drain;
and, for who has logged in at a control plane, keys, quotas, usage and audit.

In a Tidewheel checkout `./tidewheel` also runs a broker (up, down, status, demo, test). Those
commands belong to the server; here they are handed over when the server is installed beside the
SDK, and otherwise answered with where to find them.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.metadata import version
from typing import Annotated, Final

import typer

from tidewheel.cli import cell, delayed, dlq, groups, keys, organization, topics
from tidewheel.cli.consume import CONSUME_EXAMPLES, consume
from tidewheel.cli.help import PlainCommand, PlainGroup, examples
from tidewheel.cli.login import LOGIN_EXAMPLES, login, logout
from tidewheel.cli.produce import PRODUCE_EXAMPLES, produce
from tidewheel.cli.session import EXIT_USAGE, PROGRAM, errors, write_any_text

STACK_COMMANDS: Final = (
    "up",
    "down",
    "status",
    "demo",
    "reassign",
    "features",
    "subscriptions",
    "cell",
    "tenants",
    "users",
    "acls",
    "quotas",
    "deleted",
)
CHECKOUT_COMMANDS: Final = ("test", "check", "bench")


class WholeProgram(PlainGroup):
    """The SDK's commands beside those of the server."""

    elsewhere = STACK_COMMANDS + CHECKOUT_COMMANDS


app = typer.Typer(
    name="tidewheel",
    cls=WholeProgram,
    help="Produce to and consume from Tidewheel, or any Kafka brokers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=PlainCommand, epilog=examples(PROGRAM, *PRODUCE_EXAMPLES))(produce)
app.command(cls=PlainCommand, epilog=examples(PROGRAM, *CONSUME_EXAMPLES))(consume)
app.add_typer(topics.app, name="topics")
app.add_typer(groups.app, name="groups")
app.add_typer(delayed.app, name="delayed")
app.command(cls=PlainCommand)(groups.lag)
app.add_typer(dlq.app, name="dlq")
app.command(cls=PlainCommand)(cell.brokers)
app.command(cls=PlainCommand)(cell.partitions)
app.command(cls=PlainCommand)(cell.drain)
app.command(cls=PlainCommand, epilog=examples(PROGRAM, *LOGIN_EXAMPLES))(login)
app.command(cls=PlainCommand)(logout)
app.add_typer(keys.app, name="keys")
app.command(cls=PlainCommand)(organization.quotas)
app.command(cls=PlainCommand)(organization.usage)
app.command(cls=PlainCommand)(organization.audit)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"tidewheel {version('tidewheel')}")
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Produce to and consume from Tidewheel, or any Kafka brokers.

    The address comes from --url or TIDEWHEEL_URL; without either it is 127.0.0.1:9092.
    """


def main() -> None:
    """Run the command line; ends the process."""
    write_any_text()
    if len(sys.argv) > 1:
        _hand_over(sys.argv[1:])
    app(prog_name=PROGRAM)


def _hand_over(arguments: list[str]) -> None:
    """Become the server's command when it is one of those."""
    name = arguments[0]
    if name == "quotas" and not {"show", "set"}.intersection(arguments[1:]):
        # Those of one's organization; with one of the two, those of a tenant of a cell.
        return
    if name in STACK_COMMANDS and _server_is_installed():
        os.execv(sys.executable, [sys.executable, "-P", "-m", "stack", *arguments])
    if name in STACK_COMMANDS or name in CHECKOUT_COMMANDS:
        errors.print(f"[bold red]tidewheel:[/] `{name}` needs the Tidewheel server.")
        errors.print(f"  Run ./tidewheel {name} in a checkout of the Tidewheel repository.")
        sys.exit(EXIT_USAGE)


def _server_is_installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("stack", "data_plane"))


if __name__ == "__main__":
    main()
