"""One broker as a child process: start it, wait until it serves, stop it.

Every part of the repository that runs brokers does it here: the stack, the tests, the benchmarks.

The broker is `python -m data_plane.server` of the same checkout as this module; child.py says how
such a process tells that it serves, and where.

A broker may need long before it serves: after a crash it looks through its logs. `look_ready` asks
without waiting, and `still_starting` says from time to time what is being waited for.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stack.child import (
    ROOT,
    STOP_TIMEOUT_S,
    Child,
    child_environment,
    describe_status,
    wait_for_word,
)
from stack.errors import EXIT_USAGE, StackError
from stack.log_view import in_words
from stack.processes import ProcessIdentity

__all__ = [
    "ROOT",
    "STOP_TIMEOUT_S",
    "BrokerLaunch",
    "BrokerProcess",
    "Ready",
    "StillStarting",
    "Stopped",
    "as_variable",
    "describe_status",
    "wait_for_word",
]

READY_TIMEOUT_S = 120.0
"""For tests and benchmarks. A person's stack waits for as long as the broker lives."""
TELL_INTERVAL_S = 30.0
"""How often somebody who waits for a broker is told so."""
LAST_LINE_CHARACTERS_MAX = 300
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
            env=child_environment(self.environment),
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


class BrokerProcess(Child):
    """A started broker. `ready` is known once `look_ready` has found it, or `wait_ready`."""

    def __init__(self, launch: BrokerLaunch) -> None:
        self.launch = launch
        self.ready: Ready | None = None
        super().__init__(
            f"Broker {launch.broker_id}",
            launch.command(),
            launch.log,
            child_environment(launch.environment),
        )
        self._tell_at_s = self.started_s + TELL_INTERVAL_S

    @property
    def broker_id(self) -> int:
        return self.launch.broker_id

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
        if self.ready is None and (said := self.look_said()) is not None:
            assert self.identity is not None, "who has said it is known"
            self.ready = Ready(
                self.identity,
                said["port"],
                said["metrics_port"],
                said.get("inter_broker_port", 0),
                said.get("cell_admin_port", 0),
                said.get("listeners", {}),
            )
        return self.ready

    def still_starting(self) -> StillStarting | None:
        """What to tell whoever waits for it: once in TELL_INTERVAL_S, None in between."""
        now_s = time.monotonic()
        if self.ready is not None or now_s < self._tell_at_s:
            return None
        self._tell_at_s = now_s + TELL_INTERVAL_S
        last_line = in_words(self.last_words()[-1])[:LAST_LINE_CHARACTERS_MAX]
        return StillStarting(self.broker_id, now_s - self.started_s, self.log, last_line)


def as_variable(name: str) -> str:
    """The environment variable of a broker property."""
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "_").replace("-", "_")
