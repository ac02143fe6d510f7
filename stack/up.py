"""`up`: start a stack and stay with it, or leave it running in the background.

In the foreground the terminal shows the addresses and then the brokers' logs; Ctrl-C (or SIGTERM,
or closing the terminal) stops everything in order, a second Ctrl-C kills what is left. With
`--detach` the same supervisor runs as a session of its own, reports through a pipe what it waits
for and whether it came up, and is stopped by `down`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import IO, Any

from stack.broker_process import WITH_FEATURES, BrokerLaunch, StillStarting, Stopped
from stack.errors import EXIT_FAILED, EXIT_INTERRUPTED, StackError, describe_os_error
from stack.events import PartEnded, RequestDone, Restarting, StackEvent
from stack.folder import MetadataStoreKind, StackFolder, StackState, bootstrap
from stack.hints import PROGRAM, data_option
from stack.listeners import ANYBODY, SASL, SASL_TLS
from stack.log_view import LogTails, format_line
from stack.options import (
    StackOptions,
    cell_environment,
    cell_settings,
    decide_broker_ids,
    decide_store_kind,
)
from stack.ports import DEFAULT_PORT, broker_ports
from stack.requests import SERVER, Action, ask
from stack.supervisor import Supervisor

WATCH_INTERVAL_S = 0.1
CLUSTER_ID_OF_NONE = "A" * 22


class StopSignals:
    """While active, the signals that mean `stop` set a flag; a second one calls `on_again`."""

    def __init__(self) -> None:
        self.requested = False
        self.on_again: Callable[[], None] = lambda: None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.requested:
            self.on_again()
        self.requested = True


def banner(state: StackState, folder: StackFolder, *, detached: bool) -> str:
    """What a person needs to know about a stack that has just come up."""
    address = bootstrap(state.brokers)
    first_port = state.brokers[0].port
    prefix = "" if first_port == DEFAULT_PORT else f"TIDEWHEEL_URL={address} "
    is_secure = any(each.listeners and ANYBODY not in each.listeners for each in state.brokers)
    if is_secure:
        prefix = f"TIDEWHEEL_URL=tidewheel://alice:PASSWORD@{address} "
    metrics = [f"http://127.0.0.1:{broker.metrics_port}/metrics" for broker in state.brokers]
    data = data_option(folder)
    end = f"Stop it with:\n  {PROGRAM} down{data}\n\n" if detached else "Ctrl-C stops it. "
    return "\n".join(
        [
            "",
            "Tidewheel is up.",
            "",
            f"  brokers   {address}",
            *_listener_lines(state, folder),
            *_control_plane_lines(state, folder),
            f"  metrics   {'  '.join(metrics)}",
            *([f"  postgres  127.0.0.1:{state.postgres.port}"] if state.postgres else []),
            f"  data      {folder.path}",
            "",
            f"Try{'' if detached else ', in another terminal'}:",
            *([f"  {PROGRAM} users create alice{data}"] if is_secure else []),
            f"  {prefix}{PROGRAM} topics create orders --partitions 3",
            f"  {prefix}{PROGRAM} produce orders --key customer-1 'a first message'",
            f"  {prefix}{PROGRAM} consume orders",
            f"  or any Kafka client with bootstrap.servers={address}",
            "",
            f"{end}The data stays and is found again at the next start.",
            "",
        ]
    )


def _listener_lines(state: StackState, folder: StackFolder) -> list[str]:
    """Where users with a password come in, and whom they trust."""
    named = {SASL: "users", SASL_TLS: "with TLS"}
    lines = []
    for name, shown in named.items():
        ports = [broker.listeners[name] for broker in state.brokers if name in broker.listeners]
        if ports:
            addresses = ",".join(f"127.0.0.1:{port}" for port in ports)
            lines.append(f"  {shown:<10}{addresses}")
    if any(SASL_TLS in broker.listeners for broker in state.brokers):
        lines.append(f"  authority {folder.tls / 'ca.pem'}")
    return lines


def _control_plane_lines(state: StackState, folder: StackFolder) -> list[str]:
    """Where people and programs find REST, and who they are at first."""
    server = next((part for part in state.control_plane or () if part.part == SERVER), None)
    if server is None:
        return []
    from stack.control_plane import FIRST_PERSON, first_password

    url = f"http://127.0.0.1:{server.port}"
    return [
        f"  REST      {url}/api/v1",
        f"  docs      {url}/api/v1/docs",
        f"  login     {FIRST_PERSON}, at first with the password {first_password(folder)}",
    ]


def refuse_wrong_settings(options: StackOptions) -> None:
    """Have a broker look at what --set says before anything is made or started for it, once for
    each that is told something else. Raises StackError."""
    options.check()
    if options.control_plane:
        from stack.control_plane import refuse_without_packages

        refuse_without_packages()
    if not options.settings:
        return
    folder = StackFolder(options.data)
    ids = decide_broker_ids(options, folder.broker_ids())
    kind = decide_store_kind(options, folder, len(ids))
    # Ids of brokers with the same settings are one question.
    questions = {options.settings_of(broker_id): broker_id for broker_id in reversed(ids)}
    for broker_id in sorted(questions.values()):
        _refuse_wrong_settings_of(options, broker_id, kind, len(ids))


def _refuse_wrong_settings_of(
    options: StackOptions, broker_id: int, kind: MetadataStoreKind, brokers: int
) -> None:
    settings, environment = options.settings_of(broker_id), {}
    if kind is not MetadataStoreKind.LOCAL:
        settings = (*cell_settings(broker_id, 0), *settings)
        # Nobody connects: only the configuration is looked at.
        environment = cell_environment(broker_id, "postgresql://nobody@127.0.0.1/none", brokers)
    environment = {k: v for k, v in environment.items() if k not in os.environ}
    folder = StackFolder(options.data)
    BrokerLaunch(
        broker_id=broker_id,
        data=folder.broker_data(broker_id),
        log=folder.log_file(f"broker-{broker_id}"),
        cluster_id=CLUSTER_ID_OF_NONE,
        settings=settings,
        environment=environment,
        module=WITH_FEATURES,
    ).check()


def refuse_taken_ports(options: StackOptions) -> None:
    """Before a folder is made for a stack that would not come up. Raises StackError."""
    folder = StackFolder(options.data)
    # Where there is one, another stack may run in it: that is told first, and elsewhere.
    if not folder.path.exists():
        broker_ports(options.port, len(decide_broker_ids(options, [])))


def run_foreground(options: StackOptions) -> int:
    """Run a stack until the user stops it. The exit status. Raises StackError."""
    refuse_wrong_settings(options)
    refuse_taken_ports(options)
    with StopSignals() as signals:
        supervisor = Supervisor(options, lambda: signals.requested, _say)
        signals.on_again = supervisor.kill
        try:
            with supervisor:
                assert supervisor.state is not None, "entering starts it"
                print(banner(supervisor.state, supervisor.folder, detached=False), flush=True)
                _show_logs(supervisor)
                print("\nStopping …", flush=True)
        except Stopped:
            print("\nStopped before it was up.", file=sys.stderr)
            return EXIT_INTERRUPTED
        print("Stopped. The data stays.", flush=True)
        return 0


def _say(news: object) -> None:
    """Something to know while one waits; not the answer."""
    print(news, file=sys.stderr, flush=True)


def _show_logs(supervisor: Supervisor) -> None:
    """Show logs until the stack should stop."""

    def report(event: StackEvent) -> None:
        is_bad = isinstance(event, PartEnded | Restarting)
        print(event, file=sys.stderr if is_bad else sys.stdout, flush=True)

    colored = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    with LogTails() as tails:
        while True:
            # Before looking: what a broker wrote before it ended belongs above that it ended.
            for broker in supervisor.brokers:
                tails.follow(f"broker {broker.broker_id}", broker.log, broker.log_start)
            if supervisor.control_plane is not None:
                for name, log, start in supervisor.control_plane.logs():
                    tails.follow(name, log, start)
            go_on = supervisor.watch(report)
            for name, line in tails.new_lines():
                print(format_line(name, line, colored=colored), flush=True)
            if not go_on:
                return
            time.sleep(WATCH_INTERVAL_S)


def run_removal(folder: StackFolder, broker_id: int) -> int:
    """Stop a broker that holds nothing, have the cell forget it, and delete its data folder.
    Raises StackError."""
    # Only a cell has brokers to spare, and needs the modules for it.
    from stack.removal import remove_broker

    def tell(news: object) -> None:
        print(news, flush=True)

    remove_broker(folder, broker_id, tell=tell)
    return 0


def run_request(folder: StackFolder, action: Action, part: str | None) -> int:
    """Have the running stack start or stop one part. Raises StackError."""
    print(ask(folder, action, part, _say))
    return 0


def run_detached(options: StackOptions, arguments: list[str]) -> int:
    """Start the stack in the background and wait until it is up. Raises StackError."""
    refuse_wrong_settings(options)
    refuse_taken_ports(options)
    folder = StackFolder(options.data)
    folder.prepare()
    log = folder.open_log("stack")
    reader, writer = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "stack", *arguments, "--report-fd", str(writer)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(writer,),
            start_new_session=True,
        )
    finally:
        os.close(writer)
        os.close(log)
    with os.fdopen(reader, "rb") as pipe:
        try:
            report = read_report(pipe)
        except KeyboardInterrupt:
            process.terminate()
            raise
    if report is None:
        raise StackError(f"The stack did not come up; see {folder.log_file('stack')}.")
    if "error" in report:
        process.wait()
        raise StackError(report["error"], report["exit_status"])
    state = folder.read_state()
    assert state is not None, "it is written before the report"
    print(banner(state, folder, detached=True), flush=True)
    # It lives on by design; without this the interpreter would warn about a child at exit.
    process.returncode = 0
    return 0


def read_report(pipe: IO[bytes]) -> dict[str, Any] | None:
    """What a stack in the background says of its start, None when it has ended without a word.
    What it waits for in between is passed on."""
    for line in pipe:
        report: dict[str, Any] = json.loads(line)
        if "waiting" not in report:
            return report
        _say(report["waiting"])
    return None


def run_background(options: StackOptions, report_fd: int) -> int:
    """The other side of `run_detached`: be the supervisor, and report how the start ends."""

    def report(event: StackEvent) -> None:
        match event:
            case PartEnded():
                _log("part_ended", part=event.part, status=event.status)
            case StillStarting():
                _log("still_starting", broker=event.broker_id, waited_s=round(event.waited_s))
            case Restarting():
                _log("restarting", brokers=event.broker_ids, pause_s=event.pause_s)
            case RequestDone():
                _log("request_done", answer=str(event))

    def tell(event: StillStarting) -> None:
        report(event)
        # Whoever has started the stack may be gone, or not read.
        with contextlib.suppress(OSError):
            os.write(report_fd, _encode_report({"waiting": str(event)}))

    os.set_blocking(report_fd, False)
    with StopSignals() as signals:
        supervisor = Supervisor(options, lambda: signals.requested, tell)
        signals.on_again = supervisor.kill
        try:
            with supervisor:
                _report(report_fd, {"bootstrap": supervisor.bootstrap})
                _log("stack_up", bootstrap=supervisor.bootstrap)
                while supervisor.watch(report):
                    time.sleep(WATCH_INTERVAL_S)
                _log("stack_stopping", requested=signals.requested)
        except StackError as error:
            _report(report_fd, {"error": str(error), "exit_status": error.exit_status})
            return error.exit_status
        except OSError as error:
            if supervisor.has_been_up:
                raise
            _report(report_fd, {"error": describe_os_error(error), "exit_status": EXIT_FAILED})
            return EXIT_FAILED
        except Stopped:
            _report(report_fd, {"error": "Stopped before it was up.", "exit_status": EXIT_FAILED})
            return EXIT_FAILED
    return 0


def _report(report_fd: int, report: dict[str, object]) -> None:
    os.set_blocking(report_fd, True)
    with os.fdopen(report_fd, "wb") as pipe:
        pipe.write(_encode_report(report))


def _encode_report(report: dict[str, object]) -> bytes:
    return json.dumps(report).encode() + b"\n"


def _log(event: str, **fields: object) -> None:
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    print(json.dumps({"timestamp": moment, "event": event, **fields}), flush=True)
