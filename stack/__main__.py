"""The stack's commands, those of operators included: `python -m stack up|down|users|…`."""

from __future__ import annotations

import argparse
import os
import sys

from stack.arguments import make_parser
from stack.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    StackError,
    describe_os_error,
)
from stack.folder import StackFolder
from stack.help import write_any_text
from stack.options import StackOptions
from stack.requests import Action, part_named
from stack.up import run_removal, run_request


def main(arguments: list[str] | None = None) -> int:
    write_any_text()
    given = sys.argv[1:] if arguments is None else arguments
    options = make_parser().parse_args(given)
    try:
        return _run(options, given)
    except StackError as error:
        print(f"tidewheel: {error}", file=sys.stderr)
        return error.exit_status
    except BrokenPipeError:
        # Whoever read our output has gone; the brokers are stopped by now.
        _drop_output()
        return EXIT_FAILED
    except OSError as error:
        _drop_output()
        print(f"tidewheel: {describe_os_error(error)}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _drop_output() -> None:
    """What is still to be written to stdout goes nowhere: Python flushes once more at exit, which
    must not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(options: argparse.Namespace, given: list[str]) -> int:
    # Each command imports what it needs: `status` should not wait for the demo's modules.
    if options.command == "demo":
        from stack.demo.run import run_demo

        return run_demo(
            options.partitions, options.brokers, options.bootstrap, as_json=options.json
        )
    if options.command == "reassign":
        return _reassign(options)
    if options.command == "features":
        return _features(options)
    if options.command == "subscriptions":
        from stack.subscriptions import run_subscriptions

        return run_subscriptions(options)
    folder = StackFolder(options.data)
    if options.command in ("tenants", "users", "acls", "quotas", "deleted"):
        return _operate(folder, options)
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
        _refuse_beside_add(options)
        return run_request(folder, Action.START, part_named(options.add))
    from stack import up

    stack_options = StackOptions(
        data=folder.path,
        brokers=options.brokers,
        port=options.port,
        first_id=options.first_id,
        settings=tuple(options.settings),
        database_url=_database_url(),
        more_listeners=True,
        is_secure=options.secure,
        control_plane=not options.no_control_plane,
        control_plane_database_url=os.environ.get("CONTROL_PLANE_DATABASE_URL") or None,
    )
    if options.report_fd is not None:
        return up.run_background(stack_options, options.report_fd)
    if options.detach:
        return up.run_detached(stack_options, given)
    return up.run_foreground(stack_options)


def _refuse_beside_add(options: argparse.Namespace) -> None:
    """What a stack was started with goes for all its brokers. Raises StackError."""
    given = {
        "--brokers": options.brokers is not None,
        "--first-id": options.first_id is not None,
        "--set": bool(options.settings),
        "--secure": options.secure,
        "--no-control-plane": options.no_control_plane,
        "--detach": options.detach,
    }
    ignored = [name for name, is_given in given.items() if is_given]
    if ignored:
        raise StackError(
            f"--add starts a part as its stack was started: leave {', '.join(ignored)} out.",
            EXIT_USAGE,
        )


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


def _operate(folder: StackFolder, options: argparse.Namespace) -> int:
    from stack.cell_admin import CellAdmin, CellAdminAccess, access_of_stack
    from stack.operators import COMMANDS

    files = (options.cell_ca, options.cell_certificate, options.cell_key)
    if options.cell is None and not any(files):
        access = access_of_stack(folder)
    elif options.cell is None or not all(files):
        raise StackError(
            "--cell, --cell-ca, --cell-certificate and --cell-key go together.", EXIT_USAGE
        )
    else:
        access = CellAdminAccess(options.cell, *files)
    with CellAdmin(access) as admin:
        COMMANDS[options.command](admin, options)
    return 0


def _reassign(options: argparse.Namespace) -> int:
    from stack import reassign

    if options.list:
        return reassign.run_list(options.url, as_json=options.json)
    if options.elect_preferred:
        return reassign.run_elect(options.url, as_json=options.json)
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


def _features(options: argparse.Namespace) -> int:
    from stack import features

    if options.action == "describe":
        if options.levels or options.dry_run or options.unsafe:
            raise StackError(
                "Levels, --dry-run and --unsafe go with upgrade and downgrade.", EXIT_USAGE
            )
        return features.run_describe(options.url, as_json=options.json)
    return features.run_update(
        options.url,
        options.action,
        options.levels,
        dry_run=options.dry_run,
        is_unsafe=options.unsafe,
        as_json=options.json,
    )


if __name__ == "__main__":
    sys.exit(main())
