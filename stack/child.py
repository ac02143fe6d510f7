"""A child process that says when it serves: how brokers and the control plane's processes start.

It writes one line of JSON to a pipe when it serves (`{"event": "ready", …}`), so nobody has to
guess from its log or poll its port. It runs in a session of its own: a Ctrl-C at the terminal
reaches the stack only, which then stops its parts in order. Its output goes straight to a log file
and so outlives whoever started it.

An exit status of 2 before it serves means that it was asked for something impossible (an unknown
property, say); its last words are then the message for the user.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stack.errors import EXIT_FAILED, EXIT_USAGE, StackError
from stack.private_files import open_private_log
from stack.processes import KILL_TIMEOUT_S, ProcessIdentity, identify

ROOT = Path(__file__).resolve().parent.parent
"""Where this module's checkout (or installation) is; what is started is taken from there, too."""

STOP_TIMEOUT_S = 30.0
TAIL_LINES = 15
LOOK_UP_S = 0.1
"""How often a wait looks whether it should go on."""


class Child:
    """A started process. `identity` is known once `look_said` has found its line."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        *,
        has_input: bool = False,
    ) -> None:
        """`name` is for people, `Broker 1`. With `has_input` the process reads what `tell` says;
        without, nothing."""
        self.name = name
        self.log = log
        self.identity: ProcessIdentity | None = None
        self.started_s = time.monotonic()
        self._is_asked_to_end = False
        self._received = b""
        descriptor = open_private_log(log)
        self.log_start = os.fstat(descriptor).st_size
        reader, writer = os.pipe()
        self._ready_pipe: int | None = reader
        try:
            self._process = subprocess.Popen(
                [*command, "--ready-fd", str(writer)],
                stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                pass_fds=(writer,),
                env=dict(environment),
                start_new_session=True,
            )
        except BaseException:
            self._close_pipe()
            raise
        finally:
            os.close(writer)
            os.close(descriptor)

    @property
    def pid(self) -> int:
        return self._process.pid

    def current_identity(self) -> ProcessIdentity | None:
        """Which process it is, whether it serves yet or not; None when it has ended."""
        return identify(self.pid) if self.identity is None else self.identity

    def tell(self, document: Mapping[str, object]) -> None:
        """One JSON document to its standard input, which ends then. A process that has ended hears
        nothing: `poll` says so."""
        assert self._process.stdin is not None, "it was started with an input"
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(document).encode())
        self._close_input()

    def look_said(self) -> dict[str, Any] | None:
        """The line, when it comes; None while the process is starting, and ever after. Raises
        StackError when it has ended instead."""
        while self._has_word():
            assert self._ready_pipe is not None, "it has had a word"
            chunk = os.read(self._ready_pipe, 4096)
            self._received += chunk
            if chunk and b"\n" not in chunk:
                continue
            self._close_pipe()
            self.identity = identify(self.pid)
            if not chunk or self.identity is None:
                raise self._start_failure()
            said: dict[str, Any] = json.loads(self._received)
            return said
        return None

    def _has_word(self) -> bool:
        pipe = self._ready_pipe
        return pipe is not None and bool(select.select([pipe], [], [], 0)[0])

    def _close_pipe(self) -> None:
        if self._ready_pipe is not None:
            os.close(self._ready_pipe)
            self._ready_pipe = None

    def _close_input(self) -> None:
        if self._process.stdin is not None:
            # Whoever has ended does not read what it was still to be told.
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

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
            f"{self.name} ended with {describe_status(status)} while starting; its log "
            f"{self.log} ends with:\n" + "\n".join(words)
        )

    def last_words(self) -> list[str]:
        """The last lines that this process wrote to its log."""
        return last_words(self.log, self.log_start)

    def poll(self) -> int | None:
        """The exit status, None while it runs."""
        return self._process.poll()

    def send_signal(self, number: signal.Signals) -> None:
        """Does nothing when the process has ended."""
        self._process.send_signal(number)

    def end(self) -> None:
        """Ask it to stop, once and without waiting; `stop` has to follow."""
        if not self._is_asked_to_end:
            # Asked twice some programs drop what they have begun.
            self._is_asked_to_end = True
            self.send_signal(signal.SIGTERM)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Stop the process and collect it; kill it when it takes too long. The exit status."""
        self.end()
        self._close_pipe()
        self._close_input()
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """kill -9, and collect it. The exit status."""
        self.kill_now()
        self._close_pipe()
        self._close_input()
        return self._process.wait(KILL_TIMEOUT_S)

    def kill_now(self) -> None:
        """kill -9, without waiting for the end."""
        # May come in a signal handler, while somebody waits at the pipe: that stays open.
        self._process.kill()


def last_words(log: Path, log_start: int) -> list[str]:
    """The last lines of a log, of those from `log_start` on."""
    with log.open("rb") as file:
        file.seek(log_start)
        text = file.read().decode("utf-8", "replace")
    return text.rstrip().split("\n")[-TAIL_LINES:]


def wait_for_word(children: Sequence[Child]) -> None:
    """Return as soon as one of these starting processes says a word or has ended, or after
    LOOK_UP_S."""
    pipes = [child._ready_pipe for child in children if child._ready_pipe is not None]
    select.select(pipes, [], [], LOOK_UP_S)


def describe_status(status: int) -> str:
    """`status 1`, `signal 9`."""
    return f"signal {-status}" if status < 0 else f"status {status}"


def child_environment(more: Mapping[str, str]) -> dict[str, str]:
    """That of this process, with `more`, for a process of the same checkout as ours."""
    environment = {**os.environ, **more}
    # Without bytecode each start compiles the product anew, a second each time.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # The same checkout as ours, whichever one is installed.
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(ROOT), environment.get("PYTHONPATH", "")])
    )
    return environment
