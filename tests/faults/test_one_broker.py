"""The load and its checker on one broker: they pass where nothing is lost, and fail where it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from data_plane.wire.records import read_batch_header
from tests.broker_process import BrokerProcess
from tests.faults.load import Load

TOPIC = "orders"
PARTITIONS = 3
SETTINGS = {"group.initial.rebalance.delay.ms": "100"}


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)


def test_kill9_of_the_only_broker_interrupts_and_loses_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, set=SETTINGS) as broker:
        create_topic(broker.bootstrap)
        with Load(broker.bootstrap, TOPIC, PARTITIONS) as load:
            for _ in range(3):
                load.run_until_acknowledged(50)
                broker.kill9()
                broker.start()
            load.run_until_every_partition_moves()
        load.check()


def test_a_lost_record_is_found(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, set=SETTINGS) as broker:
        create_topic(broker.bootstrap)
        with Load(broker.bootstrap, TOPIC, PARTITIONS) as load:
            load.run_until_acknowledged(50)
        broker.kill9()
        # As if the broker had acknowledged what had not reached its file yet.
        cut_last_batch(log_file(broker.data_dir, partition=1))
        broker.start()
        with pytest.raises(AssertionError, match="where there is nothing"):
            load.check()


def log_file(data_dir: Path, partition: int) -> Path:
    """The only segment of a partition of TOPIC."""
    for folder in data_dir.glob(f"topics/*/Partition-{partition}"):
        if json.loads((folder / "partition.json").read_text())["topic"] == TOPIC:
            (path,) = folder.glob("*.log")
            return path
    raise AssertionError(f"{TOPIC} has no partition {partition}")


def cut_last_batch(path: Path) -> None:
    data, position, last = path.read_bytes(), 0, 0
    while position < len(data) and (header := read_batch_header(data, position)).size:
        last, position = position, position + header.size
    with path.open("r+b") as file:
        file.truncate(last)
