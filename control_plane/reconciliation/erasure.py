"""A tenant whose grace is over, and of which its cell has nothing left: what this database keeps.

Kept are the organization's row with its slug, which is never given again, totals of use without
names of topics, and the audit, in which nobody is named any more. All else goes.
"""

from __future__ import annotations

from typing import Any, Final

from django.utils import timezone

from control_plane.access.models import ApiKey, Grant, ServiceAccount
from control_plane.accounts.models import Invitation, Membership, Organization
from control_plane.cells.models import Placement
from control_plane.messaging.models import Topic
from control_plane.operations.facade import SYSTEM, record_audit
from control_plane.operations.models import TENANT_ERASED, AuditEvent, Operation, OutboxEntry
from control_plane.quotas.models import TenantQuota
from control_plane.usage.facade import do_forget_names

# What others refer to comes after them.
ERASED: Final[tuple[Any, ...]] = (
    *(Topic, Grant, ApiKey, ServiceAccount, TenantQuota, Operation),
    *(Invitation, Membership, OutboxEntry, Placement),
)


def erase(organization: Organization) -> None:
    """In the caller's transaction, which has the tenant's lock."""
    for model in ERASED:
        model.objects.of(organization.id).delete()
    do_forget_names(organization.id)
    events = AuditEvent.objects.filter(organization_id=organization.id)
    events.update(actor_name="", address=None, resource_name="", changes={})
    organization.deleted_at = organization.deleted_at or timezone.now()
    organization.name = ""
    organization.state_reason = ""
    organization.settle()
    organization.save()
    record_audit(SYSTEM, organization.id, TENANT_ERASED, organization.id, "", {})
