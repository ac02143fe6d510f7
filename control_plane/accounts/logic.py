"""Organizations, their members and who is invited: all writes, each with its audit event.

An organization is made with its quota, its owner and its cell in one transaction. When no cell has
room it is made all the same, and is placed later (control_plane/reconciliation/lives.py).
"""

from __future__ import annotations

import re
import secrets
from datetime import timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from control_plane.accounts.invitation_mails import TOKEN_BYTES, token_hash
from control_plane.accounts.models import (
    SLUG_PATTERN,
    Invitation,
    Membership,
    Organization,
    OrganizationState,
    Role,
    User,
)
from control_plane.accounts.roles import refuse_to_grant
from control_plane.cells.facade import place
from control_plane.operations.facade import (
    ORGANIZATION_CREATED,
    Actor,
    ResourceKind,
    TenantWrite,
    organizations_made_at,
    organizations_made_by,
    tenant_write,
)
from control_plane.quotas.facade import default_plan, refuse_beyond
from control_plane.quotas.models import TenantQuota
from control_plane.tenancy.daily_limits import refuse_too_often
from control_plane.tenancy.errors import Conflict, Forbidden, Invalid, NotFound

INVITATION_DAYS = 7
INVITATIONS_PER_DAY = 50
INVITATIONS_OF_ADDRESS_PER_DAY = 5
PURGE_GRACE_DAYS = 30
ORGANIZATIONS_OF_USER_MAX = 10

# `default` is the cell's own tenant, in which there are no logins with an `@`.
RESERVED_SLUGS = frozenset({"default", "tidewheel", "system", "operator", "operators", "admin"})

NO_ROOM = "No cell has room for another tenant just now."


def do_create_organization(actor: Actor, owner: User, name: str, slug: str) -> Organization:
    """A new tenant of which `owner` is the owner. Raises Invalid, Conflict, Forbidden, TooMany."""
    if not re.search(SLUG_PATTERN, slug):
        raise Invalid(
            "A slug has 3 to 39 lower case letters, digits and hyphens, begins with a letter and "
            "does not end with a hyphen.",
            field="/slug",
        )
    if slug in RESERVED_SLUGS:
        raise Invalid(f"{slug} is reserved.", field="/slug")
    with transaction.atomic():
        # Two requests of one person are counted one after the other.
        User.objects.select_for_update().get(id=owner.id)
        _refuse_more_organizations(actor, owner)
        organization = Organization(name=name, slug=slug, plan=default_plan())
        try:
            with transaction.atomic():
                organization.save(force_insert=True)
        except IntegrityError as error:
            raise Conflict(f"The slug {slug} is taken.", field="/slug") from error
        with tenant_write(actor, organization.id) as write:
            quota = TenantQuota(organization=organization)
            quota.save(force_insert=True)
            Membership(organization=organization, user=owner, role=Role.OWNER).save()
            if place(organization) is None:
                Organization.objects.filter(id=organization.id).update(status_reason=NO_ROOM)
            write.declare(ResourceKind.TENANT, organization)
            write.declare(ResourceKind.QUOTA, quota)
            write.audit(ORGANIZATION_CREATED, organization.id, slug, {"name": name})
    organization.refresh_from_db()
    return organization


def _refuse_more_organizations(actor: Actor, owner: User) -> None:
    """What is deleted counts until its grace is over, since until then it has its place in a cell;
    what was handed on to others counts for a day."""
    mine = Membership.objects.across_tenants().filter(user=owner, role=Role.OWNER)
    gone = mine.filter(
        organization__state=OrganizationState.DELETED,
        organization__purge_after__lte=timezone.now(),
    )
    if mine.count() - gone.count() >= ORGANIZATIONS_OF_USER_MAX:
        raise Forbidden(
            f"One person owns {ORGANIZATIONS_OF_USER_MAX} organizations at most, those included "
            f"that were deleted in the last {PURGE_GRACE_DAYS} days."
        )
    refuse_too_often(
        organizations_made_by(actor),
        "at",
        ORGANIZATIONS_OF_USER_MAX,
        f"One person makes {ORGANIZATIONS_OF_USER_MAX} organizations a day at most.",
    )
    refuse_too_often(
        organizations_made_at(actor),
        "at",
        settings.ORGANIZATIONS_PER_ADDRESS_AND_DAY,
        "Many organizations were made at your address today.",
    )


def organizations_of(user: User) -> QuerySet[Organization]:
    """Those that a person is a member of, but what is deleted."""
    mine = Membership.objects.across_tenants().filter(user=user).values("organization_id")
    organizations = Organization.objects.filter(id__in=mine).select_related("plan")
    return organizations.exclude(state=OrganizationState.DELETED)


def do_rename_organization(
    actor: Actor, organization_id: str, name: str | None, if_match: str | None = None
) -> Organization:
    """Another display name, None: the present one; the slug stays."""
    with tenant_write(actor, organization_id) as write:
        organization = write.organization
        organization.refuse_unless(if_match)
        changes = {}
        if name is not None:
            changes["name"] = [organization.name, name]
            organization.name = name
        organization.save(update_fields=["name", "updated_at"])
        write.audit("organization.update", organization.id, organization.slug, changes)
    return organization


def do_suspend(actor: Actor, organization_id: str, reason: str) -> Organization:
    """Reads go on, and writes are refused with the reason. The same reason again makes no
    generation."""
    return _change_state(actor, organization_id, OrganizationState.SUSPENDED, reason)


def do_resume(actor: Actor, organization_id: str) -> Organization:
    """Everything goes on, as an active tenant. Raises Conflict for who is not suspended."""
    return _change_state(actor, organization_id, OrganizationState.ACTIVE, "")


def _change_state(
    actor: Actor, organization_id: str, state: OrganizationState, reason: str
) -> Organization:
    with tenant_write(actor, organization_id, even_if_suspended=True) as write:
        organization = write.organization
        if state == OrganizationState.ACTIVE and organization.state != OrganizationState.SUSPENDED:
            raise Conflict(f"{organization.slug} is not suspended.")
        changes = {"state": [organization.state, state.value], "reason": reason}
        if (organization.state, organization.state_reason) != (state, reason):
            organization.state = state
            organization.state_reason = reason
            organization.declare_again()
            organization.save()
            write.declare(ResourceKind.TENANT, organization)
        write.audit(f"organization.{state.value}", organization.id, organization.slug, changes)
    return organization


def do_delete_organization(actor: Actor, organization_id: str) -> Organization:
    """Nobody speaks for the tenant any more, at once. What it had is purged after the grace."""
    with tenant_write(actor, organization_id, even_if_suspended=True) as write:
        organization = write.organization
        now = timezone.now()
        organization.state = OrganizationState.DELETED
        organization.purge_after = now + timedelta(days=PURGE_GRACE_DAYS)
        organization.declare_again()
        organization.save()
        write.declare(ResourceKind.TENANT, organization)
        write.audit("organization.delete", organization.id, organization.slug)
    return organization


def do_invite(
    actor: Actor, organization_id: str, email: str, role: str, by_role: str, inviter: User | None
) -> Invitation:
    """An invitation, whose mail a worker sends. Raises Conflict, Forbidden, QuotaExceeded,
    TooMany."""
    refuse_to_grant(by_role, role, field="/role")
    email = email.lower()
    with tenant_write(actor, organization_id) as write:
        members = Membership.objects.of(organization_id)
        if members.filter(user__email=email).exists():
            raise Conflict("Somebody with this address is a member.", field="/email")
        now = timezone.now()
        open_ones = Invitation.objects.of(organization_id).filter(accepted_at=None, revoked_at=None)
        open_ones.filter(email=email).update(revoked_at=now)
        refuse_beyond(
            write.organization,
            "members",
            members.count() + open_ones.filter(expires_at__gt=now).count() + 1,
        )
        _refuse_more_mails(organization_id, email)
        invitation = Invitation(
            organization=write.organization,
            email=email,
            role=role,
            # Nobody has this one: the mail's is made with the mail.
            token_hash=token_hash(secrets.token_urlsafe(TOKEN_BYTES)),
            invited_by=inviter,
            invited_by_name=actor.name,
            expires_at=now + timedelta(days=INVITATION_DAYS),
        )
        invitation.save(force_insert=True)
        write.audit("invitation.create", invitation.id, email, {"role": role})
    return invitation


def _refuse_more_mails(organization_id: str, email: str) -> None:
    """Mails with a tenant's words go to addresses that have not asked for them: a few."""
    refuse_too_often(
        Invitation.objects.of(organization_id),
        "created_at",
        INVITATIONS_PER_DAY,
        f"An organization invites {INVITATIONS_PER_DAY} times a day at most.",
    )
    refuse_too_often(
        Invitation.objects.across_tenants().filter(email=email),
        "created_at",
        INVITATIONS_OF_ADDRESS_PER_DAY,
        f"{email} has been invited often today.",
    )


def do_revoke_invitation(actor: Actor, organization_id: str, invitation_id: str) -> None:
    """The token is worth nothing any more."""
    with tenant_write(actor, organization_id, even_if_suspended=True) as write:
        invitation = (
            Invitation.objects.of(organization_id)
            .filter(id=invitation_id, accepted_at=None, revoked_at=None)
            .first()
        )
        if invitation is None:
            raise NotFound("There is no such open invitation.")
        invitation.revoked_at = timezone.now()
        invitation.save()
        write.audit("invitation.revoke", invitation.id, invitation.email)


def do_accept_invitation(actor: Actor, user: User, token: str) -> Membership:
    """Become a member. The address that was invited has to be the user's."""
    invitation = Invitation.objects.across_tenants().filter(token_hash=token_hash(token)).first()
    if invitation is None or invitation.email != user.email:
        raise NotFound("There is no such invitation for you.")
    with tenant_write(actor, invitation.organization_id) as write:
        invitation = Invitation.objects.of(write.organization.id).get(id=invitation.id)
        if (
            invitation.revoked_at
            or invitation.accepted_at
            or invitation.expires_at < (timezone.now())
        ):
            raise Conflict("The invitation is not open any more. Ask for another one.")
        membership, made = Membership.objects.of(write.organization.id).get_or_create(
            user=user, defaults={"organization": write.organization, "role": invitation.role}
        )
        if not made:
            raise Conflict("You are a member already.")
        invitation.accepted_at = timezone.now()
        invitation.save()
        write.audit("invitation.accept", membership.id, user.email, {"role": membership.role})
    return membership


def do_change_role(
    actor: Actor, organization_id: str, membership_id: str, role: str, by_role: str
) -> Membership:
    """Another role for a member: neither given nor taken by who has a lesser one."""
    refuse_to_grant(by_role, role, field="/role")
    with tenant_write(actor, organization_id) as write:
        membership = find_member(organization_id, membership_id)
        refuse_to_grant(by_role, membership.role)
        changes = {"role": [membership.role, role]}
        if membership.role == Role.OWNER and role != Role.OWNER:
            _refuse_without_owner(write, membership)
        membership.role = role
        membership.save()
        write.audit("member.update", membership.id, membership.user.email, changes)
    return membership


def do_remove_member(actor: Actor, organization_id: str, membership_id: str, by_role: str) -> None:
    """Somebody is no member any more. The last owner stays."""
    with tenant_write(actor, organization_id, even_if_suspended=True) as write:
        membership = find_member(organization_id, membership_id)
        refuse_to_grant(by_role, membership.role)
        if membership.role == Role.OWNER:
            _refuse_without_owner(write, membership)
        write.audit("member.delete", membership.id, membership.user.email)
        membership.delete()


def find_member(organization_id: str, membership_id: str) -> Membership:
    """The tenant's member of this id. Raises NotFound."""
    members = Membership.objects.of(organization_id).select_related("user")
    membership = members.filter(id=membership_id).first()
    if membership is None:
        raise NotFound("There is no such member.")
    return membership


def _refuse_without_owner(write: TenantWrite, leaving: Membership) -> None:
    others = Membership.objects.of(write.organization.id).filter(role=Role.OWNER)
    if not others.exclude(id=leaving.id).exists():
        raise Conflict("An organization has an owner; make somebody else one first.")
