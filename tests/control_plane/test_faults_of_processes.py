"""Everything is killed at random (workers with their schedules, Valkey, the control plane's
Postgres, the brokers of a cell of three with a Postgres of its own) while topics are declared,
changed, deleted, had back, handed over and made by Kafka clients. In the end the cell has what is
declared and the other way round, all of it is in the audit, and telling it again changes nothing.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from confluent_kafka.admin import ResourceType as KafkaResourceType
from django.db import InterfaceError, OperationalError, connection, connections

from control_plane.cells.connections import cell_admin
from control_plane.cells.models import Cell, CellProgress
from control_plane.messaging.logic import (
    TopicSpec,
    do_change_owner,
    do_create_topic,
    do_delete_topic,
    do_undelete_topic,
    do_update_topic,
)
from control_plane.messaging.models import ManagedBy, Topic
from control_plane.operations.models import AuditEvent, OutboxEntry
from control_plane.quotas.logic import do_set_quota
from control_plane.reconciliation.drift import repair
from control_plane.tenancy.errors import Refused
from data_plane.contract import cell_admin_pb2 as messages
from stack.postgres import PostgresServer
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.control_plane.cells import manager_of, trusted
from tests.control_plane.processes import (
    VALKEY,
    CellOfThree,
    ControlPlaneProcesses,
    cell_of_three,
)
from tests.control_plane.tenants import Tenant, make_tenant
from tests.control_plane.test_reconcile_faults import check_all, is_settled, names_in
from tests.faults.cell import Cell as BrokerCell

pytestmark = [
    pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES),
    pytest.mark.django_db(transaction=True),
]

SEED = 2929
SETTLED_SECONDS_MAX = 180.0
DECLARED_PER_S = 20.0
CLIENT_S = 0.5
STRIKE_S = (1.0, 4.0)
KAFKA_SECONDS_MAX = 15.0
FOR_GOOD = (KafkaError.POLICY_VIOLATION, KafkaError.TOPIC_AUTHORIZATION_FAILED)
# A client's topics are left to it, or handed over and back by REST: not both at once.
HANDED_OVER, LEFT = "handed-", "left-"


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


class Actor(threading.Thread):
    """Does something again and again until it is told to end. What it did not expect is raised by
    `finish`."""

    def __init__(self, interval_s: float) -> None:
        super().__init__(daemon=True)
        self._interval_s = interval_s
        self._is_over = threading.Event()
        self._error: BaseException | None = None

    def act(self) -> None:
        raise NotImplementedError

    def run(self) -> None:
        try:
            while not self._is_over.wait(self._interval_s):
                self.act()
        except BaseException as error:
            self._error = error
        finally:
            connections.close_all()

    def finish(self) -> None:
        self._is_over.set()
        self.join()
        if self._error is not None:
            raise self._error


class Declarer(Actor):
    """Tenants that want something else all the time, by the functions that REST calls."""

    def __init__(self, tenants: list[Tenant], topics_max: int) -> None:
        super().__init__(1.0 / DECLARED_PER_S)
        self._chance = random.Random(SEED)
        self._tenants = tenants
        self._topics_max = topics_max
        self._made = 0
        # What was done, by action and topic; and how often nobody can say whether it was.
        self.done: Counter[tuple[str, str]] = Counter()
        self.unknown = 0

    def act(self) -> None:
        try:
            self._declare(self._chance.choice(self._tenants))
        except (InterfaceError, OperationalError):
            self.unknown += 1
            connection.close()

    def _declare(self, tenant: Tenant) -> None:
        topics = list(Topic.objects.of(tenant.id).exclude(name__startswith=LEFT))
        if len(topics) < self._topics_max and self._chance.random() < 0.5:
            self._made += 1
            topic = do_create_topic(tenant.actor, tenant.id, f"t{self._made}", TopicSpec(1))
            self.done["topic.create", topic.id] += 1
        elif topics:
            self._change(tenant, self._chance.choice(topics))

    def _change(self, tenant: Tenant, topic: Topic) -> None:
        own = (tenant.actor, tenant.id, topic.id)
        handing_over: list[tuple[str, Callable[[], object]]] = [
            ("topic.change_owner", partial(do_change_owner, *own, owner)) for owner in ManagedBy
        ]
        retention = {"retention.ms": self._chance.randrange(1, 1000) * 1000}
        ways: list[tuple[str, Callable[[], object]]] = [
            ("topic.delete", partial(do_delete_topic, *own, purge=True)),
            ("topic.delete", partial(do_delete_topic, *own)),
            ("topic.undelete", partial(do_undelete_topic, *own)),
            ("topic.update", partial(do_update_topic, *own, configs=retention)),
            ("topic.update", partial(do_update_topic, *own, partitions=topic.partitions + 1)),
        ]
        if topic.name.startswith(HANDED_OVER):
            ways = handing_over
        action, do = self._chance.choice(ways)
        # What is not possible just now is refused, and leaves nothing behind.
        with suppress(Refused):
            do()
            self.done[action, topic.id] += 1


class KafkaUser(Actor):
    """Makes topics, configures and deletes them with a Kafka client, and remembers what it was
    told."""

    def __init__(self, admin: AdminClient, topics_max: int) -> None:
        super().__init__(CLIENT_S)
        self._chance = random.Random(SEED)
        self._admin = admin
        self._topics_max = topics_max
        self._made = 0
        self.there: set[str] = set()
        self.unknown: set[str] = set()

    def act(self) -> None:
        mine = sorted(name for name in self.there - self.unknown if name.startswith(LEFT))
        if len(self.there) < self._topics_max and (not mine or self._chance.random() < 0.6):
            self._made += 1
            name = f"{self._chance.choice((HANDED_OVER, LEFT))}{self._made}"
            made = self._admin.create_topics([NewTopic(name, 2, 3)])
            if self._is_done(name, made[name]):
                self.there.add(name)
        elif mine and self._chance.random() < 0.5:
            name = self._chance.choice(mine)
            if self._is_done(name, self._admin.delete_topics([name])[name]):
                self.there.discard(name)
        elif mine:
            name = self._chance.choice(mine)
            value = str(self._chance.randrange(1, 1000) * 1000)
            entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(KafkaResourceType.TOPIC, name, incremental_configs=[entry])
            with suppress(KafkaException):
                self._admin.incremental_alter_configs([resource])[resource].result(
                    KAFKA_SECONDS_MAX
                )

    def _is_done(self, name: str, future: Any) -> bool:
        try:
            future.result(KAFKA_SECONDS_MAX)
        except TimeoutError:
            self.unknown.add(name)
            return False
        except KafkaException as error:
            if error.args[0].code() in FOR_GOOD:
                raise
            self.unknown.add(name)
            return False
        return True


class Striker:
    """Takes lives in an order that is drawn; each kind comes in each round."""

    def __init__(
        self, running: ControlPlaneProcesses, brokers: BrokerCell, postgres: PostgresServer
    ) -> None:
        self._chance = random.Random(SEED)
        self._running = running
        self._brokers = brokers
        self._postgres = postgres
        self._victims: list[str] = []
        self.struck: Counter[str] = Counter()

    def strike(self) -> None:
        if not self._victims:
            self._victims = ["worker", "worker", VALKEY, "broker", "postgres"]
            self._chance.shuffle(self._victims)
        victim = self._victims.pop()
        self.struck[victim] += 1
        if victim == "broker":
            broker_id = self._chance.choice(self._brokers.ids)
            self._brokers.kill9(broker_id)
            self._brokers.start(broker_id)
        elif victim == "postgres":
            self._postgres.kill_now()
            self._postgres.start()
            connections.close_all()
        else:
            part = VALKEY if victim == VALKEY else self._chance.choice(self._running.workers)
            self._running.kill(part)
            time.sleep(self._chance.uniform(0.0, 1.0))
            self._running.start(part)


def wait_until_settled(tenants: list[Tenant], seconds_max: float = SETTLED_SECONDS_MAX) -> float:
    began_s = time.monotonic()
    while not is_settled(tenants):
        assert time.monotonic() < began_s + seconds_max, [
            (entry.kind, entry.resource_id, entry.attempts, entry.last_error)
            for tenant in tenants
            for entry in OutboxEntry.objects.of(tenant.id).filter(done_at=None)
        ][:20]
        time.sleep(0.2)
    return time.monotonic() - began_s


def wait_until_adopted(cell: Cell, tenant: Tenant) -> None:
    """Until the rows show what clients have in the cell, as they have it."""
    deadline_s = time.monotonic() + SETTLED_SECONDS_MAX
    while True:
        rows = Topic.objects.of(tenant.id).filter(managed_by=ManagedBy.CLIENT)
        shown = {row.name: (row.partitions, row.configs) for row in rows}
        there = {
            name: (item.partitions, dict(item.configs))
            for name, item in names_in(cell, tenant).items()
            if item.resource.owner == messages.CLIENT
        }
        if shown == there:
            return
        assert time.monotonic() < deadline_s, (shown, there)
        time.sleep(0.5)


def check_audit(tenants: list[Tenant], declarer: Declarer) -> None:
    """Each write that was done is in it, and no other one but those of which nobody was told."""
    actors = [tenant.actor.id for tenant in tenants]
    events = AuditEvent.objects.filter(
        actor_id__in=actors, action__in={action for action, _ in declarer.done}
    )
    found = Counter(events.values_list("action", "resource_id"))
    assert declarer.done - found == Counter()
    assert (found - declarer.done).total() <= declarer.unknown


def check_adopted(cell: Cell, tenant: Tenant, user: KafkaUser) -> None:
    """What its clients were told that they have is there, and nobody has taken it."""
    names = {name for name in names_in(cell, tenant) if name.startswith((HANDED_OVER, LEFT))}
    assert user.there - user.unknown <= names
    assert names - user.there <= user.unknown
    rows = Topic.objects.of(tenant.id).filter(name__in=names)
    assert {row.name for row in rows} == names
    for row in rows:
        assert AuditEvent.objects.filter(resource_id=row.id, action="topic.adopt").exists()


def check_repair(cell: Cell, tenants: list[Tenant]) -> None:
    """Drift that is made by hand, in a row and in the cell, is repaired by the workers."""
    tenant = tenants[0]
    by_hand, beside = Topic.objects.of(tenant.id).filter(
        purge_after=None, managed_by=ManagedBy.API
    )[:2]
    # Nobody was told.
    Topic.objects.of(tenant.id).filter(id=by_hand.id).update(configs={"retention.ms": "777000"})
    item = names_in(cell, tenant)[beside.name]
    changed = messages.Resource()
    changed.CopyFrom(item.resource)
    changed.generation += 1
    changed.topic.configs["retention.ms"] = "888000"
    with cell_admin(cell) as admin:
        (result,) = admin.Apply(messages.ApplyRequest(resources=[changed])).results
    assert result.outcome == messages.Result.DONE, result
    deadline_s = time.monotonic() + SETTLED_SECONDS_MAX
    while names_in(cell, tenant)[by_hand.name].configs.get("retention.ms") != "777000":
        assert time.monotonic() < deadline_s
        repair(cell, even_if_compared=True)
        time.sleep(1.0)
    wait_until_settled(tenants)
    # The cell's word is the later one, as after a restore.
    assert Topic.objects.of(tenant.id).get(id=beside.id).configs["retention.ms"] == "888000"


def run_with_faults(
    cell: Cell,
    brokers: CellOfThree,
    postgres: PostgresServer,
    folder: Path,
    duration_s: float,
    topics_max: int,
) -> None:
    """`topics_max` of each of two tenants, and a tenth as many of Kafka clients."""
    tenants = [make_tenant(slug) for slug in ("one", "two")]
    for tenant in tenants:
        do_set_quota(tenant.actor, tenant.id, {"topics": 10_000, "partitions": 100_000})
    _, key, secret = manager_of(tenants[0])
    with ControlPlaneProcesses(folder) as running:
        running.wait_ready(*running.workers)
        wait_until_settled(tenants)
        user = KafkaUser(brokers.client(tenants[0], key, secret).admin(), topics_max // 10)
        declarer = Declarer(tenants, topics_max)
        striker = Striker(running, brokers.brokers, postgres)
        chance = random.Random(SEED)
        end_s = time.monotonic() + duration_s
        actors: list[Actor] = [user, declarer]
        for actor in actors:
            actor.start()
        try:
            while time.monotonic() < end_s or len(striker.struck) < 4:
                time.sleep(chance.uniform(*STRIKE_S))
                striker.strike()
        finally:
            for actor in actors:
                actor.finish()
        assert not running.ended(), running.ended()
        settled_s = wait_until_settled(tenants)
        wait_until_adopted(cell, tenants[0])
        print(
            f"struck {dict(striker.struck)}; done {declarer.done.total()}, unknown "
            f"{declarer.unknown}; of clients {len(user.there)} and {len(user.unknown)} unknown; "
            f"settled after {settled_s:.1f} s"
        )
        check_audit(tenants, declarer)
        check_adopted(cell, tenants[0], user)
        check_repair(cell, tenants)
    CellProgress.objects.filter(cell=cell).update(retry_at=None, followed_until=None)
    check_all(cell, tenants)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_whoever_is_killed_the_cell_has_what_is_declared(
    cell: Cell, brokers: CellOfThree, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    run_with_faults(cell, brokers, postgres_server, tmp_path, 30.0, 30)


@pytest.mark.nightly
@pytest.mark.timeout(2400)
def test_ten_minutes_of_faults_while_500_topics_come_and_go(
    cell: Cell, brokers: CellOfThree, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    run_with_faults(cell, brokers, postgres_server, tmp_path, 600.0, 250)
