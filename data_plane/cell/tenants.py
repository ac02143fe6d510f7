"""Tenants: virtual clusters within one cell, and the changes that make and end them.

A tenant is a namespace of topics, groups and transactional ids with a cluster id of its own. What
belongs to one names it everywhere, beside the name that its clients use: two tenants may both have
a topic `orders`. Whoever connects without saying who it is speaks for the tenant `default`, which
always exists: its cluster id is the cell's, and it is only stored when it has settings.

Invariants
- A tenant's cluster id never changes, and no two tenants have the same.
- A name may be used again, a `tenant_id` never is: what outlives a tenant is kept by the latter, so
  that one that is made anew under its name finds nothing of it.
- What is stored of a tenant is there at metadata.version 3 and above only (features.py).
- A tenant goes only when it has no topics any more, and one that is being deleted stays so.

A tenant that is not `active` takes nothing in: Produce is refused with the state and its
`state_reason`, and so is whatever makes something new. What is there can be read, committed and
deleted. That holds for states that this version does not know, too.

Deliberately absent: who may speak for a tenant, and what its settings and quotas mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from data_plane.cell.named_fields import unknown_in, unknown_named
from data_plane.cell.tenant_quotas import (
    NO_TENANT_QUOTAS,
    TenantQuotas,
    decode_quotas,
    encode_quotas,
    why_invalid_quotas,
)

DEFAULT_TENANT: Final = "default"
# By what name something that is stored says whose it is.
TENANT_FIELD: Final = "tenant"
# The state of a tenant that is served without restrictions, and those of others.
ACTIVE_TENANT: Final = "active"
READ_ONLY_TENANT: Final = "read-only"
BLOCKED_TENANT: Final = "blocked"
DELETING_TENANT: Final = "deleting"
TENANTS_MAX: Final = 10_000
NAME_CHARACTERS_MAX: Final = 63
SETTINGS_MAX: Final = 100
SETTING_CHARACTERS_MAX: Final = 4096
STATE_CHARACTERS_MAX: Final = 256

_ID_SEPARATOR: Final = "."
# As DNS labels: such names stand in logins (`user@tenant`), metrics and file names as they are.
_LEGAL_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
# As Apache Kafka draws them: 16 bytes in base64 without padding.
_LEGAL_CLUSTER_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class TenantImage:
    """A tenant; `cluster_id` is what its clients are told, `settings` are text by name, and
    `state_reason` says to its clients why it is in that state. `made_at` is the version of the
    commit that made it, which that commit fills in; 0 where it is not kept.
    """

    name: str
    cluster_id: str
    state: str = ACTIVE_TENANT
    settings: Mapping[str, str] = field(default_factory=dict)
    unknown_fields: str = ""
    made_at: int = 0
    quotas: TenantQuotas = NO_TENANT_QUOTAS
    state_reason: str = ""

    @property
    def is_active(self) -> bool:
        return self.state == ACTIVE_TENANT

    def why_inactive(self) -> str:
        """For its clients; "" when it is active."""
        if self.is_active:
            return ""
        reason = f": {self.state_reason}" if self.state_reason else ""
        return f"The tenant is {self.state}{reason}"

    @property
    def tenant_id(self) -> str:
        """What no other tenant has, had or will have: its name and `made_at`. Names have no dot."""
        return f"{self.name}{_ID_SEPARATOR}{self.made_at}" if self.made_at else self.name


Tenants = Mapping[str, TenantImage]


@dataclass(frozen=True, slots=True)
class PutTenant:
    """A new tenant, or the new state, settings and quotas of one."""

    tenant: TenantImage


@dataclass(frozen=True, slots=True)
class PutTenantState:
    """The state of a tenant from now on."""

    tenant: str
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DeleteTenant:
    """A tenant is gone for good. It must have no topics any more."""

    name: str


def why_invalid(tenants: Tenants, cell_cluster_id: str, new: TenantImage) -> str:
    """Why `new` cannot be put among `tenants`; "" when it can."""
    name = new.name
    if len(name) > NAME_CHARACTERS_MAX or not _LEGAL_NAME.fullmatch(name):
        return (
            f"tenant {name[:NAME_CHARACTERS_MAX]!r}: a name has up to {NAME_CHARACTERS_MAX} lower "
            "case letters, digits and hyphens, with a letter or digit at both ends"
        )
    if not _LEGAL_CLUSTER_ID.fullmatch(new.cluster_id):
        return f"tenant {name}: {new.cluster_id[:64]!r} is no cluster id"
    if len(new.settings) > SETTINGS_MAX:
        return f"tenant {name}: more than {SETTINGS_MAX} settings"
    for key, value in new.settings.items():
        if len(key) + len(value) > SETTING_CHARACTERS_MAX:
            return f"tenant {name}: a setting of more than {SETTING_CHARACTERS_MAX} characters"
    if not new.state or len(new.state) + len(new.state_reason) > STATE_CHARACTERS_MAX:
        return f"tenant {name}: a state and its reason have 1 to {STATE_CHARACTERS_MAX} characters"
    reason = why_invalid_quotas(new.quotas)
    if reason:
        return f"tenant {name}: {reason}"
    old = tenant_of(tenants, cell_cluster_id, name)
    if old is not None:
        if old.state == DELETING_TENANT and new.state != DELETING_TENANT:
            return f"tenant {name} is being deleted"
        if old.cluster_id != new.cluster_id:
            return f"tenant {name} has the cluster id {old.cluster_id}"
        return ""
    if len(tenants) >= TENANTS_MAX:
        return f"there are {TENANTS_MAX} tenants"
    taken = {cell_cluster_id, *(tenant.cluster_id for tenant in tenants.values())}
    if new.cluster_id in taken:
        return f"tenant {name}: another one has the cluster id {new.cluster_id}"
    return ""


def tenant_of(tenants: Tenants, cell_cluster_id: str, name: str) -> TenantImage | None:
    """The tenant of this name; `default` is there whether it is stored or not."""
    tenant = tenants.get(name)
    if tenant is None and name == DEFAULT_TENANT:
        return TenantImage(DEFAULT_TENANT, cell_cluster_id)
    return tenant


def with_id(tenants: Tenants, tenant_id: str) -> TenantImage | None:
    """The stored tenant that has this id; None as well when there is another one of its name."""
    tenant = tenants.get(tenant_id.partition(_ID_SEPARATOR)[0])
    return tenant if tenant is not None and tenant.tenant_id == tenant_id else None


def encode_tenant(tenant: TenantImage) -> dict[str, Any]:
    """JSON-ready, all fields by name."""
    item: dict[str, Any] = {
        **({"made_at": tenant.made_at} if tenant.made_at else {}),
        **unknown_named(tenant.unknown_fields),
        "name": tenant.name,
        "cluster_id": tenant.cluster_id,
        "state": tenant.state,
        "settings": dict(tenant.settings),
    }
    quotas = encode_quotas(tenant.quotas)
    if quotas:
        item["quotas"] = quotas
    if tenant.state_reason:
        item["state_reason"] = tenant.state_reason
    return item


def decode_tenant(item: Mapping[str, Any]) -> TenantImage:
    """The inverse of `encode_tenant`."""
    known = ("name", "cluster_id", "state", "settings")
    name, cluster_id, state, settings = (item[field_name] for field_name in known)
    return TenantImage(
        name,
        cluster_id,
        state,
        dict(settings),
        unknown_in(item, *known, "made_at", "quotas", "state_reason"),
        item.get("made_at", 0),
        decode_quotas(item.get("quotas", {})),
        item.get("state_reason", ""),
    )


def named_tenant(tenant: str) -> dict[str, Any]:
    """The field that says whose something is; what is stored without one is the default's."""
    return {} if tenant == DEFAULT_TENANT else {TENANT_FIELD: tenant}


def with_named(fields: list[Any], tenant: str) -> list[Any]:
    """`fields`, ended by the tenant where it is not the default one."""
    return fields if tenant == DEFAULT_TENANT else [*fields, {TENANT_FIELD: tenant}]


def tenant_in(named: Sequence[Mapping[str, Any]]) -> str:
    """Of what may end with an object of fields by name: whose it is."""
    return named[0].get(TENANT_FIELD, DEFAULT_TENANT) if named else DEFAULT_TENANT
