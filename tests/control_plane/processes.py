"""The control plane as processes of its own, and a cell of three brokers: for tests that take their
lives. The cell's Postgres is another server than the control plane's.

    with cell_of_three(tmp_path, authority) as brokers, ControlPlaneProcesses(tmp_path) as running:
        cell = brokers.row()
        running.kill("worker-1")
        running.start("worker-1")

The processes work in the database of the test that starts them, which has to commit what it writes
(`django_db(transaction=True)`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from django.conf import settings
from django.db import connection

from control_plane.access.models import ApiKey
from control_plane.cells.models import Cell
from data_plane.server.cell_admin_settings import LISTENER
from stack.child import Child, child_environment
from stack.valkey import ValkeyServer
from tests.certificates import Authority
from tests.control_plane.cells import MECHANISM, KafkaClient
from tests.control_plane.tenants import Tenant
from tests.faults.cell import Cell as BrokerCell
from tests.kept_port import KeptPort
from tests.server.control_plane import settings as cell_admin_settings

READY_SECONDS_MAX = 60.0
LOOK_UP_S = 0.05
CERTIFICATES = ("CELL_ADMIN_TLS_CERTIFICATE", "CELL_ADMIN_TLS_KEY", "CELL_ADMIN_TLS_CA")
VALKEY, SERVER = "valkey", "server"


def process_environment(**more: str) -> dict[str, str]:
    """That of a process of the control plane which has this test's database and certificates."""
    database = connection.settings_dict
    address = f"{database['HOST']}:{database['PORT']}/{database['NAME']}"
    return child_environment(
        {
            "DJANGO_SETTINGS_MODULE": "control_plane.settings.development",
            "DATABASE_URL": f"postgresql://{database['USER']}:{database['PASSWORD']}@{address}",
            **{name: getattr(settings, name) for name in CERTIFICATES},
            **more,
        }
    )


class ControlPlaneProcesses:
    """Valkey, workers `worker-1` … with a schedule in each, and a server if it is asked for."""

    def __init__(self, folder: Path, *, workers: int = 2, has_server: bool = False) -> None:
        self._folder = folder
        self._kept = KeptPort(), KeptPort()
        self._valkey = ValkeyServer(folder / VALKEY, folder / "valkey.log", port=self._kept[0].port)
        self.workers = [f"worker-{number}" for number in range(1, workers + 1)]
        self.parts = [VALKEY, *self.workers, *([SERVER] if has_server else [])]
        self._children: dict[str, Child] = {}

    @property
    def url(self) -> str:
        """Of the server."""
        return f"http://127.0.0.1:{self._kept[1].port}"

    def __enter__(self) -> ControlPlaneProcesses:
        for part in self.parts:
            self.start(part)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for part in reversed(self.parts):
            self.kill(part)

    def start(self, part: str) -> None:
        """One that does not run. Workers and the server serve a while later: `wait_ready`."""
        if part == VALKEY:
            self._valkey.start()
            return
        module, words = "work", list[str]()
        if part == SERVER:
            module, words = "serve", ["--listen", f"127.0.0.1:{self._kept[1].port}"]
        self._children[part] = Child(
            part,
            [sys.executable, "-P", "-m", f"control_plane.{module}", *words],
            self._log(part),
            process_environment(VALKEY_URL=self._valkey.url),
        )

    def wait_ready(self, *parts: str) -> None:
        deadline_s = time.monotonic() + READY_SECONDS_MAX
        for part in parts:
            child = self._children[part]
            while child.identity is None and child.look_said() is None:
                assert time.monotonic() < deadline_s, self._log(part).read_text()[-3000:]
                time.sleep(LOOK_UP_S)

    def kill(self, part: str) -> None:
        """kill -9; nothing when it does not run."""
        if part == VALKEY:
            self._valkey.kill_now()
            self._valkey.stop()
        elif part in self._children:
            self._children.pop(part).kill()

    def ended(self) -> dict[str, str]:
        """Those that have ended by themselves, and their last words."""
        found = {part: child for part, child in self._children.items() if child.poll() is not None}
        return {part: "\n".join(child.last_words()) for part, child in found.items()}

    def tracebacks(self) -> list[str]:
        """Lines of logs that tell of what nobody has thought of."""
        return [
            line
            for part in self.parts
            if part != VALKEY and self._log(part).exists()
            for line in self._log(part).read_text().splitlines()
            if '"level": "error"' in line
        ]

    def _log(self, part: str) -> Path:
        return self._folder / f"{part}.log"


class CellOfThree:
    """Three brokers, as the control plane and as tenants' clients find them."""

    def __init__(self, brokers: BrokerCell, kept: Mapping[int, tuple[KeptPort, KeptPort]]) -> None:
        self.brokers = brokers
        self.users = ",".join(f"127.0.0.1:{users.port}" for users, _ in kept.values())
        self.admin_endpoints = [f"127.0.0.1:{admin.port}" for _, admin in kept.values()]

    def row(self, name: str = "one") -> Cell:
        """As an operator makes it."""
        return Cell.objects.create(
            name=name, admin_endpoints=self.admin_endpoints, bootstrap_servers=self.users
        )

    def client(self, tenant: Tenant, key: ApiKey, secret: str) -> KafkaClient:
        return KafkaClient(self.users, f"{key.id}@{tenant.organization.slug}", secret)


@contextmanager
def cell_of_three(folder: Path, authority: Authority) -> Iterator[CellOfThree]:
    files = authority.issue("broker", "IP:127.0.0.1")
    kept: dict[int, tuple[KeptPort, KeptPort]] = {}

    def settings_of(port: int) -> Mapping[str, str]:
        users, admin = kept.setdefault(port, (KeptPort(), KeptPort()))
        listeners = f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{users.port}"
        return cell_admin_settings(files) | {
            LISTENER: f"127.0.0.1:{admin.port}",
            "listeners": listeners,
            "sasl.enabled.mechanisms": MECHANISM,
        }

    (folder / "cell").mkdir()
    with BrokerCell(folder / "cell", settings_of=settings_of) as brokers:
        yield CellOfThree(brokers, kept)
