"""Declared tenants: how one becomes what its resource says (declarations.py).

What a tenant's settings say of those that are not declared stays as it is; so do its quotas, which
are a resource of their own. A tenant whose resource is deleted is `deleting` from that commit on;
what it has is removed by the controller (cell/tenant_deletion.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from data_plane.broker.admin.declared import Denied, Outcome, Resource
from data_plane.broker.config.topic_definitions import UNDELETE_MS_MAX
from data_plane.broker.request.authorizer import ALLOW_EVERYONE, SUPER_USERS
from data_plane.broker.request.refusal import Refusal
from data_plane.broker.services import Services
from data_plane.broker.topics.kept_topics import UNDELETE_MS
from data_plane.cell.changes import Change
from data_plane.cell.declarations import TENANT_KIND, Declaration
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.tenants import (
    ACTIVE_TENANT,
    DEFAULT_TENANT,
    DELETING_TENANT,
    READ_ONLY_TENANT,
    PutTenant,
    PutTenantState,
    TenantImage,
    tenant_of,
    why_invalid,
)
from data_plane.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class TenantSpecification:
    """What is declared of a tenant. `allows_if_no_acl` None: as tenants of its kind are."""

    KIND: ClassVar[str] = TENANT_KIND

    cluster_id: str
    state: str = ACTIVE_TENANT
    state_reason: str = ""
    allows_if_no_acl: bool | None = None
    super_users: tuple[str, ...] = ()
    undelete_ms: int | None = None

    def to_text(self) -> str:
        document = {name: getattr(self, name) for name in _NAMES}
        if self.undelete_ms is not None:
            document["undelete_ms"] = self.undelete_ms
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> TenantSpecification:
        document: dict[str, Any] = json.loads(text)
        return cls(**{**document, "super_users": tuple(document["super_users"])})

    def settings(self) -> dict[str, str]:
        """Those of the tenant that are declared."""
        settings = {}
        if self.allows_if_no_acl is not None:
            settings[ALLOW_EVERYONE] = "true" if self.allows_if_no_acl else "false"
        if self.super_users:
            settings[SUPER_USERS] = _SEPARATOR.join(self.super_users)
        if self.undelete_ms is not None:
            settings[UNDELETE_MS] = str(self.undelete_ms)
        return settings

    @classmethod
    def of(cls, tenant: TenantImage) -> TenantSpecification:
        """What there is of it."""
        chosen = tenant.settings.get(ALLOW_EVERYONE, "").strip().lower()
        users = tenant.settings.get(SUPER_USERS, "").split(_SEPARATOR)
        undelete_ms = tenant.settings.get(UNDELETE_MS, "")
        return cls(
            tenant.cluster_id,
            tenant.state,
            tenant.state_reason,
            chosen == "true" if chosen else None,
            tuple(user.strip() for user in users if user.strip()),
            int(undelete_ms) if undelete_ms.isdecimal() else None,
        )


_NAMES: Final = ("cluster_id", "state", "state_reason", "allows_if_no_acl", "super_users")
_SEPARATOR: Final = ";"


class TenantDecision:
    """See `KindDecision`."""

    def __init__(self, services: Services, image: MetadataImage) -> None:
        self._image = image
        self._tenants = dict(image.tenants)

    def put(self, resource: Resource, owned: Declaration | None) -> Sequence[Change]:
        specification = resource.specification
        assert isinstance(specification, TenantSpecification)
        name = resource.tenant
        _check(name, specification)
        old = tenant_of(self._tenants, self._image.cluster_id, name)
        if old is None:
            old = TenantImage(name, specification.cluster_id)
        elif owned is None and name != DEFAULT_TENANT and not resource.take_over:
            reason = "the tenant exists, and no resource has it; take it over to manage it"
            raise Denied(Outcome.CONFLICT, reason)
        new = replace(
            old,
            cluster_id=specification.cluster_id,
            state=specification.state,
            state_reason=specification.state_reason,
            settings={**_undeclared(old, owned), **specification.settings()},
        )
        reason = why_invalid(self._tenants, self._image.cluster_id, new)
        if reason:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{reason[0].upper()}{reason[1:]}.")
        if new == self._tenants.get(name):
            return []
        self._tenants[name] = new
        return [PutTenant(new)]

    def remove(self, owned: Declaration) -> Sequence[Change]:
        name = owned.declared.tenant
        old = tenant_of(self._tenants, self._image.cluster_id, name)
        if old is None:
            return []
        if name != DEFAULT_TENANT:
            return [PutTenantState(name, DELETING_TENANT)]
        # It always exists: what was declared of it goes.
        settings = _undeclared(old, owned)
        return [PutTenant(replace(old, state=ACTIVE_TENANT, state_reason="", settings=settings))]

    def follow_ups(self, changes: Sequence[Change]) -> Sequence[Change]:
        return ()


def _check(name: str, specification: TenantSpecification) -> None:
    """Raises Refusal."""
    states = (ACTIVE_TENANT, READ_ONLY_TENANT)
    if name == DEFAULT_TENANT and specification.state not in states:
        # Whoever has not said who it is speaks for this one, operators among them.
        message = f"The tenant {DEFAULT_TENANT} is {' or '.join(states)}."
        raise Refusal(ErrorCode.INVALID_REQUEST, message)
    undelete_ms = specification.undelete_ms
    if undelete_ms is not None and not 0 <= undelete_ms <= UNDELETE_MS_MAX:
        message = f"{UNDELETE_MS} is {undelete_ms}, allowed are 0 to {UNDELETE_MS_MAX}."
        raise Refusal(ErrorCode.INVALID_CONFIG, message)
    for user in specification.super_users:
        if ":" not in user or _SEPARATOR in user or user != user.strip():
            raise Refusal(ErrorCode.INVALID_REQUEST, f"'{user}' is no principal, as `User:alice`.")


def _undeclared(tenant: TenantImage, owned: Declaration | None) -> dict[str, str]:
    """The settings of a tenant but those that were declared."""
    declared: dict[str, str] = {}
    if owned is not None:
        declared = TenantSpecification.from_text(owned.specification).settings()
    return {key: value for key, value in tenant.settings.items() if key not in declared}
