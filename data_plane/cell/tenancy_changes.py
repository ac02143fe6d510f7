"""Changes of tenants and of what belongs to them, and how an image that is being made takes them.

All of them need metadata.version 3. The other changes, and the image itself, are in changes.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, assert_never

from data_plane.cell.acls import (
    NO_ACLS,
    Acls,
    AddAcls,
    RemoveAcls,
    acls_added,
    acls_removed,
    with_tenant,
)
from data_plane.cell.authors import NameAuthor
from data_plane.cell.client_quotas import (
    NO_CLIENT_QUOTAS,
    AlterClientQuotas,
    ClientQuotas,
    client_quotas_altered,
    with_client_quotas,
)
from data_plane.cell.credentials import (
    DECOY_KEY_BYTES,
    Credential,
    Credentials,
    DeleteCredential,
    PutCredential,
    PutDecoyKey,
    why_invalid_credential,
)
from data_plane.cell.declarations import DeclarationsDraft, PutDeclaration
from data_plane.cell.invalid_change import InvalidChange
from data_plane.cell.tenant_quotas import PutTenantQuotas, why_beyond_capacity
from data_plane.cell.tenants import (
    DEFAULT_TENANT,
    DeleteTenant,
    PutTenant,
    PutTenantState,
    TenantImage,
    Tenants,
    tenant_of,
    why_invalid,
)
from data_plane.cell.topics_draft import TopicsDraft

TenancyChange = (
    PutTenant
    | DeleteTenant
    | PutCredential
    | DeleteCredential
    | PutDecoyKey
    | PutDeclaration
    | AddAcls
    | RemoveAcls
    | PutTenantState
    | PutTenantQuotas
    | AlterClientQuotas
    | NameAuthor
)


class TenancyDraft(Protocol):
    """The part of an image that is being made which these changes are about."""

    tenants: Tenants
    decoy_key: bytes
    acls: Acls
    client_quotas: ClientQuotas
    version: int

    @property
    def cluster_id(self) -> str: ...
    def topics(self) -> TopicsDraft: ...
    def remove_configs_of(self, tenant: str) -> None: ...
    def credentials(self) -> Credentials: ...
    def writable_credentials(self) -> dict[str, Credential]: ...
    def declarations(self) -> DeclarationsDraft: ...
    def capacity(self, name: str) -> int: ...


def apply_tenancy_change(draft: TenancyDraft, change: TenancyChange) -> None:
    match change:
        case PutTenant(tenant):
            _put_tenant(draft, tenant)
        case PutTenantState():
            old = _existing_tenant(draft, change.tenant)
            _put_tenant(draft, replace(old, state=change.state, state_reason=change.reason))
        case PutTenantQuotas():
            old = _existing_tenant(draft, change.tenant)
            _put_tenant(draft, replace(old, quotas=change.quotas))
        case DeleteTenant():
            if change.name not in draft.tenants:
                raise InvalidChange(f"there is no tenant {change.name}")
            is_used = any(one.tenant == change.name for one in draft.credentials().values())
            if is_used and change.name != DEFAULT_TENANT:
                # One that is made anew with this name would let them in.
                raise InvalidChange(f"tenant {change.name} has credentials")
            if change.name != DEFAULT_TENANT:
                if change.name in draft.topics().by_tenant:
                    raise InvalidChange(f"tenant {change.name} has topics")
                draft.remove_configs_of(change.name)
                draft.declarations().end_all_of(change.name)
            draft.tenants = {
                name: tenant for name, tenant in draft.tenants.items() if name != change.name
            }
            if change.name != DEFAULT_TENANT:
                draft.acls = with_tenant(draft.acls, change.name, NO_ACLS)
                draft.client_quotas = with_client_quotas(
                    draft.client_quotas, change.name, NO_CLIENT_QUOTAS
                )
        case PutCredential(credential):
            _put_credential(draft, credential)
        case DeleteCredential(login):
            if draft.writable_credentials().pop(login, None) is None:
                raise InvalidChange(f"there is no credential {login}")
        case PutDecoyKey(key):
            if len(key) != DECOY_KEY_BYTES or draft.decoy_key not in (b"", key):
                # Users that do not exist would be known by their salts, which are new.
                raise InvalidChange(f"a decoy key has {DECOY_KEY_BYTES} bytes, and remains")
            draft.decoy_key = key
        case PutDeclaration(declaration):
            try:
                draft.declarations().put(declaration)
            except ValueError as error:
                raise InvalidChange(str(error)) from None
        case AddAcls() | RemoveAcls():
            _change_acls(draft, change)
        case AlterClientQuotas():
            _alter_client_quotas(draft, change)
        case NameAuthor():
            pass
        case _:
            assert_never(change)


def _as_made(draft: TenancyDraft, tenant: TenantImage) -> TenantImage:
    """With what this commit alone can say: since when there is a tenant. `default` always was."""
    if tenant.name == DEFAULT_TENANT:
        return replace(tenant, made_at=0)
    old = draft.tenants.get(tenant.name)
    return replace(tenant, made_at=draft.version if old is None else old.made_at)


def _existing_tenant(draft: TenancyDraft, name: str) -> TenantImage:
    tenant = tenant_of(draft.tenants, draft.cluster_id, name)
    if tenant is None:
        raise InvalidChange(f"there is no tenant {name}")
    return tenant


def _put_tenant(draft: TenancyDraft, tenant: TenantImage) -> None:
    reason = why_invalid(draft.tenants, draft.cluster_id, tenant)
    if reason:
        raise InvalidChange(reason)
    old = draft.tenants.get(tenant.name, TenantImage("", ""))
    others = (one.quotas for name, one in draft.tenants.items() if name != tenant.name)
    reason = why_beyond_capacity(old.quotas, tenant.quotas, others, draft.capacity)
    if reason:
        raise InvalidChange(f"tenant {tenant.name}: {reason}")
    draft.tenants = {**draft.tenants, tenant.name: _as_made(draft, tenant)}


def _alter_client_quotas(draft: TenancyDraft, change: AlterClientQuotas) -> None:
    tenant = _existing_tenant(draft, change.tenant).name
    quotas = draft.client_quotas.get(tenant, NO_CLIENT_QUOTAS)
    altered = client_quotas_altered(quotas, change)
    if isinstance(altered, str):
        raise InvalidChange(f"tenant {tenant}: {altered}")
    draft.client_quotas = with_client_quotas(draft.client_quotas, tenant, altered)


def _put_credential(draft: TenancyDraft, credential: Credential) -> None:
    reason = why_invalid_credential(draft.credentials(), credential)
    if reason:
        raise InvalidChange(reason)
    _existing_tenant(draft, credential.tenant)
    draft.writable_credentials()[credential.login] = credential


def _change_acls(draft: TenancyDraft, change: AddAcls | RemoveAcls) -> None:
    tenant = _existing_tenant(draft, change.tenant).name
    acls = draft.acls.get(tenant, NO_ACLS)
    if isinstance(change, AddAcls):
        changed = acls_added(acls, change.acls)
    else:
        changed = acls_removed(acls, change.acls)
    if isinstance(changed, str):
        raise InvalidChange(f"tenant {tenant}: {changed}")
    draft.acls = with_tenant(draft.acls, tenant, changed)
