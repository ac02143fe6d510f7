"""What other apps use of this one: the transaction of every write, and who acts in it."""

from __future__ import annotations

from control_plane.operations.logic import (
    OUTBOX_CHANNEL,
    SYSTEM,
    Actor,
    TenantWrite,
    record_audit,
    tenant_write,
)
from control_plane.operations.models import ActorKind, ResourceKind

__all__ = [
    "OUTBOX_CHANNEL",
    "SYSTEM",
    "Actor",
    "ActorKind",
    "ResourceKind",
    "TenantWrite",
    "record_audit",
    "tenant_write",
]
