"""What Kafka clients make is adopted and never reverted; what this database or a cell has lost
comes back from the other one. A real Postgres, and a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from confluent_kafka.admin import ResourceType as KafkaResourceType
from django.utils import timezone

from control_plane.access.logic import do_create_key, do_delete_grant, do_revoke_key
from control_plane.access.models import ApiKey, Grant
from control_plane.accounts.logic import do_suspend
from control_plane.accounts.models import Organization, OrganizationState
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
from control_plane.operations.models import AuditEvent, Operation, OutboxEntry
from control_plane.quotas.models import TenantQuota
from control_plane.reconciliation.adoption import adopt_all, adopt_events
from control_plane.reconciliation.drift import repair
from control_plane.reconciliation.following import follow, take_lease
from control_plane.reconciliation.listing import items_of
from control_plane.reconciliation.lives import purge_topics
from control_plane.reconciliation.taking_over import HAD_BACK
from control_plane.tenancy.ids import new_id
from data_plane.contract import cell_admin_pb2 as messages
from data_plane.contract import cell_operations_pb2 as operations_messages
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.control_plane.cells import CellProcess, manager_of, settle, trusted
from tests.control_plane.played_cells import clients_item
from tests.control_plane.rest import at, client_of, client_with
from tests.control_plane.tenants import Tenant, make_tenant

pytestmark = [
    pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES),
    pytest.mark.django_db,
]

SECONDS_MAX = 20.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def process(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[CellProcess]:
    with CellProcess(tmp_path_factory.mktemp("cell"), authority) as started:
        yield started


@pytest.fixture
def cell(process: CellProcess, authority: Authority, settings: Any) -> Cell:
    trusted(settings, authority.issue("control-plane", "DNS:control-plane"))
    return process.row()


def admin_of(process: CellProcess, tenant: Tenant) -> AdminClient:
    """A Kafka client that may do everything in the tenant."""
    _, key, secret = manager_of(tenant)
    settle()
    return process.client(tenant, key, secret).admin()


def make(admin: AdminClient, name: str, partitions: int = 1, **configs: str) -> None:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    made = admin.create_topics([NewTopic(name, partitions, 1, config=named)])
    made[name].result(SECONDS_MAX)


def configure(admin: AdminClient, name: str, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(KafkaResourceType.TOPIC, name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)


def topic_of(tenant: Tenant, name: str) -> Topic:
    return Topic.objects.of(tenant.id).get(name=name)


def item_of(cell: Cell, tenant: Tenant, name: str) -> messages.Item:
    with cell_admin(cell) as admin:
        for item in items_of(admin, tenant.organization.slug, messages.KIND_TOPIC):
            if item.resource.name == name:
                return item
    raise AssertionError(f"the cell has no topic {name}")


def test_what_a_client_makes_and_changes_is_adopted_and_never_reverted(
    process: CellProcess, cell: Cell
) -> None:
    acme = make_tenant("acme")
    admin = admin_of(process, acme)
    follow(cell)
    make(admin, "clicks", 2, retention_ms="1000")
    follow(cell)
    clicks = topic_of(acme, "clicks")
    assert (clicks.managed_by, clicks.status) == (ManagedBy.CLIENT, "ready")
    assert (clicks.partitions, clicks.configs) == (2, {"retention.ms": "1000"})
    made = AuditEvent.objects.get(resource_id=clicks.id)
    assert (made.action, made.actor_name.startswith("User:sa_")) == ("topic.adopt", True)
    admin.create_partitions([NewPartitions("clicks", 4)])["clicks"].result(SECONDS_MAX)
    configure(admin, "clicks", "retention.ms", "2000")
    follow(cell)
    clicks = topic_of(acme, "clicks")
    assert (clicks.partitions, clicks.configs) == (4, {"retention.ms": "2000"})
    repair(cell, even_if_compared=True)
    settle()
    assert dict(item_of(cell, acme, "clicks").configs) == {"retention.ms": "2000"}
    admin.delete_topics(["clicks"])["clicks"].result(SECONDS_MAX)
    follow(cell)
    assert not Topic.objects.of(acme.id).filter(name="clicks").exists()


def test_a_client_cannot_contradict_what_is_declared_and_all_else_is_its_own(
    process: CellProcess, cell: Cell
) -> None:
    both = make_tenant("both")
    admin = admin_of(process, both)
    spec = TopicSpec(2, configs={"retention.ms": 1000})
    topic = do_create_topic(both.actor, both.id, "orders", spec)
    settle()
    follow(cell)
    with pytest.raises(KafkaException, match=f"POLICY_VIOLATION.*{topic.id}"):
        configure(admin, "orders", "retention.ms", "5")
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        admin.delete_topics(["orders"])["orders"].result(SECONDS_MAX)
    configure(admin, "orders", "segment.ms", "7000")
    follow(cell)
    repair(cell, even_if_compared=True)
    do_update_topic(both.actor, both.id, topic.id, partitions=3)
    settle()
    assert item_of(cell, both, "orders").configs["segment.ms"] == "7000"
    seen = topic_of(both, "orders")
    assert seen.observed["configs"]["segment.ms"] == "7000"
    assert seen.spec()["configs"] == {"retention.ms": "1000"}
    assert seen.etag == topic_of(both, "orders").etag


def test_ownership_is_taken_over_and_given_back(process: CellProcess, cell: Cell) -> None:
    owned = make_tenant("owned")
    admin = admin_of(process, owned)
    follow(cell)
    make(admin, "clicks", 2)
    follow(cell)
    topic = topic_of(owned, "clicks")
    do_change_owner(owned.actor, owned.id, topic.id, ManagedBy.API)
    settle()
    taken = topic_of(owned, "clicks")
    assert (taken.status, taken.takes_over) == ("ready", False)
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        admin.delete_topics(["clicks"])["clicks"].result(SECONDS_MAX)
    do_change_owner(owned.actor, owned.id, topic.id, ManagedBy.CLIENT)
    settle()
    assert topic_of(owned, "clicks").status == "ready"
    configure(admin, "clicks", "retention.ms", "9000")
    follow(cell)
    assert topic_of(owned, "clicks").configs["retention.ms"] == "9000"
    # What is let go of may be made anew, and taken over again; its name is free at once if its
    # clients say so.
    configure(admin, "clicks", "tidewheel.undelete.ms", "0")
    admin.delete_topics(["clicks"])["clicks"].result(SECONDS_MAX)
    follow(cell)
    assert not Topic.objects.of(owned.id).exists()
    make(admin, "clicks", 3)
    follow(cell)
    assert topic_of(owned, "clicks").partitions == 3
    do_change_owner(owned.actor, owned.id, topic_of(owned, "clicks").id, ManagedBy.API)
    settle()
    assert topic_of(owned, "clicks").status == "ready"


def test_what_is_declared_under_a_clients_name_is_a_conflict_until_it_takes_over(
    process: CellProcess, cell: Cell
) -> None:
    names = make_tenant("names")
    admin = admin_of(process, names)
    follow(cell)
    make(admin, "clicks", 1)
    topic = do_create_topic(names.actor, names.id, "clicks", TopicSpec(3))
    settle()
    refused = topic_of(names, "clicks")
    assert refused.status == "failed"
    assert "take it over" in refused.status_reason
    follow(cell)
    do_change_owner(names.actor, names.id, topic.id, ManagedBy.API)
    settle()
    assert topic_of(names, "clicks").status == "ready"
    assert item_of(cell, names, "clicks").partitions == 3


def test_what_was_in_the_way_of_a_declared_topic_is_adopted_when_that_is_deleted(
    process: CellProcess, cell: Cell
) -> None:
    way = make_tenant("way")
    admin = admin_of(process, way)
    follow(cell)
    topic = do_create_topic(way.actor, way.id, "clicks", TopicSpec(3))
    make(admin, "clicks", 1)
    settle()
    follow(cell)
    assert topic_of(way, "clicks").status == "failed"
    do_delete_topic(way.actor, way.id, topic.id)
    settle()
    follow(cell)
    clicks = topic_of(way, "clicks")
    assert (clicks.managed_by, clicks.partitions) == (ManagedBy.CLIENT, 1)
    assert item_of(cell, way, "clicks").partitions == 1


@pytest.mark.parametrize("is_known", [True, False])
def test_a_clients_topic_of_the_name_of_what_is_deleted_is_adopted_when_that_goes(
    process: CellProcess, cell: Cell, is_known: bool
) -> None:
    after = make_tenant(f"after-{is_known}".lower())
    admin = admin_of(process, after)
    follow(cell)
    # The cell keeps nothing of it, and its name is free at once.
    spec = TopicSpec(1, configs={"tidewheel.undelete.ms": 0})
    topic = do_create_topic(after.actor, after.id, "orders", spec)
    settle()
    do_delete_topic(after.actor, after.id, topic.id)
    settle()
    assert topic_of(after, "orders").kafka_topic_id is not None
    if not is_known:
        # As if the round that deleted it had died, and another one had written the end down.
        Topic.objects.of(after.id).update(kafka_topic_id=None)
    make(admin, "orders", 3)
    follow(cell)
    kept = topic_of(after, "orders")
    theirs = UUID(bytes=item_of(cell, after, "orders").topic_id)
    assert (kept.id, kept.has_successor) == (topic.id, True)
    assert kept.kafka_topic_id != theirs
    Topic.objects.of(after.id).update(purge_after=timezone.now())
    purge_topics()
    settle()
    follow(cell)
    orders = topic_of(after, "orders")
    assert (orders.managed_by, orders.partitions) == (ManagedBy.CLIENT, 3)
    assert orders.kafka_topic_id == theirs
    assert item_of(cell, after, "orders").partitions == 3


def test_a_feed_that_does_not_go_back_so_far_is_replaced_by_a_list(
    process: CellProcess, cell: Cell
) -> None:
    behind = make_tenant("behind")
    admin = admin_of(process, behind)
    follow(cell)
    make(admin, "old")
    follow(cell)
    assert topic_of(behind, "old").managed_by == ManagedBy.CLIENT
    admin.delete_topics(["old"])["old"].result(SECONDS_MAX)
    make(admin, "new")
    progress = CellProgress.objects.filter(cell=cell)
    version = progress.get().feed_version
    progress.update(feed_store_id="another store")
    follow(cell)
    assert set(Topic.objects.of(behind.id).values_list("name", flat=True)) == {"new"}
    after = progress.get()
    assert version is not None
    assert after.feed_version is not None
    assert after.feed_version > version
    assert after.feed_store_id not in ("", "another store")


def made(item: messages.Item, principal: str = "User:app") -> operations_messages.Event:
    event = operations_messages.Event
    return event(
        kind=event.TOPIC,
        change=event.MADE,
        tenant=item.resource.tenant,
        name=item.resource.name,
        topic_id=item.topic_id,
        actor=operations_messages.Actor(principal=principal),
        item=item,
    )


def test_what_no_row_can_show_is_shown_otherwise_and_left_to_its_clients(cell: Cell) -> None:
    odd, other = make_tenant("odd"), make_tenant("other")
    # What a client declares in quotes may hold any character, and a login 255 of them.
    source = {"tidewheel_source": "orders", "tidewheel_filter": '"a\0b"'}
    events = [
        made(clients_item(odd, "view", **source), "User:" + "x\0" * 125 + "y"),
        made(clients_item(other, "clicks")),
    ]
    adopt_events(cell, events)
    view = topic_of(odd, "view")
    assert view.configs == {"tidewheel.source": "orders"}
    assert view.observed["configs"]["tidewheel.filter"] == '"a\N{REPLACEMENT CHARACTER}b"'
    event = AuditEvent.objects.get(resource_id=view.id)
    assert (len(event.actor_name), "\0" in event.actor_name) == (254, False)
    assert topic_of(other, "clicks").status == "ready"


def test_what_cannot_be_stored_keeps_nothing_else_from_being_adopted(cell: Cell) -> None:
    odd, other = make_tenant("odd"), make_tenant("other")
    poison = clients_item(odd, "n" * 300)
    items = [clients_item(odd, "before"), poison, clients_item(odd, "after")]
    beside = clients_item(other, "clicks")
    adopt_all(cell, [*items, beside])
    names = Topic.objects.of(odd.id).order_by("name").values_list("name", flat=True)
    assert list(names) == ["after", "before"]
    assert topic_of(other, "clicks").status == "ready"
    more = clients_item(other, "more")
    adopt_events(cell, [made(poison), made(more)])
    assert topic_of(other, "more").status == "ready"


def test_one_follower_at_a_time(cell: Cell) -> None:
    make_tenant("followed")
    settle()
    assert take_lease(cell, 60.0) is not None
    assert follow(cell) is False
    CellProgress.objects.filter(cell=cell).update(followed_until=None)
    assert follow(cell) is True
    assert CellProgress.objects.get(cell=cell).followed_until is None


def test_a_restored_database_goes_by_what_the_cell_has_and_counts_on(cell: Cell) -> None:
    restored = make_tenant("restored")
    topic = do_create_topic(restored.actor, restored.id, "orders", TopicSpec(1))
    settle()
    do_update_topic(
        restored.actor, restored.id, topic.id, partitions=4, configs={"retention.ms": 5000}
    )
    do_update_topic(restored.actor, restored.id, topic.id, configs={"retention.ms": 6000})
    settle()
    do_suspend(restored.actor, restored.id, "the bill is not paid")
    settle()
    # The backup is older than that; since then somebody has declared something, and it is told.
    Topic.objects.of(restored.id).update(
        generation=2, observed_generation=1, partitions=2, configs={}
    )
    Organization.objects.filter(id=restored.id).update(
        generation=1, observed_generation=1, state=OrganizationState.TRIAL, state_reason=""
    )
    OutboxEntry.objects.of(restored.id).filter(resource_id=topic.id).update(done_at=None)
    settle()
    taken = topic_of(restored, "orders")
    assert (taken.status, taken.status_reason) == ("ready", "")
    assert (taken.generation, taken.observed_generation) == (3, 3)
    assert taken.spec()["configs"] == {"retention.ms": "6000"}
    assert taken.partitions == 4
    event = AuditEvent.objects.get(resource_id=topic.id, action="reconcile.take_over")
    assert event.changes["generation"] == 3
    # What nobody has told is found by comparing.
    assert repair(cell) > 0
    settle()
    tenant = Organization.objects.get(id=restored.id)
    assert (tenant.state, tenant.state_reason) == ("suspended", "the bill is not paid")
    assert tenant.generation == 2
    OutboxEntry.objects.of(restored.id).update(done_at=None)
    settle()
    assert topic_of(restored, "orders").generation == 3


def test_the_same_generation_with_another_content_is_counted_on(cell: Cell) -> None:
    forked = make_tenant("forked")
    topic = do_create_topic(forked.actor, forked.id, "orders", TopicSpec(1))
    settle()
    do_update_topic(forked.actor, forked.id, topic.id, configs={"retention.ms": 5000})
    settle()
    # Restored, and changed otherwise since.
    Topic.objects.of(forked.id).update(configs={"retention.ms": "7000"}, observed_generation=1)
    OutboxEntry.objects.of(forked.id).update(done_at=None)
    settle()
    ours = topic_of(forked, "orders")
    assert (ours.generation, ours.observed_generation, ours.status) == (3, 3, "ready")
    assert item_of(cell, forked, "orders").configs["retention.ms"] == "7000"


def test_what_was_taken_back_after_the_backup_stays_taken_back(cell: Cell) -> None:
    leaked = make_tenant("leaked")
    account, kept, _ = manager_of(leaked)
    key, secret = do_create_key(
        *(leaked.actor, leaked.id, account.id, "owner"), scopes=("kafka", "rest")
    )
    rest = client_with(secret)
    settle()
    grant = Grant.objects.of(leaked.id).get(resource_type="topic")
    backup = {"generation": 1, "observed_generation": 1, "status": "ready", "deleted_at": None}
    assert rest.get(at(leaked, "topics")).status_code == 200
    do_revoke_key(leaked.actor, leaked.id, key.id, "owner")
    do_delete_grant(leaked.actor, leaked.id, grant.id)
    settle()
    assert rest.get(at(leaked, "topics")).status_code == 401
    ApiKey.objects.of(leaked.id).filter(id=key.id).update(revoked_at=None, **backup)
    grant.save(force_insert=True)
    assert rest.get(at(leaked, "topics")).status_code == 200
    assert repair(cell) >= 2
    settle()
    assert rest.get(at(leaked, "topics")).status_code == 401
    ended = ApiKey.objects.of(leaked.id).get(id=key.id)
    assert (ended.status, ended.generation) == ("ready", ended.observed_generation)
    assert ended.revoked_at is not None
    assert not Grant.objects.of(leaked.id).filter(id=grant.id).exists()
    assert ApiKey.objects.of(leaked.id).get(id=kept.id).revoked_at is None
    for resource_id in (key.id, grant.id):
        event = AuditEvent.objects.get(resource_id=resource_id, action="reconcile.take_over")
        assert event.changes["is_deleted"] is True


def test_a_tenant_that_was_purged_after_the_backup_is_served_no_more(cell: Cell) -> None:
    purged = make_tenant("purged")
    settle()
    deletion = messages.Deletion(resource_id=purged.id, generation=7)
    with cell_admin(cell) as admin:
        admin.Delete(messages.DeleteRequest(deletions=[deletion]))
    OutboxEntry.objects.of(purged.id).update(done_at=None, not_before=timezone.now())
    settle()
    tenant = Organization.objects.get(id=purged.id)
    assert (tenant.state, tenant.status, tenant.generation) == ("deleted", "failed", 7)
    assert tenant.purge_after is not None
    assert client_of(purged.owner).get(at(purged)).status_code == 404


def test_topics_that_a_restored_database_has_never_heard_of_are_adopted(cell: Cell) -> None:
    lost = make_tenant("lost")
    topic = do_create_topic(lost.actor, lost.id, "orders", TopicSpec(2))
    again = do_create_topic(lost.actor, lost.id, "again", TopicSpec(1))
    settle()
    OutboxEntry.objects.of(lost.id).filter(resource_id__in=(topic.id, again.id)).delete()
    Topic.objects.of(lost.id).delete()
    # Somebody has noticed, and declared one of them anew.
    anew = do_create_topic(lost.actor, lost.id, "again", TopicSpec(1))
    settle()
    assert topic_of(lost, "again").status == "failed"
    repair(cell)
    settle()
    adopted = topic_of(lost, "orders")
    assert (adopted.id, adopted.generation, adopted.status) == (topic.id, 1, "ready")
    assert (adopted.managed_by, adopted.partitions) == (ManagedBy.API, 2)
    assert topic_of(lost, "again").id == again.id != anew.id
    replaced = AuditEvent.objects.get(resource_id=anew.id, action="topic.adopt")
    assert replaced.changes["is_replaced"] is True
    assert replaced.changes["spec"]["partitions"] == 1
    assert repair(cell) == 0


def test_what_was_deleted_here_is_not_adopted_by_what_is_heard_late(cell: Cell) -> None:
    late = make_tenant("late")
    topic = do_create_topic(late.actor, late.id, "orders", TopicSpec(1))
    settle()
    heard = item_of(cell, late, "orders")
    do_delete_topic(late.actor, late.id, topic.id, purge=True)
    settle()
    adopt_all(cell, [heard])
    assert not Topic.objects.of(late.id).exists()


def had_back_after_a_backup(tenant: Tenant) -> dict[str, Any]:
    """A topic that was deleted and had back, and its columns as they were before that."""
    topic = do_create_topic(tenant.actor, tenant.id, "orders", TopicSpec(1))
    settle()
    columns = ("incarnation", "generation", "observed_generation", "configs", "purge_after")
    rows = Topic.objects.of(tenant.id).filter(id=topic.id)
    backup: dict[str, Any] = rows.values(*columns, "status", "status_reason", "deleted_at").get()
    do_delete_topic(tenant.actor, tenant.id, topic.id)
    settle()
    do_undelete_topic(tenant.actor, tenant.id, topic.id)
    settle()
    do_update_topic(tenant.actor, tenant.id, topic.id, configs={"retention.ms": 5000})
    settle()
    assert topic_of(tenant, "orders").status == "ready"
    return backup


def test_what_was_had_back_after_the_backup_is_that_topic_still(cell: Cell) -> None:
    again = make_tenant("hadback")
    backup = had_back_after_a_backup(again)
    Topic.objects.of(again.id).update(**backup)
    repair(cell)
    settle()
    repair(cell, even_if_compared=True)
    settle()
    topic = topic_of(again, "orders")
    assert (topic.incarnation, topic.status) == (2, "ready")
    assert topic.spec()["configs"] == {"retention.ms": "5000"}
    assert topic.generation == topic.observed_generation
    assert item_of(cell, again, "orders").resource.resource_id == topic.resource_id
    # It is the tenant's own again: what is declared is told, and its name goes with it.
    do_update_topic(again.actor, again.id, topic.id, configs={"retention.ms": 6000})
    settle()
    assert item_of(cell, again, "orders").configs["retention.ms"] == "6000"
    do_delete_topic(again.actor, again.id, topic.id, purge=True)
    settle()
    assert not Topic.objects.of(again.id).exists()
    do_create_topic(again.actor, again.id, "orders", TopicSpec(1))
    settle()
    assert topic_of(again, "orders").status == "ready"


@pytest.mark.parametrize("declared_since", [0, 9])
def test_what_was_had_back_after_the_backup_is_not_purged_by_what_was_due_then(
    cell: Cell, declared_since: int
) -> None:
    due = make_tenant(f"due-{declared_since}")
    backup = had_back_after_a_backup(due)
    # In the backup it is deleted, and its time is over; it may have been declared anew since.
    backup["purge_after"] = timezone.now()
    backup["generation"] += declared_since
    backup["observed_generation"] = backup["generation"]
    Topic.objects.of(due.id).update(**backup)
    purge_topics()
    settle()
    topic = topic_of(due, "orders")
    assert (topic.incarnation, topic.status, topic.deleted_at) == (2, "ready", None)
    assert topic.generation > backup["generation"] or not declared_since
    assert item_of(cell, due, "orders").resource.generation == topic.generation
    (purge,) = Operation.objects.of(due.id).filter(resource_id=topic.id)
    assert (purge.status, purge.error) == ("failed", HAD_BACK)
    assert not OutboxEntry.objects.of(due.id).filter(done_at=None).exists()


def test_what_was_declared_before_it_is_known_to_be_had_back_counts_on(cell: Cell) -> None:
    later = make_tenant("later")
    backup = had_back_after_a_backup(later)
    backup["generation"] += 9
    Topic.objects.of(later.id).update(**backup)
    adopt_all(cell, [item_of(cell, later, "orders")])
    topic = topic_of(later, "orders")
    assert (topic.incarnation, topic.generation) == (2, backup["generation"] + 1)
    settle()
    topic = topic_of(later, "orders")
    assert (topic.status, topic.observed_generation) == ("ready", topic.generation)
    assert item_of(cell, later, "orders").resource.generation == topic.generation


@pytest.mark.parametrize(
    ("resource_id", "incarnation"),
    [("top_x", 1), ("top_x-2", 2), ("top_x-10", 10)]
    + [(other, 0) for other in ("", "top_", "top_xy", "top_x-", "top_x--2", "top_x-²", "2-top_x")],
)
def test_a_topic_knows_its_incarnations(resource_id: str, incarnation: int) -> None:
    assert Topic(id="top_x").incarnation_of(resource_id) == incarnation


def test_what_the_cell_will_never_take_again_is_told_once(cell: Cell) -> None:
    over = make_tenant("never")
    topic = do_create_topic(over.actor, over.id, "orders", TopicSpec(1))
    settle()
    # The backup is older than its deletion.
    deletion = messages.Deletion(resource_id=topic.id, generation=2)
    with cell_admin(cell) as admin:
        admin.Delete(messages.DeleteRequest(deletions=[deletion]))
    repairs = AuditEvent.objects.filter(organization_id=over.id, action="reconcile.repair")
    assert repair(cell) >= 1
    settle()
    failed = topic_of(over, "orders")
    assert failed.status == "failed"
    assert "make another one" in failed.status_reason
    for _ in range(2):
        assert repair(cell, even_if_compared=True) == 0
        settle()
    assert repairs.count() == 1
    assert topic_of(over, "orders").status == "failed"


def test_what_a_cell_has_lost_is_declared_again(cell: Cell) -> None:
    kept = make_tenant("kept")
    manager_of(kept)
    topic = do_create_topic(kept.actor, kept.id, "orders", TopicSpec(1))
    settle()
    repair(cell, even_if_compared=True)
    settle()
    # Nothing of this has ever been told to this cell, as if it had been restored from a backup.
    for model in (Grant, ApiKey):
        rows: Any = model.objects.of(kept.id)
        prefix = "grant" if model is Grant else "key"
        for row in rows:
            rows.filter(id=row.id).update(id=new_id(prefix))
    Topic.objects.of(kept.id).filter(id=topic.id).update(name="lost", id=new_id("top"))
    assert repair(cell) >= 3
    assert topic_of(kept, "lost").status == "updating"
    assert AuditEvent.objects.filter(organization_id=kept.id, action="reconcile.repair").exists()
    settle()
    assert topic_of(kept, "lost").status == "ready"
    assert item_of(cell, kept, "lost").partitions == 1


def test_what_is_as_declared_is_compared_by_digest_alone(
    process: CellProcess, cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = make_tenant("compared")
    do_create_topic(compared.actor, compared.id, "orders", TopicSpec(1))
    manager_of(compared)
    settle()
    # Other tests' tenants are in the cell, too: differences that nobody repairs.
    while repair(cell):
        settle()
    assert repair(cell) == 0
    assert CellProgress.objects.get(cell=cell).compared_digests != ""
    assert TenantQuota.objects.of(compared.id).get().status == "ready"
