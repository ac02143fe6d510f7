"""What Kafka clients made, changed or deleted, as rows: `managed_by` client.

The cell is the truth for what exists. What it has under a tenant's name becomes a row, or changes
the row that there is, and nothing here changes the cell.

    in the cell             no row              a row of clients'      a row of REST's
    a client's topic        a row is made       its copy is renewed    named as what is in the way
    declared, our id        restored: adopted   only `observed`        only `observed`
    had back since          restored: adopted   taken over             taken over
    gone                    nothing             the row goes           the outbox knows

Invariants
- A row that REST declares keeps what is declared.
- What was deleted here is not made again by what is heard late: an id that the outbox knows is no
  other database's.
- What cannot be stored is logged and passed over: it keeps nothing else from being adopted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from django.db import DataError, IntegrityError, transaction

from control_plane.accounts.models import Organization, OrganizationState
from control_plane.cells.models import Cell, Placement
from control_plane.messaging.models import ManagedBy, Topic
from control_plane.operations.facade import (
    SYSTEM,
    Actor,
    ActorKind,
    ResourceKind,
    TenantWrite,
    record_audit,
)
from control_plane.operations.models import ACTOR_NAME_CHARACTERS_MAX, OutboxEntry
from control_plane.operations.settling import do_give_up_purges
from control_plane.reconciliation.taking_over import (
    HAD_BACK,
    copy_clients_topic,
    observe_topic,
    shown,
    take_over,
)
from control_plane.tenancy.ids import is_id, new_id
from data_plane.contract import cell_admin_pb2 as messages
from data_plane.contract import cell_operations_pb2 as operations_messages

log = logging.getLogger(__name__)

CLIENTS: Final = "Kafka client"
_RESOURCE_ID: Final = re.compile(r"(top_[a-z0-9]+)(?:-(\d{1,3}))?")


def tenants_of(cell: Cell) -> dict[str, str]:
    """Ids of the tenants that live in the cell, by their names there."""
    placed = Placement.objects.across_tenants().filter(cell=cell)
    return dict(placed.values_list("organization__slug", "organization_id"))


def adopt_events(cell: Cell, events: Iterable[operations_messages.Event]) -> None:
    """What the feed of changes tells of topics, in order."""
    tenants = tenants_of(cell)
    for event in events:
        organization_id = tenants.get(event.tenant)
        if event.kind != operations_messages.Event.TOPIC or organization_id is None:
            continue
        principal = shown(event.actor.principal)[:ACTOR_NAME_CHARACTERS_MAX]
        actor = Actor(ActorKind.SYSTEM, name=principal or CLIENTS)
        with transaction.atomic():
            organization = _locked(organization_id)
            if organization is None:
                continue
            if event.HasField("item"):
                _adopt_if_storable(organization, event.item, actor)
            elif event.topic_id:
                _forget(organization, event.name, UUID(bytes=event.topic_id), actor)


def adopt_all(cell: Cell, items: Iterable[messages.Item]) -> None:
    """All topics of the cell: what is there, and what clients' topics are not there any more. No
    topic was made since that would be missing in `items`."""
    actor = Actor(ActorKind.SYSTEM, name=CLIENTS)
    by_tenant: dict[str, list[messages.Item]] = {}
    for item in items:
        by_tenant.setdefault(item.resource.tenant, []).append(item)
    for slug, organization_id in tenants_of(cell).items():
        there = by_tenant.get(slug, [])
        with transaction.atomic():
            organization = _locked(organization_id)
            if organization is None:
                continue
            for item in there:
                _adopt_if_storable(organization, item, actor)
            ids = {UUID(bytes=item.topic_id) for item in there}
            clients = Topic.objects.of(organization_id).filter(managed_by=ManagedBy.CLIENT)
            for topic in clients.exclude(kafka_topic_id__in=ids):
                if topic.kafka_topic_id is not None:
                    _forget(organization, topic.name, topic.kafka_topic_id, actor)


def _adopt_if_storable(organization: Organization, item: messages.Item, actor: Actor) -> None:
    try:
        with transaction.atomic():
            adopt(organization, item, actor)
    except (DataError, IntegrityError, ValueError):
        name = item.resource.name
        log.exception("%s: the topic %r of its cell is not adopted", organization.slug, name)


def adopt(organization: Organization, item: messages.Item, actor: Actor) -> None:
    """One topic that there is. The caller holds the tenant's lock."""
    resource = item.resource
    topic = Topic.objects.of(organization.id).filter(name=resource.name).first()
    if topic is not None and _is_in_place_of(topic, item):
        # It was made anew here, and the cell has the one that was there before the restore.
        replaced = topic.declared() | {"is_replaced": True}
        record_audit(actor, organization.id, "topic.adopt", topic.id, topic.name, replaced)
        topic.delete()
        topic = None
    if topic is None:
        topic = _new_row(organization, item)
        if topic is None:
            return
        topic.save(force_insert=True)
        declared = topic.declared()
        record_audit(actor, organization.id, "topic.adopt", topic.id, topic.name, declared)
        return
    before = topic.declared(), topic.kafka_topic_id, topic.observed
    is_clients = resource.owner == messages.CLIENT
    if topic.incarnation_of(resource.resource_id) > topic.incarnation:
        _go_on_as_had_back(organization, topic, item)
        return
    if topic.managed_by == ManagedBy.CLIENT and is_clients:
        copy_clients_topic(topic, item)
    elif resource.resource_id in topic.resource_ids:
        observe_topic(topic, item)
    elif is_clients and _comes_after(topic, item):
        topic.has_successor = True
        topic.save(update_fields=["has_successor"])
    elif topic.kafka_topic_id is None:
        # In the way of what is declared, until that is to take it over.
        topic.kafka_topic_id = UUID(bytes=item.topic_id)
    if (topic.declared(), topic.kafka_topic_id, topic.observed) == before:
        return
    topic.save()
    if topic.declared() != before[0]:
        changes = {"from": before[0], "to": topic.declared()}
        record_audit(actor, organization.id, "topic.adopt", topic.id, topic.name, changes)


def _comes_after(topic: Topic, item: messages.Item) -> bool:
    """Whether the row is of a topic that is deleted, whose name its cell has let go of at once."""
    if topic.purge_after is None:
        return False
    if topic.kafka_topic_id is None:
        # The round that deleted it may have died; of what never was nothing is deleted.
        return topic.observed_generation > 0
    return topic.kafka_topic_id.bytes != item.topic_id


def _go_on_as_had_back(organization: Organization, topic: Topic, item: messages.Item) -> None:
    """This database was restored from before it was deleted and had back: the cell has it under the
    id of a later incarnation, which is this topic's from now on."""
    before, generation = topic.declared(), topic.generation
    take_over(organization, topic, item)
    is_behind = topic.generation < generation
    if is_behind:
        # What was declared since was declared of what is no more; generations never go back.
        topic.generation = generation
        topic.declare_again()
    topic.save()
    do_give_up_purges(organization.id, topic.id, HAD_BACK)
    write = TenantWrite(SYSTEM, organization)
    changes = {"from": before, "to": topic.declared(), "generation": topic.generation}
    write.audit("reconcile.take_over", topic.id, topic.name, changes)
    if is_behind:
        write.declare(ResourceKind.TOPIC, topic)
    write.finish()


def _new_row(organization: Organization, item: messages.Item) -> Topic | None:
    """A row for what has none; None for what is deleted here, or an operator's own."""
    resource = item.resource
    match = _RESOURCE_ID.fullmatch(resource.resource_id)
    topic_id = match[1] if match is not None and is_id(match[1], "top") else ""
    is_clients = resource.owner == messages.CLIENT
    if not is_clients and (not topic_id or _is_known(organization, topic_id)):
        return None
    topic = Topic(
        id=topic_id or new_id("top"),
        organization=organization,
        name=resource.name,
        partitions=item.partitions,
        incarnation=int(match[2] or 1) if match is not None and topic_id else 1,
    )
    if is_clients:
        copy_clients_topic(topic, item)
        topic.generation = resource.generation
        topic.settle()
    else:
        take_over(organization, topic, item)
    return topic


def _is_in_place_of(topic: Topic, item: messages.Item) -> bool:
    """Whether the row stands for a name that another resource of ours has in the cell."""
    resource_id = item.resource.resource_id
    match = _RESOURCE_ID.fullmatch(resource_id)
    if match is None or not is_id(match[1], "top") or match[1] == topic.id:
        return False
    is_new = topic.observed_generation == 0 and topic.generation > 0
    return (
        is_new
        and not OutboxEntry.objects.of(topic.organization_id).filter(resource_id=match[1]).exists()
    )


def _is_known(organization: Organization, topic_id: str) -> bool:
    return OutboxEntry.objects.of(organization.id).filter(resource_id=topic_id).exists()


def _forget(organization: Organization, name: str, kafka_topic_id: UUID, actor: Actor) -> None:
    """A client has deleted its topic."""
    topic = Topic.objects.of(organization.id).filter(name=name).first()
    if topic is None or topic.kafka_topic_id != kafka_topic_id:
        return
    is_settled = topic.observed_generation == topic.generation
    if topic.managed_by == ManagedBy.CLIENT and is_settled:
        record_audit(actor, organization.id, "topic.adopt", topic.id, name, {"is_deleted": True})
        topic.delete()
    elif topic.observed_generation == 0 and topic.incarnation == 1:
        # It is in nobody's way any more, and what comes after it is another one.
        topic.kafka_topic_id, topic.takes_over = None, False
        topic.save(update_fields=["kafka_topic_id", "takes_over"])


def _locked(organization_id: str) -> Organization | None:
    """The tenant under its lock; None for one of which nothing is to be known any more."""
    organizations = Organization.objects.select_for_update(of=("self",)).select_related("plan")
    organization = organizations.filter(id=organization_id).first()
    if organization is None or organization.state == OrganizationState.DELETED:
        return None
    return organization
