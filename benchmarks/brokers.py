"""Starts and stops the two brokers that are compared, each with one node on a loopback port.

Apache Kafka is assembled from its published Maven artifacts into a cache folder and run as one
combined KRaft node, with a serial collector and 512 MiB of heap (on two cores that is the kindest
setting for it: less processor time than the default collector). Tidewheel runs as its own process
without supervision by the stack. Both get the same topic defaults and no TLS, and neither flushes
before it acknowledges, which is Kafka's default too.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

HERE = Path(__file__).resolve().parent
START_SECONDS_MAX = 90


class Broker(Protocol):
    """A running broker under test."""

    name: str
    bootstrap: str
    pid: int

    def start(self) -> float:
        """Start it on its data folder; seconds until it answered its first request."""

    def stop(self) -> None:
        """Stop it gracefully and keep its data."""

    def kill(self) -> None:
        """SIGKILL."""


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# ApiVersions v0, correlation id 1, no client id: the first thing any client sends.
_FIRST_REQUEST = bytes.fromhex("0000000a0012000000000001ffff")


def wait_for_first_answer(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return as soon as the broker on `port` answers an ApiVersions request."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the broker ended with status {process.returncode} while starting")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                connection.sendall(_FIRST_REQUEST)
                if connection.recv(64):
                    return
        except OSError:
            time.sleep(0.005)
    raise RuntimeError(f"no answer on port {port} after {START_SECONDS_MAX} s")


class _Process:
    """What both brokers share: one child process, stopped by pid."""

    name: str

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        assert self.process is not None, "not started"
        return self.process.pid

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> float:
        began = time.monotonic()
        with open(self.directory / "stdout.log", "ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=HERE.parent,
            )
        try:
            wait_for_first_answer(self.port, self.process)
        except RuntimeError as error:
            self.kill()
            tail = (self.directory / "stdout.log").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{self.name}: {error}\n{tail}") from error
        return time.monotonic() - began

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
        self.process = None

    def kill(self) -> None:
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        self.process = None


class Tidewheel(_Process):
    """One Tidewheel broker from this checkout."""

    name = "tidewheel"

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(directory)
        self._settings = {
            "num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
            **(settings or {}),
        }

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "data_plane.server"]
        command += ["--data-dir", str(self.directory / "data"), "--node-id", "1"]
        command += ["--listen", self.bootstrap, "--metrics-listen", "127.0.0.1:0"]
        command += ["--cluster-id", "benchmark-cluster-00000"]
        for key, value in self._settings.items():
            command += ["--set", f"{key}={value}"]
        return command


def kafka_libraries(cache: Path) -> Path:
    """The folder with Apache Kafka's jars, filled by Maven on first use."""
    libraries = cache / "apache-kafka-libs"
    if not (libraries / ".complete").exists():
        if not (shutil.which("mvn") and shutil.which("java")):
            raise RuntimeError("Apache Kafka needs java (17 or later) and mvn on the PATH")
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        pom = HERE / "apache_kafka" / "pom.xml"
        subprocess.run(
            ["mvn", "-q", "-B", "-f", str(pom), *goal, f"-DoutputDirectory={libraries}"],
            check=True,
        )
        (libraries / ".complete").touch()
    return libraries


class ApacheKafka(_Process):
    """One Apache Kafka node, broker and controller in one process."""

    name = "kafka"

    def __init__(
        self, directory: Path, cache: Path, settings: dict[str, str] | None = None
    ) -> None:
        super().__init__(directory)
        self._libraries = kafka_libraries(cache)
        self._properties = directory / "server.properties"
        controller_port = free_port()
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CLIENT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"CLIENT://{self.bootstrap}",
            "inter.broker.listener.name": "CLIENT",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(directory / "data"),
            "num.partitions": "4",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **(settings or {}),
        }
        self._properties.write_text("".join(f"{k}={v}\n" for k, v in properties.items()))
        self._log_config = directory / "log4j2.yaml"
        self._log_config.write_text(
            "Configuration:\n  status: error\n  Appenders:\n    Console:\n"
            '      - name: out\n        PatternLayout: { pattern: "%d %p %c{1} %m%n" }\n'
            "  Loggers:\n    Root:\n      level: WARN\n      AppenderRef: { ref: out }\n"
        )
        self._format()

    def _java(self, *arguments: str) -> list[str]:
        options = [f"-Dlog4j2.configurationFile={self._log_config}", "-Djava.awt.headless=true"]
        return ["java", *options, "-cp", f"{self._libraries}/*", *arguments]

    def _format(self) -> None:
        cluster_id = base64.urlsafe_b64encode(os.urandom(16)).decode()[:22]
        storage = ["kafka.tools.StorageTool", "format", "--cluster-id", cluster_id]
        subprocess.run(
            self._java(*storage, "--config", str(self._properties)),
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def command(self) -> list[str]:
        java = self._java("kafka.Kafka", str(self._properties))
        return [java[0], "-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", *java[1:]]


def describe_machine() -> dict[str, str]:
    """What stands above a table of figures."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "unknown processor",
    )
    return {"processor": model, "cores": str(os.cpu_count()), "python": sys.version.split()[0]}


if __name__ == "__main__":
    print(json.dumps(describe_machine(), indent=1))
