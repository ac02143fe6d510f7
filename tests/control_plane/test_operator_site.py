"""The operators' site: for operators alone, all pages open, nothing changes past the audit."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from control_plane.accounts.models import Organization, User
from control_plane.cells.models import Cell
from control_plane.messaging.logic import TopicSpec, do_create_topic
from control_plane.operations.models import AuditEvent, OutboxEntry
from tests.control_plane.tenants import Tenant, make_cell, make_tenant

pytestmark = pytest.mark.django_db
BACKEND = "django.contrib.auth.backends.ModelBackend"
OURS = {"accounts", "cells", "messaging", "operations", "quotas"}


@pytest.fixture
def acme() -> Tenant:
    cache.clear()
    make_cell()
    tenant = make_tenant("acme")
    do_create_topic(tenant.actor, tenant.id, "orders", TopicSpec())
    return tenant


@pytest.fixture
def site(acme: Tenant) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root@x.example", "a long password"), BACKEND)
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
        if model._meta.app_label not in OURS:
            continue
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        assert site.get(reverse(f"{name}_changelist")).status_code == 200, name
        first = page.get_queryset(site.get("/operators/").wsgi_request).first()
        if first is not None:
            assert site.get(reverse(f"{name}_change", args=[first.pk])).status_code == 200, name
            seen += 1
    assert seen >= 8


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
