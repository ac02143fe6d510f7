"""Topics that a control plane declares: what becomes of each declaration.

A declaration is decided against one image, together with the topic itself, so that both are in one
commit: no topic exists that its resource does not know, and no resource that has no topic.

    nothing there                               the topic is made
    a client's topic                            CONFLICT, unless just that is to be taken over
    another resource's                          CONFLICT
    its own, in an earlier generation           changed: partitions are added, configurations set
    its own, in this generation, equal          UNCHANGED (else CONFLICT)
    its own, in a later generation              STALE
    its resource was deleted                    GONE, whatever it says
    owner `client`, its own                     released: the topic stays, and is its clients'

What is declared of a topic's configurations belongs to the control plane, other keys are its
clients'. A key that is no longer declared goes back to its default.

Deliberately absent: who may call; how it is called (data_plane/server).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from data_plane.broker.cell.controller_settings import controller_settings
from data_plane.broker.config.validation import check_topic_values, effective_config
from data_plane.broker.request.namespaces import Held, Topics
from data_plane.broker.request.refusal import Refusal
from data_plane.broker.services import Services
from data_plane.broker.topics.create_partitions import check_growth, grow
from data_plane.broker.topics.create_topics import DEFAULT, PARTITIONS_PER_REQUEST_MAX, Creations
from data_plane.broker.topics.ownership import TopicSpecification
from data_plane.broker.topics.requested_replicas import NewPartitions
from data_plane.cell.changes import AlterConfigs, Change, DeleteTopic
from data_plane.cell.declarations import (
    API_OWNER,
    CLIENT_OWNER,
    RESOURCES_MAX,
    SPECIFICATION_CHARACTERS_MAX,
    TOPIC_KIND,
    Declaration,
    Declared,
    PutDeclaration,
)
from data_plane.cell.features import METADATA_VERSION, TENANCY_LEVEL
from data_plane.cell.metadata import MetadataImage, ResourceType, TopicImage
from data_plane.cell.min_isr_changes import decide_min_isr_changes
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig


class Outcome(IntEnum):
    """What became of one resource; the numbers are those of the contract."""

    DONE = 1
    UNCHANGED = 2
    STALE = 3
    CONFLICT = 4
    GONE = 5
    REFUSED = 6


class Result(NamedTuple):
    """`generation` is the one that the cell has now, 0 for none; `code` is Kafka's, for REFUSED."""

    resource_id: str
    outcome: Outcome
    generation: int
    message: str = ""
    code: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class DeclaredTopic:
    """A topic's resource as a control plane names it; `name` is what its tenant calls it. A topic
    that a client has made is taken over only when it is this very one, by its id."""

    resource_id: str
    generation: int
    tenant: str
    name: str
    specification: TopicSpecification
    owner: str = API_OWNER
    take_over: UUID | None = None

    @property
    def thing(self) -> Declared:
        return Declared(TOPIC_KIND, self.tenant, self.name)


class Removal(NamedTuple):
    """A resource that is over. With `keeps_topic` its topic stays, and is its clients'."""

    resource_id: str
    generation: int
    keeps_topic: bool = False


class Unavailable(Exception):
    """This cell cannot be declared anything: all of its brokers have to know how, first."""


def decide_declarations(
    services: Services,
    image: MetadataImage,
    wanted: Sequence[DeclaredTopic],
    results: list[Result],
) -> list[Change]:
    """Fill `results`, one for each in order, and return the changes of those that pass.

    Neither a resource nor a topic may be named twice. Raises Unavailable."""
    _check_level(image)
    decision = _Decision(services, image)
    changes: list[Change] = []
    for resource in wanted:
        known = image.declarations.by_id.get(resource.resource_id)
        generation = 0 if known is None else known.generation
        try:
            made = decision.decide(resource, known)
        except _Denied as denied:
            results.append(Result(resource.resource_id, denied.outcome, generation, denied.reason))
        except Refusal as refusal:
            message = refusal.message or refusal.code.message
            results.append(
                Result(resource.resource_id, Outcome.REFUSED, generation, message, refusal.code)
            )
        else:
            outcome = Outcome.DONE if made else Outcome.UNCHANGED
            results.append(Result(resource.resource_id, outcome, resource.generation))
            changes += made
    altered = [change for change in changes if isinstance(change, AlterConfigs)]
    settings = controller_settings(services.config)
    return [*changes, *decide_min_isr_changes(image, altered, settings)]


def decide_deletions(
    image: MetadataImage,
    wanted: Iterable[Removal],
    results: list[Result],
) -> list[Change]:
    """Delete resources, and the topics that they own. Raises Unavailable.

    One that is not known is remembered as deleted: what declares it may still be on its way."""
    _check_level(image)
    changes: list[Change] = []
    room = RESOURCES_MAX - len(image.declarations)
    for resource_id, generation, keeps_topic in wanted:
        known = image.declarations.by_id.get(resource_id)
        if known is not None and known.is_deleted:
            results.append(Result(resource_id, Outcome.UNCHANGED, known.generation))
            continue
        if known is not None and generation < known.generation:
            results.append(Result(resource_id, Outcome.STALE, known.generation, _later(known)))
            continue
        if known is None:
            if room <= 0:
                results.append(Result(resource_id, Outcome.REFUSED, 0, _NO_ROOM, _NO_ROOM_CODE))
                continue
            room -= 1
            known = Declaration(resource_id, generation, _NOTHING, API_OWNER, "")
        tombstone = replace(known, generation=generation, specification="", is_deleted=True)
        changes.append(PutDeclaration(tombstone))
        topic = image.topic(known.declared.tenant, known.declared.name)
        if topic is not None and known.is_owned_by_api and not keeps_topic:
            changes.append(DeleteTopic(topic.topic_id))
        results.append(Result(resource_id, Outcome.DONE, generation))
    return changes


class _Denied(Exception):
    """What is declared does not fit what is there."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason


class _Decision:
    """What one batch is decided with."""

    def __init__(self, services: Services, image: MetadataImage) -> None:
        self._services = services
        self._image = image
        self._room = RESOURCES_MAX - len(image.declarations)
        self._new = NewPartitions(services, image)
        # By tenant.
        self._creations: dict[str, Creations] = {}
        self._partitions_left = PARTITIONS_PER_REQUEST_MAX

    def decide(self, resource: DeclaredTopic, known: Declaration | None) -> list[Change]:
        """The changes of one resource; none when it is so already. Raises Refusal and _Denied."""
        text = resource.specification.to_text()
        next_one = Declaration(
            resource.resource_id, resource.generation, resource.thing, resource.owner, text
        )
        if len(text) > SPECIFICATION_CHARACTERS_MAX:
            message = f"What is declared has {len(text)} characters, allowed are "
            message += f"{SPECIFICATION_CHARACTERS_MAX}."
            raise Refusal(ErrorCode.POLICY_VIOLATION, message)
        if known is not None:
            if self._is_settled(known, next_one):
                return []
            next_one = replace(next_one, unknown_fields=known.unknown_fields)
        other = self._image.declarations.by_thing.get(resource.thing)
        if other is not None and other.resource_id != resource.resource_id:
            message = f"the topic belongs to resource {other.resource_id}"
            raise _Denied(Outcome.CONFLICT, message)
        if resource.owner == CLIENT_OWNER:
            if known is None:
                raise _Denied(Outcome.CONFLICT, "the cell knows no such resource to release")
            return [PutDeclaration(next_one)]
        if self._image.tenant(resource.tenant) is None:
            message = f"There is no tenant '{resource.tenant}'."
            raise Refusal(ErrorCode.INVALID_REQUEST, message)
        if known is None and self._room <= 0:
            raise Refusal(_NO_ROOM_CODE, _NO_ROOM)
        topic = self._image.topic(resource.tenant, resource.name)
        if topic is None:
            changes = self._create(resource)
        else:
            if known is None or not known.is_owned_by_api:
                _check_take_over(topic, resource.take_over)
            changes = self._change(topic, resource, known)
        self._room -= known is None
        return [*changes, PutDeclaration(next_one)]

    def _is_settled(self, known: Declaration, next_one: Declaration) -> bool:
        """Whether the cell has this already. Raises _Denied."""
        if known.is_deleted:
            raise _Denied(Outcome.GONE, f"it was deleted in generation {known.generation}")
        if next_one.generation < known.generation:
            raise _Denied(Outcome.STALE, _later(known))
        if next_one.declared != known.declared:
            _, tenant, name = known.declared
            raise _Denied(Outcome.CONFLICT, f"it stands for topic {name} of tenant {tenant}")
        if next_one.generation > known.generation:
            return False
        if replace(next_one, unknown_fields=known.unknown_fields) == known:
            return True
        raise _Denied(Outcome.CONFLICT, "the cell has another content in this generation")

    def _create(self, resource: DeclaredTopic) -> list[Change]:
        creations = self._creations.get(resource.tenant)
        if creations is None:
            topics = Topics(Held(self._image), resource.tenant)
            creations = Creations(self._services, topics, self._new)
            self._creations[resource.tenant] = creations
        specification = resource.specification
        self._take_partitions(specification.partitions)
        wanted = CreatableTopic(
            name=resource.name,
            num_partitions=specification.partitions,
            replication_factor=specification.replication_factor or DEFAULT,
            configs=[
                CreatableTopicConfig(name=name, value=value)
                for name, value in specification.configs.items()
            ],
        )
        change, states = creations.decide(wanted)
        return [change, *states]

    def _change(
        self, topic: TopicImage, resource: DeclaredTopic, known: Declaration | None
    ) -> list[Change]:
        changes: list[Change] = []
        specification = resource.specification
        current = len(topic.partitions)
        if specification.partitions != current:
            partitions_max = PARTITIONS_PER_REQUEST_MAX
            additional = check_growth(
                topic, resource.name, specification.partitions, partitions_max
            )
            self._take_partitions(additional)
            growth = grow(self._new, topic, additional)
            changes.append(growth)
            changes.extend(self._new.initial_states(topic.topic_id, current, growth.assignments))
        before = topic.configs
        was_declared = (
            {}
            if known is None or not known.is_owned_by_api
            else TopicSpecification.from_text(known.specification).configs
        )
        after = {name: value for name, value in before.items() if name not in was_declared}
        after.update(specification.configs)
        check_topic_values(effective_config(self._services).topics, after)
        values: list[tuple[str, str | None]] = [
            (name, value) for name, value in after.items() if before.get(name) != value
        ]
        values += [(name, None) for name in before if name not in after]
        if values:
            of_topic = (topic.tenant, ResourceType.TOPIC, topic.name)
            changes.append(AlterConfigs(*of_topic, tuple(values)))
        return changes

    def _take_partitions(self, count: int) -> None:
        self._partitions_left -= max(count, 0)
        if self._partitions_left < 0:
            raise Refusal(
                ErrorCode.POLICY_VIOLATION,
                f"More than {PARTITIONS_PER_REQUEST_MAX} new partitions in one call.",
            )


_NOTHING = Declared(TOPIC_KIND, "", "")
_NO_ROOM = f"The cell remembers {RESOURCES_MAX} resources, which is the limit."
_NO_ROOM_CODE = ErrorCode.POLICY_VIOLATION


def _check_take_over(topic: TopicImage, wanted: UUID | None) -> None:
    """That this topic of a client may be taken over. Raises _Denied."""
    if topic.internal:
        raise _Denied(Outcome.CONFLICT, "it is a topic of the broker's own")
    if wanted is None:
        message = "a Kafka client has made the topic; take it over to manage it"
        raise _Denied(Outcome.CONFLICT, message)
    if wanted != topic.topic_id:
        message = "a Kafka client has made another topic of that name since"
        raise _Denied(Outcome.CONFLICT, message)


def _check_level(image: MetadataImage) -> None:
    if image.metadata_level < TENANCY_LEVEL:
        raise Unavailable(
            f"the cell is at {METADATA_VERSION} {image.metadata_level}; declarations need "
            f"{TENANCY_LEVEL}: upgrade all brokers, then finalize it"
        )


def _later(known: Declaration) -> str:
    return f"the cell has generation {known.generation}"
