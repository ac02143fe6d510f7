"""Every address of REST, walked with another tenant's ids, by every role: the table of roles is
what decides, and nobody sees or changes what is not his.

The walk is over the addresses that are served, so a new one that is not listed here fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from django.core import serializers
from django.core.cache import cache
from django.db import transaction
from rest_framework.test import APIClient

from control_plane.access.logic import do_create_grant, do_create_key, do_create_service_account
from control_plane.access.models import ApiKey, Grant, ServiceAccount
from control_plane.accounts.logic import do_invite
from control_plane.accounts.models import Invitation, Membership, Organization, Role
from control_plane.accounts.roles import ALLOWED, OPERATOR, may
from control_plane.api.urls import urlpatterns
from control_plane.api.views import TenantViewSet
from control_plane.messaging.logic import TopicSpec, do_create_subscription, do_create_topic
from control_plane.messaging.models import Topic
from control_plane.operations.models import Operation
from control_plane.quotas.models import TenantQuota
from tests.control_plane.rest import client_of, client_with, key_of, member_of, operator
from tests.control_plane.tenants import Tenant, make_cell, make_tenant

pytestmark = pytest.mark.django_db

# A body that each handler accepts; what is not listed needs none.
BODIES: dict[tuple[str, str], Any] = {
    ("OrganizationViewSet", "partial_update"): {"name": "Other name"},
    ("OrganizationViewSet", "suspend"): {"reason": "a test"},
    ("MemberViewSet", "partial_update"): {"role": "viewer"},
    ("InvitationViewSet", "create"): {"email": "new@x.example", "role": "viewer"},
    ("ServiceAccountViewSet", "create"): {"name": "another"},
    ("ServiceAccountViewSet", "partial_update"): {"description": "x"},
    ("GrantViewSet", "create"): {
        "spec": {"role": "producer", "resource_type": "topic", "resource_name": "more"}
    },
    ("TopicViewSet", "create"): {"name": "more"},
    ("TopicViewSet", "partial_update"): {"spec": {"partitions": 2}},
    ("QuotaViewSet", "partial_update"): {"spec": {"topics": 7}},
    ("SubscriptionViewSet", "create"): {"name": "more", "spec": {"source": "orders"}},
    ("SubscriptionViewSet", "partial_update"): {"spec": {"filter": "refund"}},
    ("RecordViewSet", "create"): {"partition": 0, "messages": [{"value": {"text": "x"}}]},
    ("DelayedViewSet", "cancel"): {"partition": 0},
    ("RedriveViewSet", "create"): {
        "partition": 0,
        "operation_id": "one",
        "selection": {"all": True},
    },
    ("RedriveViewSet", "change"): {"partition": 0, "operation_id": "one", "wish": "pause"},
    ("OffsetResetViewSet", "create"): {
        "group_id": "readers",
        "targets": [{"topic": "orders", "partition": 0, "position": "earliest"}],
    },
}
# They ask the tenant's cell, which does not answer here, and name whom they ask for.
ON_BEHALF = (
    "RecordViewSet",
    "DelayedViewSet",
    "RedriveViewSet",
    "GroupViewSet",
    "OffsetResetViewSet",
)
MODELS = (Topic, ServiceAccount, ApiKey, Grant, Invitation, Membership, Operation, TenantQuota)


@dataclass(frozen=True, slots=True)
class Address:
    """One method of one address below an organization."""

    template: str
    method: str
    view: str
    handler: str
    right: str

    @property
    def names_a_thing(self) -> bool:
        """Whether a thing of a tenant is named, in the address or in the body."""
        below = self.template.replace("<id:organization_id>", "")
        in_body = self.handler == "create" and self.view in ("GrantViewSet", "ApiKeyViewSet")
        return "<id:" in below or in_body or self.view in ON_BEHALF

    def filled(self, ids: dict[str, str]) -> str:
        named = re.sub(r"<\w+:(\w+)>", lambda match: ids[match[1]], self.template)
        if self.view in ON_BEHALF and self.method == "get":
            named += "?partition=0"
            named += f"&service_account_id={ids['acts_as']}" if "acts_as" in ids else ""
        return "/api/v1/" + named


def addresses() -> list[Address]:
    """All that is served below an organization."""
    found = []
    for pattern in urlpatterns:
        view: Any = getattr(pattern.callback, "cls", None)
        if view is None or not issubclass(view, TenantViewSet):
            continue
        handlers: dict[str, str] = pattern.callback.actions  # type: ignore[attr-defined]
        template = str(pattern.pattern)
        for method, handler in handlers.items():
            found.append(Address(template, method, view.__name__, handler, view.actions[handler]))
    return found


ADDRESSES = addresses()


def fill(tenant: Tenant) -> dict[str, str]:
    """One of everything; their ids by the names in addresses."""
    account = do_create_service_account(tenant.actor, tenant.id, "app", "", "viewer", "owner")
    key, _ = do_create_key(tenant.actor, tenant.id, account.id, "owner")
    grant = do_create_grant(
        *(tenant.actor, tenant.id, account.id),
        role="consumer",
        resource_type="topic",
        pattern_type="literal",
        resource_name="orders",
    )
    spec = TopicSpec(configs={"tidewheel.headers": True})
    topic = do_create_topic(tenant.actor, tenant.id, "orders", spec)
    subscription = do_create_subscription(
        tenant.actor, tenant.id, "checkouts", "orders", "checkout"
    )
    invitation = do_invite(
        tenant.actor, tenant.id, "ann@x.example", "viewer", "owner", tenant.owner
    )
    operation = Operation(
        organization=tenant.organization, kind="purge", resource_id=topic.id, actor_id="user_x"
    )
    operation.save()
    member_of(tenant, "viewer", f"extra@{tenant.organization.slug}.example")
    member = Membership.objects.of(tenant.id).get(role="viewer")
    return {
        "organization_id": tenant.id,
        "service_account_id": account.id,
        "api_key_id": key.id,
        "grant_id": grant.id,
        "acts_as": account.id,
        "topic_id": topic.id,
        "subscription_id": subscription.id,
        "group_id": "readers",
        "invitation_id": invitation.id,
        "operation_id": operation.id,
        "member_id": member.id,
    }


def state_of(tenant: Tenant) -> str:
    """Everything that the tenant has, but when its keys were used."""
    rows = [row for model in MODELS for row in model.objects.of(tenant.id).order_by("id")]
    for row in rows:
        if isinstance(row, ApiKey):
            row.last_used_at = None
    text: str = serializers.serialize("json", [*rows, Organization.objects.get(id=tenant.id)])
    return text


def send(client: APIClient, address: Address, ids: dict[str, str]) -> Any:
    body = BODIES.get((address.view, address.handler), {})
    if address.view in ("GrantViewSet", "ApiKeyViewSet") and address.handler == "create":
        account = {"service_account_id": ids["service_account_id"]}
        body = {"spec": body["spec"] | account} if body else account
    if address.view in ON_BEHALF and "acts_as" in ids:
        body = body | {"service_account_id": ids["acts_as"]}
    call = getattr(client, address.method)
    if address.method == "get":
        return call(address.filled(ids))
    return call(address.filled(ids), body, format="json")


@pytest.fixture
def acme() -> Tenant:
    cache.clear()
    make_cell()
    return make_tenant("acme")


def test_all_actions_have_a_row_and_all_rows_of_resources_are_used() -> None:
    assert {address.right for address in ADDRESSES} == ALLOWED.keys()
    assert len(ADDRESSES) >= 30


@contextmanager
def undone() -> Iterator[None]:
    """What is done inside is undone, so that the next address finds everything as it was."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.mark.parametrize("kind", ["owner", "key"])
def test_what_is_another_tenants_is_not_there(acme: Tenant, kind: str) -> None:
    other = make_tenant("other")
    fill(acme)
    theirs = fill(other)
    before = state_of(other)
    caller = client_of(acme.owner) if kind == "owner" else client_with(key_of(acme, "owner"))
    mixed = theirs | {"organization_id": acme.id}
    for address in ADDRESSES:
        with undone():
            # Below their organization, and their things below one's own.
            assert send(caller, address, theirs).status_code == 404, address
            answer = send(caller, address, mixed)
            if address.names_a_thing:
                assert answer.status_code == 404, (address, answer.content)
            else:
                assert answer.status_code < 500, address
                mine = answer.content.decode()
                typed = [an_id for an_id in theirs.values() if "_" in an_id]
                assert not any(an_id in mine for an_id in typed), address
            assert state_of(other) == before, address


@pytest.mark.parametrize("role", [*Role.values, OPERATOR, "key of a viewer", "key of a developer"])
def test_the_table_of_roles_decides(acme: Tenant, role: str) -> None:
    ids = fill(acme)
    table_role = role.removeprefix("key of a ")
    if role == OPERATOR:
        caller = operator()
    elif role.startswith("key"):
        # It stands for its own account.
        del ids["acts_as"]
        caller = client_with(key_of(acme, table_role, ("kafka", "rest")))
    else:
        caller = member_of(acme, role, "caller@x.example")
    before = state_of(acme)
    for address in ADDRESSES:
        with undone():
            answer = send(caller, address, ids)
            if may(table_role, address.right):
                # Whether it comes to something depends: what is not deleted is not undeleted.
                done = (503,) if address.view in ON_BEHALF else (200, 201, 202, 204, 409)
                assert answer.status_code in done, (address, answer.content)
            else:
                assert answer.status_code == 403, (address, answer.content)
                assert state_of(acme) == before, address
