"""One broker process for tests, as a tenant's clients meet it: real sockets, real files.

    with BrokerProcess(tmp_path, set={"num.partitions": "4"}) as broker:
        Producer({"bootstrap.servers": broker.bootstrap})

It has the same ports over restarts, so that clients find it again, and nobody else is given them in
between. It is stopped when the block ends; one that does not stop within STOP_SECONDS_MAX, or
ends with a status other than 0, fails the test and shows the end of its log.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from stack import broker_process as launcher
from stack.broker_process import BrokerLaunch
from stack.errors import StackError
from tests.kept_port import KeptPort

ROOT = Path(__file__).resolve().parent.parent
READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
LOG_TAIL_CHARACTERS = 4000
CLUSTER_ID = "tests-cluster-0000000A"


class BrokerProcessError(AssertionError):
    """The broker process did not do what a test needs it to do; the message holds its log's end."""


class BrokerProcess:
    """A `python -m data_plane.server` with its data under `folder`."""

    def __init__(
        self,
        folder: Path,
        *,
        set: Mapping[str, str] | None = None,
        node_id: int = 0,
        environment: Mapping[str, str] | None = None,
        module: str = "data_plane.server",
        more_listeners: str = "",
    ) -> None:
        """`module` is run, for a broker that has something plugged in. `more_listeners` are those
        besides PLAINTEXT, as NAME://host:port."""
        self.folder = folder
        self.data_dir = folder / "data"
        self.log_path = folder / "broker.log"
        self._kept_ports = KeptPort(), KeptPort()
        self.port, self.metrics_port = (kept.port for kept in self._kept_ports)
        self.ready_seconds = 0.0
        self.cell_admin_port = 0
        self._settings = tuple(f"{key}={value}" for key, value in (set or {}).items())
        if more_listeners:
            first = f"PLAINTEXT://127.0.0.1:{self.port}"
            self._settings += (f"listeners={first},{more_listeners}",)
        # The code of another checkout, from the next start on.
        self.checkout: Path | None = None
        self._node_id = node_id
        self._module = module
        self._environment = dict(environment or {})
        self._process: launcher.BrokerProcess | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process and wait until it says that it serves."""
        assert not self.is_running, "the broker is already running"
        began = time.monotonic()
        prefix = () if self.checkout is None else ("env", f"PYTHONPATH={self.checkout}")
        process = launcher.BrokerProcess(
            BrokerLaunch(
                broker_id=self._node_id,
                data=self.data_dir,
                log=self.log_path,
                cluster_id=CLUSTER_ID,
                port=self.port,
                metrics_port=self.metrics_port,
                settings=self._settings,
                environment=self._environment,
                prefix=prefix,
                module=self._module,
            )
        )
        self._process = process
        try:
            ready = process.wait_ready(timeout_s=READY_SECONDS_MAX)
        except StackError as error:
            self._process = None
            raise self._failed(f"did not start: {error}") from error
        self.ready_seconds = time.monotonic() - began
        self.cell_admin_port = ready.cell_admin_port
        assert (ready.port, ready.metrics_port) == (self.port, self.metrics_port)

    def stop(self) -> None:
        """Stop it as an operator does, and fail unless it ends with status 0."""
        process = self._process
        if process is None:
            return
        began = time.monotonic()
        status = process.stop(STOP_SECONDS_MAX)
        self._process = None
        if time.monotonic() - began >= STOP_SECONDS_MAX:
            raise self._failed(f"did not stop within {STOP_SECONDS_MAX:.0f} s")
        if status != 0:
            raise self._failed(f"ended with {launcher.describe_status(status)}")

    def kill9(self) -> None:
        """Take its life; what it had told the kernel stays, what it had in memory is gone."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def restart(self) -> None:
        """Stop and start again on the same port and data."""
        self.stop()
        self.start()

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_lines(self) -> list[str]:
        """Those that are whole: the broker may be in the middle of the next one."""
        return self.log_text().split("\n")[:-1]

    def __enter__(self) -> BrokerProcess:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill9()
            if error is not None:
                error.add_note(f"the broker's log ends:\n{self.log_text()[-LOG_TAIL_CHARACTERS:]}")

    def _failed(self, what: str) -> BrokerProcessError:
        return BrokerProcessError(
            f"the broker {what}; its log ends:\n{self.log_text()[-LOG_TAIL_CHARACTERS:]}"
        )
