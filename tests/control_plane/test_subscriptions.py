"""Subscriptions as they are declared: what is refused before a cell hears of it."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache
from rest_framework.test import APIClient

from control_plane.messaging.logic import (
    TopicSpec,
    do_change_owner,
    do_create_subscription,
    do_create_topic,
    do_delete_topic,
    do_undelete_topic,
    do_update_subscription,
    do_update_topic,
)
from control_plane.messaging.models import ManagedBy, Topic
from control_plane.messaging.subscriptions import (
    FILTER,
    SOURCE,
    SUBSCRIPTIONS_OF_SOURCE_MAX,
    partitions_of,
)
from control_plane.operations.models import AuditEvent, OutboxEntry
from control_plane.quotas.logic import do_set_quota
from control_plane.tenancy.errors import Conflict, Invalid, NotFound, QuotaExceeded
from tests.control_plane.rest import at, client_of, patch, post
from tests.control_plane.tenants import Tenant, make_cell, make_tenant

pytestmark = pytest.mark.django_db

TAGGED = TopicSpec(3, configs={"tidewheel.headers": True})


@pytest.fixture
def acme() -> Tenant:
    cache.clear()
    make_cell()
    tenant = make_tenant("acme")
    do_create_topic(tenant.actor, tenant.id, "orders", TAGGED)
    return tenant


@pytest.fixture
def client(acme: Tenant) -> APIClient:
    return client_of(acme.owner)


def subscribe(tenant: Tenant, name: str = "pay", source: str = "orders", text: str = "a") -> Topic:
    return do_create_subscription(tenant.actor, tenant.id, name, source, text)


def source_of(tenant: Tenant) -> Topic:
    return Topic.objects.of(tenant.id).get(name="orders")


def test_a_subscription_is_a_topic_of_the_cell_with_two_configurations(acme: Tenant) -> None:
    subscription = subscribe(acme, text="a and not b")
    assert subscription.spec() == {
        "partitions": 0,
        "replication_factor": 0,
        "configs": {SOURCE: "orders", FILTER: "a and not b"},
    }
    (entry,) = OutboxEntry.objects.of(acme.id).filter(resource_id=subscription.id)
    assert (entry.kind, entry.generation) == ("topic", 1)
    assert AuditEvent.objects.filter(action="subscription.create").count() == 1


def test_a_filter_is_edited_and_the_same_again_is_no_change(acme: Tenant) -> None:
    subscription = subscribe(acme)
    who = (acme.actor, acme.id, subscription.id)
    assert do_update_subscription(*who, filter_text="a").generation == 1
    edited = do_update_subscription(*who, filter_text="a or region:*")
    assert (edited.generation, edited.configs[FILTER]) == (2, "a or region:*")
    assert edited.configs[SOURCE] == "orders"


@pytest.mark.parametrize(
    ("text", "column"), [("a b", 3), ("(a", 1), ("a or", 5), ('"a', 1), ("x*", 2)]
)
def test_a_filter_that_is_not_understood_says_where(
    acme: Tenant, client: APIClient, text: str, column: int
) -> None:
    with pytest.raises(Invalid, match=f"column {column}:"):
        subscribe(acme, text=text)
    spec = {"source": "orders", "filter": text}
    answer = post(client, at(acme, "subscriptions"), {"name": "pay", "spec": spec})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/spec/filter"
    subscription = subscribe(acme)
    with pytest.raises(Invalid):
        do_update_subscription(acme.actor, acme.id, subscription.id, filter_text=text)


def test_sources_have_tags_and_are_the_tenants_own(acme: Tenant) -> None:
    other = make_tenant("other")
    do_create_topic(acme.actor, acme.id, "plain", TopicSpec())
    do_create_topic(other.actor, other.id, "theirs", TAGGED)
    subscribe(acme)
    for source in ("plain", "theirs", "nothing", "pay"):
        with pytest.raises(Invalid) as refusal:
            subscribe(acme, "more", source)
        assert refusal.value.field == "/spec/source"


def test_a_source_has_so_many_subscriptions_and_no_more(
    acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SUBSCRIPTIONS_OF_SOURCE_MAX == 100
    do_set_quota(acme.actor, acme.id, {"topics": 200, "partitions": 1000})
    for number in range(SUBSCRIPTIONS_OF_SOURCE_MAX):
        subscribe(acme, f"s{number}")
    with pytest.raises(Conflict, match="100 subscriptions"):
        subscribe(acme, "more")


def test_a_source_is_not_deleted_while_it_is_read(acme: Tenant) -> None:
    subscription, source = subscribe(acme), source_of(acme)
    for purge in (False, True):
        with pytest.raises(Conflict, match="subscriptions pay; delete these"):
            do_delete_topic(acme.actor, acme.id, source.id, purge=purge)
    do_delete_topic(acme.actor, acme.id, subscription.id)
    do_delete_topic(acme.actor, acme.id, source.id)
    with pytest.raises(Conflict, match="source orders is deleted"):
        do_undelete_topic(acme.actor, acme.id, subscription.id)
    do_undelete_topic(acme.actor, acme.id, source.id)
    assert do_undelete_topic(acme.actor, acme.id, subscription.id).purge_after is None


def test_partitions_count_as_the_cell_counts_them(acme: Tenant) -> None:
    do_set_quota(acme.actor, acme.id, {"partitions": 9})
    subscribe(acme)
    assert partitions_of(acme.id) == 6
    with pytest.raises(QuotaExceeded, match="make 10"):
        do_update_topic(acme.actor, acme.id, source_of(acme).id, partitions=5)
    subscribe(acme, "more")
    with pytest.raises(QuotaExceeded, match="make 12"):
        subscribe(acme, "too-much")
    shown = client_of(acme.owner).get(at(acme, "quota")).json()
    assert shown["used"]["partitions"] == 9


def test_topics_and_subscriptions_are_listed_each_by_themselves(
    acme: Tenant, client: APIClient
) -> None:
    subscription, source = subscribe(acme), source_of(acme)

    def names(address: str, **query: str) -> list[str]:
        return [item["name"] for item in client.get(at(acme, address), query).json()["items"]]

    assert names("topics") == ["orders"]
    assert names("subscriptions") == ["pay"]
    assert names("subscriptions", source="orders") == ["pay"]
    assert names("subscriptions", source="order") == []
    assert (
        post(client, at(acme, "topics/read"), {"names": ["pay", "orders"]}).json()["items"][0][
            "name"
        ]
        == "orders"
    )
    for wrong in (f"topics/{subscription.id}", f"subscriptions/{source.id}"):
        assert client.get(at(acme, wrong)).status_code == 404
        assert patch(client, at(acme, wrong), {"deletion_protection": True}).status_code == 404
        assert client.delete(at(acme, wrong)).status_code == 404
        assert post(client, at(acme, f"{wrong}/undelete")).status_code == 404


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"source": "other"}},
        {"spec": {"partitions": 2}},
        {"name": "x"},
    ],
)
def test_what_stays_is_refused(acme: Tenant, client: APIClient, change: Any) -> None:
    address = at(acme, f"subscriptions/{subscribe(acme).id}")
    assert patch(client, address, change).status_code == 422


def test_etags_of_subscriptions(acme: Tenant, client: APIClient) -> None:
    address = at(acme, f"subscriptions/{subscribe(acme).id}")
    etag = client.get(address)["ETag"]
    assert (
        patch(client, address, {"spec": {"filter": "b"}}, **{"If-Match": etag}).status_code == 200
    )
    stale = patch(client, address, {"spec": {"filter": "c"}}, **{"If-Match": etag})
    assert stale.status_code == 412


def test_topics_do_not_become_subscriptions(acme: Tenant, client: APIClient) -> None:
    body = {"name": "more", "spec": {"configs": {SOURCE: "orders"}}}
    answer = post(client, at(acme, "topics"), body)
    assert answer.status_code == 422
    assert "subscription" in answer.json()["detail"]


def test_a_clients_subscription_is_taken_over_first(acme: Tenant) -> None:
    subscription = subscribe(acme)
    # As the reconciler copies what clients made.
    do_change_owner(acme.actor, acme.id, subscription.id, ManagedBy.CLIENT)
    Topic.objects.of(acme.id).filter(id=subscription.id).update(partitions=6)
    assert partitions_of(acme.id) == 6
    with pytest.raises(Conflict, match="take it over"):
        do_update_subscription(acme.actor, acme.id, subscription.id, filter_text="b")
    taken = do_change_owner(acme.actor, acme.id, subscription.id, ManagedBy.API)
    assert taken.partitions == 0
    assert do_update_subscription(acme.actor, acme.id, subscription.id, filter_text="b")


def test_somebody_elses_subscription_is_not_found(acme: Tenant) -> None:
    other = make_tenant("other")
    subscription = subscribe(acme)
    with pytest.raises(NotFound):
        do_update_subscription(other.actor, other.id, subscription.id, filter_text="b")
