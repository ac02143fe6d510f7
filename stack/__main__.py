"""The stack's commands: `python -m stack up|down|status|demo|reassign|cell`. Parses, hands over."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from stack.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, StackError
from stack.folder import StackFolder
from stack.options import StackOptions
from stack.requests import Action, part_named
from stack.up import DEFAULT_PORT, PROGRAM, default_data_path, run_removal, run_request


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Run Tidewheel on this machine.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    data = argparse.ArgumentParser(add_help=False)
    data.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        default=default_data_path(),
        help="the stack's data folder (%(default)s)",
    )
    up = commands.add_parser("up", parents=[data], help="start a stack", description="Start.")
    up.description = (
        "Start brokers on loopback and keep them running until Ctrl-C. The data stays in its "
        "folder and is found again at the next start."
    )
    up.add_argument(
        "--brokers",
        type=int,
        metavar="N",
        help="how many (3, or those that have data); more than one bring a Postgres for their "
        "metadata, unless DATABASE_URL names one",
    )
    up.add_argument(
        "--port",
        type=int,
        default=DEFAULT_PORT,
        metavar="BASE",
        help="the first broker's port, the next ones follow; 0 for any (%(default)s)",
    )
    up.add_argument(
        "--first-id",
        type=int,
        metavar="I",
        help="the first broker's id, the next ones follow (1, or the one that has data)",
    )
    up.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="a broker or topic-default property under Kafka's name; repeatable",
    )
    up.add_argument("--detach", action="store_true", help="return when it is up")
    up.add_argument(
        "--add",
        nargs="?",
        const="",
        metavar="ID",
        help="start one more broker in the stack that runs, or a part of it that has ended: a "
        "broker's id, or `postgres`",
    )
    up.add_argument("--report-fd", type=int, help=argparse.SUPPRESS)
    down = commands.add_parser(
        "down", parents=[data], help="stop a stack", description="Stop the stack of a folder."
    )
    down.add_argument("--broker", type=int, metavar="ID", help="stop only this broker of it")
    down.add_argument(
        "--remove",
        action="store_true",
        help="with --broker: for good, with its data; it must have been drained",
    )
    status = commands.add_parser(
        "status", parents=[data], help="what runs", description="Show what runs on a folder."
    )
    status.add_argument("--json", action="store_true", help="for scripts")
    _add_reassign(commands)
    cell = commands.add_parser("cell", help="look after a cell", description="Look after a cell.")
    recover = cell.add_subparsers(dest="cell_command", required=True, metavar="COMMAND").add_parser(
        "recover",
        parents=[data],
        help="rebuild a lost metadata store",
        description="Rebuild the metadata store of a stack from what its brokers keep on disk. "
        "What happened after the newest of those is lost; messages are not.",
    )
    recover.add_argument(
        "--replace",
        action="store_true",
        help="throw away a store that belongs to another cell or has gone on",
    )
    recover.add_argument(
        "--dsn", help="of a cell that is no stack: its database; - reads it from standard input"
    )
    recover.add_argument(
        "--image", nargs="+", type=Path, metavar="FILE", help="and its brokers' image files"
    )
    recover.add_argument("--schema", help="and its schema there, if it is not the usual one")
    demo = commands.add_parser(
        "demo",
        help="336,776 real flights through three brokers",
        description="Send the flights that left New York in 2013 through a cell of their own, read "
        "them with a group of consumers, kill a broker in the middle, and check every flight.",
    )
    demo.add_argument(
        "--brokers", type=int, default=3, metavar="N", help="from three on, one is killed (3)"
    )
    demo.add_argument("--partitions", type=int, default=6, metavar="N", help="(%(default)s)")
    demo.add_argument("--bootstrap", metavar="HOST:PORT", help="use these brokers instead")
    demo.add_argument("--json", action="store_true", help="print the summary as JSON")
    return parser


def _add_reassign(commands: Any) -> None:
    reassign = commands.add_parser(
        "reassign",
        help="move replicas to other brokers",
        description="Have the cell move the replicas of a topic to other brokers while it goes on "
        "serving. Copies come first; what is redundant then goes.",
    )
    reassign.add_argument("topic", nargs="?", metavar="TOPIC")
    reassign.add_argument("--partition", type=int, metavar="N", help="only this one of it")
    reassign.add_argument(
        "--to",
        metavar="IDS",
        help="broker ids, such as 1,2,3: partitions are spread over them; with --partition they "
        "are its replicas, the preferred leader first",
    )
    reassign.add_argument("--replicas", type=int, metavar="K", help="so many per partition")
    reassign.add_argument("--wait", action="store_true", help="return when it is done")
    reassign.add_argument("--list", action="store_true", help="show what is being moved")
    reassign.add_argument("--cancel", action="store_true", help="call off what is being moved")
    reassign.add_argument(
        "--url",
        metavar="ADDRESS",
        default=os.environ.get("TIDEWHEEL_URL") or f"127.0.0.1:{DEFAULT_PORT}",
        help="brokers: host:port,host:port (TIDEWHEEL_URL, else %(default)s)",
    )
    reassign.add_argument("--json", action="store_true", help="for scripts")


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(given)
    try:
        return _run(options, given)
    except StackError as error:
        print(f"tidewheel: {error}", file=sys.stderr)
        return error.exit_status
    except PermissionError as error:
        print(f"tidewheel: {error.filename}: permission denied", file=sys.stderr)
        return EXIT_FAILED
    except BrokenPipeError:
        # Whoever read our output has gone; the brokers are stopped by now. Python flushes once
        # more at exit, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _run(options: argparse.Namespace, given: list[str]) -> int:
    # Each command imports what it needs: `status` should not wait for the demo's modules.
    if options.command == "demo":
        from stack.demo.run import run_demo

        return run_demo(
            options.partitions, options.brokers, options.bootstrap, as_json=options.json
        )
    if options.command == "reassign":
        return _reassign(options)
    folder = StackFolder(options.data)
    if options.command == "cell":
        return _recover(folder, options)
    if options.command in ("down", "status"):
        from stack import inspect

        if options.command == "down" and options.remove:
            if options.broker is None:
                raise StackError("--remove needs --broker ID.", EXIT_USAGE)
            return run_removal(folder, options.broker)
        if options.command == "down" and options.broker is not None:
            return run_request(folder, Action.STOP, f"broker-{options.broker}")
        if options.command == "down":
            return inspect.down(folder)
        return inspect.status(folder, as_json=options.json)
    if options.add is not None:
        return run_request(folder, Action.START, part_named(options.add))
    from stack import up

    stack_options = StackOptions(
        data=folder.path,
        brokers=options.brokers,
        port=options.port,
        first_id=options.first_id,
        settings=tuple(options.settings),
        database_url=_database_url(),
    )
    if options.report_fd is not None:
        return up.run_background(stack_options, options.report_fd)
    if options.detach:
        return up.run_detached(stack_options, given)
    return up.run_foreground(stack_options)


def _database_url() -> str | None:
    return os.environ.get("DATABASE_URL") or None


def _recover(folder: StackFolder, options: argparse.Namespace) -> int:
    from stack.recover import recover_from, run_recover

    if options.dsn is None and options.image is None:
        return run_recover(folder, _database_url(), replace=options.replace)
    if options.dsn is None or options.image is None:
        raise StackError("--dsn and --image go together: where to, and from what.", EXIT_USAGE)
    dsn = sys.stdin.readline().strip() if options.dsn == "-" else options.dsn
    return recover_from(options.image, dsn, options.schema, replace=options.replace)


def _reassign(options: argparse.Namespace) -> int:
    from stack import reassign

    if options.list:
        return reassign.run_list(options.url, as_json=options.json)
    if options.cancel:
        return reassign.run_cancel(options.url, options.topic, as_json=options.json)
    if options.topic is None or options.to is None:
        raise StackError(
            "Say what goes where: reassign TOPIC --to 1,2,3. --list shows what is being moved.",
            EXIT_USAGE,
        )
    return reassign.run_reassign(
        options.url,
        options.topic,
        options.partition,
        reassign.parse_brokers(options.to),
        options.replicas,
        wait=options.wait,
        as_json=options.json,
    )


if __name__ == "__main__":
    sys.exit(main())
