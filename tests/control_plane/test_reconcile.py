"""What is declared by REST is there for Kafka clients: the control plane over a real Postgres, and
a real broker as its cell."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import KafkaException
from django.utils import timezone

from control_plane.access.logic import do_create_key, do_delete_grant, do_revoke_key
from control_plane.access.models import ApiKey, Grant
from control_plane.accounts.logic import do_delete_organization, do_resume, do_suspend
from control_plane.accounts.models import Membership, Organization
from control_plane.cells.connections import CellUnavailable, cell_admin
from control_plane.cells.models import Cell, CellProgress, Placement
from control_plane.messaging.logic import (
    TopicSpec,
    do_create_topic,
    do_delete_topic,
    do_undelete_topic,
    do_update_topic,
)
from control_plane.messaging.models import Topic
from control_plane.operations.models import AuditEvent, OutboxEntry
from control_plane.quotas.logic import do_set_quota
from control_plane.quotas.models import TenantQuota
from control_plane.reconciliation.back_offs import READING, ask, cells_that_answer
from control_plane.reconciliation.listing import items_of
from control_plane.reconciliation.lives import ERASED_AUDIT_KEPT, go_on_with_lives
from control_plane.reconciliation.logic import CELL_RETRY_MAX
from control_plane.reconciliation.looking import look_at_cells
from control_plane.reconciliation.rounds import reconcile_due
from control_plane.reconciliation.sending import MESSAGES_GONE
from data_plane.contract import cell_admin_pb2 as messages
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.control_plane.cells import CellProcess, manager_of, settle, trusted
from tests.control_plane.tenants import Tenant, make_cell, make_tenant

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


def topic_of(tenant: Tenant, name: str) -> Topic:
    return Topic.objects.of(tenant.id).get(name=name)


def statuses(tenant: Tenant) -> set[str]:
    """Of all that the tenant has declared, itself included."""
    found = {Organization.objects.get(id=tenant.id).status}
    models: tuple[Any, ...] = (Topic, ApiKey, Grant, TenantQuota)
    for model in models:
        found |= set(model.objects.of(tenant.id).values_list("status", flat=True))
    return found


def tell_everything_again(tenant: Tenant) -> None:
    OutboxEntry.objects.of(tenant.id).update(done_at=None, not_before=timezone.now())


def make_due(tenant: Tenant) -> None:
    OutboxEntry.objects.of(tenant.id).update(not_before=timezone.now())


def names_in(cell: Cell, tenant: Tenant) -> dict[str, messages.Item]:
    """Topics that the cell has of the tenant."""
    with cell_admin(cell) as admin:
        items = items_of(admin, tenant.organization.slug, messages.KIND_TOPIC)
        return {item.resource.name: item for item in items}


def test_a_declared_topic_key_grant_and_quota_are_there_for_a_kafka_client(
    process: CellProcess, cell: Cell
) -> None:
    acme = make_tenant("acme")
    do_create_topic(acme.actor, acme.id, "orders", TopicSpec(3, configs={"retention.ms": 60000}))
    do_set_quota(acme.actor, acme.id, {"message_bytes": 2000, "partitions": 5})
    _, key, secret = manager_of(acme)
    assert statuses(acme) == {"provisioning"}
    # All of it in one round, whatever the order of kinds.
    assert reconcile_due() == 1
    assert statuses(acme) == {"ready"}
    assert not OutboxEntry.objects.of(acme.id).filter(done_at=None).exists()
    orders = topic_of(acme, "orders")
    assert (orders.generation, orders.observed_generation, orders.status_reason) == (1, 1, "")
    client = process.client(acme, key, secret)
    assert client.produce("orders", b"first") == ""
    assert client.consume("orders", 1) == [b"first"]
    assert client.produce("orders", b"x" * 3000) == "MSG_SIZE_TOO_LARGE"
    admin = client.admin()
    shown = admin.list_topics(timeout=SECONDS_MAX).topics
    assert {name: len(topic.partitions) for name, topic in shown.items()} == {"orders": 3}
    assert reconcile_due() == 0


def test_what_is_told_again_changes_nothing(cell: Cell) -> None:
    again = make_tenant("again")
    do_create_topic(again.actor, again.id, "orders", TopicSpec(2))
    manager_of(again)
    settle()
    with cell_admin(cell) as admin:
        before = admin.Digest(messages.DigestRequest())
        tell_everything_again(again)
        assert reconcile_due() == 1
        after = admin.Digest(messages.DigestRequest())
    assert (after.version, after.digest) == (before.version, before.digest)
    assert statuses(again) == {"ready"}


def test_changes_of_a_resource_are_told_as_the_newest_one(cell: Cell) -> None:
    newest = make_tenant("newest")
    topic = do_create_topic(newest.actor, newest.id, "orders", TopicSpec(1))
    for partitions in (2, 3, 4):
        do_update_topic(newest.actor, newest.id, topic.id, partitions=partitions)
    settle()
    topic = topic_of(newest, "orders")
    assert (topic.generation, topic.observed_generation, topic.status) == (4, 4, "ready")
    assert names_in(cell, newest)["orders"].partitions == 4
    do_update_topic(newest.actor, newest.id, topic.id, configs={"retention.ms": 1000})
    assert topic_of(newest, "orders").status == "updating"
    settle()
    shown = names_in(cell, newest)["orders"].configs
    assert shown["retention.ms"] == "1000"


def test_what_the_cell_refuses_says_why_and_is_tried_again(cell: Cell) -> None:
    wide = make_tenant("wide")
    do_create_topic(wide.actor, wide.id, "orders", TopicSpec(1, replication_factor=5))
    do_create_topic(wide.actor, wide.id, "narrow", TopicSpec(1))
    reconcile_due()
    refused = topic_of(wide, "orders")
    assert refused.status == "failed"
    assert "eplication" in refused.status_reason
    assert topic_of(wide, "narrow").status == "ready"
    entry = OutboxEntry.objects.of(wide.id).get(resource_id=refused.id)
    assert (entry.attempts, entry.done_at) == (1, None)
    assert entry.last_error == refused.status_reason
    assert entry.not_before <= timezone.now() + timedelta(seconds=1)
    # Deleted before it ever was: nothing is left to be had back.
    do_delete_topic(wide.actor, wide.id, refused.id)
    settle()
    assert not Topic.objects.of(wide.id).filter(name="orders").exists()


def test_a_cell_that_does_not_answer_is_left_alone_and_gets_everything_later(
    process: CellProcess, cell: Cell
) -> None:
    late = make_tenant("late")
    do_create_topic(late.actor, late.id, "orders", TopicSpec(1))
    process.broker.stop()
    try:
        assert reconcile_due() == 0
        progress = CellProgress.objects.get(cell=cell)
        assert progress.failures == 1
        assert progress.retry_at is not None
        assert Cell.objects.get(id=cell.id).last_error != ""
        assert statuses(late) == {"provisioning"}
        # It is no fault of the tenant's, who waits behind others all the same.
        waits = OutboxEntry.objects.of(late.id).filter(done_at=None)
        assert set(waits.values_list("attempts", flat=True)) == {0}
        assert all(process.admin_endpoint in entry.last_error for entry in waits)
        # Not even asked, until it is due.
        make_due(late)
        CellProgress.objects.filter(cell=cell).update(retry_at=timezone.now() + CELL_RETRY_MAX)
        assert reconcile_due() == 0
        assert CellProgress.objects.get(cell=cell).failures == 1
    finally:
        process.broker.start()
    deadline = timezone.now() + timedelta(seconds=SECONDS_MAX)
    while statuses(late) != {"ready"}:
        # The connection is tried again now and then.
        assert timezone.now() < deadline
        CellProgress.objects.filter(cell=cell).update(retry_at=timezone.now())
        make_due(late)
        reconcile_due()
    assert CellProgress.objects.get(cell=cell).failures == 0
    assert Cell.objects.get(id=cell.id).last_error == ""


def test_one_broker_of_a_cell_that_answers_is_enough(cell: Cell) -> None:
    Cell.objects.filter(id=cell.id).update(admin_endpoints=["127.0.0.1:1", *cell.admin_endpoints])
    endpoints = make_tenant("endpoints")
    settle()
    assert statuses(endpoints) == {"ready"}


def test_a_control_plane_without_a_certificate_says_so(cell: Cell, settings: Any) -> None:
    settings.CELL_ADMIN_TLS_KEY = ""
    make_tenant("keyless")
    assert reconcile_due() == 0
    assert "CELL_ADMIN_TLS_KEY" in Cell.objects.get(id=cell.id).last_error
    with cell_admin(cell) as admin, pytest.raises(CellUnavailable):
        admin.Digest(messages.DigestRequest())


def test_who_is_suspended_reads_on_and_is_told_why_he_writes_nothing(
    process: CellProcess, cell: Cell
) -> None:
    broke = make_tenant("broke")
    do_create_topic(broke.actor, broke.id, "orders", TopicSpec(1))
    _, key, secret = manager_of(broke)
    settle()
    client = process.client(broke, key, secret)
    assert client.produce("orders", b"paid") == ""
    do_suspend(broke.actor, broke.id, "the bill is not paid")
    settle()
    assert client.produce("orders", b"unpaid") == "POLICY_VIOLATION"
    assert client.consume("orders", 1) == [b"paid"]
    # Made before, and told too late: refused as long as that lasts, and no longer.
    Organization.objects.filter(id=broke.id).update(state="active")
    do_create_topic(broke.actor, broke.id, "more", TopicSpec(1))
    Organization.objects.filter(id=broke.id).update(state="suspended")
    settle()
    more = topic_of(broke, "more")
    assert (more.status, "the bill is not paid" in more.status_reason) == ("failed", True)
    do_resume(broke.actor, broke.id)
    OutboxEntry.objects.of(broke.id).filter(resource_id=more.id).update(
        not_before=timezone.now() + timedelta(hours=1)
    )
    settle()
    assert topic_of(broke, "more").status == "ready"
    assert client.produce("orders", b"again") == ""


def test_a_key_that_is_revoked_and_a_grant_that_is_taken_back_are_worth_nothing(
    process: CellProcess, cell: Cell
) -> None:
    left = make_tenant("left")
    do_create_topic(left.actor, left.id, "orders", TopicSpec(1))
    account, key, _ = manager_of(left)
    other, other_secret = do_create_key(left.actor, left.id, account.id, "owner")
    settle()
    do_revoke_key(left.actor, left.id, key.id, "owner")
    settle()
    assert ApiKey.objects.of(left.id).get(id=key.id).status == "ready"
    with cell_admin(cell) as admin:
        logins = [item.resource.name for item in items_of(admin, "left", messages.KIND_CREDENTIAL)]
    assert logins == [f"{other.id}@left"]
    client = process.client(left, other, other_secret)
    assert client.produce("orders", b"mine") == ""
    for grant in Grant.objects.of(left.id):
        do_delete_grant(left.actor, left.id, grant.id)
    settle()
    assert not Grant.objects.of(left.id).exists()
    assert client.produce("orders", b"not mine") in (
        "TOPIC_AUTHORIZATION_FAILED",
        "UNKNOWN_TOPIC_OR_PART",
    )


def test_a_deleted_topic_is_gone_for_clients_and_comes_back_with_its_messages(
    process: CellProcess, cell: Cell
) -> None:
    back = make_tenant("back")
    topic = do_create_topic(back.actor, back.id, "orders", TopicSpec(1))
    _, key, secret = manager_of(back)
    settle()
    client = process.client(back, key, secret)
    for round_number in (1, 2):
        assert client.produce("orders", f"{round_number}".encode()) == ""
        do_delete_topic(back.actor, back.id, topic.id)
        settle()
        deleted = topic_of(back, "orders")
        assert (deleted.status, deleted.observed_generation) == ("deleting", deleted.generation)
        assert "can be had back until" in deleted.status_reason
        assert names_in(cell, back) == {}
        do_undelete_topic(back.actor, back.id, topic.id)
        settle()
        restored = topic_of(back, "orders")
        assert (restored.status, restored.status_reason) == ("ready", "")
        assert (restored.incarnation, restored.takes_over) == (round_number + 1, False)
        owner = names_in(cell, back)["orders"].resource
        assert (owner.owner, owner.resource_id) == (messages.API, restored.resource_id)
    assert client.consume("orders", 2) == [b"1", b"2"]
    admin = client.admin()
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        admin.delete_topics(["orders"])["orders"].result(SECONDS_MAX)


@pytest.mark.parametrize("kept_ms", [604_800_000, 0])
def test_what_is_deleted_and_had_back_between_two_rounds_stays(
    process: CellProcess, cell: Cell, kept_ms: int
) -> None:
    swift = make_tenant(f"swift-{kept_ms}")
    # With 0 the cell keeps nothing that is deleted: it must not be.
    spec = TopicSpec(1, configs={"tidewheel.undelete.ms": kept_ms})
    topic = do_create_topic(swift.actor, swift.id, "orders", spec)
    _, key, secret = manager_of(swift)
    settle()
    client = process.client(swift, key, secret)
    assert client.produce("orders", b"kept") == ""
    for _ in range(2):
        do_delete_topic(swift.actor, swift.id, topic.id)
        do_undelete_topic(swift.actor, swift.id, topic.id)
    settle()
    assert topic_of(swift, "orders").status == "ready"
    assert client.consume("orders", 1) == [b"kept"]
    # Deleted under the id of a later incarnation than the cell has ever heard of.
    do_delete_topic(swift.actor, swift.id, topic.id)
    do_undelete_topic(swift.actor, swift.id, topic.id)
    do_delete_topic(swift.actor, swift.id, topic.id)
    settle()
    assert names_in(cell, swift) == {}


def test_what_is_deleted_and_had_back_before_it_ever_was_is_made(cell: Cell) -> None:
    early = make_tenant("early")
    topic = do_create_topic(early.actor, early.id, "orders", TopicSpec(2))
    do_delete_topic(early.actor, early.id, topic.id)
    do_undelete_topic(early.actor, early.id, topic.id)
    settle()
    assert topic_of(early, "orders").status == "ready"
    assert names_in(cell, early)["orders"].partitions == 2


def test_what_the_cell_has_not_kept_is_not_made_anew_and_empty(cell: Cell) -> None:
    gone = make_tenant("gone")
    spec = TopicSpec(1, configs={"tidewheel.undelete.ms": 0})
    topic = do_create_topic(gone.actor, gone.id, "orders", spec)
    settle()
    do_delete_topic(gone.actor, gone.id, topic.id)
    settle()
    do_undelete_topic(gone.actor, gone.id, topic.id)
    settle()
    failed = topic_of(gone, "orders")
    assert (failed.status, failed.status_reason) == ("failed", MESSAGES_GONE)
    assert names_in(cell, gone) == {}


def test_a_topic_is_purged_at_once_or_when_its_time_is_over(cell: Cell) -> None:
    purged = make_tenant("purged")
    for name in ("now", "later"):
        do_create_topic(purged.actor, purged.id, name, TopicSpec(1))
    settle()
    do_delete_topic(purged.actor, purged.id, topic_of(purged, "now").id, purge=True)
    do_delete_topic(purged.actor, purged.id, topic_of(purged, "later").id)
    settle()
    assert list(Topic.objects.of(purged.id).values_list("name", flat=True)) == ["later"]
    go_on_with_lives()
    settle()
    assert Topic.objects.of(purged.id).exists()
    Topic.objects.of(purged.id).update(purge_after=timezone.now())
    go_on_with_lives()
    settle()
    assert not Topic.objects.of(purged.id).exists()
    # Both names are free, in the cell, too.
    for name in ("now", "later"):
        do_create_topic(purged.actor, purged.id, name, TopicSpec(1))
    settle()
    assert topic_of(purged, "now").status == topic_of(purged, "later").status == "ready"


def test_a_tenant_is_blocked_when_it_is_deleted_and_erased_after_its_grace(
    process: CellProcess, cell: Cell
) -> None:
    over = make_tenant("over")
    do_create_topic(over.actor, over.id, "orders", TopicSpec(1))
    manager_of(over)
    settle()
    do_delete_organization(over.actor, over.id)
    settle()
    with cell_admin(cell) as admin:
        (tenant,) = items_of(admin, "over", messages.KIND_TENANT)
    assert tenant.tenant_now.state == messages.TENANT_BLOCKED
    assert set(names_in(cell, over)) == {"orders"}
    go_on_with_lives()
    assert Organization.objects.get(id=over.id).deleted_at is None
    Organization.objects.filter(id=over.id).update(purge_after=timezone.now())
    go_on_with_lives()
    deadline = timezone.now() + timedelta(seconds=SECONDS_MAX)
    while Placement.objects.of(over.id).exists():
        assert timezone.now() < deadline
        make_due(over)
        reconcile_due()
    with cell_admin(cell) as admin:
        assert list(items_of(admin, "over")) == []
    models: tuple[Any, ...] = (Topic, ApiKey, Grant, TenantQuota, Membership, OutboxEntry)
    for model in models:
        assert not model.objects.of(over.id).exists(), model
    kept = Organization.objects.get(id=over.id)
    assert (kept.slug, kept.name) == ("over", "")
    events = AuditEvent.objects.filter(organization_id=over.id)
    named = {(event.actor_name, event.address) for event in events if event.actor_id}
    assert named == {("", None)}
    go_on_with_lives()
    assert events.exists()
    events.update(at=timezone.now() - ERASED_AUDIT_KEPT)
    go_on_with_lives()
    assert not events.exists()


def test_who_found_no_room_is_placed_when_there_is_some(cell: Cell) -> None:
    Cell.objects.filter(id=cell.id).update(is_accepting=False)
    waits = make_tenant("waits")
    do_create_topic(waits.actor, waits.id, "orders", TopicSpec(1))
    go_on_with_lives()
    settle()
    assert statuses(waits) == {"provisioning"}
    Cell.objects.filter(id=cell.id).update(is_accepting=True)
    go_on_with_lives()
    settle()
    assert statuses(waits) == {"ready"}
    assert Organization.objects.get(id=waits.id).status_reason == ""
    assert "orders" in names_in(cell, waits)


def test_tenants_of_two_cells_do_not_wait_for_each_other(cell: Cell) -> None:
    here = make_tenant("here")
    Cell.objects.filter(id=cell.id).update(is_accepting=False)
    down = make_cell("down", is_accepting=True)
    there = make_tenant("there")
    assert Placement.objects.of(there.id).get().cell_id == down.id
    settle()
    assert (statuses(here), statuses(there)) == ({"ready"}, {"provisioning"})
    assert CellProgress.objects.get(cell=down).failures > 0


def test_what_cannot_be_sent_is_the_matter_of_its_tenant_alone(cell: Cell) -> None:
    odd, other = make_tenant("odd"), make_tenant("other")
    for tenant in (odd, other):
        do_create_topic(tenant.actor, tenant.id, "orders", TopicSpec(1))
    # No message of CellAdmin takes a number here.
    Topic.objects.of(odd.id).update(configs={"retention.ms": 5})
    # It has waited longest, so it is first.
    OutboxEntry.objects.of(odd.id).update(not_before=timezone.now() - timedelta(hours=1))
    for attempts in (1, 2):
        began_at = timezone.now()
        reconcile_due()
        waits = OutboxEntry.objects.of(odd.id).filter(done_at=None)
        assert {(entry.attempts, entry.last_error) for entry in waits} == {(attempts, "TypeError")}
        assert all(entry.not_before > began_at for entry in waits)
        make_due(odd)
    assert statuses(other) == {"ready"}
    assert CellProgress.objects.get(cell=cell).failures == 0
    # Whoever mends it has it told.
    Topic.objects.of(odd.id).update(configs={"retention.ms": "5"})
    make_due(odd)
    settle()
    assert statuses(odd) == {"ready"}


def test_what_cannot_be_taken_in_is_the_matter_of_its_cell_alone(cell: Cell) -> None:
    def reads_nonsense() -> bool:
        raise ValueError("a bug")

    make_cell("beside")
    began_at = timezone.now()
    asked = [ask(each, reads_nonsense) for each in cells_that_answer(READING)]
    assert asked == [None, None]
    assert set(Cell.objects.values_list("last_error", flat=True)) == {"ValueError"}
    waits = CellProgress.objects.get(cell=cell).read_retry_at
    assert waits is not None
    assert waits > began_at


def test_cells_say_what_brokers_they_have(process: CellProcess, cell: Cell) -> None:
    look_at_cells()
    seen = Cell.objects.get(id=cell.id)
    assert seen.last_seen_at is not None
    assert seen.cluster_id != ""
    (broker,) = seen.brokers.all()
    assert (broker.host, broker.port) == ("127.0.0.1", process.broker.port)
