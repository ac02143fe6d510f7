"""Service accounts, keys and grants: all writes, each with its audit event.

Nobody gives rights that he lacks: a service account's role is at most that of who makes it, and a
key speaks for its account. A key that makes keys gives them scopes, networks and an end within its
own, so that what was made for one place and one hour does not outlive them.

A key is replaced by a new one beside it, and ends when everybody has moved (rotation with overlap).
It is replaced once: otherwise who has found an old secret could rotate it past its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from control_plane.access.acls import OPERATIONS
from control_plane.access.models import ApiKey, Grant, Scope, ServiceAccount
from control_plane.access.networks import are_within, normalized_networks
from control_plane.access.secrets_of_keys import new_secret, scram_verifiers, secret_hash
from control_plane.accounts.facade import refuse_to_grant
from control_plane.operations.facade import (
    Actor,
    ActorKind,
    ResourceKind,
    TenantWrite,
    tenant_write,
)
from control_plane.quotas.facade import refuse_beyond
from control_plane.tenancy.errors import Conflict, Forbidden, Invalid, NotFound

OVERLAP_MAX = timedelta(days=90)


def do_create_service_account(
    actor: Actor, organization_id: str, name: str, description: str, role: str, by_role: str
) -> ServiceAccount:
    """A program's identity. Raises Forbidden, Conflict, QuotaExceeded."""
    refuse_to_grant(by_role, role, field="/role")
    with tenant_write(actor, organization_id) as write:
        accounts = ServiceAccount.objects.of(organization_id)
        if accounts.filter(name=name, deleted_at=None).exists():
            raise Conflict(f"There is a service account {name}.", field="/name")
        refuse_beyond(
            write.organization, "service_accounts", accounts.filter(deleted_at=None).count() + 1
        )
        account = ServiceAccount(
            organization=write.organization, name=name, description=description, role=role
        )
        account.save(force_insert=True)
        write.audit("service_account.create", account.id, name, {"role": role})
    return account


def do_update_service_account(
    actor: Actor,
    organization_id: str,
    account_id: str,
    changes: Mapping[str, str],
    by_role: str,
) -> ServiceAccount:
    """Another description or role; the role neither given nor taken by who has a lesser one."""
    with tenant_write(actor, organization_id) as write:
        account = find_service_account(organization_id, account_id)
        if "role" in changes:
            refuse_to_grant(by_role, changes["role"], field="/role")
            refuse_to_grant(by_role, account.role)
            account.role = changes["role"]
        account.description = changes.get("description", account.description)
        account.save()
        write.audit("service_account.update", account.id, account.name, dict(changes))
    return account


def do_delete_service_account(
    actor: Actor, organization_id: str, account_id: str, by_role: str
) -> None:
    """With its keys and grants. The rows stay, with `deleted_at`."""
    with tenant_write(actor, organization_id, even_if_suspended=True) as write:
        account = find_service_account(organization_id, account_id)
        refuse_to_grant(by_role, account.role)
        for key in ApiKey.objects.of(organization_id).filter(service_account=account):
            _end_key(write, key)
        for grant in Grant.objects.of(organization_id).filter(
            service_account=account, deleted_at=None
        ):
            _end_grant(write, grant)
        account.deleted_at = timezone.now()
        account.save()
        write.audit("service_account.delete", account.id, account.name)


def do_create_key(
    actor: Actor,
    organization_id: str,
    account_id: str,
    by_role: str,
    *,
    name: str = "",
    scopes: Sequence[str] = (Scope.KAFKA,),
    networks: Sequence[str] = (),
    expires_at: datetime | None = None,
) -> tuple[ApiKey, str]:
    """A key and its secret, which is not kept. Raises Forbidden, Invalid, QuotaExceeded."""
    with tenant_write(actor, organization_id) as write:
        account = find_service_account(organization_id, account_id, field="/service_account_id")
        refuse_to_grant(by_role, account.role, field="/service_account_id")
        return _make_key(write, account, name, scopes, networks, expires_at, None)


def do_rotate_key(
    actor: Actor, organization_id: str, key_id: str, by_role: str, overlap: timedelta
) -> tuple[ApiKey, str]:
    """A new key like this one, with the same end; the old one ends when the overlap is over, or as
    it would have."""
    if not timedelta(0) <= overlap <= OVERLAP_MAX:
        raise Invalid(f"An overlap is from 0 to {OVERLAP_MAX.days} days.", field="/overlap_s")
    with tenant_write(actor, organization_id) as write:
        old = find_key(organization_id, key_id)
        if old.revoked_at is not None or not is_valid(old, timezone.now()):
            raise Conflict("The key has ended; make another one.")
        account = find_service_account(organization_id, old.service_account_id)
        refuse_to_grant(by_role, account.role)
        successor = ApiKey.objects.of(organization_id).filter(rotated_from=old).first()
        if successor is not None:
            raise Conflict(f"{successor.id} has replaced this key; rotate that one.")
        made = _make_key(write, account, old.name, old.scopes, old.networks, old.expires_at, old)
        end = timezone.now() + overlap
        old.expires_at = end if old.expires_at is None else min(end, old.expires_at)
        _save_again(write, old)
        write.audit("api_key.rotate", old.id, old.name, {"to": made[0].id})
    return made


def do_revoke_key(actor: Actor, organization_id: str, key_id: str, by_role: str) -> ApiKey:
    """The key is worth nothing any more: by REST at once, in the cell as soon as it hears of it."""
    with tenant_write(actor, organization_id, even_if_suspended=True) as write:
        key = find_key(organization_id, key_id)
        refuse_to_grant(by_role, key.service_account.role)
        _end_key(write, key)
        write.audit("api_key.revoke", key.id, key.name)
    return key


def do_create_grant(
    actor: Actor,
    organization_id: str,
    account_id: str,
    *,
    role: str,
    resource_type: str,
    pattern_type: str,
    resource_name: str,
) -> Grant:
    """Allow a service account something. Raises Invalid, Conflict, QuotaExceeded."""
    if (role, resource_type) not in OPERATIONS:
        raise Invalid(f"A {role} of a {resource_type} is nothing.", field="/spec/role")
    with tenant_write(actor, organization_id) as write:
        account = find_service_account(
            organization_id, account_id, field="/spec/service_account_id"
        )
        fields: dict[str, Any] = {
            "service_account": account,
            "role": role,
            "resource_type": resource_type,
            "pattern_type": pattern_type,
            "resource_name": resource_name,
        }
        grants = Grant.objects.of(organization_id).filter(deleted_at=None)
        present = grants.filter(**fields).first()
        if present is not None:
            raise Conflict(f"There is such a grant, {present.id}.")
        refuse_beyond(write.organization, "grants", grants.count() + 1)
        grant = Grant(organization=write.organization, **fields)
        grant.save(force_insert=True)
        write.audit("grant.create", grant.id, resource_name, grant.declared())
        write.declare(ResourceKind.GRANT, grant)
    return grant


def do_delete_grant(actor: Actor, organization_id: str, grant_id: str) -> Grant:
    """Take it back."""
    with tenant_write(actor, organization_id, even_if_suspended=True) as write:
        grant = find_grant(organization_id, grant_id)
        if grant.deleted_at is None:
            _end_grant(write, grant)
        write.audit("grant.delete", grant.id, grant.resource_name, grant.declared())
    return grant


def is_valid(key: ApiKey, now: datetime) -> bool:
    """Whether the key is accepted at this moment."""
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > now)


def valid_keys(organization_id: str, now: datetime) -> QuerySet[ApiKey]:
    """The tenant's keys that are accepted at this moment."""
    keys = ApiKey.objects.of(organization_id).filter(revoked_at=None)
    return keys.filter(Q(expires_at=None) | Q(expires_at__gt=now))


def _make_key(
    write: TenantWrite,
    account: ServiceAccount,
    name: str,
    scopes: Sequence[str],
    networks: Sequence[str],
    expires_at: datetime | None,
    rotated_from: ApiKey | None,
) -> tuple[ApiKey, str]:
    count = valid_keys(write.organization.id, timezone.now()).count()
    refuse_beyond(write.organization, "api_keys", count + 1)
    if not scopes or not set(scopes) <= set(Scope.values):
        raise Invalid("A key has the scopes `kafka`, `rest` or both.", field="/scopes")
    if expires_at is not None and expires_at <= timezone.now():
        raise Invalid("A key ends in the future.", field="/expires_at")
    networks = normalized_networks(networks)
    if write.actor.kind == ActorKind.API_KEY:
        maker = find_key(write.organization.id, write.actor.id)
        _refuse_more_than(maker, scopes, networks, expires_at)
    secret = new_secret()
    key = ApiKey(
        organization=write.organization,
        service_account=account,
        name=name,
        scopes=sorted(set(scopes)),
        secret_hash=secret_hash(secret),
        verifiers=scram_verifiers(secret) if Scope.KAFKA in scopes else {},
        networks=networks,
        expires_at=expires_at,
        rotated_from=rotated_from,
    )
    if Scope.KAFKA in scopes:
        write.declare(ResourceKind.CREDENTIAL, key)
    else:
        key.settle()
    key.save(force_insert=True)
    write.audit(
        "api_key.create", key.id, name, {"scopes": key.scopes, "service_account": account.id}
    )
    return key, secret


def _refuse_more_than(
    maker: ApiKey, scopes: Sequence[str], networks: Sequence[str], expires_at: datetime | None
) -> None:
    """A key makes no key that is accepted where it is not, or for longer."""
    if not set(scopes) <= set(maker.scopes):
        raise Forbidden("A key makes keys of its own scopes alone.", field="/scopes")
    if not are_within(networks, maker.networks):
        raise Forbidden("A key makes keys for networks within its own.", field="/networks")
    if maker.expires_at is not None and (expires_at is None or expires_at > maker.expires_at):
        raise Forbidden("A key makes keys that end when it does, or before.", field="/expires_at")


def _end_key(write: TenantWrite, key: ApiKey) -> None:
    if key.revoked_at is not None:
        return
    key.revoked_at = key.deleted_at = timezone.now()
    _save_again(write, key)


def _save_again(write: TenantWrite, key: ApiKey) -> None:
    """The key has changed; the cell is told where it has it."""
    key.declare_again()
    if Scope.KAFKA in key.scopes:
        write.declare(ResourceKind.CREDENTIAL, key)
    else:
        key.settle()
    key.save()


def _end_grant(write: TenantWrite, grant: Grant) -> None:
    grant.deleted_at = timezone.now()
    grant.declare_again()
    grant.save()
    write.declare(ResourceKind.GRANT, grant)


def find_service_account(
    organization_id: str, account_id: str, *, field: str = ""
) -> ServiceAccount:
    """The tenant's service account of this id, which the request names at `field`. Raises
    NotFound."""
    accounts = ServiceAccount.objects.of(organization_id).filter(deleted_at=None)
    account = accounts.filter(id=account_id).first()
    if account is None:
        raise NotFound("There is no such service account.", field=field)
    return account


def find_key(organization_id: str, key_id: str) -> ApiKey:
    """The tenant's key of this id. Raises NotFound."""
    keys = ApiKey.objects.of(organization_id).select_related("organization", "service_account")
    key = keys.filter(id=key_id).first()
    if key is None:
        raise NotFound("There is no such key.")
    return key


def find_grant(organization_id: str, grant_id: str) -> Grant:
    """The tenant's grant of this id. Raises NotFound."""
    grant = Grant.objects.of(organization_id).filter(id=grant_id).first()
    if grant is None:
        raise NotFound("There is no such grant.")
    return grant
