"""Reconciling while its processes, the cell's broker and Postgres are killed at random: in the end
the cell has what is declared, and nothing else. The control plane's Postgres is not the cell's.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic
from django.db import connection, connections

from control_plane.accounts.models import Organization
from control_plane.cells.connections import cell_admin
from control_plane.cells.models import Cell, CellProgress
from control_plane.messaging.logic import (
    TopicSpec,
    do_create_topic,
    do_delete_topic,
    do_undelete_topic,
    do_update_topic,
)
from control_plane.messaging.models import ManagedBy, Topic
from control_plane.operations.models import AuditEvent, OutboxEntry
from control_plane.quotas.logic import do_set_quota
from control_plane.reconciliation.drift import repair
from control_plane.reconciliation.following import follow
from control_plane.reconciliation.listing import items_of
from control_plane.reconciliation.rounds import reconcile_due
from control_plane.tenancy.errors import Refused
from data_plane.contract import cell_admin_pb2 as messages
from stack.postgres import PostgresServer
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.control_plane.cells import CellProcess, manager_of, settle, trusted
from tests.control_plane.processes import process_environment
from tests.control_plane.tenants import Tenant, make_tenant

pytestmark = [
    pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES),
    pytest.mark.django_db(transaction=True),
]

SETTLED_SECONDS_MAX = 60.0
SEED = 29


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def process(tmp_path: Path, authority: Authority) -> Iterator[CellProcess]:
    with CellProcess(tmp_path / "cell", authority) as started:
        yield started


@pytest.fixture
def cell(process: CellProcess, authority: Authority, settings: Any) -> Cell:
    trusted(settings, authority.issue("control-plane", "DNS:control-plane"))
    return process.row()


class Reconciler:
    """`python -m control_plane reconcile` as a process of its own."""

    def __init__(self, log: Path) -> None:
        self._environment = process_environment()
        self._log = log
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "control_plane", "reconcile"],
                env=self._environment,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None


class Faults:
    """What is done at random, by whom and to what."""

    def __init__(
        self,
        chance: random.Random,
        tenants: list[Tenant],
        process: CellProcess,
        postgres: PostgresServer,
        reconcilers: list[Reconciler],
        topics_max: int,
    ) -> None:
        self._chance = chance
        self._tenants = tenants
        self._process = process
        self._postgres = postgres
        self._reconcilers = reconcilers
        self._topics_max = topics_max
        self._made = 0
        self._victims: list[str] = []
        self.done: list[str] = []

    def declare(self) -> None:
        """Something that a tenant may want; what is not possible just now is refused."""
        tenant = self._chance.choice(self._tenants)
        topics = list(Topic.objects.of(tenant.id))
        if len(topics) < self._topics_max and self._chance.random() < 0.5:
            self._made += 1
            do_create_topic(tenant.actor, tenant.id, f"t{self._made}", TopicSpec(1))
            return
        if not topics:
            return
        topic = self._chance.choice(topics)
        retention = {"retention.ms": self._chance.randrange(1, 1000) * 1000}
        try:
            match self._chance.randrange(5):
                case 0:
                    do_delete_topic(tenant.actor, tenant.id, topic.id, purge=True)
                case 1:
                    do_delete_topic(tenant.actor, tenant.id, topic.id)
                case 2:
                    do_undelete_topic(tenant.actor, tenant.id, topic.id)
                case _:
                    do_update_topic(tenant.actor, tenant.id, topic.id, configs=retention)
        except Refused:
            return

    def strike(self) -> None:
        """Take somebody's life."""
        if not self._victims:
            self._victims = ["reconciler", "reconciler", "broker", "postgres"]
            self._chance.shuffle(self._victims)
        victim = self._victims.pop()
        self.done.append(victim)
        if victim == "reconciler":
            struck = self._chance.choice(self._reconcilers)
            struck.kill()
            struck.start()
        elif victim == "broker":
            self._process.broker.kill9()
            self._process.broker.start()
        else:
            self._postgres.kill_now()
            self._postgres.start()
            # What this process had is gone with the server.
            connections.close_all()


def names_in(cell: Cell, tenant: Tenant) -> dict[str, messages.Item]:
    with cell_admin(cell) as admin:
        items = items_of(admin, tenant.organization.slug, messages.KIND_TOPIC)
        return {item.resource.name: item for item in items}


def is_settled(tenants: list[Tenant]) -> bool:
    return not any(
        OutboxEntry.objects.of(tenant.id).filter(done_at=None).exists() for tenant in tenants
    )


def check_topic(topic: Topic, item: messages.Item) -> None:
    assert (topic.status, topic.observed_generation) == ("ready", topic.generation)
    if topic.managed_by == ManagedBy.CLIENT:
        assert item.resource.owner == messages.CLIENT
        assert (item.partitions, dict(item.configs)) == (topic.partitions, topic.configs)
        return
    assert item.resource.owner == messages.API
    assert item.resource.resource_id == topic.resource_id
    assert item.resource.generation == topic.generation
    assert item.partitions == topic.partitions
    for key, value in topic.configs.items():
        assert item.configs[key] == value


def check_all(cell: Cell, tenants: list[Tenant]) -> None:
    """What is declared is what there is, and telling it again changes nothing."""
    for tenant in tenants:
        rows = list(Topic.objects.of(tenant.id))
        live = {topic.name: topic for topic in rows if topic.purge_after is None}
        there = names_in(cell, tenant)
        assert there.keys() == live.keys()
        for name, item in there.items():
            check_topic(live[name], item)
        for topic in rows:
            assert topic.observed_generation == topic.generation
            # Each write is in the audit, and in the outbox without a hole.
            made = ("topic.create", "topic.adopt")
            assert AuditEvent.objects.filter(resource_id=topic.id, action__in=made).exists()
        sequences = OutboxEntry.objects.of(tenant.id).order_by("sequence")
        numbers = list(sequences.values_list("sequence", flat=True))
        assert numbers == list(range(1, len(numbers) + 1))
        assert Organization.objects.get(id=tenant.id).status == "ready"
    assert repair(cell, even_if_compared=True) == 0
    with cell_admin(cell) as admin:
        before = admin.Digest(messages.DigestRequest())
        for tenant in tenants:
            OutboxEntry.objects.of(tenant.id).update(done_at=None)
        settle()
        assert admin.Digest(messages.DigestRequest()) == before


def run_with_faults(
    cell: Cell,
    process: CellProcess,
    postgres: PostgresServer,
    folder: Path,
    duration_s: float,
    topics_max: int,
) -> None:
    tenants = [make_tenant(slug) for slug in ("one", "two")]
    for tenant in tenants:
        do_set_quota(tenant.actor, tenant.id, {"topics": 10_000, "partitions": 10_000})
    chance = random.Random(SEED)
    reconcilers = [Reconciler(folder / f"reconciler-{number}.log") for number in range(2)]
    try:
        faults = Faults(chance, tenants, process, postgres, reconcilers, topics_max)
        end_s = time.monotonic() + duration_s
        strike_s = time.monotonic() + 2.0
        while time.monotonic() < end_s:
            for _ in range(5):
                faults.declare()
            if time.monotonic() >= strike_s:
                faults.strike()
                strike_s = time.monotonic() + chance.uniform(0.5, 3.0)
            time.sleep(0.1)
        assert set(faults.done) == {"reconciler", "broker", "postgres"}
        assert all(each.is_running for each in reconcilers)
        deadline_s = time.monotonic() + SETTLED_SECONDS_MAX
        while not is_settled(tenants):
            assert time.monotonic() < deadline_s, [
                (entry.kind, entry.resource_id, entry.last_error)
                for tenant in tenants
                for entry in OutboxEntry.objects.of(tenant.id).filter(done_at=None)
            ]
            time.sleep(0.2)
    finally:
        for each in reconcilers:
            each.kill()
    CellProgress.objects.filter(cell=cell).update(retry_at=None, followed_until=None)
    check_all(cell, tenants)


@pytest.mark.timeout(240)
def test_in_the_end_the_cell_has_what_is_declared(
    cell: Cell, process: CellProcess, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    run_with_faults(cell, process, postgres_server, tmp_path, 15.0, 10)


def test_two_reconcilers_at_once_do_no_harm(cell: Cell) -> None:
    tenants = [make_tenant(f"tenant-{number}") for number in range(4)]
    for tenant in tenants:
        for number in range(5):
            do_create_topic(tenant.actor, tenant.id, f"t{number}", TopicSpec(1))
    told: list[int] = []
    errors: list[BaseException] = []
    begin = threading.Barrier(4)

    def reconcile() -> None:
        try:
            begin.wait()
            told.append(reconcile_due())
            follow(cell, 0.2)
            told.append(reconcile_due())
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=reconcile) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    # Each tenant had one round, by whomever.
    assert sum(told) == len(tenants)
    check_all(cell, tenants)


def test_what_clients_made_stays_while_everything_is_killed(
    cell: Cell, process: CellProcess, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    acme = make_tenant("acme")
    _, key, secret = manager_of(acme)
    settle()
    admin = process.client(acme, key, secret).admin()
    admin.create_topics([NewTopic("clicks", 2)])["clicks"].result(20)
    reconcilers = [Reconciler(tmp_path / f"reconciler-{number}.log") for number in range(2)]
    try:
        faults = Faults(random.Random(SEED), [acme], process, postgres_server, reconcilers, 3)
        for _ in range(4):
            faults.declare()
            faults.strike()
        deadline_s = time.monotonic() + SETTLED_SECONDS_MAX
        adopted = Topic.objects.of(acme.id).filter(name="clicks", managed_by=ManagedBy.CLIENT)
        while not adopted.exists():
            assert time.monotonic() < deadline_s
            time.sleep(0.2)
    finally:
        for each in reconcilers:
            each.kill()
    assert names_in(cell, acme)["clicks"].partitions == 2
