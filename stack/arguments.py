"""The command line of the stack: what its commands are called and what they take."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from stack.help import CommandParser, positive_number, whole_number
from stack.hints import PROGRAM, default_data_path
from stack.operator_arguments import add_operator_commands
from stack.ports import DEFAULT_PORT

JSON_HELP = "Print JSON, for scripts."


def make_parser() -> argparse.ArgumentParser:
    """All commands, with their help."""
    parser = CommandParser(prog=PROGRAM, description="Run Tidewheel on this machine.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    data = CommandParser(add_help=False)
    data.add_argument(
        "--data",
        type=_folder,
        metavar="DIR",
        default=default_data_path(),
        help="The stack's data folder.  [default: %(default)s]",
    )
    _add_up(commands, data)
    _add_down_and_status(commands, data)
    _add_reassign(commands)
    _add_features(commands)
    _add_subscriptions(commands)
    _add_cell(commands, data)
    add_operator_commands(commands, data, JSON_HELP)
    _add_demo(commands)
    return parser


def _folder(text: str) -> Path:
    if not text:
        # Path("") is the current folder, where nobody wants a stack because a variable was unset.
        raise argparse.ArgumentTypeError("the name of a folder is missing")
    return Path(text)


def _add_up(commands: Any, data: argparse.ArgumentParser) -> None:
    up = commands.add_parser("up", parents=[data], help="Start a stack.")
    up.description = (
        "Start brokers and their control plane on loopback and keep them running until Ctrl-C. "
        "The data stays in its folder and is found again at the next start."
    )
    up.add_argument(
        "--brokers",
        type=whole_number,
        metavar="N",
        help="How many; more than one bring a Postgres for their metadata, unless DATABASE_URL "
        "names one.  [default: those that have data, else 3]",
    )
    up.add_argument(
        "--port",
        type=whole_number,
        default=DEFAULT_PORT,
        metavar="BASE",
        help="The first broker's port, the next ones follow; 0 for any.  [default: %(default)s]",
    )
    up.add_argument(
        "--first-id",
        type=whole_number,
        metavar="ID",
        help="The first broker's id, the next ones follow.  [default: the one that has data, "
        "else 1]",
    )
    up.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="A broker property or topic default under Kafka's name; {id} in VALUE stands for each "
        "broker's id; repeatable.",
    )
    up.add_argument(
        "--secure",
        action="store_true",
        help="Without the listener that serves anybody: clients need a user and a password.",
    )
    up.add_argument(
        "--no-control-plane",
        action="store_true",
        help="Brokers alone, without REST, keys and usage.",
    )
    up.add_argument("--detach", action="store_true", help="Return when it is up.")
    up.add_argument(
        "--add",
        nargs="?",
        const="",
        metavar="ID",
        help="Start one more broker in the stack that runs, or a part of it that has ended: a "
        "broker's id, `postgres`, `valkey`, `control-plane` or `worker`.",
    )
    up.add_argument("--report-fd", type=int, help=argparse.SUPPRESS)


def _add_down_and_status(commands: Any, data: argparse.ArgumentParser) -> None:
    down = commands.add_parser(
        "down", parents=[data], help="Stop a stack.", description="Stop the stack of a folder."
    )
    down.add_argument(
        "--broker", type=whole_number, metavar="ID", help="Stop only this broker of it."
    )
    down.add_argument(
        "--remove",
        action="store_true",
        help="With --broker: for good, with its data; it must have been drained.",
    )
    status = commands.add_parser(
        "status",
        parents=[data],
        help="Show what runs.",
        description="Show what runs with the data of a folder.",
    )
    status.add_argument("--json", action="store_true", help=JSON_HELP)


def _add_cell(commands: Any, data: argparse.ArgumentParser) -> None:
    cell = commands.add_parser("cell", help="Look after a cell.", description="Look after a cell.")
    recover = cell.add_subparsers(dest="cell_command", required=True, metavar="COMMAND").add_parser(
        "recover",
        parents=[data],
        help="Rebuild a lost metadata store.",
        description="Rebuild the metadata store of a stack from what its brokers keep on disk. "
        "What happened after the newest of those is lost; messages are not.",
    )
    recover.add_argument(
        "--replace",
        action="store_true",
        help="Throw away a store that belongs to another cell or has gone on.",
    )
    recover.add_argument(
        "--dsn",
        metavar="DSN",
        help="Of a cell that is no stack: its database; - reads it from standard input.",
    )
    recover.add_argument(
        "--image",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="With --dsn: its brokers' image files.",
    )
    recover.add_argument(
        "--schema",
        metavar="NAME",
        help="With --dsn: its schema there, if it is not the usual one.",
    )


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser(
        "demo",
        help="Send 336,776 real flights through three brokers.",
        description="Send the flights that left New York in 2013 through a cell of their own, read "
        "them with a group of consumers, kill a broker in the middle, and check every flight.",
    )
    demo.add_argument(
        "--brokers",
        type=whole_number,
        default=3,
        metavar="N",
        help="How many; from three on, one is killed.  [default: %(default)s]",
    )
    demo.add_argument(
        "-p",
        "--partitions",
        type=positive_number,
        default=6,
        metavar="N",
        help="Of the flights' topic.  [default: %(default)s]",
    )
    demo.add_argument(
        "--url",
        "--bootstrap",
        dest="bootstrap",
        metavar="ADDRESS",
        help="Use these brokers instead: host:port,host:port or tidewheel://host:port.",
    )
    demo.add_argument("--json", action="store_true", help=JSON_HELP)


def _add_reassign(commands: Any) -> None:
    reassign = commands.add_parser(
        "reassign",
        help="Move replicas to other brokers.",
        description="Have the cell move the replicas of a topic to other brokers while it goes on "
        "serving. Copies come first; what is redundant then goes.",
    )
    reassign.add_argument("topic", nargs="?", metavar="TOPIC", help="What to move.")
    reassign.add_argument(
        "-p", "--partition", type=whole_number, metavar="N", help="Move only this one of it."
    )
    what = reassign.add_mutually_exclusive_group()
    what.add_argument(
        "--to",
        metavar="IDS",
        help="Broker ids, such as 1,2,3: partitions are spread over them; with --partition they "
        "are its replicas, the preferred leader first.",
    )
    reassign.add_argument(
        "--replicas",
        type=whole_number,
        metavar="N",
        help="So many per partition; as many as now if not given.",
    )
    reassign.add_argument("--wait", action="store_true", help="Return when it is done.")
    what.add_argument("--list", action="store_true", help="Show what is being moved.")
    what.add_argument(
        "--elect-preferred",
        action="store_true",
        help="Have each partition's first replica lead again, where it is in sync.",
    )
    what.add_argument("--cancel", action="store_true", help="Call off what is being moved.")
    reassign.add_argument("--json", action="store_true", help=JSON_HELP)
    _add_url(reassign)


def _add_features(commands: Any) -> None:
    features = commands.add_parser(
        "features",
        help="Show or move the cell's feature levels.",
        description="Show which levels of features the cell has finalized and its brokers support, "
        "or finalize others. Do that when all brokers have been upgraded: before it, the version "
        "of before can be brought back.",
    )
    features.add_argument(
        "action",
        nargs="?",
        choices=("describe", "upgrade", "downgrade"),
        default="describe",
        help="What to do: describe, upgrade or downgrade.  [default: %(default)s]",
    )
    features.add_argument(
        "levels",
        nargs="*",
        metavar="LEVEL",
        help="NAME=LEVEL, such as metadata.version=2; an upgrade without any takes the newest of "
        "all.",
    )
    features.add_argument(
        "--dry-run", action="store_true", help="Only ask whether the cell would do it."
    )
    features.add_argument(
        "--unsafe",
        action="store_true",
        help="With downgrade: forget which users and resources were deleted.",
    )
    features.add_argument("--json", action="store_true", help=JSON_HELP)
    _add_url(features)


def _add_subscriptions(commands: Any) -> None:
    subscriptions = commands.add_parser(
        "subscriptions",
        help="Have consumers read only what matches.",
        description="Make, list, show, edit or delete subscriptions. A subscription is a topic "
        "that shows those messages of another one whose tags match its filter, such as "
        "`checkout or refund`, `region:eu and not test`, `region:*`.",
    )
    subscriptions.add_argument(
        "action",
        choices=("create", "list", "show", "edit", "delete"),
        help="What to do: create, list, show, edit or delete.",
    )
    subscriptions.add_argument("name", nargs="?", metavar="NAME", help="The subscription.")
    subscriptions.add_argument(
        "--source", metavar="TOPIC", help="With create: what it reads; with tidewheel.headers=true."
    )
    subscriptions.add_argument(
        "--filter",
        metavar="FILTER",
        help="With create and edit: which messages; all of them if it is empty.",
    )
    subscriptions.add_argument("--yes", "-y", action="store_true", help="Needed for delete.")
    subscriptions.add_argument("--json", action="store_true", help=JSON_HELP)
    _add_url(subscriptions)


def _add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url",
        metavar="ADDRESS",
        help="Brokers: host:port,host:port or tidewheel://user:password@host:port?ca=FILE; the "
        "default profile or 127.0.0.1:9092 if not given.  [env var: TIDEWHEEL_URL]",
    )
