"""How much a tenant has of what is counted in the database."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from control_plane.access.facade import valid_keys
from control_plane.access.models import Grant, ServiceAccount
from control_plane.accounts.models import Invitation, Membership
from control_plane.messaging.models import Topic
from control_plane.messaging.subscriptions import partitions_of


def counted_use(organization_id: str) -> dict[str, int]:
    """By limit: how many there are, as writes count them."""
    open_invitations = Invitation.objects.of(organization_id).filter(
        accepted_at=None, revoked_at=None, expires_at__gt=timezone.now()
    )
    counts: dict[str, Any] = {
        "topics": Topic.objects.of(organization_id).count(),
        "partitions": partitions_of(organization_id),
        "service_accounts": ServiceAccount.objects.of(organization_id)
        .filter(deleted_at=None)
        .count(),
        "api_keys": valid_keys(organization_id, timezone.now()).count(),
        "grants": Grant.objects.of(organization_id).filter(deleted_at=None).count(),
        "members": Membership.objects.of(organization_id).count() + open_invitations.count(),
    }
    return counts
