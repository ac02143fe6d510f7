"""The metadata store fails: a restart, a kill, and being away for a while.

What the brokers know goes on working without it; only failover, ISR changes and administration
wait. What cannot be confirmed is not acknowledged.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from tests.faults.cell import Cell
from tests.faults.conftest import NoteInterruption
from tests.faults.load import Load

TOPIC = "orders"
BESIDE = "beside"
PARTITIONS = 6
AWAY_S = float(os.environ.get("TIDEWHEEL_POSTGRES_AWAY_S", "60"))
CONTROLLER_WORK_SECONDS_MAX = 5.0


@pytest.mark.timeout(180)
def test_postgres_restarts(tmp_path: Path, note_interruption: NoteInterruption) -> None:
    with Cell(tmp_path) as cell:
        cell.create_topic(TOPIC, PARTITIONS)
        with Load(cell.bootstrap, TOPIC, PARTITIONS) as load:
            cell.wait_until_in_sync(TOPIC)
            leaders = cell.leaders(TOPIC)
            for stop in (cell.postgres.stop, cell.postgres.kill_now):
                before = last_commit(cell)
                stopped_at = time.monotonic()
                stop()
                load.run_until_every_partition_moves()
                cell.postgres.start()
                cell.controller()
                # Longer than a session: a wrong judgement would have been passed by now.
                time.sleep(3)
                load.run_until_every_partition_moves()
                waits = load.interruptions(stopped_at, time.monotonic())
                note_interruption("Postgres restarts", waits.values())
                assert fenced_since(cell, before) == []
            assert cell.leaders(TOPIC) == leaders
        load.check()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_postgres_is_away(tmp_path: Path, note_interruption: NoteInterruption) -> None:
    with Cell(tmp_path) as cell:
        cell.create_topic(TOPIC, PARTITIONS)
        with Load(cell.bootstrap, TOPIC, PARTITIONS) as load:
            # What is sent beside the load must not be in the log that is checked.
            cell.create_topic(BESIDE, PARTITIONS)
            cell.wait_until_in_sync(TOPIC)
            load.run_until_every_partition_moves()
            before = last_commit(cell)
            away_at = time.monotonic()
            cell.postgres.stop()
            while time.monotonic() < away_at + AWAY_S / 2:
                load.run_until_every_partition_moves(5)
                time.sleep(1)
            waits = load.interruptions(away_at, time.monotonic())
            note_interruption("Postgres is away", waits.values())
            assert max(waits.values()) < 2, waits

            produce_anew(cell)
            assert consume_anew(cell, TOPIC) > 0
            restarted = cell.ids[0]
            cell.stop(restarted)
            cell.start(restarted)
            load.run_until_every_partition_moves(60)

            victim = cell.ids[-1]
            # A partition that the victim follows: its leader lives, its ISR cannot shrink.
            followed = next(p for p, leader in cell.leaders(BESIDE).items() if leader != victim)
            cell.kill9(victim)
            assert is_left_unacknowledged(cell, followed)
            while time.monotonic() < away_at + AWAY_S:
                time.sleep(0.2)

            back_at = time.monotonic()
            cell.postgres.start()
            cell.wait_for(
                lambda: (
                    all(leader not in (victim, -1) for leader in cell.leaders(TOPIC).values())
                    and bool(cell.leaders(TOPIC))
                ),
                "new leaders for what the dead broker led",
            )
            took_s = time.monotonic() - back_at
            load.run_until_every_partition_moves()
            note_interruption("Postgres is back: until the dead broker's leaders moved", [took_s])
            assert took_s <= CONTROLLER_WORK_SECONDS_MAX
            assert set(fenced_since(cell, before)) <= {victim}
            cell.start(victim)
            cell.wait_until_in_sync(TOPIC)
        load.check()


def last_commit(cell: Cell) -> int:
    return int(cell.query("SELECT seq FROM cell")[0][0])


def fenced_since(cell: Cell, version: int) -> list[int]:
    """The brokers that were fenced by commits after `version`, but for those that stopped."""
    fenced = []
    for (changes,) in cell.query(f"SELECT changes FROM commits WHERE seq > {version} ORDER BY seq"):
        for kind, *fields in changes if isinstance(changes, list) else json.loads(changes):
            if kind == "change_broker":
                node_id, is_fenced, is_stopping = fields[0], fields[9], fields[10]
                if is_fenced and not is_stopping:
                    fenced.append(int(node_id))
    return fenced


def produce_anew(cell: Cell) -> None:
    """A new idempotent producer on new connections sends one message."""
    answers: list[KafkaError | None] = []

    def answered(error: KafkaError | None, _message: Message) -> None:
        answers.append(error)

    producer = Producer({"bootstrap.servers": cell.bootstrap, "enable.idempotence": True})
    producer.produce(BESIDE, b"anew", on_delivery=answered)
    assert producer.flush(20) == 0
    assert answers == [None], answers


def consume_anew(cell: Cell, topic: str) -> int:
    """A new group with one member reads something and commits; how many messages it got."""
    settings = {
        "bootstrap.servers": cell.bootstrap,
        "group.id": "while-postgres-is-away",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        messages = consumer.consume(10, timeout=20)
        assert all(message.error() is None for message in messages)
        if messages:
            consumer.commit(asynchronous=False)
        return len(messages)
    finally:
        consumer.close()


def is_left_unacknowledged(cell: Cell, partition: int) -> bool:
    """Whether a message with acks=all is given up without an acknowledgement."""
    answers: list[KafkaError | None] = []

    def answered(error: KafkaError | None, _message: Message) -> None:
        answers.append(error)

    settings = {"bootstrap.servers": cell.bootstrap, "acks": "all", "message.timeout.ms": 4000}
    producer = Producer(settings)
    producer.produce(BESIDE, b"?", partition=partition, on_delivery=answered)
    producer.flush(30)
    return len(answers) == 1 and answers[0] is not None
