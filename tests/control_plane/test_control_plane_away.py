"""The whole control plane is away: its server, workers, Valkey and Postgres were killed. Nothing of
the data plane notices: tenants send, read, log in and make topics as before, and nobody leads
anything else. What they made meanwhile is adopted when it is back.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic
from django.db import connections

from control_plane.cells.models import Cell
from control_plane.messaging.logic import TopicSpec, do_create_topic
from control_plane.messaging.models import ManagedBy, Topic
from control_plane.quotas.logic import do_set_quota
from stack.postgres import PostgresServer
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.control_plane.cells import KafkaClient, manager_of, trusted
from tests.control_plane.processes import (
    SERVER,
    CellOfThree,
    ControlPlaneProcesses,
    cell_of_three,
)
from tests.control_plane.tenants import make_tenant
from tests.control_plane.test_faults_of_processes import wait_until_settled
from tests.faults.conftest import NoteInterruption, note_interruption
from tests.faults.load import Load

pytestmark = [
    pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES),
    pytest.mark.django_db(transaction=True),
]

__all__ = ["note_interruption"]

TOPIC, PARTITIONS = "orders", 6
SECONDS_MAX = 20.0
# Clients are served at each moment; what the machine makes them wait for is less.
INTERRUPTION_S_MAX = 2.0
NEWCOMER_S = 5.0
ADOPTED_SECONDS_MAX = 30.0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def brokers(tmp_path: Path, authority: Authority) -> Iterator[CellOfThree]:
    with cell_of_three(tmp_path, authority) as started:
        yield started


@pytest.fixture
def cell(brokers: CellOfThree, authority: Authority, settings: Any) -> Cell:
    trusted(settings, authority.issue("control-plane", "DNS:control-plane"))
    return brokers.row()


@contextmanager
def all_away(running: ControlPlaneProcesses, postgres: PostgresServer) -> Iterator[None]:
    for part in running.parts:
        running.kill(part)
    postgres.kill_now()
    try:
        yield
    finally:
        postgres.start()
        connections.close_all()
    for part in running.parts:
        running.start(part)
    running.wait_ready(SERVER, *running.workers)


def leaders(client: KafkaClient) -> dict[int, int]:
    found = client.admin().list_topics(TOPIC, timeout=SECONDS_MAX).topics[TOPIC]
    return {number: partition.leader for number, partition in found.partitions.items()}


def warnings_in(brokers: CellOfThree) -> list[dict[str, Any]]:
    """What brokers complain about, but that the machine gives them no processor."""
    lines = [line for i in brokers.brokers.ids for line in brokers.brokers.log_lines(i)]
    said: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [
        each
        for each in said
        if each["level"] in ("warning", "error") and each["event"] != "loop_held"
    ]


def come_anew(client: KafkaClient, number: int) -> str:
    """Somebody logs in, makes a topic, writes to it and reads it. The topic."""
    name = f"while-away-{number}"
    admin = client.admin()
    admin.create_topics([NewTopic(name, 1, 3)])[name].result(SECONDS_MAX)
    assert client.produce(name, b"here") == ""
    assert client.consume(name, 1, f"readers-{number}") == [b"here"]
    return name


def run_while_away(
    brokers: CellOfThree,
    postgres: PostgresServer,
    folder: Path,
    away_s: float,
    note_interruption: NoteInterruption,
) -> None:
    acme = make_tenant("acme")
    do_set_quota(acme.actor, acme.id, {"topics": 10_000, "partitions": 10_000})
    topic = do_create_topic(acme.actor, acme.id, TOPIC, TopicSpec(PARTITIONS))
    _, key, secret = manager_of(acme)
    client = brokers.client(acme, key, secret)
    with ControlPlaneProcesses(folder, has_server=True) as running:
        running.wait_ready(SERVER, *running.workers)
        wait_until_settled([acme])
        with Load(brokers.users, TOPIC, PARTITIONS, settings=client.settings) as load:
            load.run_until_every_partition_moves()
            led, warned = leaders(client), len(warnings_in(brokers))
            began_s = time.monotonic()
            made: list[str] = []
            with all_away(running, postgres):
                while time.monotonic() < began_s + away_s:
                    made.append(come_anew(client, len(made)))
                    time.sleep(NEWCOMER_S)
                load.run_until_every_partition_moves()
                waits = load.interruptions(began_s, time.monotonic())
                assert warnings_in(brokers)[warned:] == []
                assert leaders(client) == led
            note_interruption(f"no control plane for {away_s:.0f} s", waits.values())
            assert max(waits.values()) <= INTERRUPTION_S_MAX, waits
            adopted = Topic.objects.of(acme.id).filter(managed_by=ManagedBy.CLIENT)
            deadline_s = time.monotonic() + ADOPTED_SECONDS_MAX
            while set(adopted.values_list("name", flat=True)) != set(made):
                assert time.monotonic() < deadline_s, running.tracebacks()
                time.sleep(0.2)
            with urllib.request.urlopen(f"{running.url}/healthz", timeout=SECONDS_MAX) as answer:
                assert answer.status == 200
            # What is declared now is told as ever.
            do_create_topic(acme.actor, acme.id, "afterwards", TopicSpec(1))
            wait_until_settled([acme])
        assert client.produce("afterwards", b"here") == ""
        assert Topic.objects.of(acme.id).get(id=topic.id).status == "ready"
    load.check()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nobody_notices_that_the_control_plane_is_away(
    cell: Cell,
    brokers: CellOfThree,
    postgres_server: PostgresServer,
    tmp_path: Path,
    note_interruption: NoteInterruption,
) -> None:
    run_while_away(brokers, postgres_server, tmp_path, 20.0, note_interruption)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_nobody_notices_for_five_minutes(
    cell: Cell,
    brokers: CellOfThree,
    postgres_server: PostgresServer,
    tmp_path: Path,
    note_interruption: NoteInterruption,
) -> None:
    run_while_away(brokers, postgres_server, tmp_path, 300.0, note_interruption)
