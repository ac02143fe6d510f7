"""What every write of the control plane holds to: one transaction of row, audit and outbox; limits;
nothing of another tenant."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection

import control_plane
from control_plane.accounts.logic import do_create_organization, do_resume, do_suspend
from control_plane.messaging.logic import (
    TopicSpec,
    do_change_owner,
    do_create_topic,
    do_delete_topic,
    do_undelete_topic,
    do_update_topic,
)
from control_plane.messaging.models import ManagedBy, Topic
from control_plane.messaging.topic_configs import Json
from control_plane.operations.facade import ResourceKind, resources_made_by, tenant_write
from control_plane.operations.models import AuditEvent, OutboxEntry
from control_plane.quotas import logic as quotas
from control_plane.quotas.logic import do_set_quota
from control_plane.tenancy.errors import (
    Conflict,
    Invalid,
    NotFound,
    QuotaExceeded,
    StaleGeneration,
    TenantSuspended,
    TooMany,
)
from control_plane.tenancy.ids import new_id
from control_plane.tenancy.models import UnscopedQuery
from tests.control_plane.tenants import Tenant, make_cell, make_tenant

# Who sees rows of all tenants, and what for. Nothing of it gets into an answer to a tenant.
ACROSS_TENANTS = {
    "api/authentication.py": "a key by its secret",
    "accounts/invitation_mails.py": "mails that are due",
    "accounts/logic.py": "a person's own organizations; invitations by token and by address",
    "cells/logic.py": "how full cells are",
    "operations/logic.py": "writing outbox entries",
    "reconciliation/adoption.py": "which tenants live in a cell",
    "reconciliation/drift.py": "what a cell should have, of all its tenants",
    "reconciliation/lives.py": "whose time has come",
    "reconciliation/rounds.py": "which tenants have something due",
    "reconciliation/tenant_round.py": "saving rows that were asked for by tenant",
    "operations/settling.py": "operations whose resource a cell has confirmed",
    "tenancy/operator_site.py": "operators' pages, which show no messages",
}

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Tenant:
    make_cell()
    return make_tenant("acme")


def sequences(tenant: Tenant) -> list[int]:
    entries = OutboxEntry.objects.of(tenant.id).order_by("sequence")
    return list(entries.values_list("sequence", flat=True))


def test_ids_say_what_they_are_and_sort_by_time() -> None:
    ids = [new_id("top") for _ in range(100)]
    assert len(set(ids)) == 100
    assert all(re.fullmatch("top_[0-9abcdefghjkmnpqrstvwxyz]{26}", an_id) for an_id in ids)
    # The time is 48 bits from the third on of 130: it is in the first ten characters.
    assert [an_id[:14] for an_id in ids] == sorted(an_id[:14] for an_id in ids)


def test_migrations_are_those_of_the_models() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


def test_rows_of_tenants_are_not_reached_without_a_tenant() -> None:
    with pytest.raises(UnscopedQuery):
        Topic.objects.all()
    with pytest.raises(UnscopedQuery):
        Topic.objects.filter(name="orders")


def test_who_asks_across_tenants_is_known() -> None:
    room = Path(control_plane.__file__).parent
    asking = {
        path.relative_to(room).as_posix()
        for path in room.rglob("*.py")
        if "across_tenants()" in path.read_text(encoding="utf-8")
    }
    assert asking == ACROSS_TENANTS.keys() | {"tenancy/models.py"}


def test_a_write_leaves_row_audit_and_outbox(acme: Tenant) -> None:
    topic = do_create_topic(
        acme.actor, acme.id, "orders", TopicSpec(3, configs={"retention.ms": 1000})
    )
    row = Topic.objects.of(acme.id).get(id=topic.id)
    assert (row.partitions, row.configs) == (3, {"retention.ms": "1000"})
    event = AuditEvent.objects.get(resource_id=topic.id)
    assert (event.action, event.actor_id) == ("topic.create", acme.owner.id)
    entry = OutboxEntry.objects.of(acme.id).get(resource_id=topic.id)
    assert (entry.kind, entry.generation, entry.done_at) == ("topic", 1, None)


def test_a_write_that_fails_leaves_nothing_and_no_hole(acme: Tenant) -> None:
    before = sequences(acme)
    events = AuditEvent.objects.count()
    topic = Topic(organization=acme.organization, name="x", partitions=1)

    def fail() -> None:
        with tenant_write(acme.actor, acme.id) as write:
            topic.save(force_insert=True)
            write.declare(ResourceKind.TOPIC, topic)
            write.audit("topic.create", topic.id)
            write.finish()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not Topic.objects.of(acme.id).exists()
    assert AuditEvent.objects.count() == events
    do_create_topic(acme.actor, acme.id, "orders", TopicSpec())
    assert sequences(acme) == [*before, before[-1] + 1]
    assert before == list(range(1, len(before) + 1))


def test_a_write_without_audit_is_a_bug_and_rolled_back(acme: Tenant) -> None:
    topic = Topic(organization=acme.organization, name="x", partitions=1)
    with pytest.raises(AssertionError), tenant_write(acme.actor, acme.id):
        topic.save(force_insert=True)
    assert not Topic.objects.of(acme.id).exists()


@pytest.mark.django_db(transaction=True)
def test_writes_side_by_side_neither_pass_a_limit_nor_leave_holes() -> None:
    make_cell()
    acme = make_tenant("acme")
    do_set_quota(acme.actor, acme.id, {"topics": 5})
    refused: list[str] = []

    def make(number: int) -> None:
        try:
            do_create_topic(acme.actor, acme.id, f"t{number}", TopicSpec())
        except QuotaExceeded as error:
            refused.append(error.detail)
        finally:
            connection.close()

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Topic.objects.of(acme.id).count() == 5
    assert len(refused) == 3
    assert sequences(acme) == list(range(1, len(sequences(acme)) + 1))


def test_a_name_is_taken_within_a_tenant_only(acme: Tenant) -> None:
    other = make_tenant("other")
    do_create_topic(acme.actor, acme.id, "orders", TopicSpec())
    do_create_topic(other.actor, other.id, "orders", TopicSpec())
    with pytest.raises(Conflict, match="There is a topic orders"):
        do_create_topic(acme.actor, acme.id, "orders", TopicSpec())


def test_a_topic_of_somebody_else_is_not_found(acme: Tenant) -> None:
    other = make_tenant("other")
    topic = do_create_topic(acme.actor, acme.id, "orders", TopicSpec())
    for attempt in (do_update_topic, do_delete_topic, do_undelete_topic):
        with pytest.raises(NotFound):
            attempt(other.actor, other.id, topic.id)


def test_the_same_again_makes_no_generation(acme: Tenant) -> None:
    topic = do_create_topic(acme.actor, acme.id, "orders", TopicSpec(2))
    same = do_update_topic(acme.actor, acme.id, topic.id, partitions=2, configs={})
    assert same.generation == 1
    more = do_update_topic(acme.actor, acme.id, topic.id, partitions=4)
    assert (more.generation, more.status) == (2, "provisioning")
    with pytest.raises(StaleGeneration):
        do_update_topic(acme.actor, acme.id, topic.id, partitions=5, if_match=topic.etag)
    with pytest.raises(Invalid, match="never less"):
        do_update_topic(acme.actor, acme.id, topic.id, partitions=3)


def test_what_is_chosen_once_stays(acme: Tenant) -> None:
    spec = TopicSpec(configs={"tidewheel.headers": True})
    topic = do_create_topic(acme.actor, acme.id, "orders", spec)
    others: list[dict[str, Json]] = [{}, {"tidewheel.headers": False}]
    for configs in others:
        with pytest.raises(Invalid) as refusal:
            do_update_topic(acme.actor, acme.id, topic.id, configs=configs)
        assert refusal.value.field == "/spec/configs/tidewheel.headers"
    same: dict[str, Json] = {"tidewheel.headers": "true", "retention.ms": 5}
    assert do_update_topic(acme.actor, acme.id, topic.id, configs=same).generation == 2
    plain = do_create_topic(acme.actor, acme.id, "plain", TopicSpec())
    same = {"tidewheel.headers": "false"}
    do_update_topic(acme.actor, acme.id, plain.id, configs=same)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "__consumer_offsets", "ü", "x" * 250, "a\n"]
)
def test_names_that_cannot_be(acme: Tenant, name: str) -> None:
    with pytest.raises(Invalid) as refusal:
        do_create_topic(acme.actor, acme.id, name, TopicSpec())
    assert refusal.value.field == "/name"


def test_deleted_topics_can_be_had_back_until_their_purge(acme: Tenant) -> None:
    topic = do_create_topic(acme.actor, acme.id, "orders", TopicSpec())
    do_delete_topic(acme.actor, acme.id, topic.id)
    with pytest.raises(Conflict, match="can be had back"):
        do_create_topic(acme.actor, acme.id, "orders", TopicSpec())
    assert do_undelete_topic(acme.actor, acme.id, topic.id).purge_after is None
    purged = do_delete_topic(acme.actor, acme.id, topic.id, purge=True)
    # Deleted, had back, and deleted for good.
    assert (purged.status, purged.generation) == ("deleting", 4)
    with pytest.raises(Conflict, match="being purged"):
        do_undelete_topic(acme.actor, acme.id, topic.id)


def test_what_protects_a_topic_is_in_the_audit(acme: Tenant) -> None:
    topic = do_create_topic(acme.actor, acme.id, "orders", TopicSpec(), deletion_protection=True)
    do_update_topic(acme.actor, acme.id, topic.id, deletion_protection=False)
    made = AuditEvent.objects.get(action="topic.create")
    assert made.changes["deletion_protection"] is True
    changes = AuditEvent.objects.get(action="topic.update").changes
    assert changes["from"]["deletion_protection"] is True
    assert changes["to"] == changes["from"] | {"deletion_protection": False}


def test_what_clients_manage_is_neither_changed_nor_deleted_here(acme: Tenant) -> None:
    topic = do_create_topic(acme.actor, acme.id, "orders", TopicSpec())
    do_change_owner(acme.actor, acme.id, topic.id, ManagedBy.CLIENT)
    attempts: list[Callable[[], Topic]] = [
        lambda: do_update_topic(acme.actor, acme.id, topic.id, partitions=2),
        lambda: do_delete_topic(acme.actor, acme.id, topic.id),
        lambda: do_delete_topic(acme.actor, acme.id, topic.id, purge=True),
    ]
    for attempt in attempts:
        with pytest.raises(Conflict, match="take it over") as refusal:
            attempt()
        assert refusal.value.field == "/managed_by"
    assert Topic.objects.of(acme.id).get().purge_after is None
    do_change_owner(acme.actor, acme.id, topic.id, ManagedBy.API)
    assert do_delete_topic(acme.actor, acme.id, topic.id, purge=True).status == "deleting"


def test_who_is_suspended_already_is_told_to_the_cell_for_another_reason_alone(
    acme: Tenant,
) -> None:
    with pytest.raises(Conflict, match="not suspended"):
        do_resume(acme.actor, acme.id)
    assert do_suspend(acme.actor, acme.id, "the bill is not paid").generation == 2
    before = sequences(acme)
    assert do_suspend(acme.actor, acme.id, "the bill is not paid").generation == 2
    assert sequences(acme) == before
    assert do_suspend(acme.actor, acme.id, "abuse").generation == 3
    resumed = do_resume(acme.actor, acme.id)
    assert (resumed.state, resumed.state_reason, resumed.generation) == ("active", "", 4)


def test_who_is_suspended_changes_nothing(acme: Tenant) -> None:
    do_suspend(acme.actor, acme.id, "the bill is not paid")
    with pytest.raises(TenantSuspended, match="the bill is not paid"):
        do_create_topic(acme.actor, acme.id, "orders", TopicSpec())


@pytest.mark.parametrize(
    "slug", ["default", "ab", "Acme", "a" * 40, "-acme", "acme-", "9x9", "a\n"]
)
def test_slugs_that_cannot_be(acme: Tenant, slug: str) -> None:
    with pytest.raises(Invalid):
        do_create_organization(acme.actor, acme.owner, "Acme", slug)


def test_a_slug_is_taken_for_all(acme: Tenant) -> None:
    with pytest.raises(Conflict):
        do_create_organization(acme.actor, acme.owner, "Acme again", "acme")


def test_who_makes_and_deletes_all_day_fills_no_cell(
    acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "MADE_A_DAY_TIMES", 2)
    monkeypatch.setattr(quotas, "MADE_A_DAY_MIN", 0)
    do_set_quota(acme.actor, acme.id, {"topics": 1, "api_keys": 1, "grants": 1})
    for number in range(5):
        topic = do_create_topic(acme.actor, acme.id, f"t{number}", TopicSpec())
        # As the cell's answer to its purge does.
        Topic.objects.of(acme.id).delete()
    topic = do_create_topic(acme.actor, acme.id, "last", TopicSpec())
    do_delete_topic(acme.actor, acme.id, topic.id)
    with pytest.raises(TooMany, match="6 topics, keys and grants") as refusal:
        # It would be another resource of the cell.
        do_undelete_topic(acme.actor, acme.id, topic.id)
    assert refusal.value.retry_after_s is not None
    assert 0 < refusal.value.retry_after_s <= 24 * 3600
    Topic.objects.of(acme.id).delete()
    with pytest.raises(TooMany):
        do_create_topic(acme.actor, acme.id, "more", TopicSpec())
    oldest = resources_made_by(acme.id).order_by("at").first()
    assert oldest is not None
    AuditEvent.objects.filter(id=oldest.id).update(at=oldest.at - timedelta(days=1))
    do_create_topic(acme.actor, acme.id, "more", TopicSpec())
