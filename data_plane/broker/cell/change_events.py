"""Commits as a control plane sees them: which things were made, changed or deleted, and by whom.

    commit 41   NameAuthor(alice), CreateTopic orders, PutDeclaration top_1    one event: made
    commit 42   ChangePartition …, AllocateProducerIds                         no event

Invariants
- Events of a commit are in its order, one for each thing; an event has its commit's version. What
  comes anew under the name of what is deleted in the same commit is another thing.
- Each kind of change is either told or named as silent here; a test goes through all of them.

Deliberately absent: what a thing is now. Whoever sends an event adds that from a newer image.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from data_plane.cell.acls import AddAcls, RemoveAcls
from data_plane.cell.authors import Author, NameAuthor
from data_plane.cell.changes import (
    AddPartitions,
    AllocateProducerIds,
    AlterConfigs,
    Change,
    ChangeBroker,
    ChangePartition,
    CreateTopic,
    DeleteTopic,
    RegisterBroker,
    UnregisterBroker,
    UpdateFeature,
)
from data_plane.cell.client_quotas import AlterClientQuotas
from data_plane.cell.credentials import DeleteCredential, PutCredential, PutDecoyKey
from data_plane.cell.declarations import (
    CREDENTIAL_KIND,
    GRANTS_KIND,
    TENANT_KIND,
    TOPIC_KIND,
    Declaration,
    PutDeclaration,
)
from data_plane.cell.metadata import (
    MetadataImage,
    ResourceType,
    is_internal_topic,
)
from data_plane.cell.metadata_store import Commit
from data_plane.cell.tenant_quotas import PutTenantQuotas
from data_plane.cell.tenants import DeleteTenant, PutTenant, PutTenantState
from data_plane.cell.topic_deletions import ChangeDeletion


class EventKind(IntEnum):
    """The numbers are those of the contract."""

    TOPIC = 1
    TENANT = 2
    CREDENTIAL = 3
    ACLS = 4
    BROKER_CONFIGS = 5
    GROUP_CONFIGS = 6
    RESOURCE = 7
    CLIENT_QUOTAS = 8


class EventChange(IntEnum):
    """Likewise."""

    MADE = 1
    CHANGED = 2
    DELETED = 3


# The state of the cell, and what stands for nobody's thing.
SILENT: Final = (
    ChangePartition,
    AllocateProducerIds,
    RegisterBroker,
    ChangeBroker,
    UnregisterBroker,
    UpdateFeature,
    PutDecoyKey,
)
_KINDS_DECLARED: Final = {
    TOPIC_KIND: EventKind.TOPIC,
    TENANT_KIND: EventKind.TENANT,
    CREDENTIAL_KIND: EventKind.CREDENTIAL,
    GRANTS_KIND: EventKind.ACLS,
}
_KINDS_CONFIGURED: Final = {
    ResourceType.TOPIC: EventKind.TOPIC,
    ResourceType.BROKER: EventKind.BROKER_CONFIGS,
    ResourceType.GROUP: EventKind.GROUP_CONFIGS,
}


class EventResource(NamedTuple):
    """What a thing was declared as."""

    resource_id: str
    generation: int
    owner: str


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """`resource` is the thing's by this commit, where the commit has one."""

    version: int
    kind: EventKind
    change: EventChange
    tenant: str
    name: str
    topic_id: UUID | None = None
    author: Author | None = None
    resource: EventResource | None = None


# What makes two changes of a commit one event: the same topic id, or the same name. Logins are
# unique in the cell, and whoever deletes one doesn't say whose it is: they have no tenant here.
_Key = UUID | tuple[EventKind, str, str]


def events_of_feed(commits: Sequence[Commit], image: MetadataImage) -> list[ChangeEvent]:
    """What the store's feed has, with an image that is not older than the last of the commits."""
    gone = _names_of_deleted(change for commit in commits for change in commit.changes)
    events: list[ChangeEvent] = []
    for commit in commits:
        events += events_of(commit.version, commit.changes, image, gone)
    return events


def events_of(
    version: int,
    changes: Sequence[Change],
    image: MetadataImage,
    gone: Mapping[UUID, tuple[str, str]] | None = None,
) -> list[ChangeEvent]:
    """The events of one commit, which `image` has. Names of topics are from it, or from `gone`,
    which is this commit's own when it is not given."""
    collected = _Collected(version, image, _names_of_deleted(changes) if gone is None else gone)
    for change in changes:
        if not isinstance(change, SILENT):
            collected.add(change)
    return collected.events


def _names_of_deleted(changes: Iterable[Change]) -> dict[UUID, tuple[str, str]]:
    return {
        change.topic_id: (change.tenant, change.name)
        for change in changes
        if isinstance(change, DeleteTopic)
    }


class _Collected:
    """The events of one commit while they are found."""

    def __init__(
        self, version: int, image: MetadataImage, gone: Mapping[UUID, tuple[str, str]]
    ) -> None:
        self.events: list[ChangeEvent] = []
        # Which of them is the newest of its thing.
        self._places: dict[_Key, int] = {}
        self._version = version
        self._image = image
        self._gone = gone
        self._author: Author | None = None

    def add(self, change: Change) -> None:
        made, changed, deleted = EventChange.MADE, EventChange.CHANGED, EventChange.DELETED
        match change:
            case NameAuthor():
                self._author = change.author
            case CreateTopic():
                self._put(EventKind.TOPIC, made, change.tenant, change.name, change.topic_id)
            case DeleteTopic():
                self._put(EventKind.TOPIC, deleted, change.tenant, change.name, change.topic_id)
            case ChangeDeletion():
                # For clients it goes, and is there again.
                is_gone = change.deletion is not None
                self._named_topic(deleted if is_gone else made, change.topic_id)
            case AddPartitions():
                self._named_topic(changed, change.topic_id)
            case AlterConfigs():
                kind = _KINDS_CONFIGURED.get(ResourceType(change.resource_type))
                if kind is not None:
                    self._put(kind, changed, change.tenant, change.resource_name)
            case PutTenant(tenant):
                there = self._image.tenants.get(tenant.name)
                is_new = there is not None and there.made_at == self._version
                self._end_deleted((EventKind.TENANT, tenant.name, tenant.name))
                self._put(EventKind.TENANT, made if is_new else changed, tenant.name, tenant.name)
            case PutTenantState() | PutTenantQuotas():
                self._put(EventKind.TENANT, changed, change.tenant, change.tenant)
            case AlterClientQuotas():
                self._put(EventKind.CLIENT_QUOTAS, changed, change.tenant, "")
            case DeleteTenant():
                self._put(EventKind.TENANT, deleted, change.name, change.name)
            case PutCredential(credential):
                self._end_deleted((EventKind.CREDENTIAL, "", credential.login))
                self._put(EventKind.CREDENTIAL, changed, credential.tenant, credential.login)
            case DeleteCredential():
                self._put(EventKind.CREDENTIAL, deleted, "", change.login)
            case AddAcls() | RemoveAcls():
                self._put(EventKind.ACLS, changed, change.tenant, "")
            case PutDeclaration(declaration):
                self._declared(declaration)
            case _:
                raise AssertionError(f"{type(change).__name__} is neither told nor silent")

    def _named_topic(self, change: EventChange, topic_id: UUID) -> None:
        topic = self._image.topics_by_id.get(topic_id)
        if topic is not None:
            tenant, name = topic.tenant, topic.name
        else:
            tenant, name = self._gone.get(topic_id, ("", ""))
        self._put(EventKind.TOPIC, change, tenant, name, topic_id)

    def _declared(self, declaration: Declaration) -> None:
        kind = _KINDS_DECLARED.get(declaration.declared.kind, EventKind.RESOURCE)
        _, tenant, name = declaration.declared
        if not tenant:
            kind = EventKind.RESOURCE
        if kind is EventKind.ACLS:
            name = ""
        if kind is EventKind.RESOURCE:
            name = declaration.resource_id
        resource = EventResource(declaration.resource_id, declaration.generation, declaration.owner)
        self._put(kind, EventChange.CHANGED, tenant, name, resource=resource)

    def _put(
        self,
        kind: EventKind,
        change: EventChange,
        tenant: str,
        name: str,
        topic_id: UUID | None = None,
        resource: EventResource | None = None,
    ) -> None:
        if kind is EventKind.TOPIC and is_internal_topic(tenant, name):
            return
        key = (kind, "" if kind is EventKind.CREDENTIAL else tenant, name)
        place = self._place_of(key, topic_id)
        if place is not None:
            known = self.events[place]
            tenant = tenant or known.tenant
            topic_id = topic_id or known.topic_id
            resource = resource or known.resource
            # Made or deleted says more than changed.
            if change is EventChange.CHANGED:
                change = known.change
        event = ChangeEvent(
            self._version, kind, change, tenant, name, topic_id, self._author, resource
        )
        if place is None:
            place = len(self.events)
            self.events.append(event)
        else:
            self.events[place] = event
        self._places[key] = place
        if topic_id is not None:
            self._places[topic_id] = place

    def _place_of(self, key: _Key, topic_id: UUID | None) -> int | None:
        """Of the event that has told of the same thing."""
        if topic_id is not None and topic_id in self._places:
            return self._places[topic_id]
        place = self._places.get(key)
        if place is None or topic_id is None or self.events[place].topic_id is None:
            return place
        # Another topic of this name.
        return None

    def _end_deleted(self, key: _Key) -> None:
        """What follows under this key is another thing than the one that was deleted."""
        place = self._places.get(key)
        if place is not None and self.events[place].change is EventChange.DELETED:
            del self._places[key]
