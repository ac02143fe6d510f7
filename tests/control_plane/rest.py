"""REST as callers have it: one client for each person or key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rest_framework.test import APIClient

from control_plane.access.logic import do_create_key, do_create_service_account
from control_plane.accounts.models import Membership, User
from tests.control_plane.tenants import Tenant, make_user


def client_of(user: User) -> APIClient:
    """Logged in with a session; CSRF is tested where it matters."""
    client = APIClient()
    client.force_login(user, "django.contrib.auth.backends.ModelBackend")
    return client


def member_of(tenant: Tenant, role: str, email: str | None = None) -> APIClient:
    """A new member of the tenant."""
    user = make_user(email or f"{role}@{tenant.organization.slug}.example")
    Membership(organization=tenant.organization, user=user, role=role).save()
    return client_of(user)


def operator() -> APIClient:
    user = make_user("operator@tidewheel.example")
    user.is_staff = True
    user.save()
    return client_of(user)


def key_of(tenant: Tenant, role: str = "developer", scopes: tuple[str, ...] = ("rest",)) -> str:
    """A secret of a new service account."""
    account = do_create_service_account(
        tenant.actor, tenant.id, f"{role}-{'-'.join(scopes)}", "", role, "owner"
    )
    _, secret = do_create_key(tenant.actor, tenant.id, account.id, "owner", scopes=scopes)
    return secret


def client_with(secret: str, address: str = "127.0.0.1") -> APIClient:
    client = APIClient(REMOTE_ADDR=address)
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client


def at(tenant: Tenant, address: str = "") -> str:
    """The address below the tenant's organization."""
    base = f"/api/v1/organizations/{tenant.id}"
    return f"{base}/{address}" if address else base


def post(client: APIClient, address: str, body: Any = None, **headers: str) -> Any:
    return client.post(address, body or {}, format="json", headers=headers or None)


def patch(client: APIClient, address: str, body: Any, **headers: str) -> Any:
    return client.patch(address, body, format="json", headers=headers or None)


def just_before_the_lock(change: Callable[[], object]) -> Callable[..., Any]:
    """Does `change` as if somebody else had done it after the caller was let in, and before his
    write has the tenant's lock."""
    pending = [change]

    def wrapper(execute: Callable[..., Any], sql: str, *arguments: Any) -> Any:
        if "FOR UPDATE" in sql and pending:
            pending.pop()()
        return execute(sql, *arguments)

    return wrapper
