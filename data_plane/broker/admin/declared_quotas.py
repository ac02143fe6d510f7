"""Declared quotas: how those of a tenant, or of its users and clients, become what a resource says
(declarations.py).

A tenant's own quotas are declared as a whole. Of users and clients what is declared belongs to the
control plane, and other keys are the Kafka clients', as with configurations of topics.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from data_plane.broker.admin.declared import Denied, Outcome, Resource
from data_plane.broker.request.refusal import Refusal
from data_plane.broker.services import Services
from data_plane.cell.changes import Change, capacity_of
from data_plane.cell.client_quotas import (
    NO_CLIENT_QUOTAS,
    AlterClientQuotas,
    QuotaEntity,
    TenantClientQuotas,
    client_quotas_altered,
    encode_entity,
)
from data_plane.cell.declarations import QUOTA_KIND, Declaration
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.tenant_quotas import (
    NO_TENANT_QUOTAS,
    QUOTA_NAMES,
    PutTenantQuotas,
    TenantQuotas,
    why_beyond_capacity,
    why_invalid_quotas,
)
from data_plane.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class QuotaSpecification:
    """What is declared of a quota. `entity` None: the tenant as a whole."""

    KIND: ClassVar[str] = QUOTA_KIND

    entity: QuotaEntity | None
    limits: Mapping[str, float] = field(default_factory=dict)

    def to_text(self) -> str:
        limits = {name: float(value) for name, value in self.limits.items()}
        document = {
            "entity": None if self.entity is None else encode_entity(self.entity),
            "limits": limits,
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> QuotaSpecification:
        document: dict[str, Any] = json.loads(text)
        entity = document["entity"]
        return cls(None if entity is None else QuotaEntity(*entity), document["limits"])


def quota_name(entity: QuotaEntity | None) -> str:
    """By what name a quota's resource stands for it.

    >>> quota_name(QuotaEntity("alice", None))
    '["alice",null]'
    """
    return "" if entity is None else json.dumps(encode_entity(entity), separators=(",", ":"))


def limits_of(quotas: TenantQuotas) -> dict[str, float]:
    """A tenant's limits by name."""
    limits = {name: getattr(quotas, name) for name in QUOTA_NAMES}
    return {name: float(value) for name, value in limits.items() if value is not None}


class QuotaDecision:
    """See `KindDecision`."""

    def __init__(self, services: Services, image: MetadataImage) -> None:
        self._image = image
        self._of_tenants = {name: tenant.quotas for name, tenant in image.tenants.items()}
        self._of_clients: dict[str, TenantClientQuotas] = {}

    def put(self, resource: Resource, owned: Declaration | None) -> Sequence[Change]:
        specification = resource.specification
        assert isinstance(specification, QuotaSpecification)
        if specification.entity is None:
            return self._put_of_tenant(resource, specification.limits, owned)
        return self._put_of_client(resource, specification.entity, specification.limits, owned)

    def remove(self, owned: Declaration) -> Sequence[Change]:
        tenant = owned.declared.tenant
        specification = QuotaSpecification.from_text(owned.specification)
        if specification.entity is None:
            self._of_tenants[tenant] = NO_TENANT_QUOTAS
            return [PutTenantQuotas(tenant, NO_TENANT_QUOTAS)]
        values = [(name, None) for name in sorted(specification.limits)]
        return self._alter(AlterClientQuotas(tenant, specification.entity, tuple(values)))

    def follow_ups(self, changes: Sequence[Change]) -> Sequence[Change]:
        return ()

    def _put_of_tenant(
        self, resource: Resource, limits: Mapping[str, float], owned: Declaration | None
    ) -> Sequence[Change]:
        tenant = resource.tenant
        old = self._of_tenants.get(tenant, NO_TENANT_QUOTAS)
        if owned is None and old != NO_TENANT_QUOTAS and not resource.take_over:
            reason = "the tenant has quotas, which no resource has; take them over to manage them"
            raise Denied(Outcome.CONFLICT, reason)
        unknown = sorted(limits.keys() - set(QUOTA_NAMES))
        if unknown:
            message = f"A tenant has no quota {unknown[0]}; those there are: "
            raise Refusal(ErrorCode.INVALID_REQUEST, message + ", ".join(QUOTA_NAMES))
        # What is no whole number stays one, and is refused as such.
        whole: dict[str, Any] = {
            name: int(value) if value % 1 == 0 else value for name, value in limits.items()
        }
        new = TenantQuotas(**whole, unknown_fields=old.unknown_fields)
        others = (quotas for name, quotas in self._of_tenants.items() if name != tenant)
        reason = why_invalid_quotas(new) or why_beyond_capacity(
            old, new, others, lambda name: capacity_of(self._image, name)
        )
        if reason:
            raise Refusal(ErrorCode.INVALID_REQUEST, reason)
        if new == old:
            return []
        self._of_tenants[tenant] = new
        return [PutTenantQuotas(tenant, new)]

    def _put_of_client(
        self,
        resource: Resource,
        entity: QuotaEntity,
        limits: Mapping[str, float],
        owned: Declaration | None,
    ) -> Sequence[Change]:
        there = self._client_quotas(resource.tenant).get(entity, {})
        if owned is None and there and not resource.take_over:
            reason = f"a Kafka client has made the quota of {entity}; take it over to manage it"
            raise Denied(Outcome.CONFLICT, reason)
        values: dict[str, float | None] = {}
        if owned is not None:
            values.update(dict.fromkeys(QuotaSpecification.from_text(owned.specification).limits))
        values.update(limits)
        changed = [
            (name, value) for name, value in sorted(values.items()) if there.get(name) != value
        ]
        return self._alter(AlterClientQuotas(resource.tenant, entity, tuple(changed)))

    def _alter(self, change: AlterClientQuotas) -> Sequence[Change]:
        if not change.values:
            return []
        altered = client_quotas_altered(self._client_quotas(change.tenant), change)
        if isinstance(altered, str):
            raise Refusal(ErrorCode.INVALID_REQUEST, altered)
        self._of_clients[change.tenant] = altered
        return [change]

    def _client_quotas(self, tenant: str) -> TenantClientQuotas:
        quotas = self._of_clients.get(tenant)
        return self._image.client_quotas.get(tenant, NO_CLIENT_QUOTAS) if quotas is None else quotas
