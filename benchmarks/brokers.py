"""Starts and stops the two brokers that are compared, each with one node on a loopback port.
Cells of several nodes are made of the same parts (cells.py).

Apache Kafka is assembled from its published Maven artifacts into a cache folder and run as one
combined KRaft node, with a serial collector and 512 MiB of heap (on two cores that is the kindest
setting for it: less processor time than the default collector). Tidewheel is started by the stack's
launcher, without supervision. Both get the same topic defaults and no TLS, and neither flushes
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
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from stack.broker_process import BrokerLaunch, BrokerProcess

HERE = Path(__file__).resolve().parent
START_SECONDS_MAX = 90
STOP_SECONDS_MAX = 60

# What both have. A topic's files go with it: a minute later, as is usual, their removal would be
# charged to what is measured then, and until then the page cache would grow beyond the memory that
# is held (resident_memory.py). The delay is a broker's property because Apache Kafka does not look
# at a topic's own `file.delete.delay.ms` when it deletes the topic.
COMMON_SETTINGS = {
    "num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.delete.delay.ms": "100",
}


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


def wait_for_first_answer(port: int, poll: Callable[[], int | None]) -> None:
    """Return as soon as the broker on `port` answers an ApiVersions request; `poll` gives the exit
    status of one that has ended."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if (status := poll()) is not None:
            raise RuntimeError(f"the broker ended with status {status} while starting")
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
    login: Path | None = None

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

    def launch(self) -> subprocess.Popen[bytes]:
        """Start it without waiting."""
        with open(self.directory / "stdout.log", "ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=HERE.parent,
            )
        return self.process

    def start(self) -> float:
        began = time.monotonic()
        process = self.launch()
        try:
            wait_for_first_answer(self.port, process.poll)
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
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
        self.process = None

    def kill(self) -> None:
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        self.process = None


def code_of(checkout: Path | None) -> tuple[str, ...]:
    """A launch's prefix: the broker runs another checkout's code, on this one's packages."""
    return () if checkout is None else ("env", f"PYTHONPATH={checkout}")


class Tidewheel:
    """One Tidewheel broker from this checkout, or from another."""

    login: Path | None = None

    def __init__(
        self,
        directory: Path,
        settings: dict[str, str] | None = None,
        checkout: Path | None = None,
        launch: type[BrokerLaunch] = BrokerLaunch,
        more_listeners: str = "",
    ) -> None:
        """`more_listeners` are those besides PLAINTEXT, as NAME://host:port."""
        self.name = "tidewheel" if checkout is None else str(checkout)
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        given = {**COMMON_SETTINGS, **(settings or {})}
        if more_listeners:
            given["listeners"] = f"PLAINTEXT://{self.bootstrap},{more_listeners}"
        self._launch = launch(
            broker_id=1,
            data=directory / "data",
            log=directory / "stdout.log",
            cluster_id="benchmark-cluster-00000",
            port=self.port,
            settings=tuple(f"{key}={value}" for key, value in given.items()),
            prefix=code_of(checkout),
        )
        self.process: BrokerProcess | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None, "not started"
        return self.process.pid

    def start(self) -> float:
        """Seconds until the first answer, which comes with readiness."""
        began = time.monotonic()
        self.process = BrokerProcess(self._launch)
        self.process.wait_ready()
        wait_for_first_answer(self.port, self.process.poll)
        return time.monotonic() - began

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop(STOP_SECONDS_MAX)
            self.process = None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process = None


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


class KafkaNode(_Process):
    """One Apache Kafka node, broker and controller in one process."""

    name = "kafka"

    def __init__(
        self,
        directory: Path,
        cache: Path,
        *,
        node_id: int,
        voters: dict[int, int],
        cluster_id: str,
        heap_megabytes: int,
        settings: dict[str, str],
        secure_address: str = "",
    ) -> None:
        """`voters`: the controller ports of all nodes of its cluster, by node id.
        `secure_address`: where it also listens, as SASL_SSL."""
        super().__init__(directory)
        self._libraries = kafka_libraries(cache)
        self._properties = directory / "server.properties"
        self._heap = heap_megabytes
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "controller.quorum.voters": ",".join(f"{i}@127.0.0.1:{p}" for i, p in voters.items()),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CLIENT://{self.bootstrap},CONTROLLER://127.0.0.1:{voters[node_id]}",
            "advertised.listeners": f"CLIENT://{self.bootstrap}",
            "inter.broker.listener.name": "CLIENT",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(directory / "data"),
            **COMMON_SETTINGS,
            **settings,
        }
        if secure_address:
            for name in ("listeners", "advertised.listeners"):
                properties[name] += f",SASL_SSL://{secure_address}"
            properties["listener.security.protocol.map"] += ",SASL_SSL:SASL_SSL"
        self._properties.write_text("".join(f"{k}={v}\n" for k, v in properties.items()))
        self._log_config = directory / "log4j2.yaml"
        self._log_config.write_text(
            "Configuration:\n  status: error\n  Appenders:\n    Console:\n"
            '      - name: out\n        PatternLayout: { pattern: "%d %p %c{1} %m%n" }\n'
            "  Loggers:\n    Root:\n      level: WARN\n      AppenderRef: { ref: out }\n"
        )
        self._format(cluster_id)

    def _java(self, *arguments: str) -> list[str]:
        options = [f"-Dlog4j2.configurationFile={self._log_config}", "-Djava.awt.headless=true"]
        return ["java", *options, "-cp", f"{self._libraries}/*", *arguments]

    def _format(self, cluster_id: str) -> None:
        storage = ["kafka.tools.StorageTool", "format", "--cluster-id", cluster_id]
        subprocess.run(
            self._java(*storage, "--config", str(self._properties)),
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def command(self) -> list[str]:
        java = self._java("kafka.Kafka", str(self._properties))
        return [java[0], f"-Xms{self._heap}m", f"-Xmx{self._heap}m", "-XX:+UseSerialGC", *java[1:]]


def new_cluster_id() -> str:
    """As Kafka's tools make it: without a leading dash, which would look like an option."""
    made = "-"
    while made.startswith("-"):
        made = base64.urlsafe_b64encode(os.urandom(16)).decode()[:22]
    return made


class ApacheKafka(KafkaNode):
    """An Apache Kafka of one node."""

    def __init__(
        self,
        directory: Path,
        cache: Path,
        settings: dict[str, str] | None = None,
        secure_address: str = "",
    ) -> None:
        one_replica = {
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        super().__init__(
            directory,
            cache,
            node_id=1,
            voters={1: free_port()},
            cluster_id=new_cluster_id(),
            heap_megabytes=512,
            settings={**one_replica, **(settings or {})},
            secure_address=secure_address,
        )


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
