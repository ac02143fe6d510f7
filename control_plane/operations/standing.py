"""What an actor is in a tenant at this moment: a member's or a service account's role, or an
operator. Asked under the tenant's lock it holds for the whole write, since who takes a role in the
tenant away locks it too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from control_plane.access.models import ApiKey
from control_plane.accounts.models import Membership, User
from control_plane.accounts.roles import OPERATOR
from control_plane.operations.models import ActorKind

if TYPE_CHECKING:
    from control_plane.operations.logic import Actor


def role_now(actor: Actor, organization_id: str) -> str | None:
    """The actor's role; None for who has none any more."""
    if actor.kind == ActorKind.API_KEY:
        keys = ApiKey.objects.of(organization_id).filter(id=actor.id, revoked_at=None)
        living = keys.filter(service_account__deleted_at=None)
        return living.values_list("service_account__role", flat=True).first()
    if actor.kind == ActorKind.OPERATOR:
        operators = User.objects.filter(id=actor.id, is_staff=True, is_active=True)
        return OPERATOR if operators.exists() else None
    members = Membership.objects.of(organization_id).filter(user_id=actor.id)
    return members.filter(user__is_active=True).values_list("role", flat=True).first()
