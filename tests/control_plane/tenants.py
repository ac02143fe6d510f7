"""Tenants for tests, made as users make them."""

from __future__ import annotations

from dataclasses import dataclass

from control_plane.accounts.logic import do_create_organization
from control_plane.accounts.models import Organization, User
from control_plane.cells.models import Cell
from control_plane.operations.facade import Actor, ActorKind
from control_plane.quotas.models import Plan


@dataclass(frozen=True, slots=True)
class Tenant:
    """An organization, its owner, and the owner as an actor."""

    organization: Organization
    owner: User
    actor: Actor

    @property
    def id(self) -> str:
        return self.organization.id


def make_cell(name: str = "one", **fields: int | bool) -> Cell:
    cell = Cell(name=name, admin_endpoints=["127.0.0.1:1"], bootstrap_servers="127.0.0.1:2")
    for field, value in fields.items():
        setattr(cell, field, value)
    cell.save()
    return cell


def make_user(email: str) -> User:
    return User.objects.create_user(email, "a long password")


def actor_of(user: User) -> Actor:
    return Actor(ActorKind.USER, user.id, user.email)


def make_tenant(slug: str) -> Tenant:
    """A tenant in the cell with most room."""
    # A test that commits leaves empty tables behind, without what a migration put into them.
    Plan.objects.get_or_create(is_default=True, defaults={"name": "trial"})
    owner = make_user(f"owner@{slug}.example")
    actor = actor_of(owner)
    return Tenant(do_create_organization(actor, owner, slug.title(), slug), owner, actor)
