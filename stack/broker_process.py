"""One broker as a child process: start it, wait until it serves, stop it.

Every part of the repository that runs brokers does it here: the stack, the tests, the benchmarks.

The broker is `python -m data_plane.server` of the same checkout as this module. It writes one line
of JSON to a pipe when it serves (`{"event": "ready", "port": …, "metrics_port": …}`), so nobody has
to guess from its log or poll its port. It runs in a session of its own: a Ctrl-C at the terminal
reaches the stack only, which then stops its brokers in order. Its output goes straight to a log
file and so outlives whoever started it.

A broker may need long before it serves: after a crash it looks through its logs. `look_ready` asks
without waiting, and `still_starting` says from time to time what is being waited for.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stack.errors import EXIT_FAILED, EXIT_USAGE, StackError
from stack.log_view import in_words
from stack.processes import ProcessIdentity, identify

ROOT = Path(__file__).resolve().parent.parent
"""Where this module's checkout (or installation) is; the broker is taken from there, too."""

READY_TIMEOUT_S = 120.0
"""For tests and benchmarks. A person's stack waits for as long as the broker lives."""
TELL_INTERVAL_S = 30.0
"""How often somebody who waits for a broker is told so."""
STOP_TIMEOUT_S = 30.0
KILL_TIMEOUT_S = 10.0
TAIL_LINES = 15
LAST_LINE_CHARACTERS_MAX = 300
LOOK_UP_S = 0.1
"""How often a wait looks whether it should go on."""

ENVIRONMENT_PREFIX = "TIDEWHEEL_BROKER_"

WITH_FEATURES = "features"
"""The module of the broker that users get."""


class Stopped(Exception):
    """The user asked to stop while the stack was starting."""


@dataclass(frozen=True, slots=True)
class BrokerLaunch:
    """How one broker is started. A port 0 lets it choose.

    - `settings`: `KEY=VALUE`, given as flags, which win over all else.
    - `environment`: further variables. Properties with secrets come this way: a command line can
      be read by everybody on the machine.
    - `prefix`: a command that executes the broker, `ip netns exec NAME` for example.
    - `module`: what is run; the plain broker unless it is one that has something plugged in.
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
    module: str = "data_plane.server"

    def command(self) -> list[str]:
        """The command line, without the descriptor that readiness is reported on."""
        command = [*self.prefix, sys.executable, "-P", "-m", self.module]
        command += ["--data-dir", str(self.data), "--node-id", str(self.broker_id)]
        # One word: an id may begin with a dash.
        command += [f"--cluster-id={self.cluster_id}"]
        if not any(setting.startswith("listeners=") for setting in self.settings):
            command += ["--listen", f"{self.host}:{self.port}"]
        command += ["--metrics-listen", f"{self.host}:{self.metrics_port}"]
        for setting in self.settings:
            command += ["--set", setting]
        return command

    def check(self) -> None:
        """Have the broker look at its configuration, without starting it or touching a file.
        Raises StackError with its words."""
        looked = subprocess.run(
            [*self.command(), "--check"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=_environment(self),
            check=False,
        )
        if looked.returncode == EXIT_USAGE:
            words = looked.stderr.strip().removeprefix("configuration: ")
            raise StackError(f"Broker {self.broker_id} cannot be started so: {words}", EXIT_USAGE)


@dataclass(frozen=True, slots=True)
class Ready:
    """What a broker says when it serves, and which process says it."""

    process: ProcessIdentity
    port: int
    metrics_port: int
    inter_broker_port: int
    # 0 where it is not served.
    cell_admin_port: int = 0
    # By the listener's name, where there are several.
    listeners: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StillStarting:
    """A broker lives and does not serve yet. `last_line` is what its log says last."""

    broker_id: int
    waited_s: float
    log: Path
    last_line: str

    def __str__(self) -> str:
        said = f", which says last: {self.last_line}" if self.last_line else ""
        return (
            f"Broker {self.broker_id} is still starting, for {self.waited_s:.0f} s now. Its log is "
            f"{self.log}{said}"
        )


class BrokerProcess:
    """A started broker. `ready` is known once `look_ready` has found it, or `wait_ready`."""

    def __init__(self, launch: BrokerLaunch) -> None:
        self.launch = launch
        self.ready: Ready | None = None
        self.started_s = time.monotonic()
        self._tell_at_s = self.started_s + TELL_INTERVAL_S
        self._received = b""
        log = os.open(launch.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.log_start = os.fstat(log).st_size
        reader, writer = os.pipe()
        self._ready_pipe: int | None = reader
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
            self._close_pipe()
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
        deadline = time.monotonic() + timeout_s
        while (ready := self.look_ready()) is None:
            if should_stop():
                raise Stopped
            if time.monotonic() >= deadline:
                self.stop(timeout_s=0)
                raise StackError(
                    f"Broker {self.broker_id} was not ready after {timeout_s:.0f} s.\n"
                    + "\n".join(self.last_words())
                )
            wait_for_word([self])
        return ready

    def look_ready(self) -> Ready | None:
        """Whether the broker serves by now; None while it is starting. Raises StackError when it
        has ended instead."""
        while self.ready is None and self._has_word():
            assert self._ready_pipe is not None, "it has had a word"
            chunk = os.read(self._ready_pipe, 4096)
            self._received += chunk
            if chunk and b"\n" not in chunk:
                continue
            self._close_pipe()
            identity = identify(self.pid)
            if not chunk or identity is None:
                raise self._start_failure()
            said = json.loads(self._received)
            self.ready = Ready(
                identity,
                said["port"],
                said["metrics_port"],
                said.get("inter_broker_port", 0),
                said.get("cell_admin_port", 0),
                said.get("listeners", {}),
            )
        return self.ready

    def _has_word(self) -> bool:
        pipe = self._ready_pipe
        return pipe is not None and bool(select.select([pipe], [], [], 0)[0])

    def still_starting(self) -> StillStarting | None:
        """What to tell whoever waits for it: once in TELL_INTERVAL_S, None in between."""
        now_s = time.monotonic()
        if self.ready is not None or now_s < self._tell_at_s:
            return None
        self._tell_at_s = now_s + TELL_INTERVAL_S
        last_line = in_words(self.last_words()[-1])[:LAST_LINE_CHARACTERS_MAX]
        return StillStarting(self.broker_id, now_s - self.started_s, self.log, last_line)

    def _close_pipe(self) -> None:
        if self._ready_pipe is not None:
            os.close(self._ready_pipe)
            self._ready_pipe = None

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
        self._close_pipe()
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """kill -9, and collect it. The exit status."""
        self.kill_now()
        self._close_pipe()
        return self._process.wait(KILL_TIMEOUT_S)

    def kill_now(self) -> None:
        """kill -9, without waiting for the end."""
        # May come in a signal handler, while somebody waits at the pipe: that stays open.
        self._process.kill()


def wait_for_word(brokers: Sequence[BrokerProcess]) -> None:
    """Return as soon as one of these starting brokers serves or has ended, or after LOOK_UP_S."""
    pipes = [broker._ready_pipe for broker in brokers if broker._ready_pipe is not None]
    select.select(pipes, [], [], LOOK_UP_S)


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
