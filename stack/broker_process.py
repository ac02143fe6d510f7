"""One broker as a child process: start it, wait until it serves, stop it.

Every part of the repository that runs brokers does it here: the stack, the tests, the benchmarks.

The broker is `python -m data_plane.server` of the same checkout as this module. It writes one line
of JSON to a pipe when it serves (`{"event": "ready", "port": …, "metrics_port": …}`), so nobody has
to guess from its log or poll its port. It runs in a session of its own: a Ctrl-C at the terminal
reaches the stack only, which then stops its brokers in order. Its output goes straight to a log
file and so outlives whoever started it.

An exit status of 2 before it serves means that it was asked for something impossible (an unknown
property, say); its last words are then the message for the user.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stack.errors import EXIT_FAILED, EXIT_USAGE, StackError
from stack.processes import ProcessIdentity, identify

ROOT = Path(__file__).resolve().parent.parent
"""Where this module's checkout (or installation) is; the broker is taken from there, too."""

READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
KILL_TIMEOUT_S = 10.0
TAIL_LINES = 15
LOOK_UP_S = 0.1
"""How often a wait looks whether it should go on."""

ENVIRONMENT_PREFIX = "TIDEWHEEL_BROKER_"


class Stopped(Exception):
    """The user asked to stop while the stack was starting."""


@dataclass(frozen=True, slots=True)
class BrokerLaunch:
    """How one broker is started. A port 0 lets it choose.

    - `settings`: `KEY=VALUE`, given as flags, which win over all else.
    - `environment`: further variables. Properties with secrets come this way: a command line can
      be read by everybody on the machine.
    - `prefix`: a command that executes the broker, `ip netns exec NAME` for example.
    """

    broker_id: int
    data: Path
    log: Path
    cluster_id: str
    port: int = 0
    metrics_port: int = 0
    host: str = "127.0.0.1"
    settings: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()

    def command(self) -> list[str]:
        """The command line, without the descriptor that readiness is reported on."""
        command = [*self.prefix, sys.executable, "-P", "-m", "data_plane.server"]
        command += ["--data-dir", str(self.data), "--node-id", str(self.broker_id)]
        # One word: an id may begin with a dash.
        command += [f"--cluster-id={self.cluster_id}"]
        command += ["--listen", f"{self.host}:{self.port}"]
        command += ["--metrics-listen", f"{self.host}:{self.metrics_port}"]
        for setting in self.settings:
            command += ["--set", setting]
        return command


@dataclass(frozen=True, slots=True)
class Ready:
    """What a broker says when it serves, and which process says it."""

    process: ProcessIdentity
    port: int
    metrics_port: int
    inter_broker_port: int


class BrokerProcess:
    """A started broker. `ready` is known once `wait_ready` has returned."""

    def __init__(self, launch: BrokerLaunch) -> None:
        self.launch = launch
        self.ready: Ready | None = None
        self.started_s = time.monotonic()
        log = os.open(launch.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.log_start = os.fstat(log).st_size
        self._ready_pipe, writer = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*launch.command(), "--ready-fd", str(writer)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writer,),
                env=_environment(launch),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._ready_pipe)
            raise
        finally:
            os.close(writer)
            os.close(log)

    @property
    def broker_id(self) -> int:
        return self.launch.broker_id

    @property
    def log(self) -> Path:
        return self.launch.log

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(
        self,
        should_stop: Callable[[], bool] = lambda: False,
        timeout_s: float = READY_TIMEOUT_S,
    ) -> Ready:
        """Wait until the broker serves. Raises StackError with its last words, or Stopped."""
        line = self._read_ready_line(should_stop, time.monotonic() + timeout_s)
        if line is None:
            self.stop(timeout_s=0)
            raise StackError(
                f"Broker {self.broker_id} was not ready after {timeout_s:.0f} s.\n"
                + "\n".join(self.last_words())
            )
        identity = identify(self.pid)
        if not line or identity is None:
            raise self._start_failure()
        said = json.loads(line)
        self.ready = Ready(
            identity, said["port"], said["metrics_port"], said.get("inter_broker_port", 0)
        )
        return self.ready

    def _read_ready_line(self, should_stop: Callable[[], bool], deadline: float) -> bytes | None:
        """The line, b"" when the broker ended without one, None when time is up."""
        received = b""
        try:
            while b"\n" not in received:
                if should_stop():
                    raise Stopped
                if time.monotonic() >= deadline:
                    return None
                if not select.select([self._ready_pipe], [], [], LOOK_UP_S)[0]:
                    continue
                chunk = os.read(self._ready_pipe, 4096)
                if not chunk:
                    return b""
                received += chunk
            return received
        finally:
            os.close(self._ready_pipe)

    def _start_failure(self) -> StackError:
        try:
            status = self._process.wait(KILL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.stop(timeout_s=0)
            status = EXIT_FAILED
        words = self.last_words()
        if status == EXIT_USAGE and words:
            return StackError("\n".join(words), EXIT_USAGE)
        return StackError(
            f"Broker {self.broker_id} ended with {describe_status(status)} while starting; its log "
            f"{self.log} ends with:\n" + "\n".join(words)
        )

    def last_words(self) -> list[str]:
        """The last lines that this process wrote to its log."""
        with self.log.open("rb") as file:
            file.seek(self.log_start)
            text = file.read().decode("utf-8", "replace")
        return text.rstrip().split("\n")[-TAIL_LINES:]

    def poll(self) -> int | None:
        """The exit status, None while it runs."""
        return self._process.poll()

    def send_signal(self, number: signal.Signals) -> None:
        """Does nothing when the broker has ended."""
        self._process.send_signal(number)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Stop the broker and collect it; kill it when it takes too long. The exit status."""
        self.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """kill -9, and collect it. The exit status."""
        self._process.kill()
        return self._process.wait(KILL_TIMEOUT_S)

    def kill_now(self) -> None:
        """kill -9, without waiting for the end."""
        self._process.kill()


def describe_status(status: int) -> str:
    """`status 1`, `signal 9`."""
    return f"signal {-status}" if status < 0 else f"status {status}"


def as_variable(name: str) -> str:
    """The environment variable of a broker property."""
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "_").replace("-", "_")


def _environment(launch: BrokerLaunch) -> dict[str, str]:
    environment = {**os.environ, **launch.environment}
    # Without bytecode each start compiles the product anew, a second each time.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # The same checkout as ours, whichever one is installed.
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(ROOT), environment.get("PYTHONPATH", "")])
    )
    return environment
