"""What other apps use of this one: the transaction of every write, and who acts in it."""

from __future__ import annotations

from control_plane.operations.logic import (
    OUTBOX_CHANNEL,
    SYSTEM,
    Actor,
    TenantWrite,
    organizations_made_at,
    organizations_made_by,
    record_audit,
    resources_made_by,
    tenant_write,
)
from control_plane.operations.models import (
    ORGANIZATION_CREATED,
    ActorKind,
    OperationKind,
    ResourceKind,
)

__all__ = [
    "ORGANIZATION_CREATED",
    "OUTBOX_CHANNEL",
    "SYSTEM",
    "Actor",
    "ActorKind",
    "OperationKind",
    "ResourceKind",
    "TenantWrite",
    "organizations_made_at",
    "organizations_made_by",
    "record_audit",
    "resources_made_by",
    "tenant_write",
]
