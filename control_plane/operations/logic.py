"""`tenant_write`: the one transaction of row, audit and outbox that every `do_*` function uses.

    with tenant_write(actor, organization_id) as write:
        topic = Topic(organization=write.organization, ...)
        topic.save(force_insert=True)
        write.audit("topic.create", topic.id, topic.name, {...})
        write.declare(ResourceKind.TOPIC, topic)

Invariants
- The tenant's row is locked from the first statement on: limits that are counted inside hold, and
  outbox sequences have no holes.
- The role that the actor was let in by is his still: it is read again under the lock.
- A write without an audit event is a bug, and is rolled back.
- NOTIFY goes out with the commit. It is a hint: the rows are the queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.db.models import QuerySet

from control_plane.accounts.models import Organization, OrganizationState
from control_plane.operations.models import (
    ORGANIZATION_CREATED,
    RESOURCE_MADE,
    ActorKind,
    AuditEvent,
    Operation,
    OperationKind,
    OutboxEntry,
    ResourceKind,
)
from control_plane.operations.standing import role_now
from control_plane.tenancy.addresses import range_of
from control_plane.tenancy.errors import Forbidden, NotFound, TenantSuspended
from control_plane.tenancy.models import DeclaredModel

OUTBOX_CHANNEL = "control_plane_outbox"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does something: `id` is a user's or a key's, `name` an address or a key's name. `role` is
    what he was let in by; without one nobody was asked (the system, and who becomes a member)."""

    kind: ActorKind
    id: str = ""
    name: str = ""
    address: str | None = None
    role: str = ""


SYSTEM = Actor(ActorKind.SYSTEM, name="system")


class TenantWrite:
    """An open transaction on one tenant, whose row it has locked."""

    def __init__(self, actor: Actor, organization: Organization) -> None:
        self.actor = actor
        self.organization = organization
        self.is_audited = False
        self._entries: list[OutboxEntry] = []

    def audit(
        self,
        action: str,
        resource_id: str,
        resource_name: str = "",
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        """Write down what is done. `changes` never holds a secret or a verifier."""
        record_audit(
            self.actor, self.organization.id, action, resource_id, resource_name, changes or {}
        )
        self.is_audited = True

    def declare(self, kind: ResourceKind, resource: DeclaredModel) -> None:
        """Have the cell told of the resource's present generation."""
        self.organization.outbox_sequence += 1
        self._entries.append(
            OutboxEntry(
                organization=self.organization,
                sequence=self.organization.outbox_sequence,
                kind=kind,
                resource_id=resource.pk,
                generation=resource.generation,
            )
        )

    def begin(self, kind: OperationKind, resource: DeclaredModel) -> Operation:
        """Something that is done when the cell has the resource's present generation."""
        operation = Operation(
            organization=self.organization,
            kind=kind,
            resource_id=resource.pk,
            arguments={"generation": resource.generation},
            actor_id=self.actor.id,
        )
        operation.save(force_insert=True)
        return operation

    def finish(self) -> None:
        """The outbox entries of the whole write in one statement, and a hint that they exist."""
        assert self.is_audited, "a write without an audit event"
        if not self._entries:
            return
        self.organization.save(update_fields=["outbox_sequence"])
        OutboxEntry.objects.across_tenants().bulk_create(self._entries)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, %s)", [OUTBOX_CHANNEL, self.organization.id])


@contextmanager
def tenant_write(
    actor: Actor, organization_id: str, *, even_if_suspended: bool = False
) -> Iterator[TenantWrite]:
    """A transaction that has locked the tenant. Raises NotFound, TenantSuspended, Forbidden."""
    with transaction.atomic():
        organization = Organization.objects.select_for_update().filter(id=organization_id).first()
        if organization is None or organization.state == OrganizationState.DELETED:
            raise NotFound("There is no such organization.")
        if organization.state == OrganizationState.SUSPENDED and not even_if_suspended:
            raise TenantSuspended(f"{organization.slug} is suspended: {organization.state_reason}")
        if actor.role and role_now(actor, organization_id) != actor.role:
            raise Forbidden("What you may do here has changed in the meantime; ask again.")
        write = TenantWrite(actor, organization)
        yield write
        write.finish()


def organizations_made_by(actor: Actor) -> QuerySet[AuditEvent]:
    """The events of organizations that the actor has made, whoever owns them now."""
    return AuditEvent.objects.filter(action=ORGANIZATION_CREATED, actor_id=actor.id)


def resources_made_by(organization_id: str) -> QuerySet[AuditEvent]:
    """The events of what the tenant has made in its cell, be it deleted by now."""
    return AuditEvent.objects.filter(action__in=RESOURCE_MADE, organization_id=organization_id)


def organizations_made_at(actor: Actor) -> QuerySet[AuditEvent]:
    """The events of organizations that were made at the actor's address, by whomever."""
    events = AuditEvent.objects.filter(action=ORGANIZATION_CREATED)
    shared = range_of(actor.address or "")
    return events.none() if shared is None else events.filter(address__range=shared)


def record_audit(
    actor: Actor,
    organization_id: str,
    action: str,
    resource_id: str,
    resource_name: str,
    changes: Mapping[str, Any],
) -> None:
    """One audit event, in the caller's transaction."""
    AuditEvent.objects.create(
        organization_id=organization_id,
        actor_kind=actor.kind,
        actor_id=actor.id,
        actor_name=actor.name,
        address=actor.address,
        action=action,
        resource_id=resource_id,
        resource_name=resource_name,
        changes=dict(changes),
    )
