"""The control plane of a stack: its Valkey, its server and its worker, each a process of its own.

They are started as anybody starts them (docs/deployment.md): what they have to know is in their
environment, where a command line would show passwords to everybody. What they need first is done
by a process that ends (control_plane/prepare.py): database and tables, the cell, the first person.

    begin()         starts Valkey and the preparation, beside the brokers
    step(brokers)   looks how far it is, without waiting; server and worker start when the tables
                    are there, the cell is registered when its brokers serve. True when all is done.

A part that ends by itself is told by `take_ended`, and not started again; `start_part` does that.

Deliberately absent: a second server or worker. Who needs more runs them without a stack.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stack.broker_process import BrokerProcess, Stopped
from stack.child import Child, child_environment, describe_status, wait_for_word
from stack.errors import StackError
from stack.events import PartEnded
from stack.folder import PartState, StackFolder
from stack.hints import command
from stack.listeners import SASL
from stack.options import StackOptions
from stack.ports import CONTROL_PLANE_PORT_DISTANCE, VALKEY_PORT_DISTANCE, port_beside
from stack.private_files import secret_in
from stack.requests import SERVER, VALKEY, WORKER
from stack.valkey import ValkeyServer

if TYPE_CHECKING:
    from stack.certificates import StackCertificates
    from stack.postgres import PostgresServer

CELL: Final = "local"
DATABASE: Final = "control"
FIRST_PERSON: Final = "admin@localhost"
SETTINGS: Final = "control_plane.settings.development"
SECRET_KEY_RANDOM_BYTES: Final = 48
PASSWORD_RANDOM_BYTES: Final = 15
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 20.0


class ControlPlane:
    """Made by whoever starts it; nothing runs yet."""

    def __init__(
        self,
        folder: StackFolder,
        certificates: StackCertificates,
        database_url: str,
        *,
        port: int,
        valkey_port: int,
    ) -> None:
        """The ports are 0 for any."""
        self._folder = folder
        self._certificates = certificates
        self._database_url = database_url
        self._port = port
        self.valkey: ValkeyServer | None = None
        self._valkey_port = valkey_port
        self._children: dict[str, Child] = {}
        self._preparation: Child | None = None
        self._environment: dict[str, str] = {}
        self._has_tables = self._is_told = False

    @property
    def url(self) -> str:
        """Of the server, once it serves."""
        return f"http://127.0.0.1:{self._port}"

    def begin(self, should_stop: Callable[[], bool]) -> None:
        """Raises StackError, Stopped."""
        refuse_without_packages()
        self._folder.control_plane.mkdir(mode=0o700, exist_ok=True)
        self._start_valkey(should_stop)
        self._environment = child_environment(self._variables())
        self._preparation = self._start("Preparing the control plane", "prepare", has_input=True)

    def step(self, brokers: Sequence[BrokerProcess]) -> bool:
        """`brokers` are all that serve, none as long as some do not. Raises StackError when
        something has ended instead."""
        if self.valkey is not None and (status := self.valkey.poll()) is not None:
            raise StackError(str(PartEnded(VALKEY, status, self.valkey.log)))
        self._prepare(brokers)
        if self._has_tables and not self._children:
            for part in (SERVER, WORKER):
                self._begin_part(part)
        for part in list(self._children):
            self._look(part)
        return self._preparation is None and bool(self._children) and not self.starting()

    def starting(self) -> list[Child]:
        """Those that have not said yet that they serve, or that the tables are there."""
        found = [child for child in self._children.values() if child.identity is None]
        if self._preparation is not None and not self._has_tables:
            found.append(self._preparation)
        return found

    def logs(self) -> Iterator[tuple[str, Path, int]]:
        """Name, file and where this start begins, of the running parts that a person reads."""
        for part, child in self._children.items():
            yield part.replace("-", " "), child.log, child.log_start

    def states(self) -> tuple[PartState, ...]:
        """The running parts, for the state file."""
        found = []
        if self.valkey is not None and self.valkey.identity is not None:
            found.append(PartState(VALKEY, self.valkey.identity, self.valkey.port))
        for part, child in self._children.items():
            if (state := _state_of(part, child, self._port)) is not None:
                found.append(state)
        if self._preparation is not None:
            state = _state_of("prepare", self._preparation, 0)
            found += [] if state is None else [state]
        return tuple(found)

    def take_ended(self) -> list[PartEnded]:
        """What has ended by itself since the last call."""
        ended = []
        if self.valkey is not None and (status := self.valkey.poll()) is not None:
            ended.append(PartEnded(VALKEY, status, self.valkey.log))
            self.valkey.stop()
        for part, child in list(self._children.items()):
            if (status := child.poll()) is not None:
                ended.append(PartEnded(part, status, child.log))
                del self._children[part]
        return ended

    def start_part(self, part: str, should_stop: Callable[[], bool]) -> None:
        """One that has ended, where it was; returns when it serves. Raises StackError, Stopped."""
        if any(state.part == part for state in self.states()):
            raise StackError(f"{part.replace('-', ' ').capitalize()} runs already.")
        valkey_runs = self.valkey is not None and self.valkey.identity is not None
        if part == VALKEY:
            self._start_valkey(should_stop)
            return
        if part == WORKER and not valkey_runs:
            again = command("up --add valkey", self._folder)
            raise StackError(f"The worker needs Valkey, which does not run: {again} first.")
        child = self._begin_part(part)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        try:
            while child.identity is None:
                if should_stop():
                    raise Stopped
                if time.monotonic() >= deadline_s:
                    raise StackError(f"{child.name} was not ready in time; its log is {child.log}")
                wait_for_word([child])
                self._look(part)
        finally:
            if child.identity is None:
                del self._children[part]
                child.stop(timeout_s=0)

    def stop(self) -> None:
        """All of it, in order: the worker finishes what it has begun."""
        children = self._all()
        for child in children:
            child.end()
        for child in children:
            child.stop(STOP_TIMEOUT_S)
        self._children.clear()
        self._preparation = None
        if self.valkey is not None:
            self.valkey.stop()
            self.valkey = None

    def kill(self) -> None:
        """kill -9 all that has not ended; `stop` still has to follow or return."""
        for child in self._all():
            child.kill_now()
        if self.valkey is not None:
            self.valkey.kill_now()

    def _all(self) -> list[Child]:
        preparation = [] if self._preparation is None else [self._preparation]
        return [*self._children.values(), *preparation]

    def _start_valkey(self, should_stop: Callable[[], bool]) -> None:
        if self.valkey is None:
            log = self._folder.rolled_log(VALKEY)
            self.valkey = ValkeyServer(self._folder.valkey, log, port=self._valkey_port)
        self.valkey.start(should_stop)
        if self.valkey.identity is None:
            raise Stopped

    def _variables(self) -> dict[str, str]:
        assert self.valkey is not None, "it is started first"
        home = self._folder.control_plane
        certificate, key = self._certificates.control_plane
        return {
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            "DATABASE_URL": self._database_url,
            "VALKEY_URL": self.valkey.url,
            "SECRET_KEY": secret_in(home / "secret-key", SECRET_KEY_RANDOM_BYTES),
            "CELL_ADMIN_TLS_CA": str(self._certificates.operators_authority),
            "CELL_ADMIN_TLS_CERTIFICATE": str(certificate),
            "CELL_ADMIN_TLS_KEY": str(key),
        }

    def _prepare(self, brokers: Sequence[BrokerProcess]) -> None:
        preparation = self._preparation
        if preparation is None:
            return
        if not self._has_tables:
            self._has_tables = preparation.look_said() is not None
            return
        if brokers and not self._is_told:
            self._is_told = True
            operator = {"email": FIRST_PERSON, "password": first_password(self._folder)}
            preparation.tell({"cell": cell_of(brokers), "operator": operator})
        status = preparation.poll()
        if status is None:
            return
        if status != 0 or not self._is_told:
            words = "\n".join(preparation.last_words())
            raise StackError(
                f"{preparation.name} ended with {describe_status(status)}; its log "
                f"{preparation.log} ends with:\n{words}"
            )
        self._preparation = None

    def _begin_part(self, part: str) -> Child:
        module = {SERVER: "serve", WORKER: "work"}[part]
        options = ["--listen", f"127.0.0.1:{self._port}"] if part == SERVER else []
        name = "The control plane" if part == SERVER else "The worker"
        self._children[part] = self._start(name, module, *options, log=part)
        return self._children[part]

    def _start(
        self, name: str, module: str, *options: str, log: str = "", has_input: bool = False
    ) -> Child:
        return Child(
            name,
            [sys.executable, "-P", "-m", f"control_plane.{module}", *options],
            self._folder.rolled_log(log or module),
            self._environment,
            has_input=has_input,
        )

    def _look(self, part: str) -> None:
        child = self._children[part]
        if child.identity is None and (said := child.look_said()) is not None and part == SERVER:
            # The next start has the same, for who has bookmarked it.
            self._port = said["port"]


def first_password(folder: StackFolder) -> str:
    """Of FIRST_PERSON, as it was made; whoever has changed it knows the other one."""
    return secret_in(folder.control_plane / "password", PASSWORD_RANDOM_BYTES)


def refuse_without_packages() -> None:
    """Before anything is made for it. Raises StackError."""
    if importlib.util.find_spec("django") is None or importlib.util.find_spec("celery") is None:
        raise StackError(
            "The control plane's packages are not installed: install "
            "tidewheel-server[control-plane], or start the stack with --no-control-plane."
        )


def control_plane_of(
    options: StackOptions,
    folder: StackFolder,
    certificates: StackCertificates,
    postgres: PostgresServer | None,
) -> ControlPlane:
    """The one of a stack: over the database that the person names, or one of the stack's own."""
    url = options.control_plane_database_url
    if url is None:
        assert postgres is not None, "it was started for this"
        url = postgres.dsn_of(DATABASE)
    return ControlPlane(
        folder,
        certificates,
        url,
        port=port_beside(options.port, CONTROL_PLANE_PORT_DISTANCE),
        valkey_port=port_beside(options.port, VALKEY_PORT_DISTANCE),
    )


def cell_of(brokers: Sequence[BrokerProcess]) -> dict[str, Any]:
    """How a cell that serves is registered: where the control plane, and clients with a key, find
    it. Raises StackError when the person has it otherwise."""
    ready = [broker.ready for broker in brokers if broker.ready is not None]
    endpoints = [f"127.0.0.1:{one.cell_admin_port}" for one in ready if one.cell_admin_port]
    if not endpoints:
        raise StackError(
            "The control plane needs CellAdmin: leave cell.admin.listener as it is, or start the "
            "stack with --no-control-plane."
        )
    servers = [f"127.0.0.1:{one.listeners.get(SASL, one.port)}" for one in ready]
    return {
        "name": CELL,
        "admin_endpoints": endpoints,
        "bootstrap_servers": ",".join(servers),
    }


def _state_of(part: str, child: Child, port: int) -> PartState | None:
    identity = child.current_identity()
    serves = child.identity is not None and part == SERVER
    return None if identity is None else PartState(part, identity, port if serves else 0)
