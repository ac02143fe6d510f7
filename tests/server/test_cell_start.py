"""Real broker processes that become members of a cell, and stop being it."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from data_plane.cell.features import SUPPORTED_FEATURES
from data_plane.cell.metadata import BrokerImage
from data_plane.cell.postgres_store import PostgresMetadataStore
from data_plane.cell.registration import decide_registration
from data_plane.cell.settings import ControllerSettings
from stack.broker_process import BrokerLaunch, BrokerProcess
from stack.errors import EXIT_USAGE, StackError
from stack.options import cell_environment
from tests.faults.cell import CLUSTER_ID, Cell

CELL_SECONDS_MAX = 20.0


@pytest.fixture(scope="module")
def shared_cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    """For tests that leave all brokers running and registered."""
    with Cell(tmp_path_factory.mktemp("cell"), brokers=3) as cell:
        yield cell


def store_of(cell: Cell) -> PostgresMetadataStore:
    return PostgresMetadataStore(
        cell.postgres.dsn, CLUSTER_ID, lambda: time.monotonic_ns() // 1_000_000
    )


def registered(cell: Cell) -> dict[int, BrokerImage]:
    store = store_of(cell)
    try:
        return dict(store.read().brokers)
    finally:
        store.close()


def wait_for_leaders(cell: Cell, node_ids: set[int]) -> None:
    """Whoever is asked may not have heard of the topic yet."""
    cell.wait_for(lambda: set(cell.leaders("t").values()) == node_ids, f"{node_ids} lead t")


def leaders_in_store(cell: Cell) -> set[int]:
    store = store_of(cell)
    try:
        return {partition.leader for partition in store.read().topics_of("default")["t"].partitions}
    finally:
        store.close()


def events(cell: Cell, broker_id: int, name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in cell.log_lines(broker_id) if line.startswith("{")]
    return [event for event in found if event["event"] == name]


def another_process(cell: Cell, broker_id: int, folder: Path) -> BrokerProcess:
    """A process of that number with an empty disk of its own."""
    folder.mkdir()
    return BrokerProcess(
        BrokerLaunch(
            broker_id=broker_id,
            data=folder / "data",
            log=folder / "log",
            cluster_id=CLUSTER_ID,
            environment=cell_environment(broker_id, cell.postgres.dsn, 3),
        )
    )


def produce(cell: Cell, topic: str, count: int, asked: int | None = None) -> None:
    """A new idempotent producer, which knows of broker `asked` only and gets its id there."""
    failures: list[Any] = []
    ready = None if asked is None else cell.processes[asked].ready
    bootstrap = cell.bootstrap if ready is None else f"127.0.0.1:{ready.port}"
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
    producer = Producer(settings)
    for number in range(count):
        producer.produce(
            topic,
            str(number).encode(),
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(20) == 0
    assert failures == []


def test_brokers_are_registered_where_they_really_listen(shared_cell: Cell) -> None:
    brokers = registered(shared_cell)
    assert sorted(brokers) == [1, 2, 3]
    for broker_id, broker in brokers.items():
        ready = shared_cell.processes[broker_id].ready
        assert ready is not None
        assert (broker.host, broker.port) == ("127.0.0.1", ready.port)
        assert (broker.inter_broker_host, broker.inter_broker_port) == (
            "127.0.0.1",
            ready.inter_broker_port,
        )
        assert broker.inter_broker_port not in (0, broker.port)
        assert not broker.is_fenced, "who says that it is ready has been let in"


def test_every_broker_tells_of_all(shared_cell: Cell) -> None:
    def told_by(broker_id: int) -> tuple[list[int], int]:
        ready = shared_cell.processes[broker_id].ready
        assert ready is not None
        client = AdminClient({"bootstrap.servers": f"127.0.0.1:{ready.port}", "log_level": 0})
        cluster = client.list_topics(timeout=10)
        return sorted(cluster.brokers), cluster.controller_id

    wanted = ([1, 2, 3], shared_cell.controller())
    # One may have been let in a moment ago; by its next heartbeat each of them knows.
    shared_cell.wait_for(
        lambda: all(told_by(broker_id) == wanted for broker_id in shared_cell.ids), "all know"
    )


def test_a_number_that_is_taken_is_refused(shared_cell: Cell, tmp_path: Path) -> None:
    before = registered(shared_cell)[2]
    process = another_process(shared_cell, 2, tmp_path / "second")
    with pytest.raises(StackError, match=r"broker 2 of this cell is running already") as caught:
        process.wait_ready(timeout_s=CELL_SECONDS_MAX)
    assert caught.value.exit_status == EXIT_USAGE
    assert registered(shared_cell)[2] == before
    time.sleep(1.0)
    assert not registered(shared_cell)[2].is_fenced


def test_a_clean_restart_hands_over_and_keeps_the_topic_led(tmp_path: Path) -> None:
    with Cell(tmp_path, brokers=2) as cell:
        cell.create_topic("t", 4, replicas=2, configs={"min.insync.replicas": "1"})
        wait_for_leaders(cell, {1, 2})
        epoch = registered(cell)[2].broker_epoch
        cell.stop(2)
        gone = registered(cell)[2]
        assert gone.is_fenced
        assert gone.in_controlled_shutdown
        # By the image, which nobody has changed since: handed over before it stopped.
        assert leaders_in_store(cell) == {1}
        assert events(cell, 2, "controlled_shutdown_incomplete") == []
        cell.start(2)
        back = registered(cell)[2]
        assert back.broker_epoch > epoch
        assert not back.is_fenced
        assert not back.in_controlled_shutdown


def test_without_the_store_only_a_disk_that_has_lost_nothing_begins(tmp_path: Path) -> None:
    with Cell(tmp_path, brokers=3) as cell:
        cell.create_topic("t", 6, replicas=1)
        wait_for_leaders(cell, {1, 2, 3})
        led_by = cell.leaders("t")
        before = registered(cell)
        for broker_id in cell.ids:
            cell.store_links[broker_id].cut()
        cell.wait_for(
            lambda: all(events(cell, i, "heartbeat_missed") for i in cell.ids), "the outage is seen"
        )
        # A clean stop and start: it leads what it led.
        cell.stop(1)
        assert cell.start(1) < CELL_SECONDS_MAX
        assert registered(cell) == before, "it could not tell anybody"
        ready = cell.processes[1].ready
        assert ready is not None
        assert ready.inter_broker_port == before[1].inter_broker_port, "so it is where it was"
        assert cell.leaders("t") == led_by
        for _ in range(5):
            produce(cell, "t", 12, asked=1)
        # A crash of the machine, as its disk tells it: it must tell the cell first.
        cell.kill9(2)
        (cell.data(2) / "recovery-point.checkpoint").unlink()
        cell._launch(2)
        cell.wait_for(lambda: events(cell, 2, "waiting_for_metadata_store") != [], "it waits")
        with pytest.raises(StackError, match="was not ready"):
            cell.processes[2].wait_ready(timeout_s=2)
        del cell.processes[2]
        for broker_id in cell.ids:
            cell.store_links[broker_id].heal()
        cell.start(2)
        cell.wait_for(
            lambda: all(
                not broker.is_fenced and broker.broker_epoch > before[i].broker_epoch
                for i, broker in registered(cell).items()
                if i != 3
            ),
            "both are registered anew",
        )
        assert registered(cell)[3] == before[3], "nobody expired by mistake"
        wait_for_leaders(cell, {1, 2, 3})
        produce(cell, "t", 60)


def test_a_broker_whose_number_is_taken_from_it_stops_with_a_reason(tmp_path: Path) -> None:
    with Cell(tmp_path, brokers=2) as cell:
        store = store_of(cell)
        image = store.read()
        incarnation_id = uuid.uuid4().hex
        usurper = BrokerImage(
            2, "elsewhere", 1, incarnation_id=incarnation_id, features=SUPPORTED_FEATURES
        )
        changes = decide_registration(image, usurper, None, ControllerSettings())
        store.apply(changes, image.version, "somebody with the number 2")
        store.close()
        process = cell.processes.pop(2)
        cell.wait_for(lambda: process.poll() is not None, "it has stopped", CELL_SECONDS_MAX)
        assert process.poll() == 1
        assert "another process has registered under its number" in cell.log_text(2)
        assert registered(cell)[2].host == "elsewhere"


def test_a_signal_ends_the_wait_for_the_store(tmp_path: Path) -> None:
    process = BrokerProcess(
        BrokerLaunch(
            broker_id=1,
            data=tmp_path / "data",
            log=tmp_path / "log",
            cluster_id=CLUSTER_ID,
            environment=cell_environment(1, "postgresql://nobody:x@127.0.0.1:1/nothing", 1),
        )
    )
    deadline = time.monotonic() + CELL_SECONDS_MAX
    while "waiting_for_metadata_store" not in (tmp_path / "log").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert process.stop(CELL_SECONDS_MAX) == 0
