"""A cell of real broker processes and a real Postgres, for tests that do bad things to them.

    with Cell(tmp_path) as cell:
        cell.create_topic("orders", partitions=6)
        leader = cell.leaders("orders")[0]
        cell.kill9(leader)
        cell.wait_for(lambda: leader not in cell.leaders("orders").values(), "new leaders")
        cell.start(leader)

Every broker reaches Postgres through a fault proxy of its own (`cell.store_links[id]`). With a
`Network` each broker lives in a network namespace of its own; clients and Postgres are outside.
`cell.checkouts[id]` has a broker run the code of another checkout from its next start on.
Brokers keep their ports over restarts. Leaving the block stops what still runs and fails when a
broker does not end well; after a failure it kills and shows the ends of the logs.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from stack.broker_process import BrokerLaunch, BrokerProcess
from stack.options import cell_environment, cell_settings
from stack.postgres import PostgresServer
from tests.certificates import Authority, tls_settings
from tests.faults.network import HOST, Network
from tests.faults.proxy import FaultProxy
from tests.kept_port import KeptPort

CLUSTER_ID = "faults-cluster-000000A"
READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 40.0
SETTLED_SECONDS_MAX = 40.0
LOOK_UP_S = 0.05
LOG_TAIL_CHARACTERS = 3000
STORE_SCHEMA = "tidewheel_cell"
CONTROLLER_QUERY = (
    "SELECT node_id FROM controller WHERE node_id IS NOT NULL AND expires_at > clock_timestamp()"
)
SETTINGS = {"group.initial.rebalance.delay.ms": "100", "logging.format": "json"}


class Cell:
    """Brokers 1 … n and Postgres. See the module's text."""

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        network: Network | None = None,
        data: Mapping[int, Path] | None = None,
        racks: Mapping[int, str] | None = None,
        settings_of: Callable[[int], Mapping[str, str]] | None = None,
        module: str = "data_plane.server",
    ) -> None:
        """`data`: folders of brokers that are to be elsewhere than in `folder`. `settings_of`: more
        settings, of the broker whose clients come to this port; the code of another checkout is
        not given them. `module` is what brokers run."""
        self.folder = folder
        self.ids = list(range(1, brokers + 1))
        self.store_links: dict[int, FaultProxy] = {}
        self.checkouts: dict[int, Path] = {}
        self.processes: dict[int, BrokerProcess] = {}
        self._kept_ports: dict[int | str, KeptPort] = {"postgres": KeptPort()}
        self.postgres = PostgresServer(
            folder / "postgres", port=self._kept_ports["postgres"].port, is_durable=False
        )
        self._settings = {**SETTINGS, **(settings or {})}
        self._network = network
        self._data = dict(data or {})
        self._racks = dict(racks or {})
        self._settings_of = settings_of
        self._module = module
        self._ports: dict[int, int] = {}
        # Where brokers serve CellAdmin, if they do.
        self.cell_admin_ports: dict[int, int] = {}
        self._resources = contextlib.ExitStack()
        self._authority: Authority | None = None
        self._certificates: dict[int, tuple[str, ...]] = {}

    def __enter__(self) -> Cell:
        try:
            self.postgres.start()
            for broker_id in self.ids:
                self._launch(broker_id)
            for broker_id in self.ids:
                self._wait_ready(broker_id)
        except BaseException as error:
            self._abandon(error)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._abandon(error)
            return
        try:
            statuses = {i: process.stop(STOP_SECONDS_MAX) for i, process in self.processes.items()}
            assert not any(statuses.values()), f"exit statuses by broker: {statuses}"
        except BaseException as failure:
            self._abandon(failure)
            raise
        self._close()

    def _abandon(self, error: BaseException) -> None:
        for process in self.processes.values():
            process.kill()
        for broker_id in self.ids:
            if (path := self._log(broker_id)).exists():
                text = path.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]
                error.add_note(f"the log of broker {broker_id} ends:\n{text}")
        self._close()

    def _close(self) -> None:
        self.processes.clear()
        self.postgres.stop()
        self._resources.close()

    # Brokers.

    def _launch(self, broker_id: int) -> None:
        if broker_id not in self.store_links:
            listen_host = "127.0.0.1" if self._network is None else self._network.address(HOST)
            proxy = FaultProxy("127.0.0.1", self.postgres.port, listen_host=listen_host)
            self.store_links[broker_id] = self._resources.enter_context(proxy)
        link = self.store_links[broker_id]
        here = f"@127.0.0.1:{self.postgres.port}/"
        store_url = self.postgres.dsn.replace(here, f"@{link.listen_host}:{link.port}/")
        assert store_url != self.postgres.dsn, "the address is not where it was looked for"
        host, prefix = "127.0.0.1", tuple[str, ...]()
        given = [f"{key}={value}" for key, value in self._settings.items()]
        if self._settings_of is not None and broker_id not in self.checkouts:
            given += [f"{k}={v}" for k, v in self._settings_of(self._port(broker_id)).items()]
        if broker_id in self._racks:
            given.append(f"broker.rack={self._racks[broker_id]}")
        if self._network is not None:
            host, prefix = self._network.address(broker_id), self._network.prefix(broker_id)
            given += self._tls_settings(broker_id, host)
        if broker_id in self.checkouts:
            prefix = (*prefix, "env", f"PYTHONPATH={self.checkouts[broker_id]}")
        launch = BrokerLaunch(
            broker_id=broker_id,
            data=self.data(broker_id),
            log=self._log(broker_id),
            cluster_id=CLUSTER_ID,
            port=self._port(broker_id),
            host=host,
            settings=(*cell_settings(broker_id, 0, host), *given),
            environment=cell_environment(broker_id, store_url, len(self.ids)),
            prefix=prefix,
            module=self._module,
        )
        self.processes[broker_id] = BrokerProcess(launch)

    def _port(self, broker_id: int) -> int:
        """Where it is to listen; in a namespace of its own it chooses at its first start."""
        if self._network is not None:
            return self._ports.get(broker_id, 0)
        if broker_id not in self._kept_ports:
            self._kept_ports[broker_id] = KeptPort()
        return self._kept_ports[broker_id].port

    def _tls_settings(self, broker_id: int, host: str) -> tuple[str, ...]:
        """Brokers that are not on one loopback speak TLS."""
        if self._authority is None:
            self._authority = Authority(self.folder / "certificates")
        if broker_id not in self._certificates:
            files = self._authority.issue(f"broker-{broker_id}", f"IP:{host}")
            self._certificates[broker_id] = tls_settings(files)
        return self._certificates[broker_id]

    def _wait_ready(self, broker_id: int) -> None:
        ready = self.processes[broker_id].wait_ready(timeout_s=READY_SECONDS_MAX)
        self._ports[broker_id] = ready.port
        self.cell_admin_ports[broker_id] = ready.cell_admin_port

    def _log(self, broker_id: int) -> Path:
        return self.folder / f"broker-{broker_id}.log"

    def data(self, broker_id: int) -> Path:
        """The broker's data directory."""
        return self._data.get(broker_id, self.folder / f"broker-{broker_id}")

    def log_text(self, broker_id: int) -> str:
        return self._log(broker_id).read_text(errors="replace")

    def log_lines(self, broker_id: int) -> list[str]:
        """Those that are whole: the broker may be in the middle of the next one."""
        return self.log_text(broker_id).split("\n")[:-1]

    def start(self, broker_id: int) -> float:
        """Start a broker that does not run (a new id: one more). Seconds until it was ready."""
        if broker_id not in self.ids:
            self.ids.append(broker_id)
        began = time.monotonic()
        self._launch(broker_id)
        self._wait_ready(broker_id)
        return time.monotonic() - began

    def stop(self, broker_id: int) -> None:
        """Stop one cleanly."""
        status = self.processes.pop(broker_id).stop(STOP_SECONDS_MAX)
        assert status == 0, f"broker {broker_id} ended with status {status}"

    def kill9(self, *broker_ids: int) -> None:
        """Take their lives, all at once."""
        victims = [self.processes.pop(broker_id) for broker_id in broker_ids]
        for victim in victims:
            victim.kill_now()
        for victim in victims:
            victim.kill()

    def pause(self, broker_id: int) -> None:
        """SIGSTOP: alive, connected, and doing nothing."""
        self.processes[broker_id].send_signal(signal.SIGSTOP)

    def resume(self, broker_id: int) -> None:
        self.processes[broker_id].send_signal(signal.SIGCONT)

    # What the cell looks like to a client.

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(i) for i in self._ports)

    def address(self, node_id: int) -> str:
        """Where clients reach a broker."""
        host = "127.0.0.1" if self._network is None else self._network.address(node_id)
        return f"{host}:{self._ports[node_id]}"

    def admin(self, node_id: int | None = None) -> AdminClient:
        """A client that knows nothing from earlier; of one broker only, if need be."""
        return AdminClient(
            {
                "bootstrap.servers": self.bootstrap if node_id is None else self.address(node_id),
                "socket.timeout.ms": 5000,
                "log_level": 0,
            }
        )

    def create_topic(
        self, name: str, partitions: int, *, replicas: int = 3, configs: Mapping[str, str] = {}
    ) -> None:
        topic = NewTopic(name, partitions, replicas, config=dict(configs))
        admin = self.admin()
        admin.create_topics([topic], operation_timeout=20)[name].result(30)
        # A consumer that asks a broker which does not know the topic yet gets no partitions of it,
        # and librdkafka asks again only minutes later.
        self.wait_for(
            lambda: all(self._knows(i, name, partitions) for i in self.processes),
            f"{name} is known to everybody",
        )

    def leaders(self, topic: str) -> dict[int, int]:
        """Partition → leader (-1: none), as some broker tells it just now; {} when none does."""
        return {p: leader for p, (leader, _) in self._partitions(topic).items()}

    def in_sync(self, topic: str, node_id: int | None = None) -> dict[int, set[int]]:
        """Partition → brokers in the ISR, as some broker or the given one tells it."""
        return {p: set(isr) for p, (_, isr) in self._partitions(topic, node_id).items()}

    def _partitions(
        self, topic: str, node_id: int | None = None
    ) -> dict[int, tuple[int, Sequence[int]]]:
        try:
            found = self.admin(node_id).list_topics(topic, timeout=5).topics.get(topic)
        except KafkaException:
            return {}
        if found is None or found.error is not None:
            return {}
        return {p.id: (p.leader, p.isrs) for p in found.partitions.values()}

    def _knows(self, node_id: int, topic: str, partitions: int) -> bool:
        """Whether a broker knows the topic; one that does not answer need not."""
        try:
            found = self.admin(node_id).list_topics(topic, timeout=5).topics[topic]
        except KafkaException:
            return True
        return found.error is None and len(found.partitions) == partitions

    def controller(self) -> int:
        """Who holds the controller lease, as the metadata store says; waits until somebody does."""
        found: list[int] = []

        def look() -> bool:
            found[:] = [int(row[0]) for row in self.query(CONTROLLER_QUERY)]
            return bool(found)

        self.wait_for(look, "a controller")
        return found[0]

    def query(self, text: str) -> list[tuple[Any, ...]]:
        """Rows from the metadata store, not through any proxy."""
        with psycopg.connect(self.postgres.dsn, autocommit=True, connect_timeout=5) as connection:
            connection.execute(f"SET search_path TO {STORE_SCHEMA}")
            return connection.execute(text.encode()).fetchall()

    def wait_for(
        self, condition: Callable[[], bool], what: str, seconds_max: float = SETTLED_SECONDS_MAX
    ) -> float:
        """Wait until it is so. The seconds that it took."""
        began = time.monotonic()
        while not condition():
            assert time.monotonic() < began + seconds_max, f"waited {seconds_max:.0f} s for: {what}"
            time.sleep(LOOK_UP_S)
        return time.monotonic() - began

    def wait_until_in_sync(self, topic: str) -> None:
        """Wait until every broker that runs is in each ISR again, and all of them know it.

        One that was cut off from the store may still tell of the time before, and lead in it."""
        running = set(self.processes)
        self.wait_for(
            lambda: all(
                (found := self.in_sync(topic, node_id)) != {}
                and all(isr == running for isr in found.values())
                for node_id in running
            ),
            f"{sorted(running)} in sync for {topic}: {self.in_sync(topic)}",
        )
