"""Operations: what takes longer than a request, from its beginning to its end."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.core.cache import cache
from django.utils import timezone

from control_plane.celery_app import app
from control_plane.messaging.logic import TopicSpec, do_create_topic, do_delete_topic
from control_plane.messaging.models import Topic
from control_plane.operations.models import Operation
from control_plane.operations.settling import do_settle_operations
from control_plane.reconciliation.lives import OPERATIONS_KEPT, forget
from tests.control_plane.rest import at, client_of, member_of
from tests.control_plane.tenants import Tenant, make_cell, make_tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Tenant:
    cache.clear()
    make_cell()
    return make_tenant("acme")


def purge(tenant: Tenant, name: str) -> Topic:
    topic = do_create_topic(tenant.actor, tenant.id, name, TopicSpec())
    return do_delete_topic(tenant.actor, tenant.id, topic.id, purge=True)


def test_a_purge_is_an_operation_until_the_cell_has_confirmed(acme: Tenant) -> None:
    topic = purge(acme, "orders")
    client = client_of(acme.owner)
    (shown,) = client.get(at(acme, "operations"), {"resource_id": topic.id}).json()["items"]
    assert (shown["kind"], shown["status"], shown["finished_at"]) == (
        "topic.purge",
        "pending",
        None,
    )
    assert do_settle_operations() == 0
    Topic.objects.of(acme.id).filter(id=topic.id).update(observed_generation=topic.generation - 1)
    assert do_settle_operations() == 0
    Topic.objects.of(acme.id).filter(id=topic.id).update(observed_generation=topic.generation)
    assert do_settle_operations() == 1
    assert do_settle_operations() == 0
    done = client.get(at(acme, f"operations/{shown['id']}")).json()
    assert done["status"] == "succeeded"
    assert done["finished_at"] is not None


def test_an_operation_is_done_when_its_resource_is_no_more(acme: Tenant) -> None:
    topics = [purge(acme, name) for name in ("a", "b")]
    topics[0].delete()
    assert do_settle_operations() == 1
    viewer = member_of(acme, "viewer")
    operations = viewer.get(at(acme, "operations"), {"status": "pending"}).json()["items"]
    assert [operation["resource_id"] for operation in operations] == [topics[1].id]


def test_what_was_done_long_ago_is_forgotten(acme: Tenant) -> None:
    topics = [purge(acme, name) for name in ("done", "open")]
    topics[0].delete()
    assert do_settle_operations() == 1
    operations = Operation.objects.of(acme.id)
    forget()
    assert operations.count() == 2
    operations.exclude(finished_at=None).update(finished_at=timezone.now() - OPERATIONS_KEPT)
    forget()
    assert [operation.resource_id for operation in operations] == [topics[1].id]


def test_a_deleted_topic_that_can_be_had_back_is_no_operation(acme: Tenant) -> None:
    topic = do_create_topic(acme.actor, acme.id, "orders", TopicSpec())
    do_delete_topic(acme.actor, acme.id, topic.id)
    assert client_of(acme.owner).get(at(acme, "operations")).json()["items"] == []


def test_what_is_scheduled_are_tasks_that_workers_have() -> None:
    app.loader.import_default_modules()
    scheduled = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert scheduled <= app.tasks.keys()
    assert {"usage.read", "usage.keep_partitions", "operations.settle"} <= scheduled
