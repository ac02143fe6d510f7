"""Kafka Streams, Kafka Connect and MirrorMaker 2 as tenants, each with a user of its own.

They make topics for themselves (changelogs, repartitioned streams, the worker's configurations,
offsets and statuses, checkpoints), configure them, and form groups of their own kinds.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.certificates import WHY_NO_CERTIFICATES
from tests.conformance import programs
from tests.declared import login_of
from tests.kept_port import KeptPort
from tests.tenant_broker import TenantBroker, tenant_broker

pytestmark = pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES)

STREAMS, NORTH, SOUTH = "streams", "north", "south"
SECONDS_MAX = 180.0
LOOK_UP_S = 0.1
LINES = [f"line {number}" for number in range(50)]
LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
CONNECT = "org.apache.kafka.connect.cli.ConnectDistributed"
STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
BYTES_CONVERTER = "org.apache.kafka.connect.converters.ByteArrayConverter"
# Whose clients have the same settings, within a worker.
CLIENTS_OF_A_WORKER = ("", "producer.", "consumer.", "admin.")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantBroker]:
    folder = tmp_path_factory.mktemp("ecosystem")
    settings = {"group.initial.rebalance.delay.ms": "0", "num.partitions": "2"}
    with tenant_broker(folder, STREAMS, NORTH, SOUTH, set=settings) as made:
        yield made


def java_settings(broker: TenantBroker, tenant: str, prefix: str = "") -> dict[str, str]:
    login = login_of(tenant)
    return {
        f"{prefix}bootstrap.servers": broker.users,
        f"{prefix}security.protocol": "SASL_PLAINTEXT",
        f"{prefix}sasl.mechanism": "SCRAM-SHA-256",
        f"{prefix}sasl.jaas.config": f'{LOGIN_MODULE} required username="{login}" '
        f'password="{login}";',
    }


def library_settings(broker: TenantBroker, tenant: str) -> dict[str, Any]:
    login = login_of(tenant)
    return {
        "bootstrap.servers": broker.users,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": login,
        "sasl.password": login,
    }


def wait_for(condition: Callable[[], object], what: str, worker: Worker) -> None:
    deadline_s = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline_s, f"waited for: {what}; {worker.last_words()}"
        assert worker.process.poll() is None, worker.last_words()
        time.sleep(LOOK_UP_S)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_streams(broker: TenantBroker) -> None:
    login = login_of(STREAMS)
    command = programs.ecosystem_command("Counter")
    passed = programs.run_cases(command, broker.users, login, login)
    assert passed == ["counts", "goes on from its changelog", "has its own topics"]


class Worker:
    """A worker of Kafka Connect, in a cluster of its own, and its REST."""

    def __init__(self, folder: Path, properties: Mapping[str, str], port: int) -> None:
        file = folder / "worker.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        self._log = folder / "worker.log"
        self._url = f"http://127.0.0.1:{port}"
        command = programs.ecosystem_command(CONNECT, log_level="warn")
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen([*command, str(file)], stdout=log, stderr=log)

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def last_words(self) -> str:
        return f"the worker's log ends:\n{self._log.read_text()[-3000:]}"

    def ask(self, path: str, body: Any = None) -> Any:
        """None where there is nothing yet, or nobody."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._url}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS_MAX) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code not in (404, 409, 503):
                raise AssertionError(error.read()) from error
        except urllib.error.URLError:
            pass
        return None

    def start(self, name: str, config: Mapping[str, str]) -> None:
        """A connector, with its tasks."""
        body = {"name": name, "config": {"name": name, "tasks.max": "1", **config}}
        wait_for(lambda: self.ask("/connectors", body), f"{name} is made", self)

        def runs() -> bool:
            status = self.ask(f"/connectors/{name}/status")
            states = status and [one["state"] for one in (status["connector"], *status["tasks"])]
            assert "FAILED" not in (states or ()), status
            return bool(states) and len(states) > 1 and set(states) == {"RUNNING"}

        wait_for(runs, f"{name} runs", self)


@pytest.fixture
def worker(broker: TenantBroker, tmp_path: Path) -> Iterator[Worker]:
    """It belongs to SOUTH."""
    kept = KeptPort()
    properties = {
        "group.id": "workers",
        "config.storage.topic": "connect-configs",
        "offset.storage.topic": "connect-offsets",
        "offset.storage.partitions": "2",
        "status.storage.topic": "connect-status",
        "status.storage.partitions": "1",
        **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
        "key.converter": STRING_CONVERTER,
        "value.converter": STRING_CONVERTER,
        "offset.flush.interval.ms": "500",
        "listeners": f"http://127.0.0.1:{kept.port}",
        "plugin.discovery": "service_load",
    }
    for prefix in CLIENTS_OF_A_WORKER:
        properties |= java_settings(broker, SOUTH, prefix)
    made = Worker(tmp_path, properties, kept.port)
    try:
        wait_for(lambda: made.ask("/connectors") == [], "the worker answers", made)
        yield made
    finally:
        made.end()


@contextmanager
def reading(broker: TenantBroker, tenant: str, group: str) -> Iterator[Consumer]:
    more = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({**library_settings(broker, tenant), **more})
    try:
        yield consumer
    finally:
        consumer.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_connect_and_mirror_maker(broker: TenantBroker, worker: Worker, tmp_path: Path) -> None:
    """A file goes through a topic into another file. Then MirrorMaker 2, whose connectors run in
    the worker, copies a topic and a group's offsets from one tenant to the other."""
    _copy_file(worker, tmp_path)
    _send_and_commit(broker)
    _mirror(broker, worker)
    assert_apart(broker)


def _copy_file(worker: Worker, folder: Path) -> None:
    source, sink = folder / "source", folder / "sink"
    source.write_text("".join(f"{line}\n" for line in LINES))
    package = "org.apache.kafka.connect.file"
    config = {"connector.class": f"{package}.FileStreamSourceConnector", "topic": "lines"}
    worker.start("source", {**config, "file": str(source)})
    config = {"connector.class": f"{package}.FileStreamSinkConnector", "topics": "lines"}
    worker.start("sink", {**config, "file": str(sink)})
    wait_for(lambda: sink.exists() and sink.read_text().splitlines() == LINES, "the copy", worker)


def _send_and_commit(broker: TenantBroker) -> None:
    """NORTH has a topic, and a group that has read all of it."""
    failures: list[KafkaError] = []
    settings = library_settings(broker, NORTH)
    admin = AdminClient(settings)
    producer = Producer(settings)
    with reading(broker, NORTH, "readers") as consumer:
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(SECONDS_MAX)
        for line in LINES:
            producer.produce(
                "orders",
                line.encode(),
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        assert producer.flush(SECONDS_MAX) == 0
        assert not failures
        consumer.commit(offsets=[TopicPartition("orders", 0, len(LINES))], asynchronous=False)


def _mirror(broker: TenantBroker, worker: Worker) -> None:
    package = "org.apache.kafka.connect.mirror"
    common = {
        "key.converter": BYTES_CONVERTER,
        "value.converter": BYTES_CONVERTER,
        "source.cluster.alias": NORTH,
        "target.cluster.alias": SOUTH,
        **java_settings(broker, NORTH, "source.cluster."),
        **java_settings(broker, SOUTH, "target.cluster."),
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "topics": "orders",
        "groups": "readers",
        "refresh.topics.interval.seconds": "1",
        "sync.topic.acls.interval.seconds": "1",
        "refresh.groups.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "offset.lag.max": "0",
    }
    worker.start("mirror", {**common, "connector.class": f"{package}.MirrorSourceConnector"})
    with reading(broker, SOUTH, "copies") as consumer:
        consumer.assign([TopicPartition(f"{NORTH}.orders", 0, 0)])
        found: list[str] = []

        def is_copied() -> bool:
            message = consumer.poll(LOOK_UP_S)
            if message is not None and message.error() is None:
                found.append((message.value() or b"").decode())
            return found == LINES

        wait_for(is_copied, "the records", worker)
    checkpoints = {"connector.class": f"{package}.MirrorCheckpointConnector"}
    worker.start("checkpoints", {**common, **checkpoints})
    with reading(broker, SOUTH, "readers") as consumer:

        def has_offset() -> bool:
            partition = TopicPartition(f"{NORTH}.orders", 0)
            (committed,) = consumer.committed([partition], SECONDS_MAX)
            return committed.offset == len(LINES)

        wait_for(has_offset, "the group's offset", worker)


def assert_apart(broker: TenantBroker) -> None:
    def topics(tenant: str) -> set[str]:
        return set(AdminClient(library_settings(broker, tenant)).list_topics(timeout=30).topics)

    assert topics(NORTH) == {"orders", f"mm2-offset-syncs.{SOUTH}.internal"}
    own = {f"connect-{kind}" for kind in ("configs", "offsets", "status")}
    copied = {f"{NORTH}.orders", f"{NORTH}.checkpoints.internal"}
    assert topics(SOUTH) == {"lines", *own, *copied}
