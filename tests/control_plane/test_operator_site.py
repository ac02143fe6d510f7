"""The operators' site: for operators alone, all pages open, nothing changes past the audit."""

from __future__ import annotations

from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib import admin
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.urls import reverse

from control_plane.accounts.logic import do_delete_organization, do_suspend
from control_plane.accounts.models import Organization, User
from control_plane.cells.models import Cell
from control_plane.messaging.logic import TopicSpec, do_create_topic
from control_plane.operations.models import AuditEvent, OutboxEntry
from control_plane.quotas.logic import do_set_quota, limits_in_force
from control_plane.quotas.models import LIMITS, Plan, TenantQuota
from control_plane.tenancy.operator_site import OperatorPage
from tests.control_plane.rest import just_before_the_lock
from tests.control_plane.tenants import Tenant, make_cell, make_tenant, make_user

pytestmark = pytest.mark.django_db
BACKEND = "django.contrib.auth.backends.ModelBackend"


@pytest.fixture
def acme() -> Tenant:
    cache.clear()
    make_cell()
    tenant = make_tenant("acme")
    do_create_topic(tenant.actor, tenant.id, "orders", TopicSpec())
    return tenant


@pytest.fixture
def site(acme: Tenant) -> Client:
    """For an operator, who is no superuser."""
    operator = make_user("operator@x.example")
    operator.is_staff = True
    operator.save()
    client = Client()
    client.force_login(operator, BACKEND)
    return client


def test_tenants_do_not_get_in(acme: Tenant) -> None:
    client = Client()
    assert client.get("/operators/").status_code == 302
    client.force_login(acme.owner, BACKEND)
    assert client.get("/operators/cells/cell/").status_code in (302, 403)


def test_all_pages_open(site: Client) -> None:
    assert site.get("/operators/").status_code == 200
    seen = 0
    for model, page in admin.site._registry.items():
        assert isinstance(page, OperatorPage), model
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        assert site.get(reverse(f"{name}_changelist")).status_code == 200, name
        first = page.get_queryset(site.get("/operators/").wsgi_request).first()
        if first is not None:
            assert site.get(reverse(f"{name}_change", args=[first.pk])).status_code == 200, name
            seen += 1
    assert seen >= 8


def test_what_is_newest_comes_first(site: Client, acme: Tenant) -> None:
    do_create_topic(acme.actor, acme.id, "more", TopicSpec(1))
    for address in ("operations/auditevent", "operations/outboxentry"):
        page = site.get(f"/operators/{address}/")
        shown = [row.pk for row in page.context["cl"].result_list]
        assert shown == sorted(shown, reverse=True)
        assert len(shown) > 1
        assert "Django administration" not in page.content.decode()


def test_nothing_is_changed_past_the_audit(site: Client, acme: Tenant) -> None:
    theirs = EmailAddress.objects.create(user=acme.owner, email=acme.owner.email)
    for address in (
        f"account/emailaddress/{theirs.pk}/change/",
        "mfa/authenticator/",
        "socialaccount/socialapp/add/",
        "auth/group/add/",
    ):
        assert site.get(f"/operators/{address}").status_code == 404, address


def test_operators_make_no_operators(site: Client, acme: Tenant) -> None:
    address = reverse("admin:accounts_user_change", args=[acme.owner.id])
    assert site.get(address).status_code == 200
    assert site.post(address, {"is_staff": "on", "is_active": "on"}).status_code == 403
    assert not User.objects.get(id=acme.owner.id).is_staff


def no_operator_any_more() -> None:
    User.objects.update(is_staff=False)


def test_who_is_no_operator_any_more_changes_nothing(site: Client, acme: Tenant) -> None:
    body = {"action": "suspend", "_selected_action": [acme.id]}
    with connection.execute_wrapper(just_before_the_lock(no_operator_any_more)):
        site.post(reverse("admin:accounts_organization_changelist"), body)
    assert Organization.objects.get(id=acme.id).state == "trial"


def test_who_is_no_operator_any_more_changes_no_limits(site: Client, acme: Tenant) -> None:
    with connection.execute_wrapper(just_before_the_lock(no_operator_any_more)):
        answer = send_plan(site, partitions=200)
    assert answer.status_code == 403
    assert Plan.objects.get(is_default=True).partitions == 100
    assert quota_entries(acme) == [1]


def test_suspending_is_audited_and_told_to_the_cell(site: Client, acme: Tenant) -> None:
    before = OutboxEntry.objects.of(acme.id).count()
    body = {"action": "suspend", "_selected_action": [acme.id]}
    site.post(reverse("admin:accounts_organization_changelist"), body)
    assert Organization.objects.get(id=acme.id).state == "suspended"
    assert AuditEvent.objects.get(action="organization.suspended").actor_kind == "operator"
    assert OutboxEntry.objects.of(acme.id).count() == before + 1


def test_a_cell_is_made_with_its_audit(site: Client) -> None:
    body = {
        "name": "two",
        "region": "",
        "admin_endpoints": '["127.0.0.1:3"]',
        "bootstrap_servers": "127.0.0.1:4",
        "is_accepting": "on",
        "tenants_max": "5",
        "partitions_max": "50",
    }
    answer = site.post(reverse("admin:cells_cell_add"), body)
    assert answer.status_code == 302
    cell = Cell.objects.get(name="two")
    assert AuditEvent.objects.get(resource_id=cell.id).action == "cell.create"


def test_what_only_functions_change_has_no_form(site: Client, acme: Tenant) -> None:
    address = reverse("admin:accounts_organization_change", args=[acme.id])
    assert site.post(address, {"slug": "stolen"}).status_code == 403
    assert Organization.objects.get(id=acme.id).slug == "acme"


def send_plan(site: Client, **changes: int) -> Any:
    plan = Plan.objects.get(is_default=True)
    body = {name: getattr(plan, name) for name in LIMITS} | {"name": plan.name, "is_default": "on"}
    address = reverse("admin:quotas_plan_change", args=[plan.id])
    return site.post(address, body | changes)


def save_plan(site: Client, **changes: int) -> None:
    assert send_plan(site, **changes).status_code == 302


def quota_entries(tenant: Tenant) -> list[int]:
    entries = OutboxEntry.objects.of(tenant.id).filter(kind="quota").order_by("sequence")
    return list(entries.values_list("generation", flat=True))


def test_a_changed_plan_is_told_to_the_cells_of_whom_it_changes_something_for(
    site: Client, acme: Tenant
) -> None:
    special, gone = make_tenant("special"), make_tenant("gone")
    do_set_quota(special.actor, special.id, {"partitions": 7})
    do_delete_organization(gone.actor, gone.id)
    save_plan(site, partitions=200)
    assert Plan.objects.get(is_default=True).partitions == 200
    told = TenantQuota.objects.of(acme.id).get()
    assert (told.generation, told.status, quota_entries(acme)) == (2, "provisioning", [1, 2])
    event = AuditEvent.objects.get(action="quota.update", organization_id=acme.id)
    assert (event.actor_kind, event.changes) == ("operator", {"partitions": [100, 200]})
    # Its own limit holds; who is gone is told nothing.
    assert quota_entries(special) == [1, 2]
    assert quota_entries(gone) == [1]
    assert AuditEvent.objects.get(action="plan.update").changes == {"partitions": [100, 200]}


def test_a_limit_that_is_kept_here_is_no_matter_of_cells(site: Client, acme: Tenant) -> None:
    save_plan(site, topics=3)
    assert quota_entries(acme) == [1]
    assert limits_in_force(Organization.objects.get(id=acme.id))["topics"] == 3


def test_who_is_suspended_gets_the_limits_of_the_changed_plan(site: Client, acme: Tenant) -> None:
    do_suspend(acme.actor, acme.id, "the bill is not paid")
    save_plan(site, partitions=300)
    assert quota_entries(acme) == [1, 2]


def test_a_plan_is_made_with_its_audit(site: Client) -> None:
    body = {"name": "large"} | dict.fromkeys(LIMITS, 5)
    assert site.post(reverse("admin:quotas_plan_add"), body).status_code == 302
    plan = Plan.objects.get(name="large")
    event = AuditEvent.objects.get(resource_id=plan.id)
    assert (event.action, event.actor_kind, plan.topics) == ("plan.create", "operator", 5)
