"""A stack's data folder: what is where in it, whose it is, and what was last started there.

    DIR/stack.lock       held (flock) by the process that runs the stack, for as long as it lives
    DIR/stack.json       what runs: written with each part that starts, removed at a clean stop
    DIR/cluster-id       made once; a client that remembers it notices a swapped cluster
    DIR/metadata-store   where the metadata is: `local`, `postgres` or `external`; made once
    DIR/postgres/        the Postgres of a stack that brings its own, with its log
    DIR/tls/             certificates (stack/certificates.py)
    DIR/control-plane/   its secret key, and the password of the first person
    DIR/valkey/          of its Valkey, which keeps nothing there
    DIR/broker-<id>/     the broker's data folder
    DIR/broker-<id>.removed-…    one that is being deleted (stack/removal.py)
    DIR/request.json     what a command asks of the running stack (stack/requests.py), and the
    DIR/answer-ID.json   answer
    DIR/logs/            broker-<id>.log, control-plane.log, worker.log, prepare.log, valkey.log,
                         and stack.log of a detached stack

The lock says whether a stack runs; the state file only says which. A state file whose processes
are gone is what a kill -9 leaves behind and means nothing else.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from stack.errors import StackError
from stack.private_files import open_private_log
from stack.processes import ProcessIdentity

STATE_FORMAT = 1
LOG_BYTES_MAX = 8 * 1024 * 1024
CLUSTER_ID = re.compile("[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class BrokerState:
    """One broker as it was started. Its ports are 0 until it serves."""

    broker_id: int
    process: ProcessIdentity
    port: int
    metrics_port: int
    inter_broker_port: int = 0
    cell_admin_port: int = 0
    # By the listener's name, where there are several.
    listeners: Mapping[str, int] = field(default_factory=dict)

    @property
    def serves(self) -> bool:
        return self.port != 0


@dataclass(frozen=True, slots=True)
class PostgresState:
    """The stack's own Postgres as it was started."""

    process: ProcessIdentity
    port: int


@dataclass(frozen=True, slots=True)
class PartState:
    """A process of the control plane as it was started: `control-plane` (the server), `worker` or
    `valkey`. Its port is 0 until it serves, or where it has none."""

    part: str
    process: ProcessIdentity
    port: int


@dataclass(frozen=True, slots=True)
class StackState:
    """What `up` started: the process that watches the others, the brokers, Postgres if the stack
    has its own, and the processes of the control plane, None where it was not asked for. `is_up`
    once all of them have served, `is_stopping` from when they are being stopped."""

    supervisor: ProcessIdentity
    cluster_id: str
    started_at_ms: int
    brokers: tuple[BrokerState, ...]
    postgres: PostgresState | None = None
    control_plane: tuple[PartState, ...] | None = None
    is_up: bool = True
    is_stopping: bool = False

    def living(self) -> list[BrokerState]:
        return [broker for broker in self.brokers if broker.process.is_alive()]

    def living_postgres(self) -> PostgresState | None:
        postgres = self.postgres
        return postgres if postgres is not None and postgres.process.is_alive() else None

    def living_parts(self) -> list[PartState]:
        """Those of the control plane."""
        return [part for part in self.control_plane or () if part.process.is_alive()]


class MetadataStoreKind(StrEnum):
    """Where a stack's metadata is. It never changes: there is no moving it."""

    LOCAL = "local"  # in the folder of the only broker
    POSTGRES = "postgres"  # in the stack's own Postgres
    EXTERNAL = "external"  # in a Postgres of the user's, named by DATABASE_URL


def bootstrap(brokers: list[BrokerState] | tuple[BrokerState, ...]) -> str:
    """`host:port,host:port` for clients, of those that serve."""
    return ",".join(f"127.0.0.1:{broker.port}" for broker in brokers if broker.serves)


class StackFolder:
    """The data folder of one stack. Nothing is created until `prepare` or `lock`."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def broker_data(self, broker_id: int) -> Path:
        return self.path / f"broker-{broker_id}"

    def broker_ids(self) -> list[int]:
        """The brokers that have data here, ascending."""
        names = (path.name.removeprefix("broker-") for path in self.path.glob("broker-*"))
        return sorted(int(name) for name in names if name.isdigit())

    def put_aside(self, broker_id: int) -> None:
        """Give a broker's data folder, if there is one, another name: it is to be deleted, and a
        broker of this id would begin anew. Only for who holds the lock."""
        data = self.broker_data(broker_id)
        with contextlib.suppress(FileNotFoundError):
            data.rename(data.with_name(f"{data.name}.removed-{uuid.uuid4().hex[:8]}"))

    def put_aside_of(self, broker_id: int) -> list[Path]:
        """What `put_aside` has left of this broker."""
        return sorted(self.path.glob(f"broker-{broker_id}.removed-*"))

    @property
    def tls(self) -> Path:
        return self.path / "tls"

    @property
    def control_plane(self) -> Path:
        return self.path / "control-plane"

    @property
    def valkey(self) -> Path:
        return self.path / "valkey"

    @property
    def postgres_data(self) -> Path:
        return self.path / "postgres"

    def store_kind(self) -> MetadataStoreKind | None:
        """Where the metadata of the data in here is, None when there is no data yet."""
        path = self.path / "metadata-store"
        if not path.exists():
            # Stacks had one broker before they could have more.
            return MetadataStoreKind.LOCAL if self.broker_ids() else None
        text = path.read_text(encoding="utf-8", errors="replace").strip()
        try:
            kind = MetadataStoreKind(text)
        except ValueError as error:
            raise StackError(
                f"{path} is damaged: it says {text!r}, and not where the metadata is. Write "
                "`local` into it for a single broker, `postgres` for a cell with the Postgres in "
                "this folder, or `external` for one with a database of yours."
            ) from error
        # A first start that failed before its broker had a folder decides nothing.
        return None if kind is MetadataStoreKind.LOCAL and not self.broker_ids() else kind

    def write_store_kind(self, kind: MetadataStoreKind) -> None:
        self.write(self.path / "metadata-store", f"{kind}\n")

    def log_file(self, name: str) -> Path:
        """The log of `broker-<id>`, of a part of the control plane, or of the `stack`."""
        return self.path / "logs" / f"{name}.log"

    def prepare(self) -> None:
        """Make the folders. Raises StackError when that is not possible."""
        try:
            (self.path / "logs").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StackError(f"Cannot use {self.path} for data: {error.strerror}.") from error

    def open_log(self, name: str) -> int:
        """A descriptor that appends to a log; an overlong log is put aside first."""
        return open_private_log(self.rolled_log(name))

    def rolled_log(self, name: str) -> Path:
        """The path of a log to append to; an overlong log is put aside first."""
        path = self.log_file(name)
        if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
            os.close(open_private_log(path))
            path.replace(path.with_suffix(".log.1"))
        return path

    def lock(self) -> int | None:
        """Take the folder. A descriptor to keep open, or None when another stack has it."""
        descriptor = os.open(self.path / "stack.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def is_locked(self) -> bool:
        """Whether a stack runs here, or is just starting or stopping."""
        if not (self.path / "stack.lock").exists():
            return False
        descriptor = self.lock()
        if descriptor is None:
            return True
        os.close(descriptor)
        return False

    def cluster_id(self) -> str:
        """The cluster's id, in Kafka's form: 22 characters of URL-safe base64. Made once."""
        path = self.path / "cluster-id"
        if path.exists():
            found = path.read_text(encoding="utf-8", errors="replace").strip()
            if CLUSTER_ID.fullmatch(found):
                return found
            raise StackError(
                f"{path} is damaged: {found!r} is no cluster id. Each broker's "
                "metadata-image.json in this folder has it as well, as cluster_id: write that."
            )
        made = "-"
        # As Kafka does: a leading dash would look like an option on somebody's command line.
        while made.startswith("-"):
            made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self.write(path, made + "\n")
        return made

    def read_state(self) -> StackState | None:
        """What was last started, None when it was stopped cleanly or never started."""
        try:
            text = (self.path / "stack.json").read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return _decode_state(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise StackError(
                f"{self.path / 'stack.json'} is damaged: {error}.\nIt only says what runs here; no "
                "messages are in it. Delete it, stop brokers of this folder if any still run, and "
                "start again."
            ) from error

    def write_state(self, state: StackState) -> None:
        self.write(self.path / "stack.json", json.dumps(_encode_state(state), indent=2) + "\n")

    def remove_state(self) -> None:
        (self.path / "stack.json").unlink(missing_ok=True)

    def write(self, path: Path, text: str) -> None:
        """Replace a file as a whole: readers see the old text or the new, after a power loss
        too."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


def _encode_state(state: StackState) -> dict[str, Any]:
    postgres = state.postgres
    return {
        "format": STATE_FORMAT,
        "supervisor": {"pid": state.supervisor.pid, "started": state.supervisor.started},
        "cluster_id": state.cluster_id,
        "started_at_ms": state.started_at_ms,
        "is_up": state.is_up,
        "is_stopping": state.is_stopping,
        "brokers": [
            {
                "id": broker.broker_id,
                "pid": broker.process.pid,
                "started": broker.process.started,
                "port": broker.port,
                "metrics_port": broker.metrics_port,
                "inter_broker_port": broker.inter_broker_port,
                "cell_admin_port": broker.cell_admin_port,
                "listeners": dict(broker.listeners),
            }
            for broker in state.brokers
        ],
        "postgres": None
        if postgres is None
        else {
            "pid": postgres.process.pid,
            "started": postgres.process.started,
            "port": postgres.port,
        },
        "control_plane": None
        if state.control_plane is None
        else [
            {
                "part": part.part,
                "pid": part.process.pid,
                "started": part.process.started,
                "port": part.port,
            }
            for part in state.control_plane
        ],
    }


def _decode_state(document: dict[str, Any]) -> StackState:
    if document["format"] != STATE_FORMAT:
        raise ValueError(f"format {document['format']} is not {STATE_FORMAT}")
    postgres, parts = document.get("postgres"), document.get("control_plane")
    return StackState(
        supervisor=ProcessIdentity(**document["supervisor"]),
        cluster_id=document["cluster_id"],
        started_at_ms=document["started_at_ms"],
        is_up=document.get("is_up", True),
        is_stopping=document.get("is_stopping", False),
        brokers=tuple(
            BrokerState(
                broker_id=entry["id"],
                process=ProcessIdentity(entry["pid"], entry["started"]),
                port=entry["port"],
                metrics_port=entry["metrics_port"],
                inter_broker_port=entry.get("inter_broker_port", 0),
                cell_admin_port=entry.get("cell_admin_port", 0),
                listeners=entry.get("listeners", {}),
            )
            for entry in document["brokers"]
        ),
        postgres=None
        if postgres is None
        else PostgresState(ProcessIdentity(postgres["pid"], postgres["started"]), postgres["port"]),
        control_plane=None
        if parts is None
        else tuple(
            PartState(one["part"], ProcessIdentity(one["pid"], one["started"]), one["port"])
            for one in parts
        ),
    )
