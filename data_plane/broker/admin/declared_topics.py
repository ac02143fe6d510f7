"""Declared topics: how one becomes what its resource says (declarations.py).

What is declared of a topic's configurations belongs to the control plane, other keys are its
clients'. A key that is no longer declared goes back to its default. Of a virtual topic no
partitions need be declared (0): it has as many as follow from its source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from data_plane.broker.admin.declared import Denied, Outcome, Resource
from data_plane.broker.cell.controller_settings import controller_settings
from data_plane.broker.config.topic_bounds import refuse_beyond_bounds
from data_plane.broker.config.validation import (
    check_fixed_values,
    check_levels,
    check_topic_values,
    effective_config,
)
from data_plane.broker.request.namespaces import Held, Topics
from data_plane.broker.request.refusal import Refusal
from data_plane.broker.services import Services
from data_plane.broker.topics.create_partitions import check_growth, grow
from data_plane.broker.topics.create_topics import (
    DEFAULT,
    PARTITIONS_PER_REQUEST_MAX,
    Creations,
    wanted_partitions,
)
from data_plane.broker.topics.kept_topics import KeptTopics
from data_plane.broker.topics.ownership import TopicSpecification
from data_plane.broker.topics.requested_replicas import NewPartitions
from data_plane.broker.topics.virtual_creation import (
    growth_of_virtual_topics,
    partitions_with_growth,
    refuse_if_source,
)
from data_plane.cell.changes import AlterConfigs, Change
from data_plane.cell.declarations import Declaration
from data_plane.cell.metadata import MetadataImage, ResourceType, TopicImage
from data_plane.cell.min_isr_changes import decide_min_isr_changes
from data_plane.cell.virtual_topics import shown_count, virtual_topics_by_source
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig


class TopicDecision:
    """See `KindDecision`."""

    def __init__(self, services: Services, image: MetadataImage) -> None:
        self._services = services
        self._image = image
        self._new = NewPartitions(services, image)
        self._kept = KeptTopics(services)
        # By tenant.
        self._creations: dict[str, Creations] = {}
        self._by_source: dict[str, Mapping[UUID, Sequence[TopicImage]]] = {}
        self._partitions_left = PARTITIONS_PER_REQUEST_MAX

    def put(self, resource: Resource, owned: Declaration | None) -> Sequence[Change]:
        specification = resource.specification
        assert isinstance(specification, TopicSpecification)
        topic = Topics(Held(self._image), resource.tenant).by_name(resource.name)
        if topic is None:
            return self._create(resource, specification)
        if owned is None:
            _check_take_over(topic, resource.take_over)
        return self._change(topic, specification, owned)

    def remove(self, owned: Declaration) -> Sequence[Change]:
        topic = Topics(Held(self._image), owned.declared.tenant).by_name(owned.declared.name)
        if topic is None:
            return []
        refuse_if_source(topic, self._virtual_topics_of(topic))
        return [self._kept.deletion(self._image, topic)]

    def _virtual_topics_of(self, topic: TopicImage) -> Sequence[TopicImage]:
        """Those that are deleted and can come back, too."""
        by_source = self._by_source.get(topic.tenant)
        if by_source is None:
            topics = self._image.topics_of(topic.tenant).values()
            by_source = self._by_source[topic.tenant] = virtual_topics_by_source(topics)
        return by_source.get(topic.topic_id, ())

    def follow_ups(self, changes: Sequence[Change]) -> Sequence[Change]:
        altered = [change for change in changes if isinstance(change, AlterConfigs)]
        settings = controller_settings(self._services.config)
        return list(decide_min_isr_changes(self._image, altered, settings))

    def _create(self, resource: Resource, specification: TopicSpecification) -> list[Change]:
        topics = Topics(Held(self._image), resource.tenant)
        creations = self._creations.get(resource.tenant)
        if creations is None:
            creations = Creations(self._services, self._image, topics, new=self._new)
            self._creations[resource.tenant] = creations
        wanted = CreatableTopic(
            name=resource.name,
            num_partitions=specification.partitions or DEFAULT,
            replication_factor=specification.replication_factor or DEFAULT,
            configs=[
                CreatableTopicConfig(name=name, value=value)
                for name, value in specification.configs.items()
            ],
        )
        self._take_partitions(wanted_partitions(topics, wanted))
        change, states = creations.decide(wanted)
        return [change, *states]

    def _change(
        self, topic: TopicImage, specification: TopicSpecification, owned: Declaration | None
    ) -> list[Change]:
        values = self._new_values(topic, specification, owned)
        changes: list[Change] = []
        current = len(topic.partitions)
        # A virtual topic has two for each of its own, and they are not to be chosen.
        count = specification.partitions or shown_count(topic)
        if count != shown_count(topic):
            followers = self._virtual_topics_of(topic)
            additional = check_growth(
                topic, topic.name, count, PARTITIONS_PER_REQUEST_MAX, followers
            )
            self._take_partitions(partitions_with_growth(additional, followers))
            growth = grow(self._new, topic, additional, followers)
            changes.append(growth)
            changes.extend(self._new.initial_states(topic.topic_id, current, growth.assignments))
            changes.extend(growth_of_virtual_topics(self._new, followers, growth))
        if values:
            of_topic = (topic.tenant, ResourceType.TOPIC, topic.name)
            changes.append(AlterConfigs(*of_topic, tuple(values)))
        return changes

    def _new_values(
        self, topic: TopicImage, specification: TopicSpecification, owned: Declaration | None
    ) -> list[tuple[str, str | None]]:
        """Configurations that become others, None: their defaults. Raises Refusal."""
        before = topic.configs
        was_declared = (
            {} if owned is None else TopicSpecification.from_text(owned.specification).configs
        )
        after = {name: value for name, value in before.items() if name not in was_declared}
        after.update(specification.configs)
        properties = effective_config(self._services).topics
        check_topic_values(properties, after)
        check_fixed_values(properties, before, after)
        changed = {name: value for name, value in after.items() if before.get(name) != value}
        check_levels(properties, self._image, changed)
        refuse_beyond_bounds(topic.tenant, self._new.topic_bounds, changed)
        return [*changed.items(), *((name, None) for name in before if name not in after)]

    def _take_partitions(self, count: int) -> None:
        self._partitions_left -= max(count, 0)
        if self._partitions_left < 0:
            raise Refusal(
                ErrorCode.POLICY_VIOLATION,
                f"More than {PARTITIONS_PER_REQUEST_MAX} new partitions in one call.",
            )


def _check_take_over(topic: TopicImage, wanted: UUID | bool) -> None:
    """That this topic of a client may be taken over. Raises Denied."""
    if topic.internal:
        raise Denied(Outcome.CONFLICT, "it is a topic of the broker's own")
    if not isinstance(wanted, UUID):
        message = "a Kafka client has made the topic; take it over to manage it"
        raise Denied(Outcome.CONFLICT, message)
    if wanted != topic.topic_id:
        message = "a Kafka client has made another topic of that name since"
        raise Denied(Outcome.CONFLICT, message)
