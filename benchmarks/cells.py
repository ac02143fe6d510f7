"""The two cells that are compared: three Tidewheel brokers with their Postgres, and Apache Kafka as
three combined KRaft nodes.

Both keep their defaults where they matter: three replicas, min.insync.replicas=2, nobody flushes
before acknowledging, sessions time out as each of them has it (Tidewheel after 1.5 s, Kafka after
9 s: how soon a cell notices a dead broker is part of what is compared). Kafka's nodes have 384 MiB
of heap each and a serial collector.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from benchmarks.brokers import (
    COMMON_SETTINGS,
    STOP_SECONDS_MAX,
    KafkaNode,
    code_of,
    free_port,
    new_cluster_id,
    wait_for_first_answer,
)
from benchmarks.process_figures import tree_cpu_seconds, tree_resident_bytes
from stack.broker_process import BrokerLaunch, BrokerProcess
from stack.options import cell_environment, cell_settings
from stack.postgres import PostgresServer

BROKERS = 3
HEAP_MEGABYTES = 384


class Cell(Protocol):
    """A running cell under test; brokers are 1 to 3."""

    name: str
    bootstrap: str
    login: Path | None

    def start(self) -> None:
        """Start all of it and wait until every broker answers."""

    def kill_broker(self, broker_id: int) -> None:
        """SIGKILL one broker."""

    def start_broker(self, broker_id: int) -> None:
        """Start it again and wait until it answers."""

    def cpu_seconds(self) -> float:
        """Processor time that the whole cell has used; only while all of it runs."""

    def resident_bytes(self) -> int:
        """Memory that the whole cell holds, what processes share counted once."""

    def close(self) -> None:
        """End all of it at once."""


class TidewheelCell:
    """Three Tidewheel brokers from this checkout or from another, and Postgres."""

    login: Path | None = None

    def __init__(
        self,
        directory: Path,
        checkout: Path | None = None,
        launch: type[BrokerLaunch] = BrokerLaunch,
    ) -> None:
        self.name = "tidewheel" if checkout is None else str(checkout)
        self._make_launch = launch
        self._prefix = code_of(checkout)
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._ports = {broker_id: free_port() for broker_id in range(1, BROKERS + 1)}
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self._ports.values())
        self._postgres = PostgresServer(directory / "postgres")
        self._brokers: dict[int, BrokerProcess] = {}

    def start(self) -> None:
        self._postgres.start()
        for broker_id in self._ports:
            self._launch(broker_id)
        for broker in self._brokers.values():
            broker.wait_ready()

    def _launch(self, broker_id: int) -> None:
        settings = tuple(f"{key}={value}" for key, value in COMMON_SETTINGS.items())
        self._brokers[broker_id] = BrokerProcess(
            self._make_launch(
                broker_id=broker_id,
                data=self._directory / f"broker-{broker_id}",
                log=self._directory / f"broker-{broker_id}.log",
                cluster_id="benchmark-cluster-00000",
                port=self._ports[broker_id],
                settings=(*cell_settings(broker_id, 0), *settings),
                environment=cell_environment(broker_id, self._postgres.dsn, BROKERS),
                prefix=self._prefix,
            )
        )

    def kill_broker(self, broker_id: int) -> None:
        self._brokers.pop(broker_id).kill()

    def start_broker(self, broker_id: int) -> None:
        self._launch(broker_id)
        self._brokers[broker_id].wait_ready()

    def _pids(self) -> list[int]:
        assert self._postgres.identity is not None, "it runs"
        return [self._postgres.identity.pid, *(broker.pid for broker in self._brokers.values())]

    def cpu_seconds(self) -> float:
        return sum(map(tree_cpu_seconds, self._pids()))

    def resident_bytes(self) -> int:
        return sum(map(tree_resident_bytes, self._pids()))

    def stop(self) -> None:
        """End the brokers gracefully."""
        for broker in self._brokers.values():
            broker.stop(STOP_SECONDS_MAX)
        self._brokers.clear()

    def close(self) -> None:
        for broker in self._brokers.values():
            broker.kill()
        self._brokers.clear()
        self._postgres.stop(STOP_SECONDS_MAX)


class KafkaCell:
    """Three combined nodes of Apache Kafka."""

    name = "kafka"
    login: Path | None = None

    def __init__(self, directory: Path, cache: Path) -> None:
        voters = {node_id: free_port() for node_id in range(1, BROKERS + 1)}
        cluster_id = new_cluster_id()
        settings = {
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
        }
        self._nodes = {
            node_id: KafkaNode(
                directory / f"node-{node_id}",
                cache,
                node_id=node_id,
                voters=voters,
                cluster_id=cluster_id,
                heap_megabytes=HEAP_MEGABYTES,
                settings=settings,
            )
            for node_id in voters
        }
        self.bootstrap = ",".join(node.bootstrap for node in self._nodes.values())

    def start(self) -> None:
        # A majority must run before the first one answers: start all, then wait for each.
        for node in self._nodes.values():
            node.launch()
        for node in self._nodes.values():
            assert node.process is not None, "it was launched"
            wait_for_first_answer(node.port, node.process.poll)

    def kill_broker(self, broker_id: int) -> None:
        self._nodes[broker_id].kill()

    def start_broker(self, broker_id: int) -> None:
        self._nodes[broker_id].start()

    def cpu_seconds(self) -> float:
        return sum(tree_cpu_seconds(node.pid) for node in self._nodes.values())

    def resident_bytes(self) -> int:
        return sum(tree_resident_bytes(node.pid) for node in self._nodes.values())

    def close(self) -> None:
        for node in self._nodes.values():
            node.kill()
