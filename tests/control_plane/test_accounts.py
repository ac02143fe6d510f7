"""Members, invitations and the table of roles."""

from __future__ import annotations

import pytest

from control_plane.accounts.logic import (
    do_accept_invitation,
    do_change_role,
    do_invite,
    do_remove_member,
)
from control_plane.accounts.models import Membership, Role
from control_plane.accounts.roles import ALLOWED, OPERATOR, RANKS, may, may_grant
from control_plane.tenancy.errors import Conflict, Forbidden, NotFound
from tests.control_plane.tenants import Tenant, actor_of, make_cell, make_tenant, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Tenant:
    make_cell()
    return make_tenant("acme")


def join(tenant: Tenant, email: str, role: str) -> Membership:
    _, token = do_invite(tenant.actor, tenant.id, email, role, "owner", tenant.owner)
    user = make_user(email)
    return do_accept_invitation(actor_of(user), user, token)


def test_who_has_more_may_all_that_who_has_less_may() -> None:
    for action, roles in ALLOWED.items():
        members = [role for role in RANKS if role in roles]
        assert members == list(RANKS[: len(members)]), action


def test_operators_neither_read_nor_write_messages() -> None:
    assert not may(OPERATOR, "message.read")
    assert not may(OPERATOR, "message.write")


@pytest.mark.parametrize("role", list(Role))
def test_nobody_grants_a_greater_role(role: Role) -> None:
    greater = RANKS[: RANKS.index(role)]
    assert [given for given in RANKS if not may_grant(role, given)] == list(greater)


def test_an_invitation_is_for_one_address_and_one_time(acme: Tenant) -> None:
    _, token = do_invite(acme.actor, acme.id, "Ann@x.example", "developer", "owner", acme.owner)
    stranger, ann = make_user("eve@x.example"), make_user("ann@x.example")
    with pytest.raises(NotFound):
        do_accept_invitation(actor_of(stranger), stranger, token)
    assert do_accept_invitation(actor_of(ann), ann, token).role == "developer"
    with pytest.raises(Conflict):
        do_accept_invitation(actor_of(ann), ann, token)


def test_a_second_invitation_ends_the_first(acme: Tenant) -> None:
    _, first = do_invite(acme.actor, acme.id, "ann@x.example", "admin", "owner", acme.owner)
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
