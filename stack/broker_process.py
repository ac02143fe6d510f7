"""One broker as a child process: start it, wait until it serves, stop it.

The broker is `python -m data_plane.server`. It writes one line of JSON to a pipe when it serves
(`{"event": "ready", "port": …, "metrics_port": …}`), so nobody has to guess from its log or poll
its port. It runs in a session of its own: a Ctrl-C at the terminal reaches the stack only, which
then stops its brokers in order. Its output goes straight to a log file and so outlives the stack.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.errors import EXIT_FAILED, EXIT_USAGE, StackError
from stack.folder import BrokerState, StackFolder
from stack.processes import identify

READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
KILL_TIMEOUT_S = 10.0
TAIL_LINES = 15
LOOK_UP_S = 0.1
"""How often a wait looks whether it should go on."""


class Stopped(Exception):
    """The user asked to stop while the stack was starting."""


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """How one broker is started. Port 0 lets it choose."""

    broker_id: int
    port: int
    metrics_port: int
    settings: tuple[str, ...] = ()


def broker_command(folder: StackFolder, options: BrokerOptions, cluster_id: str) -> list[str]:
    """The broker's command line, without the descriptor that it reports on."""
    command = [sys.executable, "-P", "-m", "data_plane.server"]
    command += ["--data-dir", str(folder.broker_data(options.broker_id))]
    command += ["--node-id", str(options.broker_id), f"--cluster-id={cluster_id}"]
    command += ["--listen", f"127.0.0.1:{options.port}"]
    command += ["--metrics-listen", f"127.0.0.1:{options.metrics_port}"]
    # The foreground view reads the log; a --set of the user's comes later and wins.
    for setting in ("logging.format=json", *options.settings):
        command += ["--set", setting]
    return command


class BrokerProcess:
    """A started broker. `state` is known once `wait_ready` has returned."""

    def __init__(self, folder: StackFolder, options: BrokerOptions, cluster_id: str) -> None:
        self.options = options
        self.state: BrokerState | None = None
        self._log = folder.log_file(f"broker-{options.broker_id}")
        log = folder.open_log(f"broker-{options.broker_id}")
        self.log_start = os.fstat(log).st_size
        self._ready_pipe, writer = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*broker_command(folder, options, cluster_id), "--ready-fd", str(writer)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writer,),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._ready_pipe)
            raise
        finally:
            os.close(writer)
            os.close(log)

    @property
    def log(self) -> Path:
        return self._log

    def wait_ready(
        self,
        should_stop: Callable[[], bool] = lambda: False,
        timeout_s: float = READY_TIMEOUT_S,
    ) -> BrokerState:
        """Wait until the broker serves. Raises StackError with its last words, or Stopped."""
        line = self._read_ready_line(should_stop, time.monotonic() + timeout_s)
        if line is None:
            self.stop(timeout_s=0)
            raise StackError(
                f"Broker {self.options.broker_id} was not ready after {timeout_s:.0f} s.\n"
                + "\n".join(self.last_words())
            )
        identity = identify(self._process.pid)
        if not line or identity is None:
            raise self._start_failure()
        ready = json.loads(line)
        self.state = BrokerState(
            self.options.broker_id, identity, ready["port"], ready["metrics_port"]
        )
        return self.state

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
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return StackError(
            f"Broker {self.options.broker_id} ended with {how} while starting; its log {self._log}"
            " ends with:\n" + "\n".join(words)
        )

    def last_words(self) -> list[str]:
        """The last lines that this process wrote to its log."""
        with self._log.open("rb") as file:
            file.seek(self.log_start)
            text = file.read().decode("utf-8", "replace")
        return text.rstrip().split("\n")[-TAIL_LINES:]

    def poll(self) -> int | None:
        """The exit status, None while it runs."""
        return self._process.poll()

    def request_stop(self) -> None:
        """Ask for a graceful stop; does nothing when the broker has ended."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Stop the broker and collect it; kill it when it takes too long. The exit status."""
        self.request_stop()
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait(KILL_TIMEOUT_S)

    def kill_now(self) -> None:
        """kill -9, without waiting for the end."""
        self._process.kill()


def stop_all(brokers: Sequence[BrokerProcess], timeout_s: float = STOP_TIMEOUT_S) -> list[int]:
    """Stop several side by side; the exit statuses in their order."""
    for broker in brokers:
        broker.request_stop()
    deadline = time.monotonic() + timeout_s
    return [broker.stop(max(0.0, deadline - time.monotonic())) for broker in brokers]
