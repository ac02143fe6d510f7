"""A cell grows and shrinks under load: a fourth broker comes, partitions are added, it leaves."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewPartitions
from tidewheel import sync

from stack.admin_connection import AdminConnection
from stack.reassign import alter, moving, plan_spread, replicas_of
from tests.faults.cell import Cell
from tests.faults.conftest import NoteInterruption
from tests.faults.load import Load

TOPIC = "orders"
BEFORE, AFTER = 4, 8
# New partitions are found when metadata is asked for again, every five minutes by default.
SETTINGS = {"topic.metadata.refresh.interval.ms": "1000"}
MOVED_SECONDS_MAX = 60.0


def replicas(cell: Cell) -> dict[int, tuple[int, ...]]:
    with AdminConnection(cell.bootstrap) as connection:
        return replicas_of(connection, TOPIC)


def held_by(cell: Cell, broker_id: int) -> int:
    """How many replicas of anything a broker has."""
    topics = cell.admin().list_topics(timeout=10).topics.values()
    return sum(broker_id in p.replicas for topic in topics for p in topic.partitions.values())


def knows_partitions(cell: Cell, count: int) -> bool:
    """Whether every broker tells clients of that many."""
    return all(
        len(
            Producer({"bootstrap.servers": address})
            .list_topics(TOPIC, timeout=5)
            .topics[TOPIC]
            .partitions
        )
        == count
        for address in cell.bootstrap.split(",")
    )


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_three_four_three_brokers_and_four_eight_partitions(
    tmp_path: Path, note_interruption: NoteInterruption
) -> None:
    with Cell(tmp_path) as cell:
        cell.create_topic(TOPIC, BEFORE)
        with Load(cell.bootstrap, TOPIC, BEFORE, settings=SETTINGS) as load:
            load.run_until_every_partition_moves()
            began = time.monotonic()
            cell.start(4)
            with AdminConnection(cell.bootstrap) as connection:
                alter(connection, plan_spread(TOPIC, range(BEFORE), cell.ids, 3))
                cell.wait_for(
                    lambda: not moving(connection), "the spreading is done", MOVED_SECONDS_MAX
                )
            assert {i for ids in replicas(cell).values() for i in ids} == {1, 2, 3, 4}
            load.run_until_every_partition_moves()
            note_interruption(
                "a fourth broker takes replicas",
                load.interruptions(began, time.monotonic()).values(),
            )

            grown = cell.admin()
            grown.create_partitions([NewPartitions(TOPIC, AFTER)])[TOPIC].result(30)
            cell.wait_for(lambda: knows_partitions(cell, AFTER), "all tell of the new partitions")
            # Until the writers' clients have asked again.
            time.sleep(2.5)
            load.grow(AFTER)
            load.run_until_every_partition_moves()

            began = time.monotonic()
            with sync.Client(cell.bootstrap) as client:
                client.admin.set_draining(4)
            cell.wait_for(lambda: held_by(cell, 4) == 0, "broker 4 is drained", MOVED_SECONDS_MAX)
            cell.stop(4)
            load.run_until_every_partition_moves()
            note_interruption(
                "a broker is drained and stopped",
                load.interruptions(began, time.monotonic()).values(),
            )
            assert all(set(ids) == {1, 2, 3} for ids in replicas(cell).values())
        load.check()


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_brokers_stop_and_start_one_after_the_other(
    tmp_path: Path, note_interruption: NoteInterruption
) -> None:
    """A rolling restart: each hands over what it leads before it goes."""
    with Cell(tmp_path) as cell:
        cell.create_topic(TOPIC, BEFORE)
        with Load(cell.bootstrap, TOPIC, BEFORE) as load:
            for broker_id in cell.ids:
                cell.wait_until_in_sync(TOPIC)
                load.run_until_every_partition_moves()
                began = time.monotonic()
                cell.stop(broker_id)
                load.run_until_every_partition_moves()
                cell.start(broker_id)
                load.run_until_every_partition_moves()
                waits = load.interruptions(began, time.monotonic())
                note_interruption("a broker is restarted", waits.values())
            cell.wait_until_in_sync(TOPIC)
        load.check()
