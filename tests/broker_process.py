"""One broker process for tests, as a tenant's clients meet it: real sockets, real files.

    with BrokerProcess(tmp_path, set={"num.partitions": "4"}) as broker:
        Producer({"bootstrap.servers": broker.bootstrap})

The process chooses its port at the first start and keeps it over restarts, so that clients find it
again. It is stopped by pid when the block ends; one that does not stop within STOP_SECONDS_MAX, or
ends with a status other than 0, fails the test and shows the end of its log.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

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
    ) -> None:
        self.folder = folder
        self.data_dir = folder / "data"
        self.log_path = folder / "broker.log"
        self.port = 0
        self.metrics_port = 0
        self.ready_seconds = 0.0
        self._settings = dict(set or {})
        self._node_id = node_id
        self._environment = {**os.environ, **(environment or {})}
        # Without bytecode each start compiles the product anew, a second each time.
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._process: subprocess.Popen[bytes] | None = None
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

    def command(self) -> list[str]:
        """The command line, without the descriptor that tells readiness."""
        command = [sys.executable, "-m", "data_plane.server"]
        command += ["--data-dir", str(self.data_dir), "--node-id", str(self._node_id)]
        command += ["--listen", self.bootstrap]
        command += ["--metrics-listen", f"127.0.0.1:{self.metrics_port}"]
        command += ["--cluster-id", CLUSTER_ID]
        for key, value in self._settings.items():
            command += ["--set", f"{key}={value}"]
        return command

    def start(self) -> None:
        """Start the process and wait until it says that it serves."""
        assert not self.is_running, "the broker is already running"
        reader, writer = os.pipe()
        began = time.monotonic()
        try:
            with open(self.log_path, "ab") as log:
                self._process = subprocess.Popen(
                    [*self.command(), "--ready-fd", str(writer)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[writer],
                    cwd=ROOT,
                    env=self._environment,
                )
            os.close(writer)
            writer = -1
            ready = self._read_ready(reader)
        finally:
            os.close(reader)
            if writer >= 0:
                os.close(writer)
        self.ready_seconds = time.monotonic() - began
        self.port = int(ready["port"])
        self.metrics_port = int(ready["metrics_port"])

    def stop(self) -> None:
        """Stop it as an operator does, and fail unless it ends with status 0."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise self._failed(f"did not stop within {STOP_SECONDS_MAX:.0f} s") from None
        self._process = None
        if status != 0:
            raise self._failed(f"ended with status {status}")

    def kill9(self) -> None:
        """Take its life; what it had told the kernel stays, what it had in memory is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Stop and start again on the same port and data."""
        self.stop()
        self.start()

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

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

    def _read_ready(self, reader: int) -> dict[str, str]:
        line = b""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([reader], [], [], left)[0]:
                self.kill9()
                raise self._failed(f"was not ready within {READY_SECONDS_MAX:.0f} s")
            piece = os.read(reader, 4096)
            if not piece:
                status = self._process.wait() if self._process else None
                self._process = None
                raise self._failed(f"ended with status {status} before it was ready")
            line += piece
        ready: dict[str, str] = json.loads(line)
        return ready

    def _failed(self, what: str) -> BrokerProcessError:
        return BrokerProcessError(
            f"the broker {what}; its log ends:\n{self.log_text()[-LOG_TAIL_CHARACTERS:]}"
        )
