"""Who asks: a person with a session, or a program with an API key.

    Authorization: Bearer tws_…      a key with the scope `rest`
    X-Session-Token: …               a session of the command line (allauth's)
    a cookie, with a CSRF token      a browser

Invariants
- A key without the scope `rest`, that has ended, of a tenant that is deleted, or from outside of
  its networks, is no key; the words are the same for all of them.
- The key's rights are its service account's, in its own tenant and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from control_plane.access.facade import is_valid, is_within
from control_plane.access.models import ApiKey, Scope
from control_plane.access.secrets_of_keys import SECRET_PREFIX, secret_hash
from control_plane.accounts.facade import OPERATOR
from control_plane.accounts.models import OrganizationState
from control_plane.operations.facade import Actor, ActorKind

SECRET_CHARACTERS_MAX = 200
LAST_USED_STEP = timedelta(minutes=1)
"""How exact `last_used_at` is: not every request is a write."""


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """A program, in place of Django's user."""

    key: ApiKey

    is_authenticated = True
    is_active = True
    is_staff = False

    @property
    def pk(self) -> str:
        return self.key.id


class ApiKeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer tws_…`."""

    def authenticate(self, request: Request) -> tuple[KeyHolder, ApiKey] | None:
        scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        secret = secret.strip()
        if not secret.startswith(SECRET_PREFIX) or len(secret) > SECRET_CHARACTERS_MAX:
            raise AuthenticationFailed("This key is not accepted.")
        keys = ApiKey.objects.across_tenants().select_related("service_account", "organization")
        key = keys.filter(secret_hash=secret_hash(secret)).first()
        now = timezone.now()
        if (
            key is None
            or not is_valid(key, now)
            or Scope.REST not in key.scopes
            or not is_within(key.networks, request.META.get("REMOTE_ADDR", ""))
            or key.service_account.deleted_at is not None
            or key.organization.state == OrganizationState.DELETED
        ):
            raise AuthenticationFailed("This key is not accepted.")
        if key.last_used_at is None or now - key.last_used_at > LAST_USED_STEP:
            stale = Q(last_used_at=None) | Q(last_used_at__lt=now - LAST_USED_STEP)
            ApiKey.objects.of(key.organization_id).filter(stale, id=key.id).update(last_used_at=now)
        return KeyHolder(key), key

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the schema shows it."""

    target_class = ApiKeyAuthentication
    name = "apiKey"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "A key with the scope `rest`."}


def actor_of(request: Request, *, role: str = "") -> Actor:
    """Who is written into audit events. `role` is what lets him in, in one organization."""
    address = request.META.get("REMOTE_ADDR") or None
    user: Any = request.user
    if isinstance(user, KeyHolder):
        return Actor(ActorKind.API_KEY, user.key.id, user.key.service_account.name, address, role)
    kind = ActorKind.OPERATOR if role == OPERATOR else ActorKind.USER
    return Actor(kind, user.id, user.email, address, role)
