"""Members, invitations and the table of roles."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.core import mail
from pytest_django import Settings

from control_plane.accounts.invitation_mails import send_due_mails
from control_plane.accounts.logic import (
    ORGANIZATIONS_OF_USER_MAX,
    do_accept_invitation,
    do_change_role,
    do_create_organization,
    do_delete_organization,
    do_invite,
    do_remove_member,
)
from control_plane.accounts.models import Membership, Organization, Role
from control_plane.accounts.roles import ALLOWED, RANKS, may_grant
from control_plane.operations.models import AuditEvent
from control_plane.tenancy.errors import Conflict, Forbidden, NotFound, TooMany
from tests.control_plane.mails import token_in
from tests.control_plane.tenants import Tenant, actor_of, make_cell, make_tenant, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Tenant:
    make_cell()
    return make_tenant("acme")


def invite(tenant: Tenant, email: str, role: str) -> str:
    """The token in the mail that the address gets."""
    do_invite(tenant.actor, tenant.id, email, role, "owner", tenant.owner)
    send_due_mails()
    assert mail.outbox[-1].to == [email.lower()]
    return token_in(mail.outbox[-1])


def join(tenant: Tenant, email: str, role: str) -> Membership:
    token = invite(tenant, email, role)
    user = make_user(email)
    return do_accept_invitation(actor_of(user), user, token)


def test_who_has_more_may_all_that_who_has_less_may() -> None:
    for action, roles in ALLOWED.items():
        members = [role for role in RANKS if role in roles]
        assert members == list(RANKS[: len(members)]), action


@pytest.mark.parametrize("role", list(Role))
def test_nobody_grants_a_greater_role(role: Role) -> None:
    greater = RANKS[: RANKS.index(role)]
    assert [given for given in RANKS if not may_grant(role, given)] == list(greater)


def test_an_invitation_is_for_one_address_and_one_time(acme: Tenant) -> None:
    token = invite(acme, "Ann@x.example", "developer")
    stranger, ann = make_user("eve@x.example"), make_user("ann@x.example")
    with pytest.raises(NotFound):
        do_accept_invitation(actor_of(stranger), stranger, token)
    assert do_accept_invitation(actor_of(ann), ann, token).role == "developer"
    with pytest.raises(Conflict):
        do_accept_invitation(actor_of(ann), ann, token)


def test_a_second_invitation_ends_the_first(acme: Tenant) -> None:
    first = invite(acme, "ann@x.example", "admin")
    do_invite(acme.actor, acme.id, "ann@x.example", "viewer", "owner", acme.owner)
    ann = make_user("ann@x.example")
    with pytest.raises(Conflict):
        do_accept_invitation(actor_of(ann), ann, first)


def test_admins_neither_make_nor_unmake_owners(acme: Tenant) -> None:
    member = join(acme, "ann@x.example", "developer")
    owner = Membership.objects.of(acme.id).get(user=acme.owner)
    with pytest.raises(Forbidden):
        do_change_role(acme.actor, acme.id, member.id, "owner", "admin")
    with pytest.raises(Forbidden):
        do_remove_member(acme.actor, acme.id, owner.id, "admin")


def test_the_last_owner_stays(acme: Tenant) -> None:
    owner = Membership.objects.of(acme.id).get(user=acme.owner)
    for leave in (
        lambda: do_remove_member(acme.actor, acme.id, owner.id, "owner"),
        lambda: do_change_role(acme.actor, acme.id, owner.id, "viewer", "owner"),
    ):
        with pytest.raises(Conflict):
            leave()
    member = join(acme, "ann@x.example", "admin")
    do_change_role(acme.actor, acme.id, member.id, "owner", "owner")
    do_remove_member(acme.actor, acme.id, owner.id, "owner")


def make_organizations(tenant: Tenant, count: int) -> list[Organization]:
    return [
        do_create_organization(tenant.actor, tenant.owner, "More", f"more-{number}")
        for number in range(count)
    ]


def pass_days(days: int) -> None:
    """As if everything had happened so much earlier."""
    for event in AuditEvent.objects.all():
        AuditEvent.objects.filter(id=event.id).update(at=event.at - timedelta(days=days))
    for organization in Organization.objects.exclude(purge_after=None):
        assert organization.purge_after is not None
        organization.purge_after -= timedelta(days=days)
        organization.save()


def test_who_deletes_what_he_made_makes_no_more_for_it_until_the_grace_is_over(
    acme: Tenant,
) -> None:
    made = make_organizations(acme, ORGANIZATIONS_OF_USER_MAX - 1)
    for organization in made:
        do_delete_organization(acme.actor, organization.id)
    pass_days(2)
    with pytest.raises(Forbidden, match="deleted in the last 30 days"):
        do_create_organization(acme.actor, acme.owner, "Another", "another")
    pass_days(28)
    do_create_organization(acme.actor, acme.owner, "Another", "another")


def test_who_hands_on_what_he_made_makes_no_more_on_the_same_day(acme: Tenant) -> None:
    other = make_user("other@x.example")
    for organization in make_organizations(acme, ORGANIZATIONS_OF_USER_MAX - 1):
        Membership.objects.of(organization.id).update(user=other)
    with pytest.raises(TooMany) as refusal:
        do_create_organization(acme.actor, acme.owner, "Another", "another")
    assert 24 * 3600 - 60 < refusal.value.retry_after_s <= 24 * 3600
    pass_days(1)
    do_create_organization(acme.actor, acme.owner, "Another", "another")


@pytest.mark.parametrize(
    ("addresses", "elsewhere"),
    [
        (["192.0.2.1", "::ffff:192.0.2.1"], "192.0.2.2"),
        (["2001:db8::1", "2001:db8::ffff:2"], "2001:db8:0:1::1"),
    ],
)
def test_one_address_makes_so_many_organizations_a_day(
    acme: Tenant, settings: Settings, addresses: list[str], elsewhere: str
) -> None:
    settings.ORGANIZATIONS_PER_ADDRESS_AND_DAY = 2

    def make(number: int, address: str) -> None:
        user = make_user(f"u{number}@x.example")
        actor = replace(actor_of(user), address=address)
        do_create_organization(actor, user, "Another", f"another-{number}")

    for number in range(2):
        make(number, addresses[number])
    with pytest.raises(TooMany):
        make(2, addresses[0])
    make(3, elsewhere)
    pass_days(1)
    make(4, addresses[0])
