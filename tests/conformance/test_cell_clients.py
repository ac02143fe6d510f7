"""Clients of four languages on a cell whose brokers die, come back, and become more and fewer.

All of them at once, each with a topic and a group of its own: an idempotent producer with acks=all
and two readers that commit. The histories are judged against the log: nothing that was acknowledged
is missing, nothing is there twice or out of order, readers pass nothing over, no commit is lost;
and no client has shown its user an error.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.cimpl import NewPartitions

from data_plane.groups.partitioning import partition_for_group
from tests.broker_process import ROOT
from tests.conformance import programs
from tests.conformance.cell_load import ForeignLoad
from tests.faults.cell import Cell
from tests.faults.load import Load, Writer

AIOKAFKA_LOAD = Path(__file__).with_name("aiokafka_load.py")
KAFKA_PYTHON_LOAD = Path(__file__).with_name("kafka_python_load.py")
PARTITIONS = 4
OPERATION_SECONDS_MAX = 240
MESSAGES, MESSAGE_BYTES = 2_000, 1_000
READ_SECONDS_MAX = 30.0
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
OFFSETS_TOPIC = "__consumer_offsets"
FOLLOW_METADATA = {"topic.metadata.refresh.interval.ms": "1000"}


@dataclass(frozen=True)
class Clients:
    """The loads of all three clients on one cell."""

    cell: Cell
    librdkafka: Load
    foreign: tuple[ForeignLoad, ...]

    @property
    def topics(self) -> list[str]:
        return [self.librdkafka.topic, *(load.topic for load in self.foreign)]

    def wait_until_all_move(self) -> None:
        """Every partition of every client acknowledges something new, and it is read."""
        self.librdkafka.run_until_every_partition_moves()
        for load in self.foreign:
            load.wait_until_written(range(self.librdkafka.partitions))
            load.wait_until_read()

    def wait_until_in_sync(self) -> None:
        for topic in (*self.topics, OFFSETS_TOPIC):
            self.cell.wait_until_in_sync(topic)

    def kill_and_start_again(self, victim: int) -> None:
        for topic in self.topics:
            assert victim in leaders_of(self.cell, topic).values()
        self.cell.kill9(victim)
        # Twice: the first acknowledgement after a fault may have been on its way before it.
        self.wait_until_all_move()
        self.wait_until_all_move()
        self.cell.start(victim)
        self.wait_until_in_sync()

    def grow(self, partitions: int) -> None:
        """More partitions for all topics; clients hear of it by their metadata."""
        wanted = [NewPartitions(topic, partitions) for topic in self.topics]
        admin = self.cell.admin()
        for future in admin.create_partitions(wanted).values():
            future.result(30)
        for writer in self.librdkafka.writers:
            self.cell.wait_for(
                functools.partial(_knows, writer, partitions), "librdkafka hears of it"
            )
        self.librdkafka.grow(partitions)
        self.wait_until_all_move()

    def check(self) -> None:
        self.librdkafka.check()
        for load in self.foreign:
            load.check()


def _knows(writer: Writer, partitions: int) -> bool:
    return writer.known_partitions() == partitions


def leaders_of(cell: Cell, topic: str) -> dict[int, int]:
    """Who leads which partition; the broker that is asked may hear of a new topic only now."""
    found: dict[int, int] = {}

    def look() -> bool:
        found.update(cell.leaders(topic))
        return bool(found)

    cell.wait_for(look, f"leaders of {topic}")
    return found


def names_coordinated_by(cell: Cell, broker_id: int) -> Iterator[str]:
    """Topic names whose groups of readers this broker coordinates."""
    admin = cell.admin()

    def is_described() -> bool:
        """To ask for a group has the offsets topic made; its coordinator may hear of that a moment
        after the broker that was asked who it is. librdkafka leaves it to us to ask again."""
        try:
            admin.describe_consumer_groups(["nobody"])["nobody"].result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_COORDINATOR:
                raise
            return False
        return True

    cell.wait_for(is_described, "a coordinator for a group")
    leaders = leaders_of(cell, OFFSETS_TOPIC)
    while True:
        name = uuid.uuid4().hex[:8]
        if leaders[partition_for_group("default", f"{name}-readers", len(leaders))] == broker_id:
            yield name


def programs_of_others() -> dict[str, list[str]]:
    return {
        "java": programs.java_command("CellLoad"),
        "franz-go": [*programs.go_command(), "cell"],
    }


@contextlib.contextmanager
def running_clients(
    cell: Cell, coordinator: int, commands: Mapping[str, list[str]]
) -> Iterator[Clients]:
    """librdkafka and these programs at work, with all their groups at one coordinator; judged at
    the end."""
    names = names_coordinated_by(cell, coordinator)
    topics = [next(names) for _ in range(1 + len(commands))]
    for topic in topics:
        cell.create_topic(topic, PARTITIONS)
    with contextlib.ExitStack() as stack:
        foreign = [
            stack.enter_context(ForeignLoad(name, command, cell.bootstrap, topic))
            for (name, command), topic in zip(commands.items(), topics[1:], strict=True)
        ]
        load = Load(cell.bootstrap, topics[0], PARTITIONS, writers=1, settings=FOLLOW_METADATA)
        clients = Clients(cell, stack.enter_context(load), tuple(foreign))
        clients.wait_until_all_move()
        yield clients
    clients.check()


def command(cell: Cell, module: str, *arguments: str) -> None:
    """What an operator types."""
    result = subprocess.run(
        [sys.executable, "-P", "-m", module, *arguments, "--url", cell.bootstrap],
        capture_output=True,
        text=True,
        timeout=OPERATION_SECONDS_MAX,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.timeout(240)
def test_clients_follow_a_failover_and_new_partitions(tmp_path: Path) -> None:
    others = programs_of_others()
    with Cell(tmp_path) as cell, running_clients(cell, 2, others) as clients:
        clients.kill_and_start_again(2)
        clients.grow(2 * PARTITIONS)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_aiokafka_follows_too(tmp_path: Path) -> None:
    program = {"aiokafka": [sys.executable, "-P", str(AIOKAFKA_LOAD)]}
    with Cell(tmp_path) as cell, running_clients(cell, 2, program) as clients:
        clients.kill_and_start_again(2)
        clients.grow(2 * PARTITIONS)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_kafka_python_and_kafkajs_follow_a_failover(tmp_path: Path) -> None:
    others = {
        "kafka-python": [sys.executable, "-P", str(KAFKA_PYTHON_LOAD)],
        "kafkajs": programs.node_command("cell.js"),
    }
    with Cell(tmp_path) as cell, running_clients(cell, 2, others) as clients:
        clients.kill_and_start_again(2)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_clients_follow_brokers_that_come_and_go(tmp_path: Path) -> None:
    others = programs_of_others()
    with Cell(tmp_path) as cell, running_clients(cell, 3, others) as clients:
        for victim in (3, 1, 2):
            clients.kill_and_start_again(victim)
        clients.grow(2 * PARTITIONS)
        cell.start(4)
        for topic in clients.topics:
            command(cell, "stack", "reassign", topic, "--to", "4,1,2", "--wait")
            assert 4 in leaders_of(cell, topic).values()
        clients.wait_until_all_move()
        command(cell, "tidewheel.cli.main", "drain", "4")
        clients.wait_until_all_move()
        cell.stop(4)
        clients.wait_until_all_move()


# Reading from the closest replica


def fetched_bytes(cell: Cell, broker_id: int) -> float:
    """The bytes that a broker has given to whoever fetched from it, by its own count."""
    ready = cell.processes[broker_id].ready
    assert ready is not None
    with urllib.request.urlopen(
        f"http://127.0.0.1:{ready.metrics_port}/metrics", timeout=10
    ) as answer:
        text = answer.read().decode()
    found = re.search(r"^tidewheel_fetched_bytes_total (\S+)$", text, re.MULTILINE)
    assert found is not None, text[:2000]
    return float(found[1])


@pytest.mark.timeout(120)
def test_a_consumer_reads_from_the_replica_in_its_rack(tmp_path: Path) -> None:
    racks = {broker_id: f"rack-{broker_id}" for broker_id in (1, 2, 3)}
    with Cell(tmp_path, settings={"replica.selector.class": RACK_AWARE}, racks=racks) as cell:
        cell.create_topic("orders", 1)
        leader = leaders_of(cell, "orders")[0]
        closest = next(i for i in cell.ids if i != leader)
        producer = Producer({"bootstrap.servers": cell.bootstrap, "log_level": 0})
        for _ in range(MESSAGES):
            producer.produce("orders", bytes(MESSAGE_BYTES))
        assert producer.flush(30) == 0
        settle(cell)
        before = {i: fetched_bytes(cell, i) for i in cell.ids}
        read_all(cell, racks[closest])
        given = {i: fetched_bytes(cell, i) - before[i] for i in cell.ids}
        assert given[closest] >= MESSAGES * MESSAGE_BYTES, given
        assert all(given[i] < MESSAGE_BYTES for i in cell.ids if i != closest), given
        # The closest one dies: its consumers read at the leader.
        cell.kill9(closest)
        read_all(cell, racks[closest])


def settle(cell: Cell) -> None:
    """Wait until the followers have fetched everything."""
    counts: list[dict[int, float]] = []

    def is_quiet() -> bool:
        counts.append({i: fetched_bytes(cell, i) for i in cell.ids})
        time.sleep(0.2)
        return len(counts) > 1 and counts[-1] == counts[-2]

    cell.wait_for(is_quiet, "replication to be done")


def read_all(cell: Cell, rack: str) -> None:
    """Read `orders` as a consumer in this rack."""
    settings = {"group.id": "a-reader", "client.rack": rack, "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": cell.bootstrap, "log_level": 0, **settings})
    try:
        consumer.assign([TopicPartition("orders", 0, 0)])
        offsets: list[int | None] = []
        deadline = time.monotonic() + READ_SECONDS_MAX
        while len(offsets) < MESSAGES and time.monotonic() < deadline:
            for message in consumer.consume(500, timeout=1):
                assert message.error() is None, message.error()
                offsets.append(message.offset())
        assert offsets == list(range(MESSAGES))
    finally:
        consumer.close()
